package consumer

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

func TestEverythingIsReadOnceAndInOrder(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 6}}, func(ctx context.Context, w *world) {
		var tps []kafka.TopicPartition
		for p := range int32(6) {
			w.produce("t", p, numbers(0, 20)...)
			tps = append(tps, tp("t", p))
		}
		c := w.consumer(Config{})
		assign(t, c, tps...)
		r := newReader(t, c)
		r.until(ctx, 120)
		for _, tp := range tps {
			r.want(tp, numbers(0, 20)...)
			if at, err := c.Position(ctx, tp); at != 20 || err != nil {
				t.Errorf("%s: position %d %v", tp, at, err)
			}
			if lag, ok := c.Lag(tp); lag != 0 || !ok {
				t.Errorf("%s: lag %d %v", tp, lag, ok)
			}
		}
		w.produce("t", 3, numbers(20, 25)...)
		r.until(ctx, 125)
		r.want(tp("t", 3), numbers(0, 25)...)
	})
}

// Nothing lost, nothing twice, order kept: reader fails on an offset that does
// not rise, want on a missing value. Mutations: fetch.answer.partition without
// the generation doubles after a leader change; retryCorrupt's drop without
// setting next loses.
func TestNothingIsLostOrDoubledThroughFaults(t *testing.T) {
	faults := map[string]func(t *testing.T, k *ottlatest.Cluster){
		"close in a request": func(_ *testing.T, k *ottlatest.Cluster) { k.CloseAfter(0, ottlatest.Requests, 13) },
		"close in an answer": func(_ *testing.T, k *ottlatest.Cluster) { k.CloseAfter(0, ottlatest.Answers, 50) },
		"close all":          func(_ *testing.T, k *ottlatest.Cluster) { k.CloseConnections(0) },
		"not the leader":     func(_ *testing.T, k *ottlatest.Cluster) { k.Fail(1, 6, 2, 1) },
		"fenced epoch":       func(_ *testing.T, k *ottlatest.Cluster) { k.Fail(1, 74, 2, 0) },
		"session refused":    func(_ *testing.T, k *ottlatest.Cluster) { k.Fail(1, 71, 3, 0) },
		"throttle":           func(_ *testing.T, k *ottlatest.Cluster) { k.Throttle(time.Second, 1) },
		"slow link":          func(_ *testing.T, k *ottlatest.Cluster) { k.SlowLink(0, 20_000) },
		"hang": func(_ *testing.T, k *ottlatest.Cluster) {
			k.Hang(0)
			time.AfterFunc(40*time.Second, func() { k.Resume(0) })
		},
		"partition": func(_ *testing.T, k *ottlatest.Cluster) {
			k.Partition(0)
			time.AfterFunc(10*time.Second, func() { k.Heal(0) })
		},
		"leader moves": func(t *testing.T, k *ottlatest.Cluster) {
			if err := k.MoveLeader("t", 0, 1); err != nil {
				t.Error(err)
			}
		},
		"broker stops": func(t *testing.T, k *ottlatest.Cluster) {
			if err := k.StopBroker(0); err != nil {
				t.Error(err)
			}
		},
	}
	for name, strike := range faults {
		t.Run(name, func(t *testing.T) {
			inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 3}}, func(ctx context.Context, w *world) {
				for p := range int32(3) {
					w.produce("t", p, numbers(0, 10)...)
				}
				c := w.consumer(Config{MaxPollRecords: 7})
				assign(t, c, tp("t", 0), tp("t", 1), tp("t", 2))
				r := newReader(t, c)
				r.until(ctx, 12)
				strike(t, w.k)
				go func() {
					for p := range int32(3) {
						w.produce("t", p, numbers(10, 30)...)
					}
				}()
				r.until(ctx, 90)
				for p := range int32(3) {
					r.want(tp("t", p), numbers(0, 30)...)
				}
			})
		})
	}
}

