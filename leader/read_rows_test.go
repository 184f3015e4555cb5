package leader

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/kafka"
)

// fetches are the offsets that a member's Fetch requests began at, in order.
func fetches(all []sent, member string) (out []kafka.Offset) {
	for _, r := range all {
		if f, ok := r.req.(*kmsg.FetchRequest); ok && r.from == member {
			out = append(out, kafka.Offset(f.Topics[0].Partitions[0].FetchOffset))
		}
	}
	return out
}

// listings are a member's ListOffsets requests of one kind.
func listings(all []sent, member string, timestamp int64, isolation int8) (out []sent) {
	for _, r := range all {
		l, ok := r.req.(*kmsg.ListOffsetsRequest)
		if ok && r.from == member && l.IsolationLevel == isolation && l.Topics[0].Partitions[0].Timestamp == timestamp {
			out = append(out, r)
		}
	}
	return out
}

// synced is the partition of a role, read to its end.
func synced(t *testing.T, e *Elector, role string) *partition {
	t.Helper()
	p, err := e.place(within(t, time.Minute), role)
	if err == nil {
		_, err = e.log.sync(within(t, time.Minute), p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestE1AReadBeginsAtTheLogStartAndStopsAtTheStableOffset(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "controller")
		time.Sleep(3*brief.Renew + time.Second)
		var start, stable kafka.Offset
		s.with(func(m *model.Cluster) {
			_, end, _ := m.Bounds(placeOf("controller"))
			m.DeleteBefore(placeOf("controller"), end-4)
		})
		s.hidden()
		s.with(func(m *model.Cluster) { start, stable, _ = m.Bounds(placeOf("controller")) })
		all := s.journal()
		b := s.member("b")
		began := time.Now()
		p := synced(t, b, "controller")
		if took := time.Since(began); took > time.Second {
			t.Errorf("it waited for %v beyond the end", took)
		}
		if at := fetches(all(), "b"); at[0] != start || p.view().next != stable {
			t.Errorf("it read from %d to %d, want %d to %d", at[0], p.view().next, start, stable)
		}
		if ta.Err() != nil {
			t.Error(ta.Err())
		}
	})
}

func TestE3AnOpenTransactionHidesWhatComesAfterIt(t *testing.T) {
	onStage(t, model.Config{Sweep: time.Hour}, func(t *testing.T, s *stage) {
		a := s.member("a")
		win(t, a, "controller")
		end := s.hidden()
		if _, err := s.member("late").registrar.topic.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.opens[1].registrar.register(t.Context(), "controller"); err != nil {
			t.Fatal(err)
		}
		if got := s.roster(a, "controller"); fmt.Sprint(got) != "[a]" {
			t.Errorf("behind the open transaction the roster is %v", got)
		}
		end()
		if got := s.roster(a, "controller"); fmt.Sprint(got) != "[a late]" {
			t.Errorf("after it the roster is %v", got)
		}
	})
}

func TestE4TheReadFollowsTheLeader(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		win(t, s.member("a"), "r")
		b := s.member("b")
		synced(t, b, "r")
		for to := kafka.NodeID(1); to <= 3; to++ {
			s.with(func(m *model.Cluster) { m.MoveLeader(placeOf("r"), to) })
			all := s.journal()
			if st, err := b.Describe(within(t, time.Minute), "r"); err != nil || st.Leader != "a" {
				t.Errorf("after a move to %d: %+v, %v", to, st, err)
			}
			asked := false
			for _, r := range all() {
				asked = asked || r.from == "b" && r.req.Key() == 3
			}
			if node, _, _ := b.topic.leader(t.Context(), placeOf("r").Partition, nil); node != to || !asked && to > 1 {
				t.Errorf("it reads at %d, the leader is %d, metadata was asked for: %v", node, to, asked)
			}
		}
	})
}

func TestE5AnEmptyPartitionIsAnEmptyHistory(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		e := s.member("a")
		if _, err := e.topic.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := s.journal()
		began := time.Now()
		p := synced(t, e, "r")
		if took, n := time.Since(began), len(fetches(all(), "a")); took > 100*time.Millisecond || n > 1 {
			t.Errorf("nothing was read in %v and %d fetches", took, n) // one is the tail's
		}
		if f, _, ok := p.fold("r"); !ok || len(f.Roster()) != 0 || p.view().next != 0 {
			t.Errorf("read %v to %d", ok, p.view().next)
		}
	})
}

func TestE6AReadWithoutProgressIsAnErrorAndNoShortSuccess(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		b := s.member("b")
		s.links["b"].set(func(l *link) {
			l.edit = func(_ kmsg.Request, resp kmsg.Response) {
				if f, ok := resp.(*kmsg.FetchResponse); ok {
					f.Topics[0].Partitions[0].RecordBatches = nil
				}
			}
		})
		if st, err := b.Describe(within(t, 5*time.Second), "r"); err == nil {
			t.Errorf("fetches without records make the state %+v", st)
		}
		next := s.candidate(b, "r")
		time.Sleep(5 * brief.Lease)
		s.noTerm(next, "although it never saw the log")
		if n := s.mintsOf("b"); n != 0 || ta.Err() != nil {
			t.Errorf("%d epochs were taken; the holder: %v", n, ta.Err())
		}
	})
}

