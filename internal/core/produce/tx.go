package produce

import (
	"slices"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// CallID names a call of the user that waits for a [Return]. The driver chooses
// it; it must not come twice.
type CallID uint64

type txState uint8

const (
	txNew    txState = iota // no identity
	txReady                 // no transaction
	txOpen                  // one that takes records
	txDoomed                // one that can only be aborted
	txReload                // none, but what became of the last one is not known, or its identity is in doubt
)

// Transactions are the rules of a transactional id (KIP-98, KIP-360, KIP-447,
// KIP-890) above a [Machine]: when a transaction is opened, what is enrolled in
// it, how it ends, and what the user may be told about that. Its actions come
// from the Next of the machine.
//
// One request to a coordinator is outstanding at a time; its answer goes to
// OnReply. The driver makes each attempt once: what is to be asked again is
// asked again here.
type Transactions struct {
	m       *Machine
	state   txState
	who     identityOf
	bumping bool   // KIP-890 part 2: EndTxn brings the next epoch
	over    error  // set by a fence and by the end of the machine
	asked   Action // outstanding, nil if nothing is
	pace    pace   // of what is asked next
	begins  []CallID
	began   time.Time
	suspect bool // the coordinator has to say whether the identity still is ours
	stale   bool // the next transaction needs a new epoch: sequences are burnt, or a copy of a request may still be under way
	probe   probe
	of      transaction
	end     *ending
	enrols  enrolments
	offsets offsetsQueue
}

// transaction is what is known of the open transaction, or of the last one.
type transaction struct {
	failed  error // why it is to be doomed
	cause   error // why it is doomed, or why a reload is needed
	gone    bool  // it is over at the coordinator: nothing is left to end
	unknown bool  // a commit of it may have gone through
	touched bool  // the coordinator may know of it
	copies  bool  // a request that opens a transaction may still be under way
}

// pace is when something may be asked again.
type pace struct {
	tries int
	at    time.Time
}

// Actions of Transactions. Version bounds are the driver's to keep: with
// Bumping the version of part 2, without it one below.
type (
	// InitProducer asks the transaction coordinator for an identity: a new one
	// with ID -1, else the one after this (KIP-360), never without it.
	InitProducer struct {
		ID    kafka.ProducerID
		Epoch kafka.ProducerEpoch
	}
	// Enrol asks the transaction coordinator to add partitions.
	Enrol struct {
		ID         kafka.ProducerID
		Epoch      kafka.ProducerEpoch
		Partitions []kafka.TopicPartition
	}
	// EnrolGroup asks the transaction coordinator to add a group's offsets.
	EnrolGroup struct {
		ID    kafka.ProducerID
		Epoch kafka.ProducerEpoch
		Group string
	}
	// CommitOffsets asks the group coordinator to keep the offsets of a call.
	CommitOffsets struct {
		Call    CallID
		ID      kafka.ProducerID
		Epoch   kafka.ProducerEpoch
		Bumping bool
	}
	// EndTxn asks the transaction coordinator to commit or to abort.
	EndTxn struct {
		ID      kafka.ProducerID
		Epoch   kafka.ProducerEpoch
		Commit  bool
		Bumping bool
	}
	// Return is the result of a call.
	Return struct {
		Call CallID
		Err  error
	}
)

func (InitProducer) action()  {}
func (Enrol) action()         {}
func (EnrolGroup) action()    {}
func (CommitOffsets) action() {}
func (EndTxn) action()        {}
func (Return) action()        {}

// NewTransactions puts the rules of a transactional id above m, which is new.
// Its requests are asked again for the delivery time of m.
func NewTransactions(m *Machine) *Transactions {
	t := &Transactions{m: m, who: identityOf{-1, -1}}
	t.enrols.t, t.offsets.t = t, t
	m.tx, m.refused = t, kafka.ErrNoTransaction
	return t
}

// next decides on what is asked of a coordinator, if nothing is.
func (t *Transactions) next(now time.Time) {
	if t.over != nil {
		return
	}
	if !t.pace.at.After(now) {
		t.pace.at = time.Time{}
	}
	switch {
	case t.asked != nil, t.pace.at.After(now):
	case t.suspect:
		if quiet(t.m) {
			t.renew()
		}
	case t.state == txOpen || t.state == txDoomed:
		t.nextOpen(now)
	case len(t.begins) > 0 || t.end != nil:
		t.nextClosed(now)
	}
}

// settle acts on batches that failed, and keeps a doomed transaction empty.
func (t *Transactions) settle(now time.Time) {
	if err := t.of.failed; err != nil {
		t.of.failed = nil
		t.doom(now, err)
	}
	if t.state == txDoomed {
		refuse(t.m, now, t.m.refused)
	}
}

// nextOpen is what an open transaction wants next.
func (t *Transactions) nextOpen(now time.Time) {
	if t.state == txOpen && (t.enrols.ask(now) || t.offsets.ask()) {
		return
	}
	if t.end != nil && settled(t.m) && len(t.offsets.calls) == 0 {
		t.askEnd(now)
	}
}

// nextClosed makes sure of the identity before the next transaction: what the
// last one left open is ended, and then a new epoch fences late copies of its
// requests.
func (t *Transactions) nextClosed(now time.Time) {
	switch {
	case t.state == txReload && !t.of.gone:
		if t.end == nil {
			t.end = &ending{}
		}
		t.askEnd(now)
	case t.state == txNew:
		t.ask(InitProducer{-1, -1})
	case t.state == txReload || t.stale:
		t.renew()
	default:
		t.open(now)
	}
}

func (t *Transactions) ask(a Action) {
	t.asked = a
	t.m.emit(a)
}

// deadline is when next would ask for something.
func (t *Transactions) deadline() time.Time {
	if t.over != nil || t.asked != nil {
		return time.Time{}
	}
	if t.state == txOpen {
		return retry.Earlier(t.pace.at, t.enrols.due())
	}
	return t.pace.at
}

// OnReply is what became of the outstanding request.
func (t *Transactions) OnReply(now time.Time, r Reply) {
	asked := t.asked
	t.asked = nil
	if t.over != nil {
		return
	}
	t.pace.at = time.Time{}
	if r.lost() && !t.bumping {
		t.stale = true // a late copy would be taken for one of the next transaction
		t.of.copies = t.of.copies || opens(asked)
	}
	switch a := asked.(type) {
	case InitProducer:
		t.onInit(now, a, r)
	case Enrol:
		t.enrols.onReply(now, a, r)
	case EnrolGroup:
		t.offsets.onEnrolled(now, a, r)
	case CommitOffsets:
		t.offsets.onReply(now, a, r)
	case EndTxn:
		if t.probe == probing {
			t.onProbe(now, r)
		} else {
			t.onEnd(now, r)
		}
	}
}

// opens reports whether a copy of a request opens a transaction where none is
// open.
func opens(a Action) bool {
	switch a.(type) {
	case Enrol, EnrolGroup:
		return true
	}
	return false
}

// OnLeave says that the caller does not wait any more; cause is why. The call
// returns.
func (t *Transactions) OnLeave(now time.Time, call CallID, cause error) {
	if i := slices.Index(t.begins, call); i >= 0 {
		t.begins = slices.Delete(t.begins, i, i+1)
		t.finish(call, opFailed("begin", refusal{cause}))
		return
	}
	if !t.offsets.leave(call, cause) {
		t.leaveEnd(call, cause)
	}
}

func (t *Transactions) finish(call CallID, err error) { t.m.emit(Return{call, err}) }

// again paces the repetition of a request.
func (t *Transactions) again(now time.Time) {
	t.pace.tries++
	t.pace.at = now.Add(t.m.cfg.Backoff.Delay(t.pace.tries, t.m.rng))
}

// doom leaves the transaction only one end. What is not under way of it has not
// happened.
func (t *Transactions) doom(now time.Time, err error) {
	if t.state != txOpen {
		return
	}
	t.state, t.of.cause = txDoomed, err
	refuse(t.m, now, abortable{err})
	t.offsets.refuse(err)
}

// close ends every call; nothing is asked any more.
func (t *Transactions) close(cause error) {
	if t.over != nil {
		return
	}
	t.over = cause
	for _, c := range t.begins {
		t.finish(c, opFailed("begin", refusal{cause}))
	}
	for _, o := range t.offsets.calls {
		t.finish(o.call, opFailed(opOffsets, maybe(cause, o.asked != nil)))
	}
	t.begins, t.offsets.calls = nil, nil
	if e := t.end; e != nil {
		_, out := t.asked.(EndTxn)
		e.finish(t, opFailed(e.name(), maybe(cause, e.maybe || out)))
		e.finishAborts(t, opFailed("abort", maybe(cause, e.maybe || out)))
		t.end = nil
	}
}
