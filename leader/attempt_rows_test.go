package leader

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/model"
)

// How long the requests of an acquisition and of a renewal may take, and what is
// made of those that take too long.

// A mint that is answered late follows a reading that is too old: it is not sent
// again without another one.
func TestE9AMintLeavesWithinARenewIntervalOfTheReading(t *testing.T) {
	slow := func(c *Config) { c.Renew, c.Stagger = 2*time.Second, 5*time.Second }
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a := s.member("a", slow)
		until := time.Now().Add(7 * time.Second)
		s.links["a"].set(func(l *link) {
			l.answer = func(req kmsg.Request) int16 {
				if q, ok := req.(*kmsg.InitProducerIDRequest); ok && q.TransactionalID != nil && time.Now().Before(until) {
					return 14
				}
				return 0
			}
		})
		all := s.journal()
		win(t, a, "r")
		var read time.Time
		mints := 0
		for _, r := range all() {
			switch q := r.req.(type) {
			case *kmsg.ListOffsetsRequest:
				if q.IsolationLevel == committed && q.Topics[0].Partitions[0].Timestamp == latest {
					read = r.at
				}
			case *kmsg.InitProducerIDRequest:
				if wordOf(r) != "mint" {
					continue
				}
				mints++
				if age := r.at.Sub(read); age > 2*time.Second {
					t.Errorf("a mint %v after the reading that it rests on", age)
				}
			}
		}
		if mints < 10 {
			t.Errorf("%d mints in 7 s", mints)
		}
	})
}

// What the coordinator answered a stagger ago may be fenced by now, and a fenced
// re-init would abort what its successor has open.
func TestF11AReinitComesWithinAStaggerOfItsMint(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a := s.member("a")
		until := time.Now().Add(4 * time.Second)
		s.links["a"].set(func(l *link) {
			l.answer = func(req kmsg.Request) int16 {
				if q, ok := req.(*kmsg.InitProducerIDRequest); ok && q.ProducerID >= 0 && time.Now().Before(until) {
					return 51
				}
				return 0
			}
		})
		all := s.journal()
		win(t, a, "r")
		var mint time.Time
		for _, r := range all() {
			switch wordOf(r) {
			case "mint":
				mint = r.at
			case "re-init":
				if age := r.at.Sub(mint); age > brief.Stagger {
					t.Errorf("a re-init %v after its mint", age)
				}
			}
		}
	})
}

func TestF6TheCoordinatorIsFoundWhereItMoved(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a := s.member("a")
		move := func() {
			s.with(func(m *model.Cluster) { m.MoveCoordinator("r", 1+m.Coordinator("r")%3) })
		}
		ta := win(t, a, "r")
		var once atomic.Bool
		s.links["a"].set(func(l *link) {
			l.edit = func(req kmsg.Request, _ kmsg.Response) {
				if req.Key() == 26 && !once.Swap(true) {
					move() // between the tombstone and the burn
				}
			}
		})
		if err := ta.Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		move()
		began := time.Now()
		win(t, a, "r")
		if took := time.Since(began); took > brief.Stagger {
			t.Errorf("the role is led after %v", took)
		}
	})
}

// Below version 3 there is no pair in InitProducerId, and F11's re-init would be
// a second mint.
func TestF11BrokersWithoutReinitAreAnInvalidConfiguration(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		s.versions[22] = 2
		if _, err := s.member("a").Campaign(within(t, time.Minute), "r"); !errors.Is(err, ErrInvalidConfig) {
			t.Error(err)
		}
	})
}

// A request that hangs is repeated within its attempt.
func TestG2EachRequestGetsHalfOfWhatIsLeft(t *testing.T) {
	for _, key := range []int16{24, 0, 26} {
		t.Run(kmsg.NameForKey(key), func(t *testing.T) {
			onStage(t, model.Config{}, func(t *testing.T, s *stage) {
				a := s.member("a", func(c *Config) { c.RequestTimeout = time.Hour })
				ta := win(t, a, "r")
				var once atomic.Bool
				s.links["a"].set(func(l *link) { l.drop = func(req kmsg.Request) bool { return req.Key() == key && !once.Swap(true) } })
				time.Sleep(2 * brief.Lease)
				if st := a.Stats(); ta.Err() != nil || !once.Load() || st.Failures > 0 || st.Renewals < 4 {
					t.Errorf("%v; %+v", ta.Err(), st)
				}
			})
		})
	}
}

// Not even a client that ignores its context holds up the end.
func TestG3TheEndWaitsForNoRequest(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		stuck := make(chan struct{})
		s.links["a"].set(func(l *link) {
			l.before = func(req kmsg.Request) {
				if req.Key() == 24 {
					<-stuck
				}
			}
		})
		began := time.Now()
		select {
		case <-ta.Done():
			if !errors.Is(ta.Err(), ErrExpired) || time.Since(began) > brief.Lease-brief.StopMargin {
				t.Errorf("%v after %v", ta.Err(), time.Since(began))
			}
		case <-time.After(2 * brief.Lease):
			t.Error("it leads as long as its request hangs")
		}
		close(stuck)
	})
}

