package lead

import (
	"errors"
	"testing"
	"time"

	"github.com/ottla/ottla/kafka"
)

// broker is the little that a Writer sees of a coordinator and a partition
// that take everything; faults are put in by the tests.
type script struct {
	t   *testing.T
	w   *Writer
	now time.Duration
}

func newScript(t *testing.T) *script {
	return &script{t: t, w: NewWriter(Token{5, 1}, 30*sec, 0)}
}

// step wants one action and answers it.
func (s *script) step(want Step, a Answer) Action {
	s.t.Helper()
	act, ok := s.w.Next()
	if !ok || act.Step != want {
		s.t.Fatalf("it sends %v (%v), want %v", act.Step, ok, want)
	}
	s.w.OnAnswer(s.now, a)
	return act
}

func (s *script) wantOutcome(want Outcome) {
	s.t.Helper()
	if got, step, code, err := s.w.Outcome(); got != want {
		s.t.Fatalf("the write is %v (%v, code %d, %v), want %v", got, step, code, err, want)
	}
}

// write is a whole good write whose record gets the offset.
func (s *script) write(off kafka.Offset) Action {
	s.t.Helper()
	s.w.Begin(s.now)
	s.step(Add, Answer{})
	act := s.step(Produce, Answer{Offset: off})
	s.step(Commit, Answer{})
	s.wantOutcome(Written)
	if s.w.Offset() != off {
		s.t.Errorf("written at %d, want %d", s.w.Offset(), off)
	}
	return act
}

func TestG1OneWriteIsOneTransactionUnderOnePair(t *testing.T) {
	s := newScript(t)
	for i := range int32(3) {
		act := s.write(kafka.Offset(10 + 2*i))
		if act.Pair != (Token{5, 1}) || act.Sequence != i {
			t.Errorf("write %d: pair %v, sequence %d", i, act.Pair, act.Sequence)
		}
	}
	if !s.w.Clean() {
		t.Error("after good writes the pair is in doubt")
	}
}

func TestG11AnUnansweredCommitIsRepeatedAndThePairMovesOnBeforeTheNext(t *testing.T) {
	s := newScript(t)
	s.w.Begin(0)
	s.step(Add, Answer{})
	s.step(Produce, Answer{Offset: 10})
	s.step(Commit, Answer{Code: NoAnswer})
	if act := s.step(Commit, Answer{Code: 51}); act.Attempt != 2 || !act.Move {
		t.Errorf("the repetition is %+v: another attempt, at a coordinator looked up anew", act)
	}
	s.step(Commit, Answer{})
	s.wantOutcome(Written)
	s.w.Begin(sec)
	s.step(Reinit, Answer{Pair: Token{5, 2}})
	s.step(Add, Answer{})
	if act := s.step(Produce, Answer{Offset: 12}); act.Sequence != 0 || act.Pair != (Token{5, 2}) {
		t.Errorf("after the re-init it writes %+v", act)
	}
	s.step(Commit, Answer{})
	s.wantOutcome(Written)
}

func TestG11AFenceAfterAnUnansweredCommitLeavesItUnknown(t *testing.T) {
	s := newScript(t)
	s.w.Begin(0)
	s.step(Add, Answer{})
	s.step(Produce, Answer{Offset: 10})
	s.step(Commit, Answer{Code: NoAnswer})
	s.step(Commit, Answer{Code: 90})
	s.wantOutcome(Over)
	if !s.w.MayHaveHappened() {
		t.Error("it may have been committed before the fence, and says it was not")
	}
	s = newScript(t)
	s.w.Begin(0)
	s.step(Add, Answer{Code: 90})
	s.wantOutcome(Over)
	if s.w.MayHaveHappened() {
		t.Error("a write that began with a fence cannot have happened")
	}
}

