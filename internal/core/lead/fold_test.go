package lead

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ottla/ottla/kafka"
)

func tokenID(i int64) kafka.ProducerID       { return kafka.ProducerID(i) }
func tokenEpoch(i int16) kafka.ProducerEpoch { return kafka.ProducerEpoch(i) }
func stamp(i int64) kafka.Timestamp          { return kafka.Timestamp(i) }

const (
	sec   = time.Second
	wall0 = kafka.Timestamp(1_700_000_000_000)
)

// timing is the default of the contract without a stop margin.
var timing = Timing{Lease: 30 * sec, Renew: 10 * sec, Stagger: 5 * sec, Skew: 5 * sec}

// at is d after the start of a test on both clocks.
func at(d time.Duration) Now { return Now{Local: d, Wall: wall0 + kafka.Timestamp(d.Milliseconds())} }

// log feeds a fold as a follower does.
type log struct {
	t    *testing.T
	f    *Fold
	live bool // records are seen to arrive
}

func newLog(t *testing.T) *log { return &log{t: t, f: NewFold("r", timing.Lease)} }

func (l *log) apply(now Now, e Entry) (bool, error) {
	l.t.Helper()
	k, err := DecodeKey(e.Key)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.f.Apply(k, e, now, l.live)
}

func regKey(member string) []byte { return Key{KindRegistration, "r", member}.Append(nil) }

var leaseKey = Key{KindLease, "r", ""}.Append(nil)

func (l *log) register(now Now, off kafka.Offset, member string) {
	l.t.Helper()
	if ok, err := l.apply(now, Entry{Offset: off, Key: regKey(member), Value: Registration{member, now.Wall}.Append(nil)}); !ok || err != nil {
		l.t.Fatalf("registration at %d: %v, %v", off, ok, err)
	}
}

func (l *log) remove(now Now, off kafka.Offset, member string) {
	l.t.Helper()
	if _, err := l.apply(now, Entry{Offset: off, Key: regKey(member)}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *log) grant(now Now, off kafka.Offset, member string, tok Token, headers ...kafka.Header) {
	l.t.Helper()
	v := Grant(member, tok, now.Wall, timing.Lease).Append(nil)
	if ok, err := l.apply(now, Entry{Offset: off, Key: leaseKey, Value: v, Transactional: true, Writer: tok, Headers: headers}); !ok || err != nil {
		l.t.Fatalf("lease at %d: %v, %v", off, ok, err)
	}
}

func (l *log) clear(now Now, off kafka.Offset) {
	l.t.Helper()
	if _, err := l.apply(now, Entry{Offset: off, Key: leaseKey, Transactional: true, Time: now.Wall}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *log) roster() []string {
	var out []string
	for _, m := range l.f.Roster() {
		out = append(out, m.Name)
	}
	return out
}

func (l *log) wantRoster(want ...string) {
	l.t.Helper()
	if got := l.roster(); !reflect.DeepEqual(got, want) {
		l.t.Errorf("the roster is %q, want %q", got, want)
	}
}

func (l *log) wantHolder(member string) {
	l.t.Helper()
	h, ok := l.f.Lease()
	if !ok {
		h.Member = ""
	}
	if h.Member != member {
		l.t.Errorf("the holder is %q, want %q", h.Member, member)
	}
}

func TestA4TheHighestOffsetOfAKeyWinsInAnyOrder(t *testing.T) {
	l := newLog(t)
	var es []Entry
	for off := range kafka.Offset(40) {
		tok := Token{5, kafka.ProducerEpoch(off)}
		switch off % 5 {
		case 0, 1:
			m := string(rune('a' + off%3))
			es = append(es, Entry{Offset: off, Key: regKey(m), Value: Registration{m, wall0 + kafka.Timestamp(off)}.Append(nil)})
		case 2:
			es = append(es, Entry{Offset: off, Key: regKey(string(rune('a' + off%4)))})
		case 3:
			es = append(es, Entry{Offset: off, Key: leaseKey, Value: Grant("m", tok, wall0, sec).Append(nil), Transactional: true})
		default:
			if off != 39 {
				es = append(es, Entry{Offset: off, Key: leaseKey, Transactional: true})
			}
		}
	}
	for _, e := range es {
		_, _ = l.apply(at(0), e)
	}
	want, held := l.f.Roster(), l.f.lease
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 4))
		m := newLog(t)
		rng.Shuffle(len(es), func(i, j int) { es[i], es[j] = es[j], es[i] })
		for _, e := range es {
			_, _ = m.apply(at(0), e)
		}
		if d := cmp.Diff(want, m.f.Roster()); d != "" || m.f.lease.offset != held.offset || m.f.lease.gone != held.gone || m.f.lease.value.Token != held.value.Token {
			t.Fatalf("seed %d: %s, lease %+v, want %+v", seed, d, m.f.lease, held)
		}
	}
	l = newLog(t)
	l.remove(at(0), 9, "a")
	if ok, _ := l.apply(at(0), Entry{Offset: 8, Key: regKey("a"), Value: Registration{"a", 0}.Append(nil)}); ok || len(l.roster()) != 0 {
		t.Error("a registration below the tombstone of its member came back")
	}
}

