package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// sent is a request as a member sent it.
type sent struct {
	at   time.Time
	from string
	req  kmsg.Request
}

// journal notes every request from now on.
func (s *stage) journal() func() []sent {
	var mu sync.Mutex
	var all []sent
	s.with(func(*model.Cluster) {
		s.onSend = func(l *link, req kmsg.Request) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, sent{time.Now(), l.name, req})
		}
	})
	return func() []sent {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// plain is a write outside of a transaction, nil if r is none: a registration or
// its tombstone.
func (r sent) plain() *kmsg.ProduceRequest {
	if p, ok := r.req.(*kmsg.ProduceRequest); ok && p.TransactionID == nil {
		return p
	}
	return nil
}

// registrations are the plain writes of a member that are no tombstones.
func registrations(all []sent, member string) (out []sent) {
	for _, r := range all {
		if p := r.plain(); p != nil && r.from == member && entryOf(p).Value != nil {
			out = append(out, r)
		}
	}
	return out
}

// entryOf is the one record of a request, as the scanner of the log sees it.
func entryOf(p *kmsg.ProduceRequest) (e lead.Entry) {
	a := kmsg.NewFetchResponseTopicPartition()
	a.RecordBatches = p.Topics[0].Partitions[0].Records
	_, _ = new(lead.Scanner).Scan(&a, 0, func(got lead.Entry) { e = got })
	return e
}

// roster is who is in a role's roster, by rank, as a member sees it.
func (s *stage) roster(e *Elector, role string) (names []string) {
	s.t.Helper()
	st, err := e.Describe(within(s.t, time.Minute), role)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, m := range st.Roster {
		names = append(names, m.Name)
	}
	return names
}

func TestB1ARegistrationIsOnePlainIdempotentAppend(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		all := s.journal()
		e := s.member("a")
		ids := map[kafka.ProducerID]bool{}
		for _, role := range []string{"controller", "dispatcher"} {
			win(t, e, role)
			r := registrations(all(), "a")
			p := r[len(r)-1].plain()
			b, _, err := record.Next(p.Topics[0].Partitions[0].Records)
			switch {
			case err != nil:
				t.Fatal(err)
			case p.Acks != -1 || len(p.Topics) != 1 || len(p.Topics[0].Partitions) != 1 || p.Topics[0].Partitions[0].Partition != placeOf(role).Partition:
				t.Errorf("%s: acks %d, %+v", role, p.Acks, p.Topics)
			case b.Count() != 1 || b.Transactional() || b.ProducerID() < 0:
				t.Errorf("%s: a batch of %d records, transactional %v, of producer %d", role, b.Count(), b.Transactional(), b.ProducerID())
			}
			k, err := lead.DecodeKey(entryOf(p).Key)
			if want := (lead.Key{Kind: lead.KindRegistration, Role: role, Member: "a"}); k != want || err != nil {
				t.Errorf("%s: the key is %+v, %v", role, k, err)
			}
			ids[b.ProducerID()] = true
		}
		if n := len(registrations(all(), "a")); n != 2 || len(ids) != 1 {
			t.Errorf("%d registrations by %d producers for two roles", n, len(ids))
		}
	})
}

func TestB2TheOffsetThatTheBrokerGivesIsTheJoinSequence(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		want := map[string]kafka.Offset{}
		for _, name := range []string{"c", "a", "b"} {
			e := s.member(name)
			if _, err := e.topic.ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			off, err := e.registrar.register(t.Context(), "r")
			if err != nil {
				t.Fatal(err)
			}
			want[name] = off
		}
		e := s.opens[0]
		if got := s.roster(e, "r"); fmt.Sprint(got) != "[c a b]" {
			t.Errorf("the roster is %v", got)
		}
		f, _, _ := e.log.partition(placeOf("r").Partition).fold("r")
		for _, m := range f.Roster() {
			if m.Offset != want[m.Name] {
				t.Errorf("%s is at %d, the broker said %d", m.Name, m.Offset, want[m.Name])
			}
		}
	})
}

