package lead

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ottla/ottla/kafka"
)

func TestC1AGrantSaturates(t *testing.T) {
	l := Grant("m", Token{1, 1}, wall0, 30*sec)
	if l.Granted != wall0 || l.Deadline != wall0+30_000 {
		t.Errorf("granted %d, deadline %d", l.Granted, l.Deadline)
	}
	if l := Grant("m", Token{1, 1}, math.MaxInt64-5, 30*sec); l.Deadline != math.MaxInt64 || l.Granted != math.MaxInt64-5 {
		t.Errorf("at the end of time the deadline is %d", l.Deadline)
	}
	if d := (Lease{Granted: math.MinInt64, Deadline: math.MaxInt64}).Duration(); d <= 0 {
		t.Errorf("the longest lease lasts %v", d)
	}
	if d := (Lease{Granted: 5, Deadline: 3}).Duration(); d != 0 {
		t.Errorf("a lease that ends before it begins lasts %v", d)
	}
}

func TestC2ALeaseLivesUntilItsDeadline(t *testing.T) {
	l := Grant("m", Token{1, 1}, wall0, 30*sec)
	if !l.Live(l.Deadline-1) || l.Live(l.Deadline) || l.Live(l.Deadline+1) {
		t.Error("it must live for now < deadline and no longer")
	}
}

func TestC3TheNextRenewalIsNeverAfterTheDeadline(t *testing.T) {
	l := Grant("m", Token{1, 1}, wall0, 30*sec)
	if got := l.RenewAt(10 * sec); got != wall0+10_000 {
		t.Errorf("renews at %d", got-wall0)
	}
	if got := l.RenewAt(time.Hour); got != l.Deadline {
		t.Errorf("renews %d ms after the deadline", got-l.Deadline)
	}
}

func TestC4RanksChallengeOneStaggerApart(t *testing.T) {
	l := Grant("m", Token{1, 1}, wall0, 30*sec)
	for rank, want := range map[int]kafka.Timestamp{-3: 0, 0: 0, 1: 5_000, 7: 35_000} {
		if got := l.ChallengeAt(rank, 5*sec); got != l.Deadline+want {
			t.Errorf("rank %d challenges %d ms after the deadline, want %d", rank, got-l.Deadline, want)
		}
	}
	l.Deadline = math.MaxInt64 - 1
	if got := l.ChallengeAt(math.MaxInt, math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("it overflows to %d", got)
	}
}

func TestC5TheRelationsOfTheExtentsAreChecked(t *testing.T) {
	good := Timing{Lease: 30 * sec, Renew: 10 * sec, Stagger: 5 * sec, Margin: 5 * sec}
	if err := good.Check(); err != nil || !good.Comfortable() {
		t.Errorf("the defaults: %v", err)
	}
	bad := []func(*Timing){
		func(t *Timing) { t.Lease = 0 }, func(t *Timing) { t.Renew = 0 }, func(t *Timing) { t.Stagger = 0 }, func(t *Timing) { t.Lease = -1 },
		func(t *Timing) { t.Renew = t.Lease }, func(t *Timing) { t.Renew = 25 * sec }, func(t *Timing) { t.Margin = -1 }, func(t *Timing) { t.Margin = 30 * sec },
		func(t *Timing) { t.Lease = math.MaxInt64 }, func(t *Timing) { t.Skew = -1 },
	}
	for i, change := range bad {
		x := good
		change(&x)
		if x.Check() == nil {
			t.Errorf("%d: %+v is accepted", i, x)
		}
	}
	tight := good
	tight.Renew = 11 * sec
	if tight.Check() != nil || tight.Comfortable() {
		t.Error("renew above a third of the lease is accepted, and said to be tight")
	}
}