func TestB152OnlyWhatIsAssignedIsRead(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 4, "u": 1}}, func(ctx context.Context, w *world) {
		for p := range int32(4) {
			w.produce("t", p, "a", "b")
		}
		w.produce("u", 0, "x")
		c := w.consumer(Config{})
		assign(t, c, tp("t", 0), tp("t", 2))
		r := newReader(t, c)
		r.until(ctx, 4)
		if err := w.k.AddPartitions("t", 5); err != nil {
			t.Fatal(err)
		}
		if err := c.Add(ctx, map[kafka.TopicPartition]Start{tp("u", 0): Earliest()}); err != nil {
			t.Fatal(err)
		}
		r.until(ctx, 5)
		r.want(tp("u", 0), "x")
		c.Remove(tp("t", 0))
		w.produce("t", 0, "not for us")
		w.produce("t", 2, "c")
		r.until(ctx, 6)
		time.Sleep(5 * time.Second)
		r.want(tp("t", 2), "a", "b", "c")
		r.want(tp("t", 0), "a", "b")
		if len(r.values) != 3 || len(c.Assignment()) != 2 {
			t.Errorf("partitions %v, assigned %v", r.values, c.Assignment())
		}
	})
}

func TestF30StartsInTheLog(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		w.produce("t", 0, "0", "1")
		time.Sleep(time.Minute)
		mid := time.Now()
		w.produce("t", 0, "2", "3")
		for name, c := range map[string]struct {
			s    Start
			want kafka.Offset
		}{"zero": {Start{}, 0}, "earliest": {Earliest(), 0}, "latest": {Latest(), 4}, "offset": {AtOffset(3), 3},
			"time": {AtTime(mid), 2}, "a time to come": {AtTime(mid.Add(time.Hour)), 4}} {
			n := w.consumer(Config{})
			if err := n.Assign(ctx, map[kafka.TopicPartition]Start{tp("t", 0): c.s}); err != nil {
				t.Fatal(err)
			}
			if at, err := n.Position(ctx, tp("t", 0)); at != c.want || err != nil {
				t.Errorf("%s: position %d %v, want %d", name, at, err, c.want)
			}
			n.Close()
		}
	})
}

func TestF39OffsetsAreLookedUp(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 3}}, func(ctx context.Context, w *world) {
		w.produce("t", 0, "0", "1", "2")
		time.Sleep(time.Minute)
		mid := time.Now()
		w.produce("t", 1, "0")
		w.produce("t", 0, "3")
		c := w.consumer(Config{})
		begin, err := c.Beginning(ctx, tp("t", 0), tp("t", 1), tp("t", 2))
		if err != nil || len(begin) != 3 || begin[tp("t", 0)] != 0 {
			t.Errorf("beginning %v %v", begin, err)
		}
		end, err := c.End(ctx, tp("t", 0), tp("t", 1), tp("t", 2))
		if err != nil || end[tp("t", 0)] != 4 || end[tp("t", 1)] != 1 || end[tp("t", 2)] != 0 {
			t.Errorf("end %v %v", end, err)
		}
		at, err := c.OffsetsForTimes(ctx, map[kafka.TopicPartition]time.Time{tp("t", 0): mid, tp("t", 1): mid, tp("t", 2): mid})
		if err != nil || at[tp("t", 0)].Offset != 3 || at[tp("t", 1)].Offset != 0 {
			t.Errorf("by time %v %v", at, err)
		}
		if _, ok := at[tp("t", 2)]; ok || len(at) != 2 {
			t.Errorf("B154: a partition without a record is in %v", at)
		}
		if got, err := c.End(ctx); len(got) != 0 || err != nil {
			t.Errorf("nothing asked: %v %v", got, err)
		}
	})
}

