package leader

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/model"
)

// once answers the first request of a key with a code, without effect.
func once(key, code int16) func(req kmsg.Request) int16 {
	var done atomic.Bool
	return func(req kmsg.Request) int16 {
		if p, ok := req.(*kmsg.ProduceRequest); ok && p.TransactionID == nil || req.Key() != key || done.Swap(true) {
			return 0
		}
		return code
	}
}

func TestH2TheLeadershipEndsOnTheCodeAndIsExplainedLater(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a := s.member("a")
		ta := win(t, a, "r")
		if code := newForeign(s.link("x"), "r").mint(); code != 0 {
			t.Fatal(code)
		}
		s.links["a"].setCut(true, func(key int16) bool { return key == 65 }) // DescribeTransactions
		began := time.Now()
		if err := ta.Renew(t.Context()); !IsFence(err) {
			t.Errorf("the renewal: %v", err)
		}
		select {
		case <-ta.Done():
		default:
			t.Error("it waits for the explanation")
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("it ended after %v", took)
		}
		if loss, err := ta.Loss(within(t, 100*time.Millisecond)); err == nil {
			t.Errorf("explained as %v without an answer", loss)
		}
		s.links["a"].setCut(false, nil)
		if loss, err := ta.Loss(within(t, time.Minute)); err != nil || loss.Kind != LossForeign && loss.Kind != LossUnknown {
			t.Errorf("explained as %v, %v", loss, err)
		}
	})
}

// H3: who fenced a leader is told only once that was looked up.
func TestH3AFenceDoesNotClaimThatAnotherLeads(t *testing.T) {
	onStage(t, model.Config{Sweep: time.Second}, func(t *testing.T, s *stage) {
		for _, key := range []int16{24, 26, 0} {
			for _, code := range []int16{47, 49, 90} {
				ta := win(t, s.member(fmt.Sprint("a", key, code)), fmt.Sprint("r", key, code))
				s.links[ta.Member()].set(func(l *link) { l.answer = once(key, code) })
				err := ta.Renew(t.Context())
				if !errors.Is(err, ErrFenced) || ta.Err() == nil {
					t.Fatalf("code %d: %v", code, err)
				}
				text := strings.ReplaceAll(err.Error(), kerr.TypedErrorForCode(code).Description, "") // the broker may
				for _, claim := range []string{"another", "member", "superseded", "newer", "other"} {
					if strings.Contains(text, claim) {
						t.Errorf("code %d: %q claims to know who", code, text)
					}
				}
			}
		}
	})
}

func TestH4CodesThatAreNoFenceDoNotEndALeadership(t *testing.T) {
	codes := map[int16][]int16{
		24: {3, 14, 15, 16, 48, 51, 59, 87},
		0:  {3, 5, 6, 7, 9, 19, 20, 45, 48, 56, 59, 74, 75, 87, 120},
		26: {14, 15, 16, 51, -1},
	}
	for key, all := range codes {
		t.Run(kmsg.NameForKey(key), func(t *testing.T) {
			onStage(t, model.Config{}, func(t *testing.T, s *stage) {
				for _, code := range all {
					e := s.member(fmt.Sprint("a", code))
					ta := win(t, e, fmt.Sprint("r", code))
					s.links[ta.Member()].set(func(l *link) { l.answer = once(key, code) })
					if err := ta.Renew(t.Context()); err != nil && !errors.Is(err, kerr.ErrorForCode(code)) {
						t.Errorf("code %d becomes %v", code, err)
					}
					time.Sleep(brief.Lease + time.Second)
					if ta.Err() != nil {
						t.Errorf("code %d to %s ended the leadership: %v", code, kmsg.NameForKey(key), ta.Err())
					}
					_ = e.Close()
				}
			})
		})
	}
	t.Run("48 that the coordinator confirms", func(t *testing.T) {
		onStage(t, model.Config{}, func(t *testing.T, s *stage) {
			ta := win(t, s.member("a"), "r")
			s.with(func(*model.Cluster) {}) // time moves
			if code := newForeign(s.link("x"), "r").mint(); code != 0 {
				t.Fatal(code)
			}
			s.links["a"].set(func(l *link) { l.answer = once(24, 48) })
			if err := ta.Renew(t.Context()); !errors.Is(ta.Err(), ErrFenced) {
				t.Errorf("%v, %v", err, ta.Err())
			}
		})
	})
}