// A renewal whose Produce had no answer in time is given up and aborted. Its
// number may be used: under the same pair the next one would be answered 0, and
// not be there. Each renewal that is counted must be in the log.
func TestG12ARenewalThatWasGivenUpIsNotTakenForTheNext(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a := s.member("a")
		ta := win(t, a, "r")
		time.Sleep(brief.Renew / 2)
		mute := true
		s.links["a"].set(func(l *link) {
			l.drop = func(req kmsg.Request) bool {
				p, ok := req.(*kmsg.ProduceRequest)
				return ok && p.TransactionID != nil && mute
			}
		})
		for a.Stats().Failures == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		s.links["a"].set(func(*link) { mute = false })
		time.Sleep(brief.Lease)
		if ta.Err() != nil {
			t.Fatal(ta.Err())
		}
		a.counts.mu.Lock()
		renewed := a.counts.stats.Renewals
		a.counts.mu.Unlock()
		s.with(func(m *model.Cluster) {
			if n := len(leases(m, "r")); int64(n) != renewed+1 {
				t.Errorf("%d leases are in the log after a grant and %d renewals", n, renewed)
			}
		})
	})
}

// What never left leaves no doubt: the pair stays.
func TestG11WhatWasNotSentNeedsNoReinit(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a := s.member("a")
		ta := win(t, a, "r")
		token := ta.Token()
		var n atomic.Int32
		s.links["a"].set(func(l *link) {
			l.answer = func(req kmsg.Request) int16 {
				switch req.Key() {
				case 26:
					if n.Add(1) == 1 {
						return 16 // so that it is looked for
					}
				case 10:
					return 15
				}
				return 0
			}
		})
		time.Sleep(brief.Renew + 2*time.Second)
		s.links["a"].set(func(l *link) { l.answer = nil })
		time.Sleep(brief.Lease)
		if st := a.Stats(); ta.Err() != nil || ta.Token() != token || st.Reinits > 0 || n.Load() == 0 {
			t.Errorf("%v; token %v was %v; %+v", ta.Err(), ta.Token(), token, st)
		}
	})
}

// A producer that commits under the role's name without a lease has fenced the
// leader, whose lease says that it cannot be of the same pair's later
// transactions. Without that header the lease would pass for its.
func TestI9ALeaseOfThisPackageIsSeenToBeFencedByACommit(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		ta := win(t, a, "r")
		s.links["a"].pause() // it does not notice
		defer s.links["a"].resume()
		s.with(func(m *model.Cluster) { m.CreateTopic(data.Topic, 1) })
		app := newForeign(s.link("app"), "r")
		if code := app.mint(); code != 0 {
			t.Fatal(code)
		}
		if code := app.produce(data, nil, []byte("app")); code != 0 {
			t.Fatal(code)
		}
		if code := app.end(true); code != 0 {
			t.Fatal(code)
		}
		time.Sleep(time.Second)
		if v, err := b.Verify(within(t, time.Minute), "r", ta.token); v != Superseded || err != nil {
			t.Errorf("the fenced leader is %v, %v", v, err)
		}
		if st, err := b.Describe(within(t, time.Minute), "r"); st.Leader != "" || err != nil {
			t.Errorf("%q leads, %v", st.Leader, err)
		}
	})
}

// A role that was never led has no lease, and no token of one either.
func TestI9ARoleWithoutALeaseIsJudgedWithoutAToken(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		if _, err := s.member("a").topic.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		app := newForeign(s.link("app"), "r")
		for app.pair != (lead.Token{}) { // the pair of a zero value
			if code := app.mint(); code != 0 {
				t.Fatal(code)
			}
			if app.pair.ID != 0 {
				t.Skip("the model begins at another id")
			}
		}
		st, err := s.member("b").Describe(within(t, time.Minute), "r")
		if err != nil || st.Verdict != Superseded || st.Token != lead.NoToken || st.Epoch != (lead.Token{}) {
			t.Errorf("%+v, %v", st, err)
		}
	})
}

// A topic that was made anew has offsets from 0, and terms would go back: who
// finds it empty for a role that was led does not lead it.
func TestScenario22ARoleThatWasLedIsNotLedInAnEmptyTopic(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		if err := win(t, s.member("a"), "r").Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		s.with(func(m *model.Cluster) {
			m.DeleteTopic(Topic)
			m.CreateTopic(Topic, 16)
		})
		if _, err := s.member("b").Campaign(within(t, time.Minute), "r"); !errors.Is(err, ErrInvalidConfig) || s.mintsOf("b") > 0 {
			t.Errorf("%v after %d mints", err, s.mintsOf("b"))
		}
		win(t, s.member("b"), "never-led")
		win(t, s.member("c", func(c *Config) { c.AllowNewTopic = true }), "r")
	})
}