// hidden has a transaction of another role open in the partition of
// "controller", and returns what ends it.
func (s *stage) hidden() (end func()) {
	s.t.Helper()
	f := newForeign(s.link("other"), "role-b")
	if code := f.mint(); code != 0 {
		s.t.Fatal(code)
	}
	if code := f.produce(placeOf("controller"), lead.Key{Kind: lead.KindLease, Role: "role-b"}.Append(nil), nil); code != 0 {
		s.t.Fatal(code)
	}
	return func() {
		s.t.Helper()
		if code := f.end(false); code != 0 {
			s.t.Fatal(code)
		}
	}
}

func TestB4B5ARegistrationThatIsNotVisibleIsNotWrittenAgain(t *testing.T) {
	t.Run("B4 behind an open transaction it is waited for", func(t *testing.T) {
		onStage(t, model.Config{Sweep: time.Hour}, func(t *testing.T, s *stage) {
			all := s.journal()
			a := s.member("a")
			if _, err := a.topic.ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			end := s.hidden()
			won := s.candidate(a, "controller")
			time.Sleep(5 * brief.Lease)
			if n := len(registrations(all(), "a")); n != 1 {
				t.Errorf("while it is hidden %d registrations were written", n)
			}
			end()
			s.after(won, time.Minute)
			if n := len(registrations(all(), "a")); n != 1 {
				t.Errorf("once it was seen %d registrations had been written", n)
			}
		})
	})
	t.Run("B5 one that was taken out is written again", func(t *testing.T) {
		onStage(t, model.Config{}, func(t *testing.T, s *stage) {
			all := s.journal()
			win(t, s.member("a"), "r")
			b := s.member("b")
			s.candidate(b, "r")
			time.Sleep(time.Second)
			if _, err := b.registrar.append(t.Context(), "r", nil); err != nil { // as an operator would
				t.Fatal(err)
			}
			time.Sleep(brief.Lease)
			if got := s.roster(b, "r"); fmt.Sprint(got) != "[a b]" || len(registrations(all(), "b")) != 2 {
				t.Errorf("the roster is %v after %d registrations", got, len(registrations(all(), "b")))
			}
		})
	})
}

func TestB8RegisteringAgainDoesNotPreempt(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		b, c := s.member("b"), s.member("c")
		nb, nc := s.candidate(b, "r"), s.candidate(c, "r")
		time.Sleep(time.Second)
		for range 3 {
			if _, err := b.registrar.register(t.Context(), "r"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(brief.Renew)
		}
		if got := s.roster(b, "r"); fmt.Sprint(got) != "[a c b]" {
			t.Errorf("the roster is %v", got)
		}
		s.noTerm(nb, "by registering again")
		s.noTerm(nc, "by the other's registering again")
		if ta.Err() != nil || s.mintsOf("b") != 0 {
			t.Errorf("%v, %d epochs taken", ta.Err(), s.mintsOf("b"))
		}
	})
}

// A standby that died and comes back under its name must not be preferred for
// its old registration.
func TestB9NoFailback(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		tx := win(t, s.member("x"), "r")
		a, b := s.member("a"), s.member("b")
		s.candidate(a, "r")
		time.Sleep(time.Second)
		nb := s.candidate(b, "r")
		time.Sleep(time.Second)
		dead := s.links["a"]
		dead.setCut(true, nil)
		defer dead.setCut(false, nil)
		na := s.candidate(s.member("a"), "r")
		time.Sleep(time.Second)
		if got := s.roster(b, "r"); fmt.Sprint(got) != "[x b a]" {
			t.Errorf("the roster is %v", got)
		}
		if err := tx.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, took := s.after(nb, brief.Lease); took > brief.Stagger {
			t.Errorf("who waited longer leads after %v", took)
		}
		s.noTerm(na, "before one that waited longer")
	})
}

func TestB10LeavingWritesATombstone(t *testing.T) {
	leave := map[string]func(t *testing.T, e *Elector, cancel context.CancelFunc){
		"the campaign's context ends": func(t *testing.T, e *Elector, cancel context.CancelFunc) { cancel() },
		"the elector is closed": func(t *testing.T, e *Elector, cancel context.CancelFunc) {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		},
	}
	for name, end := range leave {
		t.Run(name, func(t *testing.T) {
			onStage(t, model.Config{}, func(t *testing.T, s *stage) {
				a, b := s.member("a"), s.member("b")
				win(t, a, "r")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() { _, err := b.Campaign(ctx, "r"); done <- err }()
				time.Sleep(time.Second)
				if got := s.roster(a, "r"); len(got) != 2 {
					t.Fatalf("the roster is %v", got)
				}
				all := s.journal()
				end(t, b, cancel)
				if err := <-done; err == nil {
					t.Error("the campaign is won")
				}
				if got := s.roster(a, "r"); fmt.Sprint(got) != "[a]" {
					t.Errorf("the roster is %v", got)
				}
				for _, r := range all() {
					if p := r.plain(); p != nil && r.from == "b" && entryOf(p).Value != nil {
						t.Error("the last word is no tombstone, a null value")
					}
				}
			})
		})
	}
}