func TestE7AnUnreachableBrokerIsAnErrorAndNoEmptyHistory(t *testing.T) {
	for name, key := range map[string]int16{"Metadata": 3, "ListOffsets": 2, "Fetch": 1} {
		t.Run(name, func(t *testing.T) {
			onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
				win(t, s.member("a"), "r")
				b := s.member("b")
				s.links["b"].setCut(true, func(k int16) bool { return k == key })
				if st, err := b.Describe(within(t, 5*time.Second), "r"); !errors.Is(err, ErrClient) {
					t.Errorf("%+v, %v", st, err)
				}
			})
		})
	}
}

func TestE8AfterTheFirstReadOnlyTheTailIsRead(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		win(t, s.member("a"), "r")
		time.Sleep(3 * brief.Renew)
		b := s.member("b")
		all := s.journal()
		s.candidate(b, "r")
		time.Sleep(10 * brief.Lease)
		if n := len(listings(all(), "b", earliest, uncommitted)); n != 1 {
			t.Errorf("the log start was asked for %d times", n)
		}
		back := 0
		at := fetches(all(), "b")
		for i := 1; i < len(at); i++ {
			if at[i] < at[i-1] {
				back++
			}
		}
		if back > 0 {
			t.Errorf("%d of %d fetches went back", back, len(at))
		}
		if v := b.log.partition(placeOf("r").Partition).view(); b.cfg.now().Local-v.fresh > brief.Renew {
			t.Errorf("the tail was last seen %v ago", b.cfg.now().Local-v.fresh)
		}
	})
}

// A renewal that arrives in the very moment at which the turn has come must be
// seen before the epoch is taken. Taking the reading out of campaign.prove makes
// this fail.
func TestE9AFreshReadComesBeforeEachMint(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		b := s.member("b")
		if _, err := b.topic.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		java := newForeign(s.link("java"), "r")
		if code := java.mint(); code != 0 {
			t.Fatal(code)
		}
		token := java.pair
		if code := java.lease(token, brief.Lease); code != 0 {
			t.Fatal(code)
		}
		all := s.journal()
		next := s.candidate(b, "r")
		time.Sleep(time.Second)
		// b does not see what is written from now on, but by a reading of its own.
		var proofs atomic.Int32
		s.links["b"].set(func(l *link) {
			l.drop = func(req kmsg.Request) bool {
				f, ok := req.(*kmsg.FetchRequest)
				return ok && f.MaxWaitMillis > 0
			}
			l.before = func(req kmsg.Request) {
				if r, ok := req.(*kmsg.ListOffsetsRequest); !ok || r.IsolationLevel != committed || proofs.Add(1) > 1 {
					return
				}
				if code := java.lease(token, brief.Lease); code != 0 { // just in time
					s.problem("the holder's renewal: %d", code)
				}
			}
		})
		time.Sleep(brief.Lease + brief.MaxSkew + 3*time.Second)
		if n := s.mintsOf("b"); n != 0 || proofs.Load() == 0 {
			t.Errorf("%d epochs were taken from a holder that renewed, %d readings before", n, proofs.Load())
		}
		s.after(next, time.Minute)
		var mint time.Time
		for _, r := range all() {
			if i, ok := r.req.(*kmsg.InitProducerIDRequest); ok && i.TransactionalID != nil && i.ProducerID < 0 && r.from == "b" {
				mint = r.at
			}
		}
		var last time.Time
		for _, r := range listings(all(), "b", latest, committed) {
			if r.at.Before(mint) {
				last = r.at
			}
		}
		if mint.IsZero() || mint.Sub(last) > brief.Renew {
			t.Errorf("the epoch was taken %v after the log was last read", mint.Sub(last))
		}
		for _, p := range s.problems {
			t.Error(p)
		}
	})
}

func TestE10AnotherLogIsReadAnewAndTold(t *testing.T) {
	for name, change := range map[string]func(m *model.Cluster){
		"it is cut":              func(m *model.Cluster) { m.Truncate(placeOf("r"), 2) },
		"the topic is made anew": func(m *model.Cluster) { m.CreateTopic(Topic, 16) },
	} {
		t.Run(name, func(t *testing.T) { testAnotherLog(t, change, false) })
	}
	t.Run("its start jumps", func(t *testing.T) {
		testAnotherLog(t, func(m *model.Cluster) {
			_, stable, _ := m.Bounds(placeOf("r"))
			m.DeleteBefore(placeOf("r"), stable)
		}, true)
	})
}