func TestF39APartitionWithoutAnAnswerIsAbsent(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		c := w.consumer(Config{})
		end, err := c.End(ctx, tp("t", 0), tp("nothing", 0))
		if _, ok := end[tp("nothing", 0)]; ok || len(end) != 1 {
			t.Errorf("%v", end)
		}
		var op *kafka.OpError
		if !errors.As(err, &op) || op.Topic != "nothing" {
			t.Errorf("error %v", err)
		}
	})
}

func TestF38SeekTakesEffectBeforeTheNextRecord(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		p := w.peer()
		defer p.Close()
		var rs []*kgo.Record
		for _, v := range numbers(0, 50) {
			rs = append(rs, &kgo.Record{Topic: "t", Value: []byte(v)})
		}
		if err := p.ProduceSync(ctx, rs...).FirstErr(); err != nil { // one batch
			t.Fatal(err)
		}
		c := w.consumer(Config{})
		assign(t, c, tp("t", 0))
		var got []kafka.Offset
		for r, err := range c.Records(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.Offset)
			if len(got) == 3 {
				if err := c.Seek(tp("t", 0), AtOffset(40)); err != nil {
					t.Fatal(err)
				}
			}
			if r.Offset == 49 {
				break
			}
		}
		if len(got) != 13 || got[2] != 2 || got[3] != 40 {
			t.Errorf("offsets %v", got)
		}
		if err := c.Seek(tp("t", 9), Earliest()); !errors.Is(err, ErrNotAssigned) {
			t.Errorf("seek of what is not assigned: %v", err)
		}
	})
}

func TestLeavingARangeOverRecordsLosesNothing(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		p := w.peer()
		defer p.Close()
		for range 4 {
			var rs []*kgo.Record
			for range 10 {
				rs = append(rs, &kgo.Record{Topic: "t", Value: []byte("v")})
			}
			if err := p.ProduceSync(ctx, rs...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		c := w.consumer(Config{})
		assign(t, c, tp("t", 0))
		for want := kafka.Offset(0); want < 40; {
			for r, err := range c.Records(ctx) {
				if err != nil || r.Offset != want {
					t.Fatalf("offset %d %v, want %d", r.Offset, err, want)
				}
				want++
				if want%7 == 0 || want == 40 {
					break
				}
			}
			if at, err := c.Position(ctx, tp("t", 0)); at != want || err != nil {
				t.Fatalf("position %d %v, want %d", at, err, want)
			}
		}
		for b, err := range c.Batches(cancelled(ctx)) {
			if !errors.Is(err, context.Canceled) || b.Count() != 0 {
				t.Errorf("%v", err)
			}
		}
	})
}

func cancelled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func TestF48APausedPartitionIsNeitherFetchedNorHandedOut(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 2}, Brokers: 1}, func(ctx context.Context, w *world) {
		c := w.consumer(Config{})
		assign(t, c, tp("t", 0), tp("t", 1))
		c.Pause(tp("t", 0))
		if ps := c.Paused(); len(ps) != 1 || ps[0] != tp("t", 0) {
			t.Errorf("paused %v", ps)
		}
		w.produce("t", 0, "0", "1")
		w.produce("t", 1, "0", "1")
		r := newReader(t, c)
		r.until(ctx, 2)
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		r.poll(short)
		r.want(tp("t", 1), "0", "1")
		r.want(tp("t", 0))
		r.errs = nil
		c.Resume(tp("t", 0))
		r.until(ctx, 4)
		r.want(tp("t", 0), "0", "1")
	})
}

// By topic, without a reset of the session, and seen in the list. Mutation:
// assignedOf that gives all.
func TestF48TopicsArePaused(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 2, "u": 1}}, func(ctx context.Context, w *world) {
		c := w.consumer(Config{})
		assign(t, c, tp("t", 0), tp("t", 1), tp("u", 0))
		c.PauseTopics("t", "no such topic")
		if p := c.Paused(); len(p) != 2 || p[0] != tp("t", 0) || p[1] != tp("t", 1) {
			t.Errorf("paused: %v", p)
		}
		w.produce("t", 0, "a")
		w.produce("t", 1, "b")
		w.produce("u", 0, "c")
		r := newReader(t, c)
		r.until(ctx, 1)
		r.want(tp("u", 0), "c")
		c.ResumeTopics("t")
		if p := c.Paused(); len(p) != 0 {
			t.Errorf("paused: %v", p)
		}
		r.until(ctx, 3)
	})
}

