package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/kafka"
)

// stage is a world with members.
type stage struct {
	*world
	t     *testing.T
	opens []*Elector
	links map[string]*link
}

// onStage runs a scenario in virtual time, at both levels of transaction.version
// unless cfg names one.
func onStage(t *testing.T, cfg model.Config, f func(t *testing.T, s *stage)) {
	t.Helper()
	levels := []int16{1, 2}
	if cfg.TransactionVersion > 0 {
		levels = []int16{cfg.TransactionVersion}
	}
	for _, level := range levels {
		cfg.TransactionVersion = level
		synctest.Test(t, func(t *testing.T) {
			s := &stage{world: newWorld(uint64(level), cfg), t: t, links: map[string]*link{}}
			defer func() {
				for _, l := range s.links {
					l.resume()
					l.setCut(false, nil)
					l.set(func(l *link) { l.drop, l.answer, l.before, l.edit = nil, nil, nil, nil })
				}
				for _, e := range s.opens {
					_ = e.Close()
				}
			}()
			f(t, s)
		})
	}
}

func (s *stage) member(name string, change ...func(*Config)) *Elector {
	s.t.Helper()
	cfg := brief
	for _, f := range change {
		f(&cfg)
	}
	l := s.link(name)
	e, err := l.open(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.links[name] = l
	s.opens = append(s.opens, e)
	return e
}

// candidate campaigns in the background.
func (s *stage) candidate(e *Elector, role string) <-chan *Term {
	ch := make(chan *Term, 1)
	go func() {
		t, err := e.Campaign(context.Background(), role)
		if err == nil {
			ch <- t
		} else {
			s.t.Log(e.Member(), "gave up:", err)
		}
		close(ch)
	}()
	return ch
}

// after waits for a candidate, and says how long it took.
func (s *stage) after(ch <-chan *Term, most time.Duration) (*Term, time.Duration) {
	s.t.Helper()
	began := time.Now()
	select {
	case t := <-ch:
		return t, time.Since(began)
	case <-time.After(most):
		s.t.Fatalf("nobody leads after %v", most)
		return nil, 0
	}
}

func (s *stage) mintsOf(member string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.mints {
		if m.member == member {
			n++
		}
	}
	return n
}

func (s *stage) noTerm(ch <-chan *Term, why string) {
	s.t.Helper()
	select {
	case t := <-ch:
		if t != nil {
			s.t.Errorf("%s: %s leads in term %d", why, t.Member(), t.Number())
		}
	default:
	}
}

func TestScenario1ASuspendedLeaderIsOverBeforeItDoesAnything(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		ta := win(t, a, "r")
		next := s.candidate(b, "r")
		time.Sleep(time.Second)
		s.links["a"].pause()
		tb, _ := s.after(next, time.Minute)
		var wrote atomic.Bool
		s.with(func(*model.Cluster) {
			s.onSend = func(l *link, req kmsg.Request) { wrote.Store(wrote.Load() || l.name == "a" && req.Key() == 0) }
		})
		time.Sleep(10 * time.Minute)
		s.links["a"].resume()
		if err := ta.Err(); !errors.Is(err, ErrExpired) {
			t.Errorf("on waking the leader is told %v", err)
		}
		<-ta.Done()
		if err := ta.Renew(t.Context()); !errors.Is(err, ErrExpired) || wrote.Load() {
			t.Errorf("G8: Renew after the end: %v, wrote %v", err, wrote.Load())
		}
		if loss, err := ta.Loss(within(t, time.Minute)); loss.Kind != LossSuperseded || loss.Leader != "b" || err != nil {
			t.Errorf("H2: the loss is %v, %v", loss, err)
		}
		if tb.Err() != nil || tb.Number() <= ta.Number() {
			t.Errorf("the successor: term %d after %d, %v", tb.Number(), ta.Number(), tb.Err())
		}
	})
}

func TestScenario2ALeaderThatSleptAloneLeadsAnewInANewTerm(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a := s.member("a")
		ta := win(t, a, "r")
		s.links["a"].pause()
		time.Sleep(time.Hour)
		s.links["a"].resume()
		if !errors.Is(ta.Err(), ErrExpired) {
			t.Fatal(ta.Err())
		}
		again := win(t, a, "r")
		if again.Number() <= ta.Number() || again.Token() == ta.Token() {
			t.Errorf("the new term is %d with %v, the old one was %d with %v", again.Number(), again.Token(), ta.Number(), ta.Token())
		}
	})
}

