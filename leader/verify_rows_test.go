package leader

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/model"
)

// Mutation: one look only.
func TestI9ATransactionUnderWayIsLookedAtAgain(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		ta, b := win(t, s.member("a"), "controller"), s.member("b")
		token := ta.Token()
		if err := ta.Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if v, err := b.Verify(within(t, time.Minute), "controller", token); v != Superseded || err != nil {
			t.Fatalf("after the resignation: %v, %v", v, err)
		}
		end := s.hidden() // another role of the partition has a transaction open
		time.AfterFunc(10*time.Millisecond, end)
		if v, err := b.Verify(within(t, time.Minute), "controller", token); v != Superseded || err != nil {
			t.Errorf("after a transaction that was short: %v, %v", v, err)
		}
	})
}

// A watch is silent while a leader renews, and tells of every change. Mutations:
// same without one of its comparisons, or false.
func TestP5WatchYieldsWhatChangedAndNothingElse(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a, b, w := s.member("a"), s.member("b"), s.member("w")
		ta := win(t, a, "r")
		states := make(chan State, 1000)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(states)
			for st, err := range w.Watch(ctx, "r") {
				if err == nil {
					states <- st
				}
			}
		}()
		newest := func() (st State, n int) {
			for {
				select {
				case st = <-states:
					n++
				default:
					return st, n
				}
			}
		}
		time.Sleep(time.Second)
		if st, n := newest(); n == 0 || st.Leader != "a" || st.Term != ta.Number() {
			t.Fatalf("%d states, %+v", n, st)
		}
		time.Sleep(10 * brief.Lease)
		if st, n := newest(); n > 0 {
			t.Errorf("%d states of a leader that renews, the last %+v", n, st)
		}
		next := s.candidate(b, "r")
		time.Sleep(time.Second)
		if st, n := newest(); n == 0 || len(st.Roster) != 2 {
			t.Errorf("%d states after another registered: %+v", n, st)
		}
		if err := ta.Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		tb, _ := s.after(next, time.Minute)
		time.Sleep(time.Second)
		if st, n := newest(); n == 0 || st.Leader != "b" || st.Term != tb.Number() || st.Token != tb.Token() {
			t.Errorf("%d states after a hand-over: %+v", n, st)
		}
		if err := tb.Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		again := win(t, b, "r")
		time.Sleep(time.Second)
		if st, n := newest(); n == 0 || st.Leader != "b" || st.Term != again.Number() || st.Term == tb.Number() {
			t.Errorf("%d states after the same member won again: %+v", n, st)
		}
		cancel()
		for range states {
		}
	})
}

// Who comes later knows of a lease only what its holder's clock says: a holder
// that died an hour ago does not lead, however fresh the reading is.
func TestP5ANewcomerDoesNotNameAHolderLongDead(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		time.Sleep(brief.Renew)
		if st, err := s.member("b").Describe(within(t, time.Minute), "r"); err != nil || st.Leader != "a" {
			t.Errorf("while it leads: %q, %v", st.Leader, err)
		}
		s.links["a"].setCut(true, nil)
		<-ta.Done()
		time.Sleep(time.Hour)
		if st, err := s.member("c").Describe(within(t, time.Minute), "r"); err != nil || st.Leader != "" || st.LeaseLeft > 0 {
			t.Errorf("an hour later: %q leads for %v, %v", st.Leader, st.LeaseLeft, err)
		}
	})
}

// A state too old to tell names nobody, also where the lease that was seen last
// would go on.
func TestP5AStaleStateNamesNobodyWhateverTheLease(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		win(t, s.member("a", func(c *Config) {
			*c = Config{Lease: 10 * time.Minute, Renew: time.Minute, RequestTimeout: 2 * time.Second}
		}), "r")
		b := s.member("b")
		if st, err := b.Describe(within(t, time.Minute), "r"); err != nil || st.Leader != "a" {
			t.Fatalf("%q, %v", st.Leader, err)
		}
		s.links["b"].setCut(true, nil)
		time.Sleep(2 * brief.Lease)
		p := b.log.partition(placeOf("r").Partition)
		f, _, _ := p.fold("r")
		if st := b.state(p, f); st.Leader != "" || !st.Stale || st.Vacant() {
			t.Errorf("%q leads, stale %v, vacant %v", st.Leader, st.Stale, st.Vacant())
		}
	})
}