func TestF50ATopicThatDoesNotExistYetIsWaitedFor(t *testing.T) {
	inWorld(t, ottlatest.Config{}, func(ctx context.Context, w *world) {
		c := w.consumer(Config{})
		assign(t, c, tp("later", 0))
		short, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if bs, err := c.Poll(short); len(bs) != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%d batches, %v", len(bs), err)
		}
		if err := w.k.CreateTopic("later", 1); err != nil {
			t.Fatal(err)
		}
		w.produce("later", 0, "a")
		r := newReader(t, c)
		r.until(ctx, 1)

		if err := w.k.DeleteTopic("later"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		bs, err := c.Poll(ctx)
		var op *kafka.OpError
		if len(bs) != 0 || !errors.As(err, &op) || op.Topic != "later" {
			t.Fatalf("a deleted topic: %v", err)
		}
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("told after %v", d)
		}
		before := len(w.k.Journal(3))
		time.Sleep(time.Minute)
		if n := len(w.k.Journal(3)) - before; n > 70 {
			t.Errorf("%d metadata requests in a minute for a deleted topic", n)
		}
		if n := len(w.k.Journal(1)); n > 500 {
			t.Errorf("%d fetches", n)
		}
	})
}

func TestF9ARecreatedTopicIsFollowedOnlyWhenTold(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		w.produce("t", 0, "old")
		c := w.consumer(Config{})
		assign(t, c, tp("t", 0))
		r := newReader(t, c)
		r.until(ctx, 1)
		if err := w.k.DeleteTopic("t"); err != nil {
			t.Fatal(err)
		}
		if err := w.k.CreateTopic("t", 1); err != nil {
			t.Fatal(err)
		}
		_, err := c.Poll(ctx)
		var re *kafka.RecreatedError
		if !errors.As(err, &re) || re.Topic != "t" || re.Old == re.New {
			t.Fatalf("error %v", err)
		}
		w.prod.Close()
		w.prod = nil
		w.produce("t", 0, "new")
		short, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if bs, err := c.Poll(short); len(bs) != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%d batches, %v", len(bs), err)
		}
		if err := c.Seek(tp("t", 0), Earliest()); err != nil {
			t.Fatal(err)
		}
		bs, err := c.Poll(ctx)
		if err != nil || len(bs) != 1 {
			t.Fatalf("%d batches, %v", len(bs), err)
		}
	})
}

func TestF51CloseWakesEveryCallAndWaitsForNoAnswer(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 3}}, func(ctx context.Context, w *world) {
		c := w.consumer(Config{MaxWait: time.Minute})
		assign(t, c, tp("t", 0), tp("t", 1), tp("nothing", 0))
		errs := make(chan error, 3)
		go func() { _, err := c.Poll(ctx); errs <- err }()
		go func() { _, err := c.Poll(ctx); errs <- err }()
		go func() { _, err := c.Position(ctx, tp("nothing", 0)); errs <- err }()
		time.Sleep(10 * time.Second) // fetches are parked at the brokers
		began := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for range 3 {
			if err := <-errs; !errors.Is(err, net.ErrClosed) || !errors.Is(err, cluster.ErrClosed) {
				t.Errorf("woken with %v", err)
			}
		}
		if d := time.Since(began); d > 10*time.Millisecond {
			t.Errorf("Close took %v", d)
		}
		c.Close()
		_, err := c.Poll(ctx)
		for name, err := range map[string]error{"Poll": err, "Seek": c.Seek(tp("t", 0), Earliest()), "Assign": c.Assign(ctx, nil)} {
			if !errors.Is(err, cluster.ErrClosed) {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
	})
}

