package leader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/internal/model/serve"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// Failures that users of other elections met.

func TestB247ARenewalThatNeverReturnsDoesNotHoldTheLeadership(t *testing.T) {
	for _, key := range []int16{24, 0, 26} {
		t.Run(kmsg.NameForKey(key), func(t *testing.T) {
			onStage(t, model.Config{}, func(t *testing.T, s *stage) {
				ta := win(t, s.member("a", func(c *Config) { c.RequestTimeout = time.Hour }), "r")
				time.Sleep(brief.Renew + time.Second)
				var last time.Time // when the last confirmed renewal was sent, at the earliest
				s.with(func(m *model.Cluster) {
					ls := leases(m, "r")
					last = ls[len(ls)-1].lease.Granted.Time()
				})
				s.links["a"].set(func(l *link) { l.drop = func(req kmsg.Request) bool { return req.Key() == key } })
				<-ta.Done()
				if at := time.Since(last); at > brief.Lease-brief.StopMargin+time.Millisecond || at < brief.Lease-brief.StopMargin-time.Second {
					t.Errorf("it ended %v after its last renewal was sent", at)
				}
				if !errors.Is(ta.Err(), ErrExpired) {
					t.Error(ta.Err())
				}
			})
		})
	}
}

func TestB248TheHoldersWrittenLeaseCounts(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a := s.member("a", func(c *Config) { *c = Config{Lease: 30 * time.Second, RequestTimeout: 2 * time.Second} })
		b := s.member("b", func(c *Config) { *c = Config{Lease: 5 * time.Second, RequestTimeout: 2 * time.Second} })
		ta := win(t, a, "r")
		next := s.candidate(b, "r")
		time.Sleep(time.Second)
		for range 3 { // it stalls for 10 s, again and again
			s.links["a"].setCut(true, nil)
			time.Sleep(10 * time.Second)
			s.links["a"].setCut(false, nil)
			time.Sleep(11 * time.Second)
		}
		s.noTerm(next, "by its own shorter lease")
		if ta.Err() != nil || s.mintsOf("b") != 0 {
			t.Errorf("%v, %d epochs taken", ta.Err(), s.mintsOf("b"))
		}
	})
}

func TestB250TheRoleIsGivenUpAfterTheWorkHasStopped(t *testing.T) {
	for stops, handedOver := range map[time.Duration]bool{3 * time.Second: true, 10 * brief.Lease: false} {
		t.Run(fmt.Sprint("work that takes ", stops), func(t *testing.T) {
			onStage(t, model.Config{}, func(t *testing.T, s *stage) {
				a, b := s.member("a"), s.member("b")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				told, stopped := make(chan time.Time, 1), make(chan time.Time, 1)
				leads := make(chan struct{})
				done := make(chan error, 1)
				go func() {
					done <- a.Run(ctx, "r", func(ctx context.Context, _ *Term) error {
						close(leads)
						<-ctx.Done()
						told <- time.Now()
						time.Sleep(stops)
						stopped <- time.Now()
						return nil
					})
				}()
				<-leads
				next := s.candidate(b, "r")
				time.Sleep(time.Second)
				cancel()
				began := time.Now()
				s.after(next, 2*brief.Lease)
				led := time.Now()
				if took := (<-told).Sub(began); took > time.Millisecond {
					t.Errorf("the work was told after %v", took)
				}
				if !handedOver && (len(stopped) > 0 || led.Sub(began) < brief.Lease-brief.Renew-time.Second) {
					t.Errorf("the next leads after %v although the work goes on", led.Sub(began))
				}
				<-done
				if late := led.Sub(<-stopped); handedOver && (late < 0 || late > brief.Stagger) {
					t.Errorf("the next leads %v after the work has stopped", late)
				}
			})
		})
	}
}