func TestScenario3ATimeoutOfTheCoordinatorIsToldApartFromARival(t *testing.T) {
	onStage(t, model.Config{Sweep: time.Second}, func(t *testing.T, s *stage) {
		a := s.member("a", func(c *Config) { c.Lease, c.Renew, c.StopMargin = time.Minute, 5*time.Second, 5*time.Second })
		ta := win(t, a, "r")
		// Its transaction hangs between produce and end, beyond its timeout.
		if err := ta.lease.lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := ta.lease.send(t.Context(), lead.Action{Step: lead.Add, Pair: ta.Token()}, leaseRecord{}); err != nil || got.Code != 0 {
			t.Fatal(got, err)
		}
		ta.lease.unlock()
		s.links["a"].pause()
		time.Sleep(90 * time.Second)
		s.links["a"].resume()
		<-ta.Done()
		loss, err := ta.Loss(within(t, time.Minute))
		if err != nil || loss.Kind != LossTimeout {
			t.Errorf("the loss is %v, %v", loss, err)
		}
		if again := win(t, a, "r"); again.Number() <= ta.Number() {
			t.Errorf("terms %d, %d", ta.Number(), again.Number())
		}
	})
}

func TestScenario5ALeaderThatIsCutOffFromTheCoordinatorStopsByItsClock(t *testing.T) {
	testCutOff(t, func(key int16) bool { return key >= 22 && key <= 26 })
}

func TestScenario6ALeaderThatIsCutOffFromThePartitionStopsByItsClock(t *testing.T) {
	testCutOff(t, func(key int16) bool { return key <= 2 })
}

func TestG2G3ALeaderThatIsCutOffFromEverythingStopsByItsClock(t *testing.T) { testCutOff(t, nil) }

// testCutOff has a leader without some requests, all if cut is nil.
func testCutOff(t *testing.T, cut func(key int16) bool) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		ta := win(t, a, "r")
		next := s.candidate(b, "r")
		time.Sleep(time.Second)
		began := time.Now()
		s.links["a"].setCut(true, cut)
		<-ta.Done()
		if took := time.Since(began); took > brief.Lease-brief.StopMargin || !errors.Is(ta.Err(), ErrExpired) {
			t.Errorf("it ended after %v with %v", took, ta.Err())
		}
		s.noTerm(next, "before it ended")
		tb, took := s.after(next, time.Minute)
		if took > brief.Lease || tb.Number() <= ta.Number() {
			t.Errorf("taken over after %v in term %d", took, tb.Number())
		}
	})
}

func TestScenario6AnOpenTransactionIsEndedWhereOnlyThePartitionIsOutOfReach(t *testing.T) {
	onStage(t, model.Config{Sweep: time.Hour, MaxTimeout: 2 * time.Hour}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		s.links["a"].setCut(true, func(key int16) bool { return key == 0 })
		<-ta.Done()
		time.Sleep(brief.Lease)
		s.with(func(m *model.Cluster) {
			if tx, _ := m.Transaction("r"); tx.State == model.Ongoing {
				t.Error("the transaction of the lease stays open: nobody reads on")
			}
		})
	})
}

func TestScenario7WithoutAFreshReadNobodyChallenges(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		ta := win(t, a, "r")
		next := s.candidate(b, "r")
		time.Sleep(time.Second)
		s.links["b"].setCut(true, func(key int16) bool { return key <= 2 })
		time.Sleep(5 * brief.Lease)
		if n := s.mintsOf("b"); n != 0 || ta.Err() != nil {
			t.Errorf("a standby that cannot read took %d epochs; the leader: %v", n, ta.Err())
		}
		if err := b.Health(); err == nil {
			t.Error("a standby that cannot read is healthy")
		}
		s.links["b"].setCut(false, nil)
		time.Sleep(brief.Lease)
		if err := b.Health(); err != nil {
			t.Errorf("after it heals: %v", err)
		}
		s.noTerm(next, "while a leads")
	})
}

func TestScenario8AnswersOfInitProducerIdAreLost(t *testing.T) { testLostAnswers(t, 22) }

func TestScenario10AnswersOfEndTxnAreLost(t *testing.T) { testLostAnswers(t, 26) }

func TestG11G12AnswersOfTheOtherRequestsAreLost(t *testing.T) {
	for _, key := range []int16{24, 0} {
		t.Run(kmsg.NameForKey(key), func(t *testing.T) { testLostAnswers(t, key) })
	}
}