func TestG11NoReinitOverAnOpenTransaction(t *testing.T) {
	s := newScript(t)
	s.w.Begin(0)
	s.step(Add, Answer{})
	s.step(Produce, Answer{Code: NoAnswer})
	s.w.Next()
	s.w.GiveUp(true)
	s.w.Begin(sec)
	s.step(Abort, Answer{})
	s.step(Reinit, Answer{Pair: Token{5, 2}})
	s.step(Add, Answer{})
	s.step(Produce, Answer{Offset: 20})
	s.step(Commit, Answer{})
	s.wantOutcome(Written)
}

func TestG11ACommitThatWasGivenUpIsResolvedFirstAndNeverAborted(t *testing.T) {
	s := newScript(t)
	s.w.Begin(0)
	s.step(Add, Answer{})
	s.step(Produce, Answer{Offset: 10})
	s.w.GiveUp(true) // the commit was sent
	s.w.Begin(sec)
	s.step(Commit, Answer{Code: 48}) // the other result was reached: the record is not there
	s.step(Reinit, Answer{Pair: Token{5, 2}})
	s.step(Add, Answer{})
	s.step(Produce, Answer{Offset: 14})
	s.step(Commit, Answer{})
	s.wantOutcome(Written)
	// Resolved as committed: the new record is still to be written.
	s.w.Begin(2 * sec)
	s.step(Add, Answer{})
	s.step(Produce, Answer{Offset: 16})
	s.w.GiveUp(true)
	s.w.Begin(3 * sec)
	s.step(Commit, Answer{})
	s.wantOutcome(Pending)
	s.step(Reinit, Answer{Pair: Token{5, 3}})
	s.step(Add, Answer{})
	s.step(Produce, Answer{Offset: 18})
	s.step(Commit, Answer{})
	s.wantOutcome(Written)
}

func TestG12ARepeatedNumberMeansThatNothingWasWritten(t *testing.T) {
	s := newScript(t)
	s.write(10)
	s.w.Begin(sec)
	s.step(Add, Answer{})
	s.step(Produce, Answer{Offset: 10}) // code 0, and the offset of the write before
	s.step(Abort, Answer{})
	s.step(Reinit, Answer{Pair: Token{5, 2}})
	s.step(Add, Answer{})
	if act := s.step(Produce, Answer{Offset: 13}); act.Sequence != 0 {
		t.Errorf("under a new pair the first number is %d", act.Sequence)
	}
	s.step(Commit, Answer{})
	s.wantOutcome(Written)
}

func TestG12AProduceWithoutASureAnswerIsRepeatedWithItsNumberInItsTransaction(t *testing.T) {
	for _, code := range []int16{NoAnswer, 7, 20} {
		s := newScript(t)
		s.write(10)
		s.w.Begin(sec)
		s.step(Add, Answer{})
		s.step(Produce, Answer{Code: code})
		if act := s.step(Produce, Answer{Offset: 12}); act.Sequence != 1 {
			t.Errorf("code %d: repeated with number %d, want 1", code, act.Sequence)
		}
		s.step(Commit, Answer{})
		s.wantOutcome(Written)
		s.w.Begin(2 * sec)
		s.step(Reinit, Answer{Pair: Token{5, 2}}) // a late copy might take the next number
	}
}

func TestG12AGapAndALateEndAreAbortedAndWrittenAgain(t *testing.T) {
	for _, code := range []int16{45, 48, 120} {
		s := newScript(t)
		s.w.Begin(0)
		s.step(Add, Answer{})
		s.step(Produce, Answer{Code: code})
		s.step(Abort, Answer{Code: map[int16]int16{45: 0, 48: 48, 120: 0}[code]})
		s.step(Reinit, Answer{Pair: Token{5, 2}})
		s.step(Add, Answer{})
		s.step(Produce, Answer{Offset: 3})
		s.step(Commit, Answer{})
		s.wantOutcome(Written)
	}
}