func TestB251WorkIsToldToStopOnEveryWayOut(t *testing.T) {
	for name, end := range map[string]func(s *stage, a *Elector, cancel context.CancelFunc){
		"cancel": func(_ *stage, _ *Elector, cancel context.CancelFunc) { cancel() },
		"loss":   func(s *stage, _ *Elector, _ context.CancelFunc) { s.links["a"].setCut(true, nil) },
		"close":  func(_ *stage, a *Elector, _ context.CancelFunc) { _ = a.Close() },
		"cancel and loss at once": func(s *stage, _ *Elector, cancel context.CancelFunc) {
			s.links["a"].setCut(true, nil)
			cancel()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, model.Config{}, func(t *testing.T, s *stage) {
				a := s.member("a")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var started, stopped atomic.Int32
				leads := make(chan struct{}, 10)
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = a.Run(ctx, "r", func(ctx context.Context, tm *Term) error {
						started.Add(1)
						defer stopped.Add(1)
						leads <- struct{}{}
						<-ctx.Done()
						if tm.Err() == nil && ctx.Err() == nil {
							t.Error("it is told to stop for no reason")
						}
						return nil
					})
				}()
				<-leads
				end(s, a, cancel)
				time.Sleep(brief.Lease)
				if started.Load() != stopped.Load() {
					t.Errorf("started %d times, stopped %d times", started.Load(), stopped.Load())
				}
				s.links["a"].setCut(false, nil)
				cancel()
				<-done
			})
		})
	}
	t.Run("a panic of the work", func(t *testing.T) {
		onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
			a := s.member("a")
			var tm *Term
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic is swallowed")
					}
				}()
				_ = a.Run(t.Context(), "r", func(_ context.Context, got *Term) error { tm = got; panic("boom") })
			}()
			if !errors.Is(tm.Err(), ErrResigned) {
				t.Errorf("the term: %v", tm.Err())
			}
		})
	})
}

func TestB253ALossIsFollowedByAnotherCampaign(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a := s.member("a")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leads := make(chan *Term, 10)
		done := make(chan error, 1)
		go func() {
			done <- a.Run(ctx, "r", func(ctx context.Context, tm *Term) error { leads <- tm; <-ctx.Done(); return ctx.Err() })
		}()
		first := <-leads
		s.links["a"].setCut(true, nil)
		time.Sleep(5 * brief.Lease)
		s.links["a"].setCut(false, nil)
		second, took := s.after(leads, time.Minute)
		if took > brief.Lease+brief.Stagger || second.Number() <= first.Number() {
			t.Errorf("term %d after %d, %v after the fault healed", second.Number(), first.Number(), took)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ends with %v", err)
		}
	})
}