// testLostAnswers has the answers to two requests lost while the role is taken,
// and two in office.
func testLostAnswers(t *testing.T, key int16) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a := s.member("a")
		var lose atomic.Int32
		lose.Store(2)
		s.links["a"].set(func(l *link) {
			l.drop = func(req kmsg.Request) bool {
				if req.Key() != key || lose.Load() == 0 || key == 22 && req.(*kmsg.InitProducerIDRequest).TransactionalID == nil {
					return false
				}
				lose.Add(-1)
				return true
			}
		})
		ta := win(t, a, "r")
		time.Sleep(time.Minute)
		if ta.Err() != nil || lose.Load() > 0 {
			t.Fatalf("two lost answers of %s cost the leadership: %v", kmsg.NameForKey(key), ta.Err())
		}
		lose.Store(2) // and in office
		time.Sleep(time.Minute)
		if ta.Err() != nil {
			t.Errorf("in office: %v", ta.Err())
		}
		s.with(func(m *model.Cluster) {
			ls := leases(m, "r")
			if last := ls[len(ls)-1]; last.term != ta.Number() || last.lease.Token != ta.Token() {
				t.Errorf("the newest lease has term %d and token %v, want %d and %v", last.term, last.lease.Token, ta.Number(), ta.Token())
			}
		})
	})
}

func TestScenario11AnOpenTransactionOfADeadLeaderIsWaitedOut(t *testing.T) {
	onStage(t, model.Config{MarkerDelay: 200 * time.Millisecond}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		ta := win(t, a, "r")
		time.Sleep(time.Second)
		if got, err := ta.lease.send(t.Context(), lead.Action{Step: lead.Add, Pair: ta.Token()}, leaseRecord{}); err != nil || got.Code != 0 {
			t.Fatal(got, err)
		}
		s.links["a"].setCut(true, nil)
		next := s.candidate(b, "r")
		if tb, took := s.after(next, time.Minute); took > 2*brief.Lease || tb.Number() <= ta.Number() {
			t.Errorf("term %d after %v", tb.Number(), took)
		}
	})
}

func TestScenario13VerifyUnderstandsAHolderOfPart2(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		e := s.member("watcher")
		if _, err := e.topic.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.with(func(m *model.Cluster) { m.CreateTopic("data", 1) })
		f := newForeign(s.link("java"), "r")
		if code := f.mint(); code != 0 {
			t.Fatal(code)
		}
		token := f.pair
		check := func(want Verdict, when string) {
			t.Helper()
			if v, err := e.Verify(within(t, time.Minute), "r", token); v != want || err != nil {
				t.Errorf("%s: %v, %v", when, v, err)
			}
		}
		check(Indeterminate, "minted and not granted")
		if code := f.lease(token, brief.Lease); code != 0 {
			t.Fatal(code)
		}
		check(Authoritative, "granted: the pair has moved already")
		for range 3 {
			if code := f.produce(data, nil, []byte("java")); code != 0 {
				t.Fatal(code)
			}
			if code := f.end(true); code != 0 {
				t.Fatal(code)
			}
		}
		check(Authoritative, "after data transactions")
		if f.pair == token {
			t.Error("the pair of part 2 stands still")
		}
		s2, err := e.Describe(within(t, time.Minute), "r")
		if err != nil || s2.Leader != "java" || s2.TermExact {
			t.Errorf("%+v, %v", s2, err)
		}
	})
}

func TestScenario14ChangesOfTheLevelAreNotNoticed(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 1}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		token := ta.Token()
		for _, level := range []int16{2, 1, 0, 2} {
			s.with(func(m *model.Cluster) { m.SetLevel(level) })
			time.Sleep(3 * brief.Renew)
			if ta.Err() != nil || ta.Token() != token {
				t.Errorf("at level %d: %v, token %v was %v", level, ta.Err(), ta.Token(), token)
			}
		}
	})
}

func TestScenario15EpochsRunOutAndTermsGrow(t *testing.T) {
	onStage(t, model.Config{MaxEpoch: 9}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		last, ids := int64(-1), map[kafka.ProducerID]bool{}
		for i := range 20 {
			e := a
			if i%2 == 1 {
				e = b
			}
			ta := win(t, e, "r")
			if ta.Number() <= last {
				t.Fatalf("term %d after %d", ta.Number(), last)
			}
			last = ta.Number()
			ids[ta.Token().ID] = true
			if err := ta.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if len(ids) < 3 {
			t.Errorf("the producer id was rotated %d times", len(ids)-1)
		}
	})
}