// wordOf is what a request of a resignation is about.
func wordOf(r sent) string {
	switch q := r.req.(type) {
	case *kmsg.ProduceRequest:
		switch {
		case q.TransactionID == nil:
			return "registration"
		case entryOf(q).Value == nil:
			return "tombstone"
		}
		return "lease"
	case *kmsg.EndTxnRequest:
		return fmt.Sprint("end ", q.Commit)
	case *kmsg.InitProducerIDRequest:
		if q.TransactionalID == nil {
			return ""
		}
		if q.ProducerID < 0 {
			return "mint"
		}
		return "re-init"
	}
	return ""
}

// steps are what a member sent, in words.
func steps(all []sent, member string) (out []string) {
	for _, r := range all {
		if s := wordOf(r); s != "" && r.from == member {
			out = append(out, s)
		}
	}
	return out
}

func TestI1I3I5AResignationInItsOrder(t *testing.T) {
	want := []string{"registration", "tombstone", "end true", "re-init", "re-init"}
	run := func(t *testing.T, check func(t *testing.T, s *stage, ta *Term, all func() []sent)) {
		onStage(t, model.Config{}, func(t *testing.T, s *stage) {
			check(t, s, win(t, s.member("a"), "r"), s.journal())
		})
	}
	t.Run("I1 done first, then tail, tombstone and burn, and nothing at a second call", func(t *testing.T) {
		run(t, func(t *testing.T, s *stage, ta *Term, all func() []sent) {
			s.links["a"].set(func(l *link) {
				l.before = func(req kmsg.Request) {
					select {
					case <-ta.Done():
					default:
						if req.Key() != 1 {
							s.problem("%s before Done is closed", kmsg.NameForKey(req.Key()))
						}
					}
				}
			})
			if err := ta.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := steps(all(), "a"); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("the order is %q, want %q", got, want)
			}
			if err := ta.Resign(t.Context()); err != nil || len(steps(all(), "a")) != len(want) {
				t.Errorf("a second call: %v, %q", err, steps(all(), "a"))
			}
			for _, p := range s.problems {
				t.Error(p)
			}
		})
	})
	t.Run("I1 a tombstone that failed is repeated by the second call", func(t *testing.T) {
		run(t, func(t *testing.T, s *stage, ta *Term, all func() []sent) {
			s.links["a"].setCut(true, func(key int16) bool { return key == 24 })
			if err := ta.Resign(within(t, time.Second)); err == nil || ta.Err() == nil {
				t.Fatalf("%v, the term: %v", err, ta.Err())
			}
			s.links["a"].setCut(false, nil)
			if err := ta.Resign(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			s.with(func(m *model.Cluster) {
				if ls := leases(m, "r"); !ls[len(ls)-1].gone {
					t.Error("the lease is not cleared")
				}
			})
		})
	})
	t.Run("I3 the resigner goes to the tail before", func(t *testing.T) {
		run(t, func(t *testing.T, s *stage, ta *Term, all func() []sent) {
			b := s.member("b")
			next := s.candidate(b, "r")
			time.Sleep(time.Second)
			if err := ta.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, took := s.after(next, time.Minute); took > brief.Stagger/2 {
				t.Errorf("the standby ranks behind the resigner: %v", took)
			}
			if got := s.roster(b, "r"); fmt.Sprint(got) != "[b a]" {
				t.Errorf("the roster is %v", got)
			}
		})
	})
	t.Run("I5 the pair is burnt by two re-inits and no mint", func(t *testing.T) {
		run(t, func(t *testing.T, s *stage, ta *Term, all func() []sent) {
			pair := ta.Token()
			if err := ta.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.with(func(m *model.Cluster) {
				if tx, _ := m.Transaction("r"); tx.ID != pair.ID || tx.Epoch != pair.Epoch+2 {
					t.Errorf("the coordinator is at %d:%d, the pair was %v", tx.ID, tx.Epoch, pair)
				}
			})
			if n := s.mintsOf("a"); n != 1 {
				t.Errorf("%d mints", n)
			}
		})
	})
	t.Run("I5 it burns no successor", func(t *testing.T) {
		run(t, func(t *testing.T, s *stage, ta *Term, all func() []sent) {
			var tb *Term
			b := s.member("b")
			var once atomic.Bool
			s.links["a"].set(func(l *link) {
				l.before = func(req kmsg.Request) {
					if q, ok := req.(*kmsg.InitProducerIDRequest); ok && q.ProducerID >= 0 && !once.Swap(true) {
						tb = win(t, b, "r") // between the tombstone and the burn
					}
				}
			})
			if err := ta.Resign(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(brief.Lease)
			if tb == nil || tb.Err() != nil {
				t.Fatalf("the successor: %v", tb)
			}
		})
	})
}

// A fenced re-init aborts what the successor has open, and so takes the role
// from it: here that would be its grant.
func TestI5ABurnDoesNotMeetTheSuccessorsGrant(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta, b := win(t, s.member("a"), "r"), s.member("b")
		next := s.candidate(b, "r")
		time.Sleep(time.Second)
		granting, resigned := make(chan struct{}), make(chan struct{})
		var cleared, once atomic.Bool
		s.links["a"].set(func(l *link) {
			l.before = func(req kmsg.Request) {
				switch req.Key() {
				case 26:
					cleared.Store(true)
				case 22, 65: // the first step of the burn
					if cleared.Load() {
						<-granting
					}
				}
			}
		})
		s.links["b"].set(func(l *link) {
			l.before = func(req kmsg.Request) {
				if req.Key() == 26 && !once.Swap(true) {
					close(granting)
					<-resigned
				}
			}
		})
		if err := ta.Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		close(resigned)
		tb, _ := s.after(next, time.Minute)
		if st := b.Stats(); tb.Err() != nil || st.LostRaces != 0 {
			t.Errorf("%v; %d races lost", tb.Err(), st.LostRaces)
		}
	})
}

