package lead

import (
	"errors"
	"math"
	"time"

	"github.com/ottla/ottla/kafka"
)

// Step is one of the requests that write a lease.
type Step uint8

const (
	Reinit  Step = iota + 1 // InitProducerId with the own pair
	Add                     // AddPartitionsToTxn with the role's partition
	Produce                 // one record
	Commit                  // EndTxn
	Abort                   // EndTxn
)

// String is Kafka's name of the request.
func (s Step) String() string {
	return [...]string{"none", "InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn (commit)", "EndTxn (abort)"}[s]
}

// Action is the next request of a Writer.
type Action struct {
	Step     Step
	Pair     Token
	Sequence int32 // Produce
	Attempt  int   // of this step, from 1: those above 1 wait first
	Move     bool  // look for the coordinator or leader before it
}

// Answer is what came of an action.
type Answer struct {
	Code   int16        // NoAnswer if none came
	Unsent bool         // no answer, and the request was not written
	Pair   Token        // Reinit
	Offset kafka.Offset // Produce
}

// Outcome of a write.
type Outcome uint8

const (
	Pending    Outcome = iota // goes on
	Written                   // committed; inside a user's transaction: appended
	Over                      // the pair is lost: WriteError.Code and Step say how
	Refused                   // the user has to change something
	Unresolved                // the coordinator has to say what is so
)

// String is the outcome in a word.
func (o Outcome) String() string {
	return [...]string{"pending", "written", "lost", "refused", "unresolved"}[o]
}

// Reasons for a pair to be over that no broker names.
var (
	ErrStale     = errors.New("the lease passed since the last answer that proved the pair")
	ErrAnotherID = errors.New("the coordinator answered with another producer id: the old one had expired")
)

// Writer writes the leases of one leadership, one record in each transaction,
// below KIP-890 part 2. It is told to write with Begin or Join, says what to
// send next, and is told what came back, until its Outcome is not Pending.
//
// No transaction begins while the end of the last one is unknown, and none
// under a pair of which a request may still be under way: a re-init moves the
// pair on first.
type Writer struct {
	pair  Token
	lease time.Duration
	seq   int32        // of the next record
	last  kafka.Offset // of the last record under the pair
	proof time.Duration

	step    Step // under way, 0 if none
	attempt int
	move    bool
	open    bool // a transaction may be open: it is ended before anything else
	ending  Step // Commit or Abort was sent without a sure answer: no other end may be asked for
	used    bool // the sequence number may be used although the record is not known to be there
	doubt   bool // a copy of a request may still be under way
	inside  bool // the record goes into a transaction that the user ends

	result
	offset  kafka.Offset
	maybe   bool // the write may have happened although the pair is lost
	earlier bool // what is being ended is of an earlier write
	closing bool // nothing follows what is being ended
}

// result is what became of a write, and what decided.
type result struct {
	outcome Outcome
	at      Step
	code    int16
	cause   error
}

// NewWriter makes the writer of a pair that a coordinator has just given.
func NewWriter(pair Token, lease time.Duration, now time.Duration) *Writer {
	return &Writer{pair: pair, lease: lease, last: -1, proof: now}
}

// Pair is the pair that the coordinator checks. A re-init moves it.
func (w *Writer) Pair() Token { return w.pair }

// Offset is where the last written record is.
func (w *Writer) Offset() kafka.Offset { return w.offset }

// Outcome is what became of the write, and for Over and Refused the request
// and code that decided, or the reason where there is no code.
func (w *Writer) Outcome() (o Outcome, step Step, code int16, cause error) {
	return w.outcome, w.at, w.code, w.cause
}

// MayHaveHappened reports whether a write that was lost may be in the log: it
// was asked to be committed before.
func (w *Writer) MayHaveHappened() bool { return w.maybe }

// Clean reports whether no transaction of the pair can be open or under way.
func (w *Writer) Clean() bool { return !w.open && !w.doubt && !w.used }

// Begin starts a write. What an earlier one left open is ended first.
func (w *Writer) Begin(now time.Duration) { w.begin(now, false) }

// Join starts a write into a transaction that the user of the pair ends; Left
// says how. It may only be called on a writer that is Clean.
func (w *Writer) Join(now time.Duration) { w.begin(now, true) }

func (w *Writer) begin(now time.Duration, inside bool) {
	w.result, w.inside, w.closing = result{}, inside, false
	w.earlier = w.ending != 0 || w.open && !inside
	w.maybe = w.ending == Commit
	switch {
	case w.ending != 0:
		w.to(w.ending)
	case w.earlier:
		w.to(Abort)
	default:
		w.start(now)
	}
}

// start begins the transaction, after a re-init where it is needed.
func (w *Writer) start(now time.Duration) {
	if w.doubt || w.used {
		w.reinit(now)
		return
	}
	w.to(Add)
}

func (w *Writer) reinit(now time.Duration) {
	if now-w.proof >= w.lease {
		w.end(Over, Reinit, 0, ErrStale) // an expired id would be answered with a fresh pair
		return
	}
	w.to(Reinit)
}