// testAnotherLog has the log of a follower change. behind says that the follower
// has not read to its end then.
func testAnotherLog(t *testing.T, change func(m *model.Cluster), behind bool) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		var resets atomic.Int32
		a := s.member("a")
		win(t, a, "r")
		time.Sleep(brief.Renew + time.Second)
		b := s.member("b", func(c *Config) {
			c.OnEvent = func(e Event) {
				if e.Kind == EventReset && e.Err != nil {
					resets.Add(1)
				}
			}
		})
		synced(t, b, "r")
		s.links["b"].setCut(behind, nil)
		if behind {
			time.Sleep(brief.Renew + time.Second)
		}
		s.with(change)
		s.links["b"].setCut(false, nil)
		time.Sleep(3 * time.Second)
		p := synced(t, b, "r")
		if resets.Load() == 0 {
			t.Error("it is not told")
		}
		var want []string
		s.with(func(m *model.Cluster) {
			for _, r := range m.Records(placeOf("r")) {
				if k, err := lead.DecodeKey(r.Key); err == nil && k.Kind == lead.KindRegistration && r.Readable() {
					want = append(want, k.Member)
				}
			}
		})
		f, _, _ := p.fold("r")
		var got []string
		for _, m := range f.Roster() {
			got = append(got, m.Name)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the roster is %v, the log has %v", got, want)
		}
	})
}

// What a holder writes behind another role's open transaction is seen by a look at
// what is not committed. A broker that throttles answers that with nothing, which
// is no silence of the holder. Mutations: an empty look is good; one that is not
// told of a throttle is.
func TestScenario40AnEmptyLookBehindAnOpenTransactionIsNoSilence(t *testing.T) {
	for name, throttle := range map[string]int32{"throttled": 100, "empty": 0} {
		t.Run(name, func(t *testing.T) {
			onStage(t, model.Config{Sweep: time.Hour}, func(t *testing.T, s *stage) {
				a, b := s.member("a"), s.member("b")
				ta := win(t, a, "controller")
				next := s.candidate(b, "controller")
				time.Sleep(time.Second)
				end := s.hidden()
				s.links["b"].set(func(l *link) {
					l.edit = func(req kmsg.Request, resp kmsg.Response) {
						q, ok := req.(*kmsg.FetchRequest)
						if !ok || q.IsolationLevel != uncommitted {
							return
						}
						r := resp.(*kmsg.FetchResponse)
						r.ThrottleMillis = throttle
						for i := range r.Topics {
							for j := range r.Topics[i].Partitions {
								r.Topics[i].Partitions[j].RecordBatches = nil
							}
						}
					}
				})
				time.Sleep(5 * brief.Lease)
				s.links["b"].set(func(l *link) { l.edit = nil })
				time.Sleep(3 * brief.Lease)
				if n := s.mintsOf("b"); n != 0 || ta.Err() != nil {
					t.Errorf("%d epochs taken from a holder that renews unseen: %v", n, ta.Err())
				}
				s.noTerm(next, "behind the open transaction")
				end()
			})
		})
	}
}

// What only watches sees a holder that renews behind another role's open
// transaction. Mutation: hides is false.
func TestE11AWatcherSeesAHolderBehindAnOpenTransaction(t *testing.T) {
	onStage(t, model.Config{Sweep: time.Hour}, func(t *testing.T, s *stage) {
		ta, w := win(t, s.member("a"), "controller"), s.member("w")
		p := synced(t, w, "controller")
		end := s.hidden()
		time.Sleep(5 * brief.Lease)
		f, _, _ := p.fold("controller")
		if st := w.state(p, f); st.Leader != "a" || ta.Err() != nil {
			t.Errorf("it names %q, the lease has %v; the leader: %v", st.Leader, st.LeaseLeft, ta.Err())
		}
		end()
	})
}

// A follower that only polls learns that the topic was made anew. Mutation: neither
// relocate nor sync says which topic it found.
func TestE10AWatcherLearnsThatTheTopicWasMadeAnew(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a, w := s.member("a"), s.member("w")
		win(t, a, "r")
		p := synced(t, w, "r")
		was := p.view().topic
		s.links["a"].setCut(true, nil) // it would write into the new one
		s.with(func(m *model.Cluster) { m.CreateTopic(Topic, 16) })
		time.Sleep(3 * time.Second)
		f, _, ok := p.fold("r")
		if _, led := f.Lease(); !ok || led || p.view().topic == was {
			t.Errorf("read %t, led %t, topic %v", ok, led, p.view().topic)
		}
	})
}

// A log that ends before what was read of it is read by nobody to its end. No Fetch
// arrives that would tell. Mutation: toEnd does not compare.
func TestE10ALogThatWasCutIsNotReadToItsEnd(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		ta := win(t, a, "r")
		p := synced(t, b, "r")
		_ = ta.Resign(within(t, time.Minute))
		time.Sleep(time.Second)
		s.links["b"].setCut(true, func(key int16) bool { return key == 1 })
		s.with(func(m *model.Cluster) { m.Truncate(placeOf("r"), 2) })
		if _, err := b.log.sync(within(t, time.Second), p); err == nil {
			t.Errorf("read to %d", p.view().next)
		}
	})
}