func TestA5TheKeyIsTheIdentity(t *testing.T) {
	l := newLog(t)
	if _, err := l.apply(at(0), Entry{Offset: 1, Key: regKey("a"), Value: Registration{"z", 1}.Append(nil)}); err != nil {
		t.Fatal(err)
	}
	l.wantRoster("a")
}

func TestA6A7B8TheRosterIsInOrderOfOffsetsAndARegistrationMovesToTheTail(t *testing.T) {
	l := newLog(t)
	l.register(at(0), 10, "a")
	l.register(at(0), 700, "b") // compaction keeps offsets, so gaps mean nothing
	l.register(at(0), 20, "c")
	l.wantRoster("a", "c", "b")
	l.remove(at(0), 701, "a")
	l.wantRoster("c", "b")
	l.register(at(0), 702, "a")
	l.wantRoster("c", "b", "a")
	l.grant(at(0), 703, "b", Token{1, 1})
	l.register(at(sec), 704, "c") // again: to the tail, and the live holder stays
	l.wantRoster("b", "a", "c")
	l.wantHolder("b")
	if d := l.f.Evaluate(Candidate{Member: "c", Token: NoToken}, timing, at(sec)); d.Turn != Wait || d.Rank != 1 {
		t.Errorf("after it registered again it may %v with rank %d", d.Turn, d.Rank)
	}
}

func TestA8ALeaseIsClearedAndSetAgain(t *testing.T) {
	l := newLog(t)
	l.grant(at(0), 1, "a", Token{1, 1})
	l.wantHolder("a")
	l.clear(at(0), 2)
	l.wantHolder("")
	l.grant(at(0), 3, "b", Token{1, 3})
	l.wantHolder("b")
}

func TestA11AValueThatCannotBeReadKeepsTheOldOneAndMakesTheStateSuspect(t *testing.T) {
	l := newLog(t)
	l.live = true
	l.register(at(0), 1, "a")
	l.grant(at(0), 2, "b", Token{1, 1})
	ok, err := l.apply(at(25*sec), Entry{Offset: 3, Key: leaseKey, Value: []byte{1, 2, 3}, Transactional: true})
	var de *DecodeError
	if !ok || !errors.As(err, &de) || de.Part != PartLease {
		t.Fatalf("counted %v, %v", ok, err)
	}
	l.wantHolder("b")
	if l.f.Suspect() == nil {
		t.Error("the state is not suspect")
	}
	// It counts as a lease seen at 25 s, of the configured duration.
	c := Candidate{Member: "a", Token: NoToken}
	if d := l.f.Evaluate(c, timing, at(54*sec)); d.Turn != Wait || d.At != 55*sec {
		t.Errorf("at 54 s %v until %v, want wait until 55s", d.Turn, d.At)
	}
	if d := l.f.Evaluate(c, timing, at(55*sec)); d.Turn != Challenge {
		t.Errorf("at 55 s %v", d.Turn)
	}
	l.grant(at(56*sec), 4, "b", Token{1, 1})
	if l.f.Suspect() != nil {
		t.Errorf("a good value leaves it suspect: %v", l.f.Suspect())
	}
	ok, err = l.apply(at(0), Entry{Offset: 5, Key: regKey("a"), Value: []byte{9}})
	if !ok || err == nil || l.f.Suspect() == nil {
		t.Errorf("a bad registration: counted %v, %v, suspect %v", ok, err, l.f.Suspect())
	}
	l.wantRoster("a")
}