func TestB254ImpossibleDurationsAreNamed(t *testing.T) {
	for want, cfg := range map[string]Config{
		"renew 1s must be below lease 1s":  {Lease: time.Second, Renew: time.Second, StopMargin: -1},
		"renew 9s must be below lease 10s": {Lease: 10 * time.Second, Renew: 9 * time.Second, StopMargin: 2 * time.Second},
		"lease -1s":                        {Lease: -time.Second, Renew: 1, Stagger: 1},
		"renew -1s":                        {Renew: -time.Second},
		"stagger -1s":                      {Stagger: -time.Second},
		"roster TTL of 1m":                 {RosterTTL: time.Minute, Reregister: 50 * time.Second},
		"fetch wait":                       {FetchWait: time.Nanosecond},
	} {
		if _, err := Open(refusing{t}, cfg); !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}

func TestB257AFailedCampaignLeavesNoClaim(t *testing.T) {
	// Where each request of the acquisition fails for good, and what the role is
	// then left with.
	for key, code := range map[int16]int16{22: 53, 24: 53, 0: 29, 26: 53} {
		t.Run(kmsg.NameForKey(key), func(t *testing.T) {
			onStage(t, model.Config{}, func(t *testing.T, s *stage) {
				a, b := s.member("a"), s.member("b")
				if _, err := a.topic.ensure(t.Context()); err != nil {
					t.Fatal(err)
				}
				s.links["a"].set(func(l *link) {
					l.answer = func(req kmsg.Request) int16 {
						switch q := req.(type) {
						case *kmsg.ProduceRequest:
							if key == 0 && q.TransactionID != nil {
								return code
							}
						case *kmsg.InitProducerIDRequest:
							if key == 22 && q.ProducerID >= 0 { // after the mint
								return code
							}
						case *kmsg.AddPartitionsToTxnRequest, *kmsg.EndTxnRequest:
							if key == req.Key() {
								return code
							}
						}
						return 0
					}
				})
				if _, err := a.Campaign(within(t, time.Minute), "r"); !errors.Is(err, ErrAuthorization) {
					t.Fatalf("the campaign: %v", err)
				}
				if got := s.roster(b, "r"); len(got) != 0 {
					t.Errorf("it stays in the roster: %v", got)
				}
				began := time.Now()
				tb := win(t, b, "r")
				if took := time.Since(began); took > brief.Lease+20*time.Second || tb.Err() != nil {
					t.Errorf("another leads after %v, %v", took, tb.Err())
				}
			})
		})
	}
}

func TestB259TheLeadershipEndsWithItsOwner(t *testing.T) {
	t.Run("close is bounded while all brokers are down", func(t *testing.T) {
		onStage(t, model.Config{}, func(t *testing.T, s *stage) {
			a := s.member("a")
			ta := win(t, a, "r")
			s.links["a"].setCut(true, nil)
			began := time.Now()
			_ = a.Close()
			if took := time.Since(began); took > brief.Lease || !errors.Is(ta.Err(), ErrClosed) {
				t.Errorf("closed after %v; %v", took, ta.Err())
			}
		})
	})
	t.Run("the work returns without a word", func(t *testing.T) {
		onStage(t, model.Config{}, func(t *testing.T, s *stage) {
			a := s.member("a")
			if err := a.Run(t.Context(), "r", func(context.Context, *Term) error { return nil }); err != nil {
				t.Error(err)
			}
			began := time.Now()
			win(t, s.member("b"), "r")
			if took := time.Since(began); took > brief.Stagger*2 {
				t.Errorf("the next leads after %v", took)
			}
		})
	})
	t.Run("brokers restart", func(t *testing.T) {
		onStage(t, model.Config{}, func(t *testing.T, s *stage) {
			ta := win(t, s.member("a"), "r")
			for range 5 {
				s.links["a"].setCut(true, nil)
				time.Sleep(time.Second)
				s.with(func(m *model.Cluster) { m.MoveCoordinator("r", 1+m.Coordinator("r")%3) })
				s.links["a"].setCut(false, nil)
				time.Sleep(brief.Lease)
			}
			if ta.Err() != nil {
				t.Error(ta.Err())
			}
		})
	})
	t.Run("sessions end and are authenticated anew", func(t *testing.T) {
		auth := sim.SASL{Mechanisms: []string{"PLAIN"}, Users: map[string]string{"u": "p"}, Lifetime: 30 * time.Second}
		overSessions(t, 7, auth, func(t *testing.T, e *Elector, s *serve.Server) {
			tm := win(t, e, "r")
			time.Sleep(brief.Lease)
			s.Broker(1).Forget()
			time.Sleep(time.Hour)
			if st := e.Stats(); tm.Err() != nil || st.Failures > 0 || st.Renewals < 1000 {
				t.Errorf("%v after an hour; %d renewals, %d failed", tm.Err(), st.Renewals, st.Failures)
			}
			for _, key := range []int16{0, 1, 26} { // each goes over one connection all the time
				on := map[int]bool{}
				for _, f := range s.Broker(1).FramesOf(key) {
					on[f.Conn] = true
				}
				if len(on) != 1 {
					t.Errorf("%s over %d connections", kmsg.NameForKey(key), len(on))
				}
			}
			if n := s.Count(36); n < 100 {
				t.Errorf("%d authentications", n)
			}
		})
	})
	t.Run("brokers stay away", func(t *testing.T) {
		onStage(t, model.Config{}, func(t *testing.T, s *stage) {
			ta := win(t, s.member("a"), "r")
			s.links["a"].setCut(true, nil)
			select {
			case <-ta.Done():
			case <-time.After(brief.Lease):
				t.Error("the loss is not told within the lease")
			}
		})
	})
}

func TestB260TheFencingTokenGrowsAndTheOldOneIsRefused(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		es := []*Elector{s.member("a"), s.member("b"), s.member("c")}
		var terms []*Term
		for i := range 6 {
			tm := win(t, es[i%3], "r")
			s.links[tm.Member()].pause()
			time.Sleep(3 * brief.Lease)
			terms = append(terms, tm)
			defer s.links[tm.Member()].resume()
			if i >= 2 {
				s.links[es[(i+1)%3].Member()].resume()
			}
		}
		for i, tm := range terms {
			if i > 0 && tm.Number() <= terms[i-1].Number() {
				t.Errorf("term %d follows %d", tm.Number(), terms[i-1].Number())
			}
			s.links[tm.Member()].resume()
			if i == len(terms)-1 {
				break
			}
			if a, err := tm.lease.send(t.Context(), lead.Action{Step: lead.Produce, Pair: tm.Token(), Sequence: 9}, leaseRecord{from: s.links["a"].now()}); err != nil || !lead.Fenced(a.Code) {
				t.Errorf("a write of term %d after its end is answered %d, %v", tm.Number(), a.Code, err)
			}
		}
	})
}

