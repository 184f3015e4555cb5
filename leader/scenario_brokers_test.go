package leader

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/internal/model/serve"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

func TestScenario4AfterDaysOfSleepNothingIsResumed(t *testing.T) {
	onStage(t, model.Config{IDExpiration: 24 * time.Hour}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		ta := win(t, a, "r")
		s.links["a"].pause()
		time.Sleep(brief.Lease * 3)
		tb := win(t, b, "r")
		time.Sleep(time.Minute)
		_ = tb.Resign(t.Context())
		_ = b.Close()
		time.Sleep(5 * 24 * time.Hour)
		s.with(func(m *model.Cluster) { // nothing of what it knew is there
			_, stable, _ := m.Bounds(placeOf("r"))
			m.DeleteBefore(placeOf("r"), stable)
		})
		var first atomic.Int32
		s.with(func(*model.Cluster) {
			s.onSend = func(l *link, req kmsg.Request) {
				if k := req.Key(); k == 0 || k == 22 || k == 24 || k == 26 {
					first.Store(int32(k))
				}
			}
		})
		s.links["a"].resume()
		if err := ta.Err(); !errors.Is(err, ErrExpired) {
			t.Errorf("on waking: %v", err)
		}
		time.Sleep(brief.Lease)
		if k := first.Load(); k != 0 {
			t.Errorf("the sleeper wrote by %s", kmsg.NameForKey(int16(k)))
		}
		if st, err := a.Describe(within(t, time.Minute), "r"); err != nil || st.Leader != "" || len(st.Roster) != 0 {
			t.Errorf("it still knows %+v, %v", st, err)
		}
		again := win(t, a, "r")
		if again.Number() <= tb.Number() {
			t.Errorf("term %d after %d", again.Number(), tb.Number())
		}
	})
}

// A mint of which only a copy arrives, after the role was taken by the next
// one: its own sender is deposed by it, and takes the role anew.
func TestScenario9ADelayedMintFencesItsOwnSender(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a := s.member("a")
		var once atomic.Bool
		s.links["a"].set(func(l *link) {
			l.answer = func(req kmsg.Request) int16 {
				q, ok := req.(*kmsg.InitProducerIDRequest)
				if !ok || q.TransactionalID == nil || q.ProducerID >= 0 || once.Swap(true) {
					return 0
				}
				copied := *q
				s.later(model.AnyBroker, &copied, brief.Renew+time.Second)
				return 14 // the sender asks again
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leads := make(chan *Term, 10)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = a.Run(ctx, "r", func(ctx context.Context, tm *Term) error { leads <- tm; <-ctx.Done(); return ctx.Err() })
		}()
		first, _ := s.after(leads, time.Minute)
		second, _ := s.after(leads, 2*brief.Lease)
		if loss, err := first.Loss(within(t, time.Minute)); err != nil || loss.Kind != LossForeign {
			t.Errorf("the loss is %v, %v", loss, err)
		}
		if second.Number() <= first.Number() || a.Stats().Foreign != 1 {
			t.Errorf("term %d after %d, %d foreign mints counted", second.Number(), first.Number(), a.Stats().Foreign)
		}
		time.Sleep(5 * brief.Lease)
		if n := s.mintsOf("a"); second.Err() != nil || n != 2 {
			t.Errorf("%v, %d epochs were taken", second.Err(), n)
		}
		cancel()
		<-done
	})
}

// A fenced member's re-init arrives while the leader has a transaction open: it
// is refused, but aborts that first.
func TestScenario12AStaleReinitAbortsALeadersTransaction(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		old := win(t, s.member("old"), "r")
		stale := old.Token()
		if err := old.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		a := s.member("a")
		ta := win(t, a, "r")
		var once atomic.Bool
		s.links["a"].set(func(l *link) {
			l.before = func(req kmsg.Request) {
				if req.Key() != 26 || once.Swap(true) {
					return
				}
				q := kmsg.NewPtrInitProducerIDRequest()
				q.Version, q.TransactionalID, q.TransactionTimeoutMillis = 4, kmsg.StringPtr("r"), 10_000
				q.ProducerID, q.ProducerEpoch = int64(stale.ID), int16(stale.Epoch)
				s.with(func(m *model.Cluster) { m.Handle(time.Now(), model.AnyBroker, q) })
			}
		})
		err := ta.Renew(t.Context())
		if !errors.Is(err, ErrFenced) || ta.Err() == nil {
			t.Fatalf("the renewal: %v", err)
		}
		loss, lerr := ta.Loss(within(t, time.Minute))
		if lerr != nil || loss.Kind != LossTimeout || strings.Contains(loss.String(), "another") {
			t.Errorf("the loss is %v, %v", loss, lerr)
		}
		began := time.Now()
		if again := win(t, a, "r"); again.Number() <= ta.Number() || time.Since(began) > brief.Lease+brief.Stagger {
			t.Errorf("term %d after %d, %v later", again.Number(), ta.Number(), time.Since(began))
		}
	})
}