func TestScenario17ASilentRoleIsForgottenAndLedAnew(t *testing.T) {
	onStage(t, model.Config{IDExpiration: 5 * time.Minute}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		ta := win(t, a, "r")
		s.links["a"].pause()
		time.Sleep(20 * time.Minute)
		if st, err := b.Describe(within(t, time.Minute), "r"); err != nil || st.Epoch != lead.NoToken || st.Leader != "" {
			t.Errorf("of a forgotten id: %+v, %v", st, err)
		}
		tb := win(t, b, "r")
		s.links["a"].resume()
		if tb.Number() <= ta.Number() || !errors.Is(ta.Err(), ErrExpired) {
			t.Errorf("terms %d, %d; the zombie: %v", ta.Number(), tb.Number(), ta.Err())
		}
		time.Sleep(time.Minute)
		if tb.Err() != nil {
			t.Errorf("the zombie harmed its successor: %v", tb.Err())
		}
	})
}

func TestScenario19TwoProcessesOfOneNameDoNotDeposeEachOther(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a := s.member("twin")
		ta := win(t, a, "r")
		b := s.member("twin")
		_, err := b.Campaign(within(t, 10*time.Minute), "r")
		if !errors.Is(err, ErrDuplicateMember) || errors.Is(err, ErrAcquireTimeout) || ta.Err() != nil {
			t.Errorf("the second of a name: %v; the first: %v", err, ta.Err())
		}
		if n := s.mintsOf("twin"); n != 1 {
			t.Errorf("%d epochs were taken", n)
		}
	})
}

func TestScenario19TakingOverTheOwnNameIsAnOption(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("pod-0"), "r")
		s.links["pod-0"].setCut(true, nil)
		began := time.Now()
		tb := win(t, s.member("pod-0", func(c *Config) { c.TakeOver = true }), "r")
		if took := time.Since(began); took > time.Second || tb.Number() <= ta.Number() {
			t.Errorf("term %d after %v", tb.Number(), took)
		}
	})
}

func TestScenario20OneOfFiftyStandbysTakesOverAfterAResign(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("first"), "r")
		won := make(chan *Term, 50)
		for i := range 50 {
			e := s.member(fmt.Sprint("standby", i))
			go func() {
				if tm, err := e.Campaign(context.Background(), "r"); err == nil {
					won <- tm
				}
			}()
			time.Sleep(20 * time.Millisecond)
		}
		s.with(func(*model.Cluster) { s.mints = nil })
		if err := ta.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		tb, took := s.after(won, time.Minute)
		time.Sleep(5 * brief.Lease)
		s.mu.Lock()
		n := len(s.mints)
		s.mu.Unlock()
		if tb.Member() != "standby0" || took > brief.Stagger || n != 1 || tb.Err() != nil {
			t.Errorf("%s after %v, %d epochs taken, %v", tb.Member(), took, n, tb.Err())
		}
	})
}

func TestScenario21AHangingTransactionOfAnotherRoleHidesNoLivingHolder(t *testing.T) {
	onStage(t, model.Config{Sweep: time.Hour}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		ta := win(t, a, "controller")
		next := s.candidate(b, "controller")
		time.Sleep(time.Second)
		// "role-b" lives in the same partition of 16.
		other := newForeign(s.link("x"), "role-b")
		if placeOf("role-b") != placeOf("controller") {
			t.Fatal("the roles do not share a partition")
		}
		if code := other.mint(); code != 0 {
			t.Fatal(code)
		}
		if code := other.produce(placeOf("role-b"), lead.Key{Kind: lead.KindLease, Role: "role-b"}.Append(nil), nil); code != 0 {
			t.Fatal(code)
		}
		time.Sleep(6 * brief.Lease)
		s.noTerm(next, "behind the open transaction")
		if n := s.mintsOf("b"); n != 0 || ta.Err() != nil {
			t.Errorf("%d epochs taken from a holder that renews unseen: %v", n, ta.Err())
		}
		if st, err := b.Describe(within(t, time.Minute), "controller"); err != nil || st.Log.Lag == 0 {
			t.Errorf("the lag is not shown: %+v, %v", st.Log, err)
		}
	})
}