func TestB262AnUnknownCommitAndAFailedAbortLeaveALeaderWithAProducer(t *testing.T) {
	overModel(t, 3, func(t *testing.T, e *Elector, s *serve.Server) {
		tm := win(t, e, "r")
		if err := write(t.Context(), tm, "before"); err != nil {
			t.Fatal(err)
		}
		s.SetFaults(func(r *sim.Request) serve.Fault { return serve.Fault{Mute: r.Key == 26} }) // no end is answered
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := write(ctx, tm, "unknown")
		cancel()
		if !kafka.MayHaveHappened(err) {
			t.Errorf("a commit without an answer: %v", err)
		}
		s.SetFaults(nil)
		if err := write(within(t, time.Minute), tm, "after"); err != nil || tm.Err() != nil {
			t.Errorf("the leader has no producer any more: %v; %v", err, tm.Err())
		}
		got := fmt.Sprint(inOut(s))
		if got != "[before unknown after]" && got != "[before after]" {
			t.Errorf("committed: %s", got)
		}
	})
}

func TestB263PastItsDeadlineEveryUseFailsAlthoughNothingHasRun(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a := s.member("a")
		ta := win(t, a, "r")
		if left := ta.Left(); left <= 0 || left > brief.Lease-brief.StopMargin {
			t.Errorf("in office %v are left", left)
		}
		s.links["a"].pause()
		time.Sleep(3 * brief.Lease)
		synctest.Wait() // whatever could run has: nothing could
		s.links["a"].resume()
		if left := ta.Left(); left > 0 {
			t.Errorf("%v are left", left)
		}
		for what, err := range map[string]error{
			"Err": ta.Err(), "Renew": ta.Renew(t.Context()),
			"Transact": ta.Transact(t.Context(), func(context.Context, *producer.Tx) error { t.Error("the work is done"); return nil }),
		} {
			if !errors.Is(err, ErrExpired) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

func TestB265NoTransactionIsOpenWhileALeaderIsIdle(t *testing.T) {
	overModel(t, 4, func(t *testing.T, e *Elector, s *serve.Server) {
		tm := win(t, e, "r")
		if err := write(t.Context(), tm, "first"); err != nil {
			t.Fatal(err)
		}
		for range 200 { // far longer than the transaction's timeout
			time.Sleep(brief.Lease / 7)
			s.Model(func(m *model.Cluster) {
				if tx, _ := m.Transaction("r"); tx.State == model.Ongoing && time.Since(tx.Started) > time.Second {
					t.Errorf("a transaction is open since %v", time.Since(tx.Started))
				}
			})
		}
		if err := write(t.Context(), tm, "second"); err != nil || tm.Err() != nil {
			t.Errorf("after a rest: %v; %v", err, tm.Err())
		}
		if got := fmt.Sprint(inOut(s)); got != "[first second]" {
			t.Errorf("committed: %s", got)
		}
	})
}

func TestB266TermsComeFromTheLogAndNeverGoBack(t *testing.T) {
	onStage(t, model.Config{IDExpiration: 5 * time.Minute, BlockSize: 10}, func(t *testing.T, s *stage) {
		last := int64(-1)
		for i := range 5 {
			a := s.member(fmt.Sprint("a", i))
			tm := win(t, a, "r")
			if tm.Number() <= last {
				t.Errorf("term %d after %d", tm.Number(), last)
			}
			last = tm.Number()
			_ = a.Close()
			time.Sleep(time.Hour) // the coordinator forgets the role: its epoch begins anew
			s.with(func(m *model.Cluster) {
				if _, known := m.Transaction("r"); known {
					t.Error("the id has not expired")
				}
				m.ForgetProducers(placeOf("r"))
				m.MoveCoordinator("r", kafka.NodeID(1+i%3)) // where ids are lower
				m.Compact(placeOf("r"))
			})
		}
	})
}

func TestB268TheTransactionalIDIsTheRoleAndNothingElse(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		all := s.journal()
		for _, role := range []string{"controller", "billing/nightly", "リーダー"} {
			tm := win(t, s.member("m-"+role, func(c *Config) { c.Address = "x" }), role)
			if err := tm.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, r := range all() {
				if r.from != "m-"+role {
					continue
				}
				for _, id := range idsOf(r.req) {
					if id != role {
						t.Errorf("%s is about %q, want %q", kmsg.NameForKey(r.req.Key()), id, role)
					}
				}
			}
		}
	})
}

