package lead

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// lost is the answer of a request that got none.
var lost = Answer{Code: NoAnswer}

func TestA3ALeasesKeyHasNoMemberInAnyForm(t *testing.T) {
	for _, member := range []string{"\xff\xff", "\x00\x01\xff"} { // a negative length; not UTF-8
		if k, err := DecodeKey([]byte("\x00\x00\x00\x01\x00\x01a" + member)); err == nil {
			t.Errorf("member %q: %+v", member, k)
		}
	}
	long := make([]byte, MaxName+1)
	for i := range long {
		long[i] = 'm'
	}
	if _, err := DecodeRegistration(Registration{Member: string(long[1:])}.Append(nil)); err != nil {
		t.Errorf("a member of %d bytes: %v", MaxName, err)
	}
	if _, err := DecodeRegistration(Registration{Member: string(long)}.Append(nil)); err == nil {
		t.Errorf("a member of %d bytes is accepted", len(long))
	}
}

func TestA3AHeaderOfAnotherLengthIsNoTerm(t *testing.T) {
	l := newLog(t)
	l.grant(at(0), 5, "a", Token{1, 1}, kafka.Header{Key: HeaderTerm, Value: []byte{1, 2, 3}})
	if h, _ := l.f.Lease(); h.Term != 5 || h.Exact {
		t.Errorf("term %d, exact %v", h.Term, h.Exact)
	}
}

// A follower that reads an offset twice has seen nothing new.
func TestA4TheSameRecordCountsOnce(t *testing.T) {
	l := newLog(t)
	l.live = true
	l.register(at(0), 1, "b")
	l.grant(at(0), 2, "a", Token{1, 1})
	for _, e := range []Entry{
		{Offset: 1, Key: regKey("b"), Value: Registration{"b", wall0}.Append(nil)},
		{Offset: 2, Key: leaseKey, Value: Grant("a", Token{1, 1}, wall0, timing.Lease).Append(nil), Transactional: true},
	} {
		if ok, err := l.apply(at(20*sec), e); ok || err != nil {
			t.Errorf("offset %d counts again: %v, %v", e.Offset, ok, err)
		}
	}
	if at := l.f.Seen().At; at != 0 {
		t.Errorf("the lease is taken to be renewed at %v", at)
	}
}

func TestA8AFoldTellsTheTombstoneAndACopyStands(t *testing.T) {
	l := newLog(t)
	if got := l.f.ClearedAt(); got != -1 {
		t.Errorf("without a lease ever: %d", got)
	}
	l.register(at(0), 1, "a")
	l.grant(at(0), 2, "a", Token{1, 1})
	if got := l.f.ClearedAt(); got != -1 {
		t.Errorf("with a lease: %d", got)
	}
	l.clear(at(0), 3)
	if got := l.f.ClearedAt(); got != 3 {
		t.Errorf("cleared at %d, want 3", got)
	}
	c := l.f.Clone()
	l.remove(at(0), 4, "a")
	if got := c.Rank("a"); got != 0 {
		t.Errorf("a copy changes with the fold: rank %d", got)
	}
}

func TestA11ABadRegistrationMovesNobody(t *testing.T) {
	l := newLog(t)
	bad := func(off kafka.Offset, member string) {
		t.Helper()
		if ok, err := l.apply(at(0), Entry{Offset: off, Key: regKey(member), Value: []byte{9}}); !ok || err == nil {
			t.Fatalf("offset %d: %v, %v", off, ok, err)
		}
	}
	l.register(at(0), 1, "a")
	l.register(at(0), 2, "b")
	l.register(at(0), 3, "gone")
	l.remove(at(0), 4, "gone")
	bad(5, "a")
	bad(6, "gone")
	bad(7, "never")
	l.wantRoster("a", "b")
	// Each key has to be good again before the state is.
	l.register(at(0), 8, "a")
	l.register(at(0), 9, "gone")
	if l.f.Suspect() == nil {
		t.Error("a good value of one member clears the suspicion about another")
	}
	l.remove(at(0), 10, "never")
	if err := l.f.Suspect(); err != nil {
		t.Errorf("all keys are good again: %v", err)
	}
}