func TestScenario22TheTopicIsDeletedOrMadeAnewWhileLed(t *testing.T) {
	for _, again := range []bool{false, true} {
		onStage(t, model.Config{}, func(t *testing.T, s *stage) {
			a := s.member("a")
			ta := win(t, a, "r")
			s.with(func(m *model.Cluster) {
				m.DeleteTopic(Topic)
				if again {
					m.CreateTopic(Topic, 16)
				}
			})
			select {
			case <-ta.Done():
			case <-time.After(brief.Lease):
				t.Fatal("it goes on without its topic")
			}
			made := 0
			s.with(func(*model.Cluster) { made = s.topics })
			if made != 1 {
				t.Error("the topic was made anew silently")
			}
			ctx := within(t, time.Minute)
			if _, err := a.Campaign(ctx, "r"); !errors.Is(err, ErrInvalidConfig) && again {
				t.Errorf("5.3: in the new topic a campaign ends with %v", err)
			}
		})
	}
}

func TestScenario23AGrownTopicEndsTheChallenges(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		ta := win(t, a, "r")
		next := s.candidate(b, "r")
		time.Sleep(time.Second)
		for _, e := range s.opens {
			l := e.topic.known()
			grown := *l
			grown.leaders = append(append([]kafka.NodeID{}, l.leaders...), l.leaders...)
			e.topic.take(&grown)
		}
		s.links["a"].setCut(true, nil)
		<-ta.Done()
		time.Sleep(3 * brief.Lease)
		s.noTerm(next, "with another number of partitions")
		if n := s.mintsOf("b"); n != 0 {
			t.Errorf("%d epochs were taken", n)
		}
	})
}

func TestScenario25TooFewReplicasOfThePartition(t *testing.T) {
	testRefusals(t, map[int16][]int16{0: {19, 20}})
}

func TestScenario26TooFewReplicasOfTheCoordinatorsLog(t *testing.T) {
	testRefusals(t, map[int16][]int16{24: {15}, 26: {15}})
	t.Run("an acquisition waits", func(t *testing.T) {
		onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
			a := s.member("a")
			began := time.Now()
			s.links["a"].set(func(l *link) {
				l.answer = func(req kmsg.Request) int16 {
					if q, ok := req.(*kmsg.InitProducerIDRequest); ok && q.TransactionalID != nil && time.Since(began) < time.Minute {
						return 15
					}
					return 0
				}
			})
			all := s.journal()
			if tm := win(t, a, "r"); tm.Token().Epoch != 1 || time.Since(began) < time.Minute {
				t.Errorf("the token is %v after %v", tm.Token(), time.Since(began))
			}
			n := 0
			for _, w := range steps(all(), "a") {
				if w == "mint" {
					n++
				}
			}
			if n > 600 {
				t.Errorf("it asked %d times in a minute", n)
			}
		})
	})
}

// testRefusals has a leader meet five answers with a code, and then all.
func testRefusals(t *testing.T, all map[int16][]int16) {
	for key, codes := range all {
		for _, code := range codes {
			onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
				a := s.member("a")
				ta := win(t, a, "r")
				var left atomic.Int32
				left.Store(5)
				s.links["a"].set(func(l *link) {
					l.answer = func(req kmsg.Request) int16 {
						if req.Key() != key || left.Load() == 0 {
							return 0
						}
						left.Add(-1)
						return code
					}
				})
				time.Sleep(2 * brief.Lease)
				if ta.Err() != nil || left.Load() > 0 {
					t.Errorf("five answers of %d to %s: %v", code, kmsg.NameForKey(key), ta.Err())
				}
				left.Store(-1) // and then for ever
				<-ta.Done()
				if !errors.Is(ta.Err(), ErrExpired) {
					t.Errorf("for ever: %v", ta.Err())
				}
			})
		}
	}
}

// clocks has a leader and a standby who saw its lease arrive.
func clocks(t *testing.T, f func(t *testing.T, s *stage, ta *Term, next <-chan *Term)) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		next := s.candidate(s.member("b"), "r")
		time.Sleep(2 * brief.Renew)
		f(t, s, ta, next)
		if n := s.mintsOf("a"); n != 1 {
			t.Errorf("the leader took %d epochs", n)
		}
	})
}

func (s *stage) skew(member string, d time.Duration) {
	s.links[member].set(func(l *link) { l.skew = d })
}