func TestC7C9TheHoldersScheduleRunsFromTheInstantBeforeItSent(t *testing.T) {
	h := NewHolder(Timing{Lease: 30 * sec, Renew: 10 * sec, Stagger: 5 * sec, Margin: 5 * sec}, 100*sec)
	if h.RenewAt() != 110*sec || h.StepDownAt() != 125*sec || h.LeaseEnd() != 130*sec {
		t.Errorf("renews at %v, steps down at %v, lease ends at %v", h.RenewAt(), h.StepDownAt(), h.LeaseEnd())
	}
	if h.Over(125*sec-1) || !h.Over(125*sec) {
		t.Error("it is over at lease end less margin, not before")
	}
	h.OnFailed(112*sec, sec)
	if h.RenewAt() != 113*sec || h.StepDownAt() != 125*sec || h.Tries() != 1 {
		t.Error("a failed renewal must not move the end")
	}
	if got := h.AttemptFor(113 * sec); got != 6*sec {
		t.Errorf("an attempt gets %v of the 12 s that are left, want half", got)
	}
	h.OnWritten(113 * sec)
	if h.StepDownAt() != 138*sec || h.Tries() != 0 || h.RenewAt() != 123*sec {
		t.Error("a confirmed renewal moves everything by its own start")
	}
	if h.AttemptFor(500*sec) != 0 {
		t.Error("past the end an attempt gets no time")
	}
}

func TestB6B7RankIsThePlaceInTheRosterWithoutTheHolder(t *testing.T) {
	l := newLog(t)
	for i, m := range []string{"a", "b", "c"} {
		l.register(at(0), kafka.Offset(i), m)
	}
	l.grant(at(0), 9, "b", Token{1, 1})
	for m, want := range map[string]int{"a": 0, "b": 0, "c": 1, "z": -1} {
		if got := l.f.Rank(m); got != want {
			t.Errorf("rank of %s is %d, want %d", m, got, want)
		}
	}
	if d := l.f.Evaluate(Candidate{Member: "b", Token: NoToken}, timing, at(time.Hour)); d.Rank != 0 || d.Turn != Challenge {
		t.Errorf("the member of an expired lease: rank %d, %v", d.Rank, d.Turn)
	}
	l.clear(at(0), 10)
	if got := l.f.Rank("b"); got != 1 {
		t.Errorf("without a lease b has rank %d", got)
	}
}

func TestB11OldRegistrationsDoNotCountInTheOwnRank(t *testing.T) {
	l := newLog(t)
	l.register(at(0), 1, "dead")
	l.register(at(50*sec), 2, "a")
	c := Candidate{Member: "a", Token: NoToken}
	if d := l.f.Evaluate(c, timing, at(60*sec)); d.Rank != 1 {
		t.Errorf("without a TTL the rank is %d", d.Rank)
	}
	c.RosterTTL = 30 * sec
	if d := l.f.Evaluate(c, timing, at(60*sec)); d.Rank != 0 {
		t.Errorf("with a TTL of 30 s the rank is %d", d.Rank)
	}
}

func TestC8AStandbyMeasuresALeaseThatItSawWithItsOwnClock(t *testing.T) {
	l := newLog(t)
	l.live = true
	l.register(at(0), 1, "b")
	l.register(at(0), 2, "c")
	// The holder's wall clock is an hour ahead: its deadline means nothing here.
	holder := Now{Local: 10 * sec, Wall: wall0 + 3_600_000}
	v := Grant("a", Token{1, 1}, holder.Wall, timing.Lease).Append(nil)
	if _, err := l.apply(at(10*sec), Entry{Offset: 3, Key: leaseKey, Value: v, Transactional: true}); err != nil {
		t.Fatal(err)
	}
	for member, want := range map[string]time.Duration{"b": 40 * sec, "c": 45 * sec} {
		c := Candidate{Member: member, Token: NoToken}
		if d := l.f.Evaluate(c, timing, at(want-1)); d.Turn != Wait || d.At != want {
			t.Errorf("%s before %v: %v until %v", member, want, d.Turn, d.At)
		}
		if d := l.f.Evaluate(c, timing, at(want)); d.Turn != Challenge {
			t.Errorf("%s at %v: %v", member, want, d.Turn)
		}
	}
	// And a standby whose own wall clock is far ahead waits all the same.
	ahead := Now{Local: 39 * sec, Wall: wall0 + 10_000_000}
	if d := l.f.Evaluate(Candidate{Member: "b", Token: NoToken}, timing, ahead); d.Turn != Wait {
		t.Errorf("with a clock ahead: %v", d.Turn)
	}
}