// idsOf are the transactional ids that a request names.
func idsOf(req kmsg.Request) []string {
	switch q := req.(type) {
	case *kmsg.InitProducerIDRequest:
		if q.TransactionalID != nil {
			return []string{*q.TransactionalID}
		}
	case *kmsg.AddPartitionsToTxnRequest:
		return []string{q.TransactionalID}
	case *kmsg.EndTxnRequest:
		return []string{q.TransactionalID}
	case *kmsg.ProduceRequest:
		if q.TransactionID != nil {
			return []string{*q.TransactionID}
		}
	case *kmsg.FindCoordinatorRequest:
		return q.CoordinatorKeys
	}
	return nil
}

func TestB269ManySmallCommitsDoNotStarveRenewals(t *testing.T) {
	overModel(t, 5, func(t *testing.T, e *Elector, s *serve.Server) {
		tm := win(t, e, "r")
		s.SetFaults(func(r *sim.Request) serve.Fault { return serve.Fault{Delay: time.Millisecond} })
		began, n := time.Now(), 0
		for ; time.Since(began) < 15*time.Second && tm.Err() == nil; n++ {
			if err := write(t.Context(), tm, fmt.Sprint(n)); err != nil {
				t.Fatal(n, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if tm.Err() != nil || n < 15*30 {
			t.Errorf("%d commits in 15 s; %v", n, tm.Err())
		}
		if st := e.Stats(); st.Renewals < 4 || st.Failures > 0 {
			t.Errorf("%d renewals, %d failures", st.Renewals, st.Failures)
		}
	})
	for n := 1; n < 4; n++ {
		if d := backoff(n); d > 20*time.Millisecond {
			t.Errorf("try %d of what is answered 51 waits for %v", n, d)
		}
	}
}

func TestB271AFenceWithoutARivalIsToldApart(t *testing.T) {
	onStage(t, model.Config{Sweep: time.Second}, func(t *testing.T, s *stage) {
		a := s.member("a", func(c *Config) { c.Lease, c.Renew, c.StopMargin = time.Minute, 5*time.Second, 5*time.Second })
		ta := win(t, a, "r")
		// A transaction of its own is open for too long, and its coordinator moves.
		if got, err := ta.lease.send(t.Context(), lead.Action{Step: lead.Add, Pair: ta.Token()}, leaseRecord{}); err != nil || got.Code != 0 {
			t.Fatal(got, err)
		}
		s.links["a"].setCut(true, nil)
		s.with(func(m *model.Cluster) { m.MoveCoordinator("r", 1+m.Coordinator("r")%3) })
		time.Sleep(70 * time.Second)
		s.links["a"].setCut(false, nil)
		<-ta.Done()
		if loss, err := ta.Loss(within(t, time.Minute)); err != nil || loss.Kind == LossSuperseded || loss.Leader != "" {
			t.Errorf("fenced without a rival: %v, %v", loss, err)
		}
		tb := win(t, a, "r") // it may campaign again
		s.links["a"].pause()
		tc := win(t, s.member("c"), "r")
		s.links["a"].resume()
		if loss, err := tb.Loss(within(t, time.Minute)); err != nil || loss.Kind != LossSuperseded || loss.Leader != "c" || loss.Term != tc.Number() {
			t.Errorf("with a rival: %v, %v", loss, err)
		}
	})
}

func TestB272CoordinatorsThatAreNotReadyAndEpochsThatRunOut(t *testing.T) {
	onStage(t, model.Config{MaxEpoch: 8}, func(t *testing.T, s *stage) {
		a := s.member("a")
		var asked atomic.Int32
		s.links["a"].set(func(l *link) {
			l.answer = func(req kmsg.Request) int16 {
				if q, ok := req.(*kmsg.InitProducerIDRequest); ok && q.TransactionalID != nil {
					if n := asked.Add(1); n <= 300 {
						return 14 + int16(n)%2
					}
				}
				return 0
			}
		})
		began := time.Now()
		last := win(t, a, "r")
		if n, took := asked.Load(), time.Since(began); n < 300 || took < 30*time.Second {
			t.Errorf("%d requests in %v: no backoff", n, took)
		}
		ids := map[kafka.ProducerID]bool{last.Token().ID: true}
		for range 8 {
			if err := last.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			next := win(t, a, "r")
			if next.Number() <= last.Number() {
				t.Errorf("term %d with %v after %d with %v", next.Number(), next.Token(), last.Number(), last.Token())
			}
			ids[next.Token().ID] = true
			if v, err := a.Verify(within(t, time.Minute), "r", last.Token()); v != Superseded || err != nil {
				t.Errorf("the old token: %v, %v", v, err)
			}
			last = next
		}
		if len(ids) < 3 {
			t.Errorf("%d producer ids in 9 terms", len(ids))
		}
	})
}