func TestScenario27TheLeadersClockJumpsForward(t *testing.T) {
	clocks(t, func(t *testing.T, s *stage, ta *Term, next <-chan *Term) {
		s.skew("a", time.Hour)
		time.Sleep(brief.Renew + time.Second) // its lease ends an hour ahead
		if ta.Err() != nil {
			t.Errorf("it cost the leadership: %v", ta.Err())
		}
		s.links["a"].setCut(true, nil)
		if _, took := s.after(next, 10*time.Minute); took > brief.Lease+brief.Stagger+2*time.Second {
			t.Errorf("the wait was not capped by the lease: %v", took)
		}
	})
}

func TestScenario28TheLeadersClockJumpsBack(t *testing.T) {
	clocks(t, func(t *testing.T, s *stage, ta *Term, next <-chan *Term) {
		s.skew("a", -2*time.Hour)
		all := s.journal()
		time.Sleep(5 * brief.Lease)
		if ta.Err() != nil || s.mintsOf("b") != 0 {
			t.Errorf("preempted: %v, %d epochs taken", ta.Err(), s.mintsOf("b"))
		}
		if n := len(steps(all(), "a")) / 2; n < 12 {
			t.Errorf("%d renewals in five leases", n)
		}
	})
}

func TestScenario29AStandbysClockIsFarOff(t *testing.T) {
	for _, skew := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		clocks(t, func(t *testing.T, s *stage, ta *Term, next <-chan *Term) {
			s.skew("b", skew)
			time.Sleep(5 * brief.Lease)
			if ta.Err() != nil || s.mintsOf("b") != 0 {
				t.Errorf("skew %v, preempted: %v, %d epochs taken", skew, ta.Err(), s.mintsOf("b"))
			}
			s.links["a"].setCut(true, nil)
			if _, took := s.after(next, time.Minute); took > brief.Lease+2*time.Second {
				t.Errorf("skew %v, the wait grew to %v", skew, took)
			}
		})
	}
}

func TestScenario30RightsThatAreMissingAreNamed(t *testing.T) {
	for _, c := range []struct {
		key, code int16
		want      string
	}{
		{22, 53, `WRITE on transactional id "r"`}, {24, 53, `WRITE on transactional id "r"`}, {26, 53, `WRITE on transactional id "r"`},
		{24, 29, "WRITE on topic " + Topic}, {2, 29, "DESCRIBE on topic " + Topic}, {1, 29, "READ on topic " + Topic},
		{10, 53, `DESCRIBE on transactional id "r"`}, {3, 29, "DESCRIBE on topic " + Topic},
	} {
		onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
			helper := s.member("maker")
			_ = win(t, helper, "elsewhere").Resign(t.Context())
			_, _ = helper.registrar.register(t.Context(), "r") // so that there is something to read
			e := s.member("a")
			s.links["a"].set(func(l *link) {
				l.answer = func(req kmsg.Request) int16 {
					if req.Key() == c.key && (c.key != 22 || req.(*kmsg.InitProducerIDRequest).TransactionalID != nil) {
						return c.code
					}
					return 0
				}
			})
			_, err := e.Campaign(within(t, time.Minute), "r")
			if !errors.Is(err, ErrAuthorization) || err == nil || !contains(err.Error(), c.want) {
				t.Errorf("code %d to %s: %v", c.code, kmsg.NameForKey(c.key), err)
			}
		})
	}
}

func contains(s, part string) bool {
	for i := 0; i+len(part) <= len(s); i++ {
		if s[i:i+len(part)] == part {
			return true
		}
	}
	return false
}

func TestScenario30ALeaderThatLosesItsRightsStepsDown(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		s.links["a"].set(func(l *link) {
			l.answer = func(req kmsg.Request) int16 {
				if req.Key() == 24 {
					return 53
				}
				return 0
			}
		})
		<-ta.Done()
		if !errors.Is(ta.Err(), ErrAuthorization) {
			t.Error(ta.Err())
		}
	})
}

func TestScenario31ATimeoutThatTheBrokersRefuseIsAConfigurationError(t *testing.T) {
	onStage(t, model.Config{MaxTimeout: 5 * time.Second}, func(t *testing.T, s *stage) {
		if _, err := s.member("a").Campaign(within(t, time.Minute), "r"); !errors.Is(err, ErrInvalidConfig) || !errors.Is(err, kerr.InvalidTransactionTimeout) {
			t.Error(err)
		}
	})
	long := Config{Lease: time.Hour}
	if long, err := long.withDefaults(); err != nil || long.transactionTimeout() != 900_000 {
		t.Errorf("S3: a lease of an hour has a transaction timeout of %d ms, %v", long.transactionTimeout(), err)
	}
}