// Abandon starts to end what is open, without anything new, and reports
// whether there is something.
func (w *Writer) Abandon() bool {
	if w.step != 0 && w.outcome == Pending {
		return true
	}
	if !w.open && w.ending == 0 || w.outcome == Over {
		return false
	}
	w.outcome, w.earlier, w.closing = Pending, true, true
	w.to(Abort)
	if w.ending != 0 {
		w.to(w.ending)
	}
	return true
}

func (w *Writer) to(s Step) { w.step, w.attempt, w.move = s, 1, false }

func (w *Writer) end(o Outcome, at Step, code int16, cause error) {
	w.result, w.step = result{o, at, code, cause}, 0
}

// Next is the request to send, false when the write is over.
func (w *Writer) Next() (Action, bool) {
	if w.step == 0 || w.outcome != Pending {
		return Action{}, false
	}
	return Action{Step: w.step, Pair: w.pair, Sequence: w.seq, Attempt: w.attempt, Move: w.move}, true
}

// GiveUp leaves a write that took too long where it stands; the next Begin
// resolves it. asked says that the last action was sent and nothing came back.
func (w *Writer) GiveUp(asked bool) {
	if asked && w.step != 0 {
		w.unsure()
	}
	w.step = 0
}

func (w *Writer) adopt(p Token, now time.Duration) {
	w.pair, w.seq, w.last, w.proof = p, 0, -1, now
	w.doubt, w.used = false, false
}

// unsure takes note of a request that may have been read and may be read
// again: by this pair nothing new begins.
func (w *Writer) unsure() {
	switch w.step {
	case Add:
		w.open = true
	case Produce:
		w.used, w.doubt = true, true
	case Commit, Abort:
		w.ending, w.doubt = w.step, true
		w.maybe = w.maybe || w.step == Commit
	}
}

// OnAnswer takes what came of the last action.
func (w *Writer) OnAnswer(now time.Duration, a Answer) {
	if w.step == 0 {
		return
	}
	r := React(a.Code)
	if a.Code == NoAnswer && a.Unsent {
		w.again(true)
		return
	}
	switch r {
	case Lost:
		w.end(Over, w.step, a.Code, nil)
		return
	case Configured:
		w.end(Refused, w.step, a.Code, nil)
		return
	case Ask:
		w.end(Unresolved, w.step, a.Code, nil)
		return
	case Again, Elsewhere:
		w.again(r == Elsewhere)
		return
	case Unsure:
		w.unsure()
		w.again(a.Code == NoAnswer)
		return
	}
	switch w.step {
	case Reinit:
		w.onReinit(now, a)
	case Add:
		w.onAdd(now, a, r)
	case Produce:
		w.onProduce(a, r)
	default:
		w.onEnd(now, r)
	}
}

func (w *Writer) again(move bool) { w.attempt, w.move = w.attempt+1, move }

func (w *Writer) onReinit(now time.Duration, a Answer) {
	if a.Code != 0 || !a.Pair.Valid() {
		w.end(Unresolved, Reinit, a.Code, nil)
		return
	}
	if a.Pair.ID != w.pair.ID && w.pair.Epoch < math.MaxInt16-1 {
		w.end(Over, Reinit, 0, ErrAnotherID)
		return
	}
	w.adopt(a.Pair, now)
	w.to(Add)
}

func (w *Writer) onAdd(now time.Duration, a Answer, r Reaction) {
	if r != Fine {
		w.end(Unresolved, Add, a.Code, nil)
		return
	}
	w.open, w.proof = true, now
	w.to(Produce)
}

func (w *Writer) onProduce(a Answer, r Reaction) {
	switch {
	case r == Ended: // an end of an earlier transaction arrived late and ended this one
		w.doubt = true
		w.abandon(a.Code)
	case r == Gap, a.Offset <= w.last: // a repeated number is answered with the old offset
		w.used = true
		w.abandon(a.Code)
	default:
		w.seq, w.last, w.offset, w.used = w.seq+1, a.Offset, a.Offset, false
		if w.inside {
			w.end(Written, Produce, 0, nil)
			return
		}
		w.to(Commit)
	}
}

// abandon ends the transaction without the record; where it is the user's, the
// user does.
func (w *Writer) abandon(code int16) {
	if w.inside {
		w.end(Unresolved, Produce, code, nil)
		return
	}
	w.to(Abort)
}

func (w *Writer) onEnd(now time.Duration, r Reaction) {
	done := w.step == Commit && r == Fine && !w.earlier
	w.open, w.ending, w.maybe, w.earlier = false, 0, false, false
	if r == Fine {
		w.proof = now
	} else { // the other result was reached, or there was no transaction
		w.doubt = true
	}
	if done || w.closing {
		w.end(Written, Commit, 0, nil)
		return
	}
	w.start(now)
}

// Leave is how a user's transaction under the pair ended.
type Leave struct {
	Asked Step // the last end that was asked for, 0 if none was needed
	Known bool // it was answered
	Doubt bool // some request of the transaction had no sure answer
}

// Left takes note of the end of a user's transaction.
func (w *Writer) Left(now time.Duration, l Leave) {
	w.doubt = w.doubt || l.Doubt || !l.Known
	w.step, w.inside = 0, false
	if !l.Known {
		w.open, w.ending = true, l.Asked
		return
	}
	w.open, w.ending = false, 0
	if l.Asked != 0 {
		w.proof = now
	}
}