func TestTheClientsEndIsTheConsumersEnd(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		c := w.consumer(Config{})
		assign(t, c, tp("t", 0))
		time.AfterFunc(time.Second, func() { w.c.Close() })
		if _, err := c.Poll(ctx); !errors.Is(err, cluster.ErrClosed) {
			t.Error(err)
		}
		if err := c.Seek(tp("t", 0), Earliest()); !errors.Is(err, cluster.ErrClosed) {
			t.Error("Seek:", err)
		}
	})
}

func TestT12CallsReturnWithTheirContexts(t *testing.T) {
	type key struct{}
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		c := w.consumer(Config{})
		assign(t, c, tp("t", 0), tp("nothing", 0))
		why := errors.New("the reason")
		for name, call := range map[string]func(context.Context) error{
			"Poll":     func(ctx context.Context) error { _, err := c.Poll(ctx); return err },
			"Position": func(ctx context.Context) error { _, err := c.Position(ctx, tp("nothing", 0)); return err },
			"Batches": func(ctx context.Context) (last error) {
				for _, err := range c.Batches(ctx) {
					last = err
				}
				return last
			},
			"Records": func(ctx context.Context) (last error) {
				for _, err := range c.Records(ctx) {
					last = err
				}
				return last
			},
		} {
			ctx, cancel := context.WithCancelCause(context.WithValue(ctx, key{}, name))
			began := time.Now()
			time.AfterFunc(3*time.Second, func() { cancel(why) })
			err := call(ctx)
			if d := time.Since(began); d < 3*time.Second || d > 3*time.Second+10*time.Millisecond {
				t.Errorf("%s returned after %v", name, d)
			}
			if !errors.Is(err, why) {
				t.Errorf("%s lost the cause: %v", name, err)
			}
		}
	})
}

func TestC1OneFetchSocketPerBroker(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 64}, Brokers: 1}, func(ctx context.Context, w *world) {
		c := w.consumer(Config{})
		var tps []kafka.TopicPartition
		for p := range int32(64) {
			tps = append(tps, tp("t", p))
			w.produce("t", p, "v")
		}
		_, before := w.k.Connections(0)
		assign(t, c, tps...)
		r := newReader(t, c)
		r.until(ctx, 64)
		if _, after := w.k.Connections(0); after-before != 1 {
			t.Errorf("%d sockets for 64 partitions, want one", after-before)
		}
	})
}

// Mutation: settle without Current.
func TestF47NothingOfARevokedPartitionIsReturned(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 2}}, func(ctx context.Context, w *world) {
		w.produce("t", 0, "0", "1")
		w.produce("t", 1, "0", "1")
		c := w.consumer(Config{})
		assign(t, c, tp("t", 0), tp("t", 1))
		time.Sleep(time.Second) // both have arrived
		batches, loans := c.collect(nil)
		if len(batches) != 4 {
			t.Fatalf("%d batches", len(batches))
		}
		c.Remove(tp("t", 0))
		kept, err := c.settle(batches, loans)
		if len(kept) != 2 || kept[0].Partition != 1 || kept[1].Partition != 1 || err != nil {
			t.Errorf("kept %d batches, %v", len(kept), err)
		}
	})
}

func TestF38ASeekInACallbackHoldsForThePollThatCalls(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		w.produce("t", 0, numbers(0, 5)...)
		var c *Consumer
		c = w.consumer(Config{Reset: ResetEarliest, OnReset: func(r PositionReset) {
			if err := c.Seek(r.TopicPartition, AtOffset(3)); err != nil {
				t.Error(err)
			}
		}})
		if err := c.Assign(ctx, map[kafka.TopicPartition]Start{tp("t", 0): AtOffset(1000)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // reset, and fetched from 0
		r := newReader(t, c)
		r.until(ctx, 2)
		r.want(tp("t", 0), "3", "4")
	})
}