func TestScenario33AfterAResignThePairIsUseless(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		pair := ta.Token()
		if err := ta.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, step := range []lead.Step{lead.Add, lead.Produce, lead.Commit, lead.Reinit} {
			got, err := ta.lease.send(t.Context(), lead.Action{Step: step, Pair: pair, Sequence: 9}, leaseRecord{from: s.links["a"].now()})
			if err != nil || !lead.Fenced(got.Code) {
				t.Errorf("I5: %v under the resigned pair is answered %d, %v", step, got.Code, err)
			}
		}
	})
}

func TestScenario35AnEndThatArrivesLateIsResolved(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		for _, commit := range []bool{true, false} {
			// An EndTxn of the pair arrives in the middle of each renewal.
			var once atomic.Bool
			once.Store(true)
			s.links["a"].set(func(l *link) {
				l.before = func(req kmsg.Request) {
					if p, ok := req.(*kmsg.ProduceRequest); !ok || p.TransactionID == nil || !once.Load() {
						return
					}
					once.Store(false)
					pair := ta.lease.w.Pair()
					end := kmsg.NewPtrEndTxnRequest()
					end.Version, end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = 4, "r", int64(pair.ID), int16(pair.Epoch), commit
					s.with(func(m *model.Cluster) { m.Handle(time.Now(), model.AnyBroker, end) })
				}
			})
			time.Sleep(2 * brief.Lease)
			if ta.Err() != nil || once.Load() {
				t.Errorf("a late end, commit %v: %v", commit, ta.Err())
			}
		}
	})
}

func TestScenario36ALogThatWasCutIsReadAnew(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		reset := make(chan Event, 100)
		a := s.member("a")
		b := s.member("b", func(c *Config) {
			c.OnEvent = func(e Event) {
				if e.Kind == EventReset {
					reset <- e
				}
			}
		})
		ta := win(t, a, "r")
		next := s.candidate(b, "r")
		time.Sleep(brief.Renew + time.Second)
		s.with(func(m *model.Cluster) { m.Truncate(placeOf("r"), 1) })
		time.Sleep(2 * brief.Renew)
		select {
		case <-reset:
		default:
			t.Error("E10: the cut is not reported")
		}
		s.noTerm(next, "after the cut")
		if ta.Err() != nil {
			t.Errorf("the holder did not renew its lease: %v", ta.Err())
		}
	})
}

func TestScenario37AForeignProducerOnTheRolesNameIsTold(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		foreignSeen := make(chan Event, 10)
		a := s.member("a", func(c *Config) {
			c.OnEvent = func(e Event) {
				if e.Kind == EventForeign {
					foreignSeen <- e
				}
			}
		})
		ta := win(t, a, "r")
		if code := newForeign(s.link("app"), "r").mint(); code != 0 {
			t.Fatal(code)
		}
		<-ta.Done()
		if !errors.Is(ta.Err(), ErrFenced) || !IsFence(ta.Err()) {
			t.Error(ta.Err())
		}
		if loss, err := ta.Loss(within(t, time.Minute)); loss.Kind != LossForeign || err != nil {
			t.Errorf("H3: the loss is %v, %v", loss, err)
		}
		time.Sleep(time.Second)
		if len(foreignSeen) != 1 {
			t.Errorf("P10: %d events of a foreign mint", len(foreignSeen))
		}
	})
}

func TestScenario38APoisonRecordStopsNobody(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		a := s.member("a")
		ta := win(t, a, "r")
		rec := outRecord{topic: ta.TopicID(), partition: placeOf("r").Partition, key: []byte("junk"), value: []byte("x"), timeout: time.Second}
		for _, key := range [][]byte{[]byte("junk"), {}, nil} {
			rec.key = key
			if _, err := a.registrar.deliver(t.Context(), rec.partition, key, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		st, err := s.member("b").Describe(within(t, time.Minute), "r")
		if err != nil || st.Leader != "a" || st.Log.Skipped != 3 {
			t.Errorf("A10: %+v, %v", st, err)
		}
	})
}