// The meaning of every code of the table, for each request of a write.
func TestH1H4CodesOfTheFourRequests(t *testing.T) {
	until := map[Step][]Answer{Add: nil, Produce: {{}}, Commit: {{}, {Offset: 5}}}
	order := []Step{Add, Produce, Commit}
	for code, want := range map[int16]Outcome{
		47: Over, 49: Over, 90: Over, 53: Refused, 29: Refused, 31: Refused, 50: Refused, 59: Unresolved,
		51: Pending, 14: Pending, 15: Pending, 16: Pending, 19: Pending, 5: Pending, 6: Pending, 9: Pending, 56: Pending,
		74: Pending, 75: Pending, 100: Pending, 3: Pending, 7: Pending, 20: Pending, -1: Pending, 87: Pending, 9999: Pending,
	} {
		for i, step := range order {
			s := newScript(t)
			s.w.Begin(0)
			for j, a := range until[step] {
				s.step(order[j], a)
			}
			s.step(order[i], Answer{Code: code})
			got, at, c, _ := s.w.Outcome()
			if got != want || want != Pending && (at != step || c != code) {
				t.Errorf("code %d on %v: %v at %v with code %d, want %v", code, step, got, at, c, want)
			}
			if act, ok := s.w.Next(); want == Pending && (!ok || act.Step != step || act.Attempt != 2) {
				t.Errorf("code %d on %v is followed by %+v", code, step, act)
			}
		}
	}
	for code, want := range map[int16]bool{47: true, 90: true, 49: true, 48: false, 51: false, 0: false, 53: false} {
		if Fenced(code) != want {
			t.Errorf("S16: code %d is a fence: %v", code, !want)
		}
	}
}

func TestScenario17NoReinitOnceTheLeaseHasPassedSinceThePairWasProved(t *testing.T) {
	s := newScript(t)
	s.w.Begin(0)
	s.step(Add, Answer{})
	s.step(Produce, Answer{Code: NoAnswer})
	s.step(Produce, Answer{Offset: 4})
	s.step(Commit, Answer{})
	s.now = 30 * sec
	s.w.Begin(s.now)
	s.wantOutcome(Over)
	if _, _, _, err := s.w.Outcome(); !errors.Is(err, ErrStale) {
		t.Errorf("over because of %v", err)
	}
}

func TestScenario17AFreshProducerIDIsALoss(t *testing.T) {
	s := newScript(t)
	s.w.Begin(0)
	s.step(Add, Answer{})
	s.step(Produce, Answer{Code: NoAnswer})
	s.step(Produce, Answer{Offset: 4})
	s.step(Commit, Answer{})
	s.w.Begin(sec)
	s.step(Reinit, Answer{Pair: Token{1177, 0}})
	s.wantOutcome(Over)
	if _, _, _, err := s.w.Outcome(); !errors.Is(err, ErrAnotherID) || s.w.Pair() != (Token{5, 1}) {
		t.Errorf("over because of %v, and holds %v", err, s.w.Pair())
	}
	// At exhaustion the id rotates under its owner.
	s = newScript(t)
	s.w = NewWriter(Token{5, 32766}, 30*sec, 0)
	s.w.doubt = true
	s.w.Begin(sec)
	s.step(Reinit, Answer{Pair: Token{4, 0}})
	s.step(Add, Answer{})
	s.wantOutcome(Pending)
}

func TestP7ALeaseInAUsersTransactionIsNotEndedByTheWriter(t *testing.T) {
	s := newScript(t)
	s.write(10)
	s.w.Join(sec)
	s.step(Add, Answer{})
	s.step(Produce, Answer{Offset: 14})
	s.wantOutcome(Written)
	if _, ok := s.w.Next(); ok {
		t.Error("the writer goes on in a transaction that is the user's")
	}
	s.w.Left(sec, Leave{Asked: Commit, Known: true})
	if act := s.write(17); act.Sequence != 2 {
		t.Errorf("the next number is %d, want 2", act.Sequence)
	}
	s.w.Join(2 * sec)
	s.step(Add, Answer{})
	s.step(Produce, Answer{Offset: 20})
	s.w.Left(2*sec, Leave{Asked: Commit})
	if s.w.Clean() {
		t.Error("a commit without an answer leaves the pair clean")
	}
	s.w.Begin(3 * sec)
	s.step(Commit, Answer{})
	s.step(Reinit, Answer{Pair: Token{5, 2}})
}
