package produce

import (
	"slices"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

type batchState uint8

const (
	closed    batchState = iota // waits for the identity
	sealing                     // being compressed
	splitting                   // being cut in two
	ready                       // can be sent
	flying                      // outstanding
	acked                       // the broker has it; what stands before it is not settled
	gone                        // given up in doubt: it holds the place of sequences that nobody may use
)

type batch struct {
	Batch
	part     *partition
	deadline time.Time
	state    batchState
	codec    int
	size     int          // on the wire, once sealed
	stamp    record.Stamp // what it has if stamped, else what it is expected to get
	stamped  bool         // its sequences are taken and its bytes may have left: they change no more
	maybe    bool         // possibly appended: stays until it is known to be appended
	lost     bool         // a request with it ended without an answer
	cut      bool         // records are to be taken out of it
	damaged  bool         // the broker once found its bytes damaged
	told     bool         // its caller has the result
	result   Outcome      // of state acked
	reasons  []Reason
	doomed   error // why it must not be sent again
	cause    error // the last failure
}

// after is the stamp of the batch that follows b.
func (b *batch) after() record.Stamp {
	s := b.stamp
	s.BaseSequence = record.AddSequence(s.BaseSequence, b.Count)
	return s
}

// away reports whether nothing has to be done for b at this time but to wait.
func (b *batch) away() bool { return b.state >= flying }

// open is what the machine knows of the batch that records are added to.
type open struct {
	is   bool
	now  bool      // close it without waiting for linger
	due  time.Time // end of linger
	last time.Time // its delivery deadline
}

// partition holds the batches of one partition in order: first those that have
// sequences, then those that wait for them.
type partition struct {
	m      *Machine
	tp     kafka.TopicPartition
	open   open
	owed   bool // a batch that was told to close has not come
	queue  queue
	flying int     // how many are outstanding
	at     *broker // where they are
	sequences
	route
	cuts  bool      // of some batches records are to be taken out
	over  error     // it takes no more batches
	line  *broker   // the leader in whose line it stands, or nil
	index int       // in the timers; -1 if not there
	wake  time.Time // when the timers have it
}

// sequences is where a partition stands in the order that the broker keeps.
type sequences struct {
	ident  record.Stamp // the identity; BaseSequence follows what is settled
	begun  bool         // ident was taken
	burnt  bool         // ident has a range in doubt that was given up, or that the broker refuses: no new sequences of it
	proven bool         // the leader took a batch under ident, and nothing has failed since
	torn   bool         // sequences may have to be given anew
	acked  kafka.Offset // of the last record acknowledged; -1 is none
	base   kafka.Offset // of the last batch acknowledged; -1 is none
}

// route is the way to a partition's leader.
type route struct {
	leader  kafka.NodeID
	asking  bool      // a Resolve is not answered
	invalid bool      // what the cluster map knows proved wrong
	tries   int       // failures in a row
	retryAt time.Time // neither sent nor asked before
	unknown time.Time // first "unknown topic" since the last success
}

// queue is batches, the oldest first. One whose caller was told stays until
// those before it are settled and its answer is here.
type queue []*batch

// unsent is how many batches wait to be sent.
func (q queue) unsent() int {
	n := len(q)
	for _, b := range q {
		if !b.away() {
			break
		}
		n--
	}
	return n
}

// first is the oldest batch that is not settled, or nil.
func (q queue) first() *batch {
	for _, b := range q {
		if b.state != acked && b.state != gone {
			return b
		}
	}
	return nil
}

// failing reports whether a batch with sequences waits to be sent again.
func (q queue) failing() bool {
	for _, b := range q {
		if b.stamped && !b.away() {
			return true
		}
	}
	return false
}

// proved reports whether a batch behind b is appended, under the same identity.
func (q queue) proved(b *batch) bool {
	for i := len(q) - 1; i >= 0 && q[i] != b; i-- {
		if c := q[i]; c.state == acked && sameProducer(c.stamp, b.stamp) {
			return true
		}
	}
	return false
}

func (p *partition) waitingArea() bool { return p.tp.Partition == WaitingArea }

func (m *Machine) partition(tp kafka.TopicPartition) *partition {
	p := m.parts[tp]
	if p == nil {
		p = &partition{m: m, tp: tp, index: -1}
		p.leader, p.acked, p.base = kafka.NoNode, -1, -1
		m.parts[tp] = p
		m.order = append(m.order, p)
	}
	return p
}

// evaluate looks at a partition after something about it changed, or at a time
// it had asked for.
func (p *partition) evaluate(now time.Time) {
	if p.m.over != nil {
		return
	}
	p.expire(now)
	p.cutAll()
	p.renumber()
	p.maybeClose(now)
	p.sealAll()
	p.maybeResolve(now)
	p.maybeOffer(now)
	p.schedule(now)
}

func (p *partition) expire(now time.Time) {
	for i := 0; i < len(p.queue); {
		b, n := p.queue[i], len(p.queue)
		switch {
		case b.told:
		case b.doomed != nil && !b.away():
			b.giveUp(b.doomed)
			continue
		case !b.deadline.After(now):
			b.giveUp(b.timeUp(now))
			if len(p.queue) < n {
				continue
			}
		case !b.away():
			return // the rest came later
		}
		i++
	}
}

// maybeClose ends the linger of the open batch. As long as another batch waits
// unsent, closing would only make smaller batches.
func (p *partition) maybeClose(now time.Time) {
	if p.open.is && (p.open.now || !now.Before(p.closeAt())) {
		closeOpen(p)
	}
}

// closeOpen asks for the open batch.
func closeOpen(p *partition) {
	p.open, p.owed = open{}, true
	p.m.emit(CloseOpen{p.tp})
}

func (p *partition) closeAt() time.Time {
	wanted := p.queue.unsent() == 0
	if p.m.cfg.Linger == 0 {
		wanted = wanted && p.room()
	}
	if wanted {
		return p.open.due
	}
	return p.open.last
}

// sealAll has the closed batches sealed with the sequences they will have if
// nothing fails before them.
func (p *partition) sealAll() {
	m := p.m
	from := len(p.queue)
	for i := from - 1; i >= 0 && (p.queue[i].state == closed || p.queue[i].state == splitting); i-- {
		if p.queue[i].state == closed {
			from = i
		}
	}
	if p.waitingArea() || from == len(p.queue) {
		return
	}
	if !m.identified() {
		m.ident.wanted = true
		return
	}
	next := p.expect(from)
	for _, b := range p.queue[from:] {
		if b.state == closed {
			b.stamp, b.state, b.codec = next, sealing, m.codec
			m.emit(Seal{b.ID, next, b.codec})
		}
		next = p.follow(b)
	}
}

func (p *partition) maybeResolve(now time.Time) {
	if p.leader != kafka.NoNode || p.asking || now.Before(p.retryAt) || p.queue.unsent() == 0 {
		return
	}
	p.resolve()
}

func (p *partition) resolve() {
	p.asking = true
	p.m.emit(Resolve{Partition: p.tp, Invalid: p.invalid})
	p.invalid = false
}

func (p *partition) maybeOffer(now time.Time) {
	if p.line != nil || p.waitingArea() || p.sendable(now) == nil {
		return
	}
	p.line = p.m.broker(p.leader)
	p.line.ready = append(p.line.ready, p)
}

// lead moves p to another leader, or to none.
func (p *partition) lead(leader kafka.NodeID) {
	if p.leader != leader {
		p.leader, p.proven = leader, false
	}
	if p.line != nil && p.line.id != leader {
		p.line.ready = slices.DeleteFunc(p.line.ready, func(q *partition) bool { return q == p })
		p.line = nil
	}
}

// schedule sets the timer of p to the next time at which evaluate would do
// something.
func (p *partition) schedule(now time.Time) {
	var at time.Time
	for _, b := range p.queue {
		if !b.told {
			at = retry.Earlier(at, b.deadline)
		}
		if !b.away() {
			break // the rest came later
		}
	}
	if p.open.is {
		at = retry.Earlier(at, p.closeAt())
	}
	if p.retryAt.After(now) && p.queue.unsent() > 0 {
		at = retry.Earlier(at, p.retryAt)
	}
	p.m.timers.set(p, at)
}

// backOff delays the next try of p. Failures of several batches that were
// outstanding at once count once.
func (p *partition) backOff(now time.Time) {
	if p.retryAt.After(now) {
		return
	}
	m := p.m
	p.tries++
	p.retryAt = now.Add(m.cfg.Backoff.Delay(p.tries, m.rng))
}

// outOfPatience reports whether a topic that was there has been unknown for
// too long.
func (r *route) outOfPatience(now time.Time, patience time.Duration) bool {
	if r.unknown.IsZero() {
		r.unknown = now
	}
	if now.Sub(r.unknown) < patience {
		return false
	}
	r.unknown = time.Time{}
	return true
}