// A candidate gets the time for its mint, which burns the pair as well; without
// one there is nothing to wait for.
func TestI5ACandidatesMintIsTheBurn(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta, b := win(t, s.member("a"), "r"), s.member("b")
		next := s.candidate(b, "r")
		time.Sleep(time.Second)
		all := s.journal()
		if err := ta.Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		tb, _ := s.after(next, time.Minute)
		if got := fmt.Sprint(steps(all(), "a")); got != "[registration tombstone end true]" {
			t.Errorf("beside the successor's mint: %s", got)
		}
		began := time.Now() // a is in the roster, and does not come
		if err := tb.Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the resignation took %v", took)
		}
		s.with(func(m *model.Cluster) {
			if tx, _ := m.Transaction("r"); tx.ID != tb.Token().ID || tx.Epoch != tb.Token().Epoch+2 {
				t.Errorf("the coordinator is at %d:%d, the pair was %v", tx.ID, tx.Epoch, tb.Token())
			}
		})
	})
}

func TestI4AResignationWaitsForTheRenewalUnderWay(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		all := s.journal()
		hold, held := make(chan struct{}), make(chan struct{})
		var once atomic.Bool
		s.links["a"].set(func(l *link) {
			l.before = func(req kmsg.Request) {
				if req.Key() == 26 && !once.Swap(true) {
					close(held)
					<-hold
				}
			}
		})
		go func() { _ = ta.Renew(t.Context()) }()
		<-held
		done := make(chan error, 1)
		go func() { done <- ta.Resign(within(t, time.Minute)) }()
		time.Sleep(500 * time.Millisecond)
		if got := steps(all(), "a"); fmt.Sprint(got) != "[lease end true]" {
			t.Errorf("beside the end of a renewal %q", got)
		}
		select {
		case <-ta.Done():
		default:
			t.Error("the leadership goes on meanwhile")
		}
		close(hold)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := steps(all(), "a"); fmt.Sprint(got) != "[lease end true registration tombstone end true re-init re-init]" {
			t.Errorf("the order is %q", got)
		}
	})
}

func TestI6DescribeAsksTheCoordinatorAndTakesNothing(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		b := s.member("b")
		s.with(func(m *model.Cluster) { m.MoveCoordinator("r", 2) })
		all := s.journal()
		for _, to := range []int32{2, 3, 1} { // wherever it is
			s.with(func(m *model.Cluster) { m.MoveCoordinator("r", 1+(m.Coordinator("r"))%3) })
			if st, err := b.Describe(within(t, time.Minute), "r"); err != nil || st.Epoch != ta.Token() {
				t.Errorf("%d: %+v, %v", to, st, err)
			}
		}
		for _, r := range all() {
			switch r.req.Key() {
			case 0, 19, 22, 24, 26:
				if r.from == "b" {
					t.Errorf("an observer sends %s", kmsg.NameForKey(r.req.Key()))
				}
			}
		}
		if ta.Err() != nil || fmt.Sprint(s.roster(b, "r")) != "[a]" {
			t.Errorf("%v, %v", ta.Err(), s.roster(b, "r"))
		}
	})
}