func TestA12ALeaseOutsideOfATransactionIsForged(t *testing.T) {
	l := newLog(t)
	l.grant(at(0), 1, "a", Token{1, 1})
	forged := Entry{Offset: 2, Key: leaseKey, Value: Grant("z", Token{1, 1}, wall0, sec).Append(nil), Writer: Token{1, 1}}
	if ok, _ := l.apply(at(0), forged); ok {
		t.Error("a lease of a plain batch counted")
	}
	forged.Value = nil
	if ok, _ := l.apply(at(0), forged); ok {
		t.Error("a tombstone of a plain batch counted")
	}
	l.wantHolder("a")
	if l.f.Forged() != 2 {
		t.Errorf("%d forged records are counted, want 2", l.f.Forged())
	}
	tok := Token{1, 7}
	v := Grant("b", Token{1, 5}, wall0, sec).Append(nil)
	if _, err := l.apply(at(0), Entry{Offset: 3, Key: leaseKey, Value: v, Transactional: true, Writer: tok}); err != nil {
		t.Fatal(err)
	}
	if h, _ := l.f.Lease(); h.Writer != tok || h.Token != (Token{1, 5}) {
		t.Errorf("the batch's pair is %v, the lease's %v", h.Writer, h.Token)
	}
}

func TestTheTermIsTheOffsetOfTheGrant(t *testing.T) {
	term := func(off int64) kafka.Header {
		return kafka.Header{Key: HeaderTerm, Value: binary.BigEndian.AppendUint64(nil, uint64(off))}
	}
	inc := kafka.Header{Key: HeaderIncarnation, Value: make([]byte, 16)}
	l := newLog(t)
	check := func(want kafka.Offset, exact bool) {
		t.Helper()
		if h, _ := l.f.Lease(); h.Term != want || h.Exact != exact {
			t.Errorf("term %d, exact %v; want %d, %v", h.Term, h.Exact, want, exact)
		}
	}
	l.grant(at(0), 5, "a", Token{1, 1}, inc)
	check(5, true)
	l.grant(at(10*sec), 7, "a", Token{1, 1}, inc, term(5))
	check(5, true)
	if h, _ := l.f.Lease(); h.Since != wall0 {
		t.Errorf("it leads since %v, want %v", h.Since, wall0)
	}
	l.grant(at(10*sec), 8, "a", Token{1, 2}, inc, term(5)) // a re-init is no new leadership
	check(5, true)
	l.grant(at(11*sec), 9, "a", Token{1, 4}, inc) // and this is one
	check(9, true)
	// A holder of another language says no term: the lowest offset seen.
	l.grant(at(12*sec), 11, "j", Token{9, 0})
	check(11, false)
	l.grant(at(13*sec), 13, "j", Token{9, 0})
	check(11, false)
	l.grant(at(14*sec), 15, "j", Token{3, 0}) // a lower producer id may well be the newer one
	check(15, false)
}

func TestRemovedMembersAreForgottenInTime(t *testing.T) {
	l := newLog(t)
	for i := range kafka.Offset(5000) {
		m := "m" + time.Duration(i).String()
		l.register(at(0), 2*i, m)
		l.remove(at(0), 2*i+1, m)
	}
	l.register(at(0), 20_000, "a")
	if len(l.f.members) > 2*mostGone+1 {
		t.Errorf("%d members are kept", len(l.f.members))
	}
	l.wantRoster("a")
}