// A follower goes on where its partition had no leader for a while, or was reset
// and could not be read then: a watch does not stay stale for ever, and a standby
// is woken. Mutation: the poll of a broker ends with the last partition that it
// leads, whatever has become of that.
func TestP5AWatchGoesOnAfterItsPartitionWasOutOfReach(t *testing.T) {
	for name, fault := range map[string]func(s *stage, l *link){
		"without a leader": func(_ *stage, l *link) {
			l.answer = func(req kmsg.Request) int16 {
				if req.Key() == 1 {
					return 6 // NOT_LEADER_OR_FOLLOWER
				}
				return 0
			}
			l.edit = func(_ kmsg.Request, resp kmsg.Response) {
				if m, ok := resp.(*kmsg.MetadataResponse); ok {
					for _, topic := range m.Topics {
						for i := range topic.Partitions {
							topic.Partitions[i].Leader, topic.Partitions[i].ErrorCode = -1, 5
						}
					}
				}
			}
		},
		"reset and not readable": func(s *stage, l *link) {
			out := true // once
			l.answer = func(req kmsg.Request) int16 {
				switch {
				case req.Key() == 1 && out:
					out = false
					return 1 // OFFSET_OUT_OF_RANGE
				case req.Key() == 2:
					return 6
				}
				return 0
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, model.Config{}, func(t *testing.T, s *stage) {
				a, w := s.member("a"), s.member("w")
				ta := win(t, a, "r")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var last atomic.Pointer[State]
				go func() {
					for st := range w.Watch(ctx, "r") {
						last.Store(&st)
					}
				}()
				time.Sleep(time.Second)
				s.links["w"].set(func(l *link) { fault(s, l) })
				time.Sleep(2 * time.Minute)
				if st := last.Load(); !st.Stale || w.Health() == nil {
					t.Errorf("meanwhile: %+v, %v", st, w.Health())
				}
				s.links["w"].set(func(l *link) { l.answer, l.edit = nil, nil })
				time.Sleep(5 * time.Second)
				if st := last.Load(); st.Stale || st.Leader != "a" || w.Health() != nil {
					t.Errorf("afterwards: %+v, %v", st, w.Health())
				}
				if err := ta.Resign(within(t, time.Minute)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if st := last.Load(); !st.Vacant() {
					t.Errorf("after the leader resigned: %+v", st)
				}
			})
		})
	}
}

// A watcher that was suspended for an hour finds an answer waiting that tells of a
// renewal: it names nobody from that, before it has read anew. Mutation: an answer
// is as fresh as its arrival.
func TestP5AnAnswerThatWaitedForAnHourNamesNobody(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a, w := s.member("a"), s.member("w")
		win(t, a, "r")
		p := synced(t, w, "r")
		time.Sleep(brief.Renew - time.Second)
		var once atomic.Bool
		s.links["w"].set(func(l *link) {
			l.edit = func(req kmsg.Request, resp kmsg.Response) {
				if r, ok := resp.(*kmsg.FetchResponse); ok && said(r) && !once.Swap(true) {
					l.pause() // with the renewal in the socket
				}
			}
		})
		time.Sleep(2 * time.Second)
		if !once.Load() {
			t.Fatal("no renewal came")
		}
		s.links["a"].setCut(true, nil)
		time.Sleep(time.Hour)
		s.links["w"].setCut(true, nil)
		s.links["w"].resume()
		time.Sleep(100 * time.Millisecond)
		f, _, _ := p.fold("r")
		if st := w.state(p, f); st.Leader != "" || !st.Stale {
			t.Errorf("it names %q, read %v ago", st.Leader, st.Log.Age)
		}
	})
}