func TestC8ALeaseOfTheFirstReadEndsByTheWallClockPlusSkewOrAfterAWholeLease(t *testing.T) {
	l := newLog(t) // not live
	l.register(at(0), 1, "b")
	l.grant(at(0), 2, "a", Token{1, 1})
	l.f.seen.At = 20 * sec // the newcomer read it 20 s after it was written
	c := Candidate{Member: "b", Token: NoToken}
	if d := l.f.Evaluate(c, timing, at(21*sec)); d.Turn != Wait || d.At != 35*sec {
		t.Errorf("a newcomer waits until %v, want 35s: the deadline and the skew", d.At)
	}
	far := Grant("a", Token{1, 1}, wall0+3_600_000, timing.Lease).Append(nil)
	if _, err := l.apply(at(20*sec), Entry{Offset: 3, Key: leaseKey, Value: far, Transactional: true}); err != nil {
		t.Fatal(err)
	}
	if d := l.f.Evaluate(c, timing, at(21*sec)); d.At != 50*sec {
		t.Errorf("with a deadline an hour ahead it waits until %v, want 50s: one lease after it read it", d.At)
	}
}

func TestD1ToD4TheTurnsOfACandidate(t *testing.T) {
	l := newLog(t)
	l.live = true
	me := Candidate{Member: "a", Token: NoToken}
	if d := l.f.Evaluate(me, timing, at(0)); d.Turn != NotRegistered || d.Rank != -1 {
		t.Errorf("D1: %v", d.Turn)
	}
	l.register(at(0), 1, "z")
	l.register(at(7*sec), 2, "a")
	me.Registered = 7 * sec
	if d := l.f.Evaluate(me, timing, at(8*sec)); d.Turn != Wait || d.At != 12*sec {
		t.Errorf("D4: %v until %v, want 12s: its own registration and one stagger", d.Turn, d.At)
	}
	if again := l.f.Evaluate(me, timing, at(11*sec)); again.At != 12*sec {
		t.Errorf("D4: asked later the wait slides to %v", again.At)
	}
	if d := l.f.Evaluate(me, timing, at(12*sec)); d.Turn != Challenge {
		t.Errorf("D4: %v", d.Turn)
	}
	me.Token = Token{1, 1}
	l.grant(at(20*sec), 3, "a", me.Token)
	if d := l.f.Evaluate(me, timing, at(21*sec)); d.Turn != Hold {
		t.Errorf("D2: %v", d.Turn)
	}
	if d := l.f.Evaluate(me, timing, at(50*sec)); d.Turn != Challenge {
		t.Errorf("D6: at the deadline the holder may %v", d.Turn)
	}
	if d := l.f.Evaluate(Candidate{Member: "z", Token: NoToken}, timing, at(50*sec)); d.Turn != Challenge {
		t.Errorf("D6: at the deadline rank 0 may %v", d.Turn)
	}
}

func TestD8ALeaseInMyNameThatIsNotMineIsNoHold(t *testing.T) {
	l := newLog(t)
	l.live = true
	l.register(at(0), 1, "a")
	l.grant(at(0), 2, "a", Token{1, 1})
	for _, tok := range []Token{NoToken, {1, 2}} {
		if d := l.f.Evaluate(Candidate{Member: "a", Token: tok}, timing, at(sec)); d.Turn != Wait || d.At != 30*sec {
			t.Errorf("with %v: %v until %v", tok, d.Turn, d.At)
		}
	}
}

func TestD7AfterAResignTheRanksCountFromTheTombstone(t *testing.T) {
	l := newLog(t)
	l.live = true
	l.register(at(0), 1, "a")
	l.register(at(0), 2, "b")
	l.register(at(0), 3, "c")
	l.grant(at(0), 4, "a", Token{1, 1})
	l.register(at(99*sec), 5, "a") // the resigner goes to the tail first
	l.clear(at(100*sec), 6)
	for i, m := range []string{"b", "c", "a"} {
		want := 100*sec + time.Duration(i)*5*sec
		if d := l.f.Evaluate(Candidate{Member: m, Token: NoToken}, timing, at(100*sec)); d.Rank != i || d.At != want {
			t.Errorf("%s: rank %d at %v, want %d at %v", m, d.Rank, d.At, i, want)
		}
	}
	// Found by the first read: from the tombstone's own time.
	m := newLog(t)
	m.register(at(0), 1, "a")
	m.register(at(0), 2, "b")
	m.clear(at(0), 3)
	m.f.cleared.At = 50 * sec
	if d := m.f.Evaluate(Candidate{Member: "b", Token: NoToken}, timing, at(50*sec)); d.Turn != Challenge || d.At != 5*sec {
		t.Errorf("a newcomer: %v at %v", d.Turn, d.At)
	}
}