func TestF40LagCostsNoRequest(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		w.produce("t", 0, numbers(0, 10)...)
		c := w.consumer(Config{MaxPollRecords: 4})
		if err := c.Assign(ctx, map[kafka.TopicPartition]Start{tp("t", 0): AtOffset(0)}); err != nil {
			t.Fatal(err)
		}
		if _, ok := c.Lag(tp("t", 0)); ok {
			t.Error("a lag before the first answer")
		}
		r := newReader(t, c)
		r.until(ctx, 4)
		before := len(w.k.Journal())
		for range 1000 {
			if lag, ok := c.Lag(tp("t", 0)); lag != 6 || !ok {
				t.Fatalf("lag %d %v, want 6", lag, ok)
			}
		}
		if log, ok := c.Log(tp("t", 0)); !ok || log.HighWatermark != 10 || log.Start != 0 {
			t.Errorf("log %+v", log)
		}
		if n := len(w.k.Journal()); n != before {
			t.Errorf("%d requests", n-before)
		}
	})
}

func TestNewRefusesWhatMakesNoSense(t *testing.T) {
	for field, cfg := range map[string]Config{
		"MaxWait": {MaxWait: -1}, "MinBytes": {MinBytes: -1}, "MaxBytes": {MaxBytes: -1}, "PartitionMaxBytes": {PartitionMaxBytes: -1},
		"Budget": {Budget: -1}, "MaxBatchBytes": {MaxBatchBytes: -1}, "MaxPollRecords": {MaxPollRecords: -1},
		"MaxPollBytes": {MaxPollBytes: -1}, "UnknownTopicTimeout": {UnknownTopicTimeout: -1},
		"Isolation": {Isolation: 7}, "Reset": {Reset: 9},
	} {
		var ce *configError
		if _, err := New(nil, cfg); !errors.As(err, &ce) || ce.field != field || kafka.MayHaveHappened(err) {
			t.Errorf("%s: %v", field, err)
		}
	}
	cfg, err := Config{}.withDefaults()
	if err != nil || cfg.Isolation != ReadCommitted || cfg.Reset != ResetNearest || cfg.MaxWait != 500*time.Millisecond ||
		cfg.MinBytes != 1 || cfg.MaxBytes != 32<<20 || cfg.PartitionMaxBytes != 1<<20 || cfg.Budget != 128<<20 || cfg.MaxBatchBytes != 256<<20 {
		t.Errorf("the zero value is %+v %v", cfg, err)
	}
	inWorld(t, ottlatest.Config{}, func(ctx context.Context, w *world) {
		c := w.consumer(Config{})
		for _, bad := range []kafka.TopicPartition{tp("", 0), tp("t", -1)} {
			if err := c.Assign(ctx, map[kafka.TopicPartition]Start{bad: {}}); err == nil {
				t.Errorf("%v was assigned", bad)
			}
		}
	})
}

// Mutation: shelf.enlist that puts a partition in front.
func TestT5_F43PollsAreFair(t *testing.T) {
	const parts, each = 9, 40
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": parts}}, func(ctx context.Context, w *world) {
		var tps []kafka.TopicPartition
		for p := range int32(parts) {
			w.produce("t", p, numbers(0, each)...)
			tps = append(tps, tp("t", p))
		}
		c := w.consumer(Config{MaxPollRecords: 1})
		assign(t, c, tps...)
		time.Sleep(10 * time.Second) // equal backlogs wait
		for round := range each {
			seen := map[int32]bool{}
			for range parts {
				bs, err := c.Poll(ctx)
				if err != nil || len(bs) != 1 {
					t.Fatalf("%d batches, %v", len(bs), err)
				}
				seen[bs[0].Partition] = true
			}
			if len(seen) != parts {
				t.Fatalf("round %d: %d polls saw %d of %d partitions", round, parts, len(seen), parts)
			}
		}
	})
}