func TestA11ABadLeaseStaysSuspectUntilItIsReplacedOrCleared(t *testing.T) {
	l := newLog(t)
	l.live = true
	l.register(at(0), 1, "a")
	if _, err := l.apply(at(10*sec), Entry{Offset: 2, Key: leaseKey, Value: []byte{1}, Transactional: true}); err == nil {
		t.Fatal("it can be read")
	}
	if !l.f.Seen().Live {
		t.Error("it does not count as a lease that was seen to arrive")
	}
	l.register(at(11*sec), 3, "b")
	if l.f.Suspect() == nil {
		t.Error("a good registration clears the suspicion about the lease")
	}
	// There was no lease before it, and it counts as one all the same.
	if d := l.f.Evaluate(Candidate{Member: "a", Token: NoToken}, timing, at(39*sec)); d.Turn != Wait || d.At != 40*sec {
		t.Errorf("%v until %v, want wait until 40s", d.Turn, d.At)
	}
	l.clear(at(41*sec), 4)
	if err := l.f.Suspect(); err != nil {
		t.Errorf("the lease is cleared: %v", err)
	}
}

func TestB11FreshRegistrationsCountInTheOwnRank(t *testing.T) {
	l := newLog(t)
	l.register(at(0), 1, "dead")
	l.register(at(40*sec), 2, "fresh")
	l.register(at(50*sec), 3, "a")
	c := Candidate{Member: "a", Token: NoToken, RosterTTL: 30 * sec}
	if d := l.f.Evaluate(c, timing, at(60*sec)); d.Rank != 1 {
		t.Errorf("the rank is %d, want 1", d.Rank)
	}
	if d := l.f.Evaluate(c, timing, at(70*sec)); d.Rank != 1 {
		t.Errorf("at exactly the TTL the rank is %d: it is not older", d.Rank)
	}
}