func TestE11AnOpenLeaseIsASignOfLifeOnceAndNothingElse(t *testing.T) {
	l := newLog(t)
	l.live = true
	l.register(at(0), 1, "b")
	l.grant(at(0), 2, "a", Token{1, 1})
	open := Entry{Offset: 3, Key: leaseKey, Value: Grant("z", Token{8, 0}, wall0, timing.Lease).Append(nil), Transactional: true}
	k, _ := DecodeKey(open.Key)
	if !l.f.Open(k, open, at(20*sec)) {
		t.Fatal("an open lease of the role does not count")
	}
	l.wantHolder("a")
	c := Candidate{Member: "b", Token: NoToken}
	if d := l.f.Evaluate(c, timing, at(21*sec)); d.At != 50*sec {
		t.Errorf("it waits until %v, want 50s", d.At)
	}
	if l.f.Open(k, open, at(45*sec)) {
		t.Error("the same record counts twice: a dead holder would be alive for ever")
	}
	plain := open
	plain.Offset, plain.Transactional = 4, false
	if l.f.Open(k, plain, at(45*sec)) {
		t.Error("a record outside of a transaction counts")
	}
	if d := l.f.Evaluate(c, timing, at(50*sec)); d.Turn != Challenge {
		t.Errorf("after a lease of silence: %v", d.Turn)
	}
}

func TestScenario39RanksOfDeadMembersDelayByOneLeaseAtMost(t *testing.T) {
	l := newLog(t)
	l.live = true
	for i := range kafka.Offset(100) {
		l.register(at(0), i, "dead"+time.Duration(i).String())
	}
	l.register(at(0), 500, "a")
	l.grant(at(0), 501, "h", Token{1, 1})
	if d := l.f.Evaluate(Candidate{Member: "a", Token: NoToken}, timing, at(sec)); d.Rank != 100 || d.At != 60*sec {
		t.Errorf("rank %d waits until %v, want 60s: a lease and its cap", d.Rank, d.At)
	}
}

// D5: for records that do not change, the answer changes at Decision.At and
// not before.
func TestD5AWaitNamesTheInstantAtWhichTheAnswerChanges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLog(t)
		l.live = rapid.Bool().Draw(rt, "live")
		n := rapid.IntRange(1, 8).Draw(rt, "members")
		for i := range n {
			l.register(at(0), kafka.Offset(i), string(rune('a'+i)))
		}
		switch rapid.IntRange(0, 2).Draw(rt, "state") {
		case 1:
			l.grant(at(time.Duration(rapid.IntRange(0, 60).Draw(rt, "granted"))*sec), 50, "h", Token{1, 1})
		case 2:
			l.grant(at(0), 50, "h", Token{1, 1})
			l.clear(at(time.Duration(rapid.IntRange(0, 60).Draw(rt, "cleared"))*sec), 51)
		}
		c := Candidate{Member: string(rune('a' + rapid.IntRange(0, n-1).Draw(rt, "me"))), Token: NoToken}
		ask := at(time.Duration(rapid.IntRange(0, 120).Draw(rt, "now")) * sec)
		d := l.f.Evaluate(c, timing, ask)
		if d.Turn == Challenge {
			return
		}
		if d.At <= ask.Local {
			rt.Fatalf("waits at %v until %v", ask.Local, d.At)
		}
		if early := l.f.Evaluate(c, timing, at(d.At-time.Millisecond)); early.Turn != Wait || early.At != d.At {
			rt.Fatalf("just before: %v until %v, was %v", early.Turn, early.At, d.At)
		}
		if then := l.f.Evaluate(c, timing, at(d.At)); then.Turn != Challenge {
			rt.Fatalf("at %v: %v until %v", d.At, then.Turn, then.At)
		}
	})
}