func TestI7NoEpochIsNoError(t *testing.T) {
	for name, edit := range map[string]func(st *kmsg.DescribeTransactionsResponseTransactionState){
		"105": func(st *kmsg.DescribeTransactionsResponseTransactionState) {
			st.ErrorCode, st.ProducerID, st.ProducerEpoch = 105, -1, -1
		},
		"-1:-1": func(st *kmsg.DescribeTransactionsResponseTransactionState) { st.ProducerID, st.ProducerEpoch = -1, -1 },
		"-1:0":  func(st *kmsg.DescribeTransactionsResponseTransactionState) { st.ProducerID, st.ProducerEpoch = -1, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
				a := s.member("a")
				ta := win(t, a, "r")
				s.links["a"].set(func(l *link) {
					l.edit = func(_ kmsg.Request, resp kmsg.Response) {
						if d, ok := resp.(*kmsg.DescribeTransactionsResponse); ok {
							edit(&d.TransactionStates[0])
						}
					}
				})
				if st, err := a.Describe(within(t, time.Minute), "r"); err != nil || st.Epoch != lead.NoToken || st.Leader != "" {
					t.Errorf("%+v, %v", st, err)
				}
				if v, err := a.Verify(within(t, time.Minute), "r", ta.Token()); err != nil || v != Superseded {
					t.Errorf("%v, %v", v, err)
				}
			})
		})
	}
}

func TestI8OtherCodesOfDescribeAreAdminErrors(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		a := s.member("a")
		win(t, a, "r")
		for _, code := range []int16{42, 35, -1} {
			s.links["a"].set(func(l *link) {
				l.edit = func(_ kmsg.Request, resp kmsg.Response) {
					if d, ok := resp.(*kmsg.DescribeTransactionsResponse); ok {
						d.TransactionStates[0].ErrorCode = code
					}
				}
			})
			began := time.Now()
			if _, err := a.Describe(within(t, 5*time.Second), "r"); !errors.Is(err, ErrAdmin) || !errors.Is(err, kerr.ErrorForCode(code)) || time.Since(began) > time.Second {
				t.Errorf("code %d: %v after %v", code, err, time.Since(began))
			}
		}
		s.links["a"].set(func(l *link) { l.edit = nil })
		s.links["a"].setCut(true, func(key int16) bool { return key == 65 })
		if _, err := a.Describe(within(t, 5*time.Second), "r"); !errors.Is(err, ErrAdmin) {
			t.Errorf("without an answer: %v", err)
		}
	})
}

func TestI10TheStateShowsHolderLeaseRanksAgesAndLag(t *testing.T) {
	onStage(t, model.Config{Sweep: time.Hour}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a", func(c *Config) { c.Address = "10.0.0.1:80" }), "controller")
		b := s.member("b")
		s.candidate(b, "controller")
		time.Sleep(brief.Renew + time.Second)
		s.hidden()
		st, err := b.Describe(within(t, time.Minute), "controller")
		switch {
		case err != nil:
			t.Fatal(err)
		case st.Leader != "a" || st.Token != ta.Token() || st.Term != ta.Number() || !st.TermExact || st.Address != "10.0.0.1:80":
			t.Errorf("the holder: %+v", st)
		case st.LeaseLeft <= 0 || st.LeaseLeft > brief.Lease || !st.Since.Before(st.Granted) || st.Deadline.Sub(st.Granted) != brief.Lease:
			t.Errorf("its lease: %v left, since %v, granted %v, until %v", st.LeaseLeft, st.Since, st.Granted, st.Deadline)
		case len(st.Roster) != 2 || st.Roster[0].Rank != 0 || st.Roster[1].Name != "b" || st.Roster[1].Rank != 0 || st.Roster[1].RegisteredAt.IsZero():
			t.Errorf("the roster: %+v", st.Roster)
		case st.Log.Lag < 1 || st.Log.Age < 0 || st.Log.Age > time.Second || st.Stale:
			t.Errorf("the log: %+v", st.Log)
		case st.Epoch != ta.Token() || st.Transaction == "":
			t.Errorf("the epoch: %v, %s", st.Epoch, st.Transaction)
		}
	})
}