func TestB12OnlyStandbysRegisterAnewAndNotInStep(t *testing.T) {
	const every = 20 * time.Second
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		all := s.journal()
		again := func(c *Config) { c.Reregister, c.RosterTTL = every, time.Minute }
		win(t, s.member("a", again), "r")
		s.candidate(s.member("b", again), "r")
		s.candidate(s.member("c"), "r") // for whom it is off
		time.Sleep(5 * time.Minute)
		for name, want := range map[string][2]int{"a": {1, 1}, "b": {15, 20}, "c": {1, 1}} {
			if n := len(registrations(all(), name)); n < want[0] || n > want[1] {
				t.Errorf("%s registered %d times in 5 min", name, n)
			}
		}
		gaps := map[time.Duration]bool{}
		rs := registrations(all(), "b")
		for i := 1; i < len(rs); i++ {
			gap := rs[i].at.Sub(rs[i-1].at)
			if gap < every*3/4 || gap > every+time.Second {
				t.Errorf("b registers anew after %v", gap)
			}
			gaps[gap.Round(100*time.Millisecond)] = true
		}
		if len(gaps) < 5 {
			t.Errorf("its gaps are of %d lengths only", len(gaps))
		}
	})
}

// A candidate gives up while its registration, which the broker has written, is
// not answered: its tombstone must not be taken for a repetition of it. Mutation:
// the registrar keeps its identity after a record that it gave up.
func TestB10ACandidateThatGaveUpAnUnansweredRegistrationLeavesTheRoster(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		win(t, a, "r")
		var lost atomic.Bool
		s.links["b"].set(func(l *link) {
			l.drop = func(req kmsg.Request) bool {
				p, ok := req.(*kmsg.ProduceRequest)
				return ok && p.TransactionID == nil && !lost.Swap(true)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Campaign(ctx, "r"); !errors.Is(err, ErrAcquireTimeout) || !lost.Load() {
			t.Fatalf("%v", err)
		}
		if got := s.roster(a, "r"); !slices.Equal(got, []string{"a"}) {
			t.Errorf("the roster is %v", got)
		}
	})
}

// A standby was taken out of the roster and registers anew, behind a transaction
// that is open when it reads and has ended when it reads again to see itself: the
// leader lives. Mutation: prove takes a registration that came to sight for a turn.
func TestE9ARegistrationThatBecomesVisibleIsNoTurn(t *testing.T) {
	onStage(t, model.Config{Sweep: time.Hour}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		ta := win(t, a, "controller")
		next := s.candidate(b, "controller")
		time.Sleep(time.Second)
		var end func()
		var reads atomic.Int32
		s.links["b"].set(func(l *link) {
			l.before = func(req kmsg.Request) {
				switch q := req.(type) {
				case *kmsg.ProduceRequest:
					if q.TransactionID == nil && entryOf(q).Value != nil && end == nil {
						end = s.hidden()
					}
				case *kmsg.ListOffsetsRequest:
					if end != nil && q.IsolationLevel == committed && reads.Add(1) == 2 {
						end()
					}
				}
			}
		})
		if _, err := b.registrar.append(t.Context(), "controller", nil); err != nil { // as an operator would
			t.Fatal(err)
		}
		time.Sleep(3 * brief.Lease)
		if n := s.mintsOf("b"); n != 0 || ta.Err() != nil || reads.Load() < 2 {
			t.Errorf("%d reads, %d epochs taken; the leader: %v", reads.Load(), n, ta.Err())
		}
		if got := s.roster(a, "controller"); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("the roster is %v", got)
		}
		s.noTerm(next, "while a leads")
	})
}