// A holder of part 2 is given another producer id in the middle of its
// leadership, and leads on.
func TestScenario16EpochsOfAHolderOfPart2RunOut(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2, MaxEpoch: 5}, func(t *testing.T, s *stage) {
		e := s.member("watcher")
		if _, err := e.topic.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.with(func(m *model.Cluster) { m.CreateTopic("data", 1) })
		f := newForeign(s.link("java"), "r")
		if code := f.mint(); code != 0 {
			t.Fatal(code)
		}
		token, ids := f.pair, map[kafka.ProducerID]bool{}
		for i := range 12 {
			if code := f.lease(token, brief.Lease); code != 0 {
				t.Fatal(code)
			}
			ids[f.pair.ID] = true
			if v, err := e.Verify(within(t, time.Minute), "r", token); v != Authoritative || err != nil {
				t.Errorf("after %d transactions, at %v: %v, %v", i+1, f.pair, v, err)
			}
		}
		if len(ids) < 3 {
			t.Errorf("%d producer ids", len(ids))
		}
	})
}

// The partition forgets the leader's producer: it goes on with its next number,
// and the fence is the coordinator's alone.
func TestScenario18ThePartitionForgetsTheProducer(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		ta := win(t, a, "r")
		token := ta.Token()
		for range 5 {
			time.Sleep(brief.Renew + time.Second)
			s.with(func(m *model.Cluster) { m.ForgetProducers(placeOf("r")) })
			if err := ta.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if ta.Token() != token {
			t.Errorf("the token is %v, and was %v", ta.Token(), token)
		}
		s.with(func(m *model.Cluster) {
			ls := leases(m, "r")
			if last := ls[len(ls)-1]; last.term != ta.Number() || time.Since(last.lease.Granted.Time()) > time.Second {
				t.Errorf("the newest lease is of term %d, granted %v ago", last.term, time.Since(last.lease.Granted.Time()))
			}
		})
		s.links["a"].setCut(true, nil)
		tb := win(t, b, "r")
		s.links["a"].setCut(false, nil)
		s.with(func(m *model.Cluster) { m.ForgetProducers(placeOf("r")) })
		got, err := ta.lease.send(t.Context(), lead.Action{Step: lead.Produce, Pair: token, Sequence: 9}, leaseRecord{from: s.links["a"].now()})
		if err != nil || got.Code != 47 || tb.Err() != nil {
			t.Errorf("the old holder's record: %d, %v; the leader: %v", got.Code, err, tb.Err())
		}
	})
}

// reports is a store outside of Kafka that checks the number of the term.
type reports struct {
	term int64
	body string
}

func (r *reports) put(term int64, body string) bool {
	if term < r.term {
		return false
	}
	r.term, r.body = term, body
	return true
}

// What the fence does not protect, and what is to be done instead: readers read
// committed records, side effects come after the commit, stores check the term.
func TestScenario34WhatTheFenceDoesNotProtect(t *testing.T) {
	overModel(t, 6, func(t *testing.T, e *Elector, s *serve.Server) {
		first := win(t, e, "r")
		db := &reports{}
		// Whoever reads uncommitted sees what is aborted.
		fails := errors.New("the work fails")
		err := first.Transact(t.Context(), func(ctx context.Context, tx *producer.Tx) error {
			if _, err := tx.Send(ctx, kafka.Record{Topic: "out", Value: []byte("aborted")}); err != nil {
				return err
			}
			return fails
		})
		if !errors.Is(err, fails) {
			t.Fatal(err)
		}
		uncommitted := 0
		s.Model(func(m *model.Cluster) { uncommitted = len(m.Records(kafka.TopicPartition{Topic: "out"})) })
		if got := inOut(s); len(got) != 0 || uncommitted != 1 {
			t.Errorf("committed %q, %d records uncommitted", got, uncommitted)
		}
		// Commit, then act.
		if err := write(t.Context(), first, "one"); err != nil || !db.put(first.Number(), "one") {
			t.Errorf("%v, %+v", err, db)
		}
		if err := first.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := win(t, e, "r")
		if err := write(t.Context(), second, "two"); err != nil || !db.put(second.Number(), "two") {
			t.Errorf("%v, %+v", err, db)
		}
		// A late act of the first term: nothing is committed, and the store refuses.
		if err := write(t.Context(), first, "late"); err == nil {
			t.Error("the first term commits after its end")
		}
		if db.put(first.Number(), "late") || db.body != "two" {
			t.Errorf("the store took a lower term: %+v", db)
		}
	})
}