func TestScenario41ClosingWhileLeadingHandsOver(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		ta := win(t, a, "r")
		next := s.candidate(b, "r")
		time.Sleep(time.Second)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(ta.Err(), ErrClosed) {
			t.Errorf("the term ends with %v", ta.Err())
		}
		tb, took := s.after(next, time.Minute)
		if took > brief.Stagger || tb.Member() != "b" {
			t.Errorf("%s after %v", tb.Member(), took)
		}
		if st, err := b.Describe(within(t, time.Minute), "r"); err != nil || len(st.Roster) != 1 {
			t.Errorf("B10: the roster is %v, %v", st.Roster, err)
		}
		if _, err := a.Campaign(t.Context(), "r"); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestScenario42AfterAnOutageOfEverythingRanksDecide(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		es := []*Elector{s.member("a"), s.member("b"), s.member("c")}
		ta := win(t, es[0], "r")
		var next []<-chan *Term
		for _, e := range es[1:] {
			next = append(next, s.candidate(e, "r"))
			time.Sleep(100 * time.Millisecond)
		}
		for _, l := range s.links {
			l.setCut(true, nil)
		}
		<-ta.Done()
		time.Sleep(2 * brief.Lease)
		s.with(func(*model.Cluster) { s.mints = nil })
		for _, l := range s.links {
			l.setCut(false, nil)
		}
		tb, _ := s.after(next[0], time.Minute)
		time.Sleep(3 * brief.Lease)
		s.mu.Lock()
		n := len(s.mints)
		s.mu.Unlock()
		if tb.Err() != nil || n > 3 {
			t.Errorf("%v, %d epochs taken", tb.Err(), n)
		}
		s.noTerm(next[1], "beside the first standby")
	})
}

// A standby that waits needs no coordinator until its turn comes; that it could not
// take it is known before. Mutation: a campaign that does not ask.
func TestScenario7AStandbyCutOffFromItsCoordinatorIsNotHealthy(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		win(t, a, "r")
		won := s.candidate(b, "r")
		time.Sleep(3 * brief.Lease)
		if err := b.Health(); err != nil {
			t.Errorf("at first: %v", err)
		}
		s.links["b"].setCut(true, func(key int16) bool { return slices.Contains([]int16{10, 22, 24, 26, 65}, key) })
		time.Sleep(6 * brief.Lease)
		if err := b.Health(); err == nil || !strings.Contains(err.Error(), `role "r": the coordinator could not be asked`) {
			t.Errorf("cut off: %v", err)
		}
		if err := a.Health(); err != nil {
			t.Errorf("the leader: %v", err)
		}
		s.links["b"].setCut(false, nil)
		time.Sleep(3 * brief.Lease)
		if err := b.Health(); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		s.noTerm(won, "beside a")
	})
}

// What a campaign needs is out of reach from its beginning, or when its turn has
// come. Mutations: a partition counts from its first reading on; a failed stage of
// a campaign is not noted; it is not forgotten when the campaign goes on.
func TestScenario7WhoCannotCampaignIsNotHealthy(t *testing.T) {
	for name, keys := range map[string][]int16{"topic": {3}, "partition for reading": {1, 2}, "partition for writing": {0}, "coordinator": {10}} {
		t.Run(name, func(t *testing.T) {
			onStage(t, model.Config{}, func(t *testing.T, s *stage) {
				a, b := s.member("a"), s.member("b")
				ta := win(t, a, "r")
				if err := ta.Resign(within(t, time.Minute)); err != nil {
					t.Fatal(err)
				}
				s.links["b"].setCut(true, func(key int16) bool { return slices.Contains(keys, key) })
				time.Sleep(3 * brief.Lease)
				won := s.candidate(b, "r")
				time.Sleep(brief.Lease / 2)
				if err := b.Health(); err != nil {
					t.Errorf("at first: %v", err)
				}
				time.Sleep(5 * brief.Lease)
				if b.Health() == nil {
					t.Error("a candidate that cannot go on is healthy")
				}
				s.links["b"].setCut(false, nil)
				tb, _ := s.after(won, 2*brief.Lease)
				if err := b.Health(); err != nil {
					t.Errorf("leading: %v", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				s.links["a"].setCut(true, func(key int16) bool { return key == 0 })
				if _, err := a.Campaign(ctx, "other"); err == nil {
					t.Error("a campaign wins out of reach")
				}
				next := s.candidate(a, "r")
				time.Sleep(time.Second)
				s.links["a"].setCut(false, nil)
				time.Sleep(3 * brief.Lease)
				if err := errors.Join(a.Health(), b.Health()); err != nil {
					t.Errorf("leading, and waiting after trouble: %v, %v", err, tb.Err())
				}
				s.noTerm(next, "beside b")
			})
		})
	}
}