func TestC1C8TimesAtTheEndsOfTheClockSaturate(t *testing.T) {
	for _, c := range [][3]int64{
		{math.MaxInt64, 1, math.MaxInt64}, {math.MinInt64, -1, math.MinInt64}, {math.MinInt64, math.MinInt64, math.MinInt64},
		{math.MinInt64, 1, math.MinInt64 + 1}, {math.MaxInt64, -1, math.MaxInt64 - 1}, {-3, 5, 2}, {5, -3, 2}, {-5, 3, -2}, {-2, -3, -5},
	} {
		if got := saturate(c[0], c[1]); got != c[2] {
			t.Errorf("%d + %d = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestC5ALeaseLastsAMillisecondAtLeast(t *testing.T) {
	x := Timing{Lease: time.Millisecond, Renew: 1, Stagger: 1}
	if err := x.Check(); err != nil {
		t.Error(err)
	}
	x.Lease--
	if x.Check() == nil {
		t.Errorf("a lease of %v, which is none on the wire, is accepted", x.Lease)
	}
}

func TestD7ATombstoneThatWasSeenCountsByTheLocalClockAlone(t *testing.T) {
	l := newLog(t)
	l.live = true
	l.register(at(0), 1, "a")
	l.register(at(0), 2, "b")
	hourAgo := wall0 - kafka.Timestamp(time.Hour.Milliseconds()) // the resigner's clock
	if _, err := l.apply(at(100*sec), Entry{Offset: 3, Key: leaseKey, Transactional: true, Time: hourAgo}); err != nil {
		t.Fatal(err)
	}
	if d := l.f.Evaluate(Candidate{Member: "b", Token: NoToken}, timing, at(100*sec)); d.Turn != Wait || d.At != 105*sec {
		t.Errorf("rank 1: %v until %v, want wait until 105s", d.Turn, d.At)
	}
}

func TestE11WhatIsNoSignOfLife(t *testing.T) {
	l := newLog(t)
	l.live = true
	l.register(at(0), 1, "b")
	l.clear(at(0), 2)
	value := Grant("z", Token{8, 0}, wall0, 10*sec).Append(nil)
	lease := Key{Kind: KindLease, Role: "r"}
	for name, c := range map[string]struct {
		k Key
		e Entry
	}{
		"a registration":         {Key{Kind: KindRegistration, Role: "r", Member: "z"}, Entry{Offset: 3, Value: value, Transactional: true}},
		"a tombstone":            {lease, Entry{Offset: 3, Transactional: true}},
		"what is committed":      {lease, Entry{Offset: 2, Value: value, Transactional: true}},
		"what is below the fold": {lease, Entry{Offset: 1, Value: value, Transactional: true}},
	} {
		if l.f.Open(c.k, c.e, at(sec)) {
			t.Errorf("%s counts", name)
		}
	}
	// A lease that is not committed yet stands in the way although the role is
	// vacant, for as long as it says itself.
	if !l.f.Open(lease, Entry{Offset: 3, Value: value, Transactional: true}, at(2*sec)) {
		t.Fatal("an open lease does not count")
	}
	if d := l.f.Evaluate(Candidate{Member: "b", Token: NoToken}, timing, at(11*sec)); d.Turn != Wait || d.At != 12*sec {
		t.Errorf("%v until %v, want wait until 12s", d.Turn, d.At)
	}
	if !l.f.Open(lease, Entry{Offset: 4, Value: []byte{1}, Transactional: true}, at(12*sec)) {
		t.Fatal("an open lease that cannot be read does not count")
	}
	if s := l.f.Seen(); s.For != timing.Lease || !s.Live {
		t.Errorf("it counts for %v, as seen to arrive %t; want the configured lease, seen", s.For, s.Live)
	}
}

func TestE2AValueThatWasChangedOnItsWayIsNotBelieved(t *testing.T) {
	for _, codec := range []compress.Codec{compress.None, compress.Gzip} {
		bad := sealed(5, 1, true, codec, "abcdefgh")
		bad[17] ^= 1 // the checksum itself: all else can be read
		if got, _, err := seen(t, answer(bad), 5); err == nil || len(got) != 0 {
			t.Errorf("%v: %v, %v", codec, got, err)
		}
	}
}

// An answer may begin below the position, with the end of a transaction that
// was aborted there: what the same producer wrote after it is good.
func TestE2E3AnAbortedTransactionEndsBelowThePositionToo(t *testing.T) {
	p := answer(marker(15, 2, false), sealed(16, 2, true, compress.None, "a"), marker(17, 2, true), sealed(18, 2, true, compress.None, "b"), sealed(19, 2, false, compress.None, "plain"), marker(20, 2, false))
	for _, from := range []int64{13, 18} {
		tx := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		tx.ProducerID, tx.FirstOffset = 2, from
		p.AbortedTransactions = append(p.AbortedTransactions, tx)
	}
	if got, next, err := seen(t, p, 16); !slices.Equal(got, []kafka.Offset{16, 19}) || next != 21 || err != nil {
		t.Errorf("%v, next %d, %v; want 16 and 19", got, next, err)
	}
}

func TestI9ALeaseSaysThatItsWriterIsPinned(t *testing.T) {
	for value, want := range map[string]bool{"1": true, "2": false, "": false} {
		l := newLog(t)
		l.grant(at(0), 5, "a", Token{1, 1}, kafka.Header{Key: HeaderTxn, Value: []byte(value)}, kafka.Header{Key: HeaderAddress, Value: []byte("host:1")})
		if h, _ := l.f.Lease(); h.Pinned != want || h.Address != "host:1" {
			t.Errorf("%q: pinned %v, address %q", value, h.Pinned, h.Address)
		}
	}
}

func TestP9AWeightIsAnExtraWait(t *testing.T) {
	l := newLog(t)
	l.live = true
	l.register(at(0), 1, "b")
	l.register(at(0), 2, "c")
	l.grant(at(0), 3, "a", Token{1, 1})
	c := Candidate{Member: "c", Token: NoToken, Delay: 3 * sec}
	if d := l.f.Evaluate(c, timing, at(sec)); d.At != 38*sec {
		t.Errorf("it waits until %v, want 38s: the lease, one stagger, its weight", d.At)
	}
}

func TestALeadershipLastsSinceItsGrant(t *testing.T) {
	term := kafka.Header{Key: HeaderTerm, Value: binary.BigEndian.AppendUint64(nil, 5)}
	inc := kafka.Header{Key: HeaderIncarnation, Value: make([]byte, 16)}
	l := newLog(t)
	since := func(want time.Duration) {
		t.Helper()
		if h, _ := l.f.Lease(); h.Since != at(want).Wall {
			t.Errorf("since %d, want %d", h.Since-wall0, want.Milliseconds())
		}
	}
	l.grant(at(0), 5, "a", Token{1, 1}, inc)
	l.grant(at(10*sec), 7, "a", Token{1, 2}, inc, term) // moved on by a re-init
	since(0)
	l.grant(at(20*sec), 9, "a", Token{1, 2}, inc) // a new one, whatever its pair
	since(20 * sec)
}

func TestAMemberThatStaysIsNeverForgotten(t *testing.T) {
	l := newLog(t)
	l.register(at(0), 0, "a")
	for i := range kafka.Offset(2000) {
		m := "m" + time.Duration(i).String()
		l.register(at(0), 2*i+1, m)
		l.remove(at(0), 2*i+2, m)
	}
	l.wantRoster("a")
	if ok, _ := l.apply(at(0), Entry{Offset: 3999, Key: regKey("m1.999µs"), Value: Registration{"m1.999µs", 0}.Append(nil)}); ok {
		t.Error("a late record of a member that was removed just now brings it back")
	}
}

func TestG11WhatIsNotSureIsEndedBeforeAnythingElse(t *testing.T) {
	t.Run("an add is followed by an abort", func(t *testing.T) {
		s := newScript(t)
		s.w.Begin(0)
		s.step(Add, lost)
		s.w.GiveUp(true)
		if s.w.Clean() || !s.w.Abandon() {
			t.Fatal("a transaction that may be open is left to its timeout")
		}
		s.step(Abort, Answer{})
	})
	t.Run("a commit is repeated and never turned into an abort", func(t *testing.T) {
		s := newScript(t)
		s.w.Begin(0)
		s.step(Add, Answer{})
		s.step(Produce, Answer{Offset: 1})
		s.step(Commit, lost)
		s.w.GiveUp(true)
		if !s.w.Abandon() {
			t.Fatal("there is nothing to do")
		}
		s.step(Commit, Answer{})
	})
	t.Run("a copy of an abort may still come", func(t *testing.T) {
		s := newScript(t)
		s.w.Begin(0)
		s.step(Add, Answer{})
		s.step(Produce, Answer{Code: 45})
		s.step(Abort, lost)
		s.w.GiveUp(true)
		if s.w.MayHaveHappened() {
			t.Error("an aborted write may have happened")
		}
		s.w.Begin(sec)
		s.step(Abort, Answer{})
		s.step(Reinit, Answer{Pair: Token{5, 2}})
	})
	t.Run("a late abort alone keeps the pair in doubt", func(t *testing.T) {
		s := newScript(t)
		s.w.Begin(0)
		s.step(Add, Answer{})
		s.w.GiveUp(false)
		if s.w.Clean() {
			t.Error("an open transaction is clean")
		}
		s.w.Abandon()
		s.step(Abort, lost)
		s.step(Abort, Answer{})
		s.w.Begin(sec)
		s.step(Reinit, Answer{Pair: Token{5, 2}})
	})
	t.Run("the earlier commit may have happened", func(t *testing.T) {
		s := newScript(t)
		s.w.Begin(0)
		s.step(Add, Answer{})
		s.step(Produce, Answer{Offset: 1})
		s.step(Commit, lost)
		s.w.GiveUp(true)
		s.w.Begin(sec)
		s.step(Commit, Answer{Code: 90})
		s.wantOutcome(Over)
		if !s.w.MayHaveHappened() {
			t.Error("it was asked to be committed, and says that it was not")
		}
	})
}

func TestG11ARequestThatWasNotWrittenIsRepeatedAndLeavesNoDoubt(t *testing.T) {
	s := newScript(t)
	s.w.Begin(0)
	s.step(Add, Answer{})
	s.step(Produce, Answer{Offset: 1})
	s.step(Commit, Answer{Code: NoAnswer, Unsent: true})
	if act := s.step(Commit, Answer{}); act.Attempt != 2 || !act.Move {
		t.Errorf("the repetition is %+v: it waits, and looks for the coordinator", act)
	}
	s.wantOutcome(Written)
	if !s.w.Clean() {
		t.Error("the pair is in doubt")
	}
}

func TestG12ANumberThatMayBeUsedIsNotClean(t *testing.T) {
	s := newScript(t)
	s.w.Begin(0)
	s.step(Add, Answer{})
	s.step(Produce, Answer{Code: 45})
	s.step(Abort, Answer{})
	s.step(Reinit, Answer{Code: 51})
	s.w.GiveUp(false)
	if s.w.Clean() {
		t.Error("a pair whose next number is not known is clean")
	}
}

func TestH4AnswersThatNoRequestShouldGetAreAskedAbout(t *testing.T) {
	for _, a := range []Answer{{Code: 48}, {Code: 120}, {Pair: NoToken}} {
		s := newScript(t)
		s.w.doubt = true
		s.w.Begin(0)
		s.step(Reinit, a)
		s.wantOutcome(Unresolved)
	}
	for _, code := range []int16{48, 120, 45} {
		s := newScript(t)
		s.w.Begin(0)
		s.step(Add, Answer{Code: code})
		s.wantOutcome(Unresolved)
	}
	if r := React(51); r != Again || retry.Of(51) != retry.Retry {
		t.Errorf("51 is %v: markers are pending, and nothing is in doubt", r)
	}
	for _, code := range []int16{5, 6, 14, 15, 16} {
		if r := React(code); r != Again && r != Elsewhere {
			t.Errorf("%d is %v", code, r)
		}
	}
}

func TestP7TheUserEndsATransactionWhoseLeaseWasNotWritten(t *testing.T) {
	for _, code := range []int16{45, 48, 120} {
		s := newScript(t)
		s.w.Join(0)
		s.step(Add, Answer{})
		s.step(Produce, Answer{Code: code})
		s.wantOutcome(Unresolved)
		if act, ok := s.w.Next(); ok {
			t.Errorf("%d: the writer sends %v in a transaction that is the user's", code, act.Step)
		}
	}
}

func TestP7ADoubtOutlivesTheUsersTransaction(t *testing.T) {
	s := newScript(t)
	s.w.Join(0)
	s.step(Add, Answer{})
	s.step(Produce, lost)
	s.step(Produce, Answer{Offset: 1})
	s.w.Left(0, Leave{Asked: Commit, Known: true})
	s.w.Begin(sec)
	s.step(Reinit, Answer{Pair: Token{5, 2}}) // a copy of the record may still be under way
}

func TestScenario17OnlyAnAnswerProvesThePair(t *testing.T) {
	s := newScript(t)
	s.w.Left(20*sec, Leave{Known: true, Doubt: true}) // nothing was asked
	s.w.Begin(30 * sec)
	s.wantOutcome(Over)
	if _, _, _, err := s.w.Outcome(); !errors.Is(err, ErrStale) {
		t.Errorf("over because of %v", err)
	}
	s = newScript(t)
	s.w.Left(20*sec, Leave{Asked: Commit, Known: true, Doubt: true})
	s.w.Begin(49 * sec)
	s.step(Reinit, Answer{Pair: Token{5, 2}})
}
