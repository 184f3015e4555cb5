package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// Seeks, pauses and assignments come from several goroutines while others poll
// and range: nothing races, nothing hangs, within a poll offsets rise, also beside
// a range that leaves batches half read, and when all are quiet everything is read
// once from where it was sought. The bubble fails if a
// goroutine outlives Close.
func TestF38_F47_F48_F49CallsFromSeveralGoroutines(t *testing.T) {
	const parts, records = 4, 200
	cfg := ottlatest.Config{Brokers: 2, Topics: map[string]int{"t": parts}}
	inWorld(t, cfg, func(ctx context.Context, w *world) {
		for i := range int32(parts) {
			w.produceBatches("t", i, records/10, 10)
		}
		c := w.consumer(Config{MaxPollBytes: 200, Budget: 8 << 10, PartitionMaxBytes: 1 << 10, MaxWait: 20 * time.Millisecond})
		all := map[kafka.TopicPartition]Start{}
		for i := range int32(parts) {
			all[tp("t", i)] = Earliest()
		}
		if err := c.Assign(ctx, all); err != nil {
			t.Fatal(err)
		}
		running, stop := context.WithTimeout(ctx, 3*time.Second)
		var wg sync.WaitGroup
		for seed := range uint64(3) {
			wg.Go(func() { disturb(running, t, c, rand.New(rand.NewPCG(seed, 9))) })
		}
		wg.Go(func() { pollOn(running, t, c) })
		wg.Go(func() { rangeOn(running, t, c) })
		wg.Wait()
		stop()
		if err := c.Assign(ctx, all); err != nil {
			t.Fatal(err)
		}
		for id := range all {
			c.Resume(id)
			if err := c.Seek(id, AtOffset(7)); err != nil {
				t.Fatal(err)
			}
		}
		r := newReader(t, c)
		r.until(ctx, parts*(records-7))
		for id := range all {
			r.want(id, numbers(7, records)...)
		}
	})
}

// disturb makes calls at random until ctx ends.
func disturb(ctx context.Context, t *testing.T, c *Consumer, rng *rand.Rand) {
	for ctx.Err() == nil {
		id := tp("t", rng.Int32N(4))
		var err error
		switch rng.IntN(8) {
		case 0:
			err = c.Seek(id, AtOffset(kafka.Offset(rng.IntN(200))))
		case 1:
			err = c.Seek(id, Earliest())
		case 2:
			c.Pause(id)
		case 3:
			c.Resume(c.Paused()...)
		case 4:
			c.Remove(id)
		case 5:
			err = c.Add(ctx, map[kafka.TopicPartition]Start{id: AtOffset(3)})
		case 6:
			c.Lag(id)
			c.Log(id)
			c.Assignment()
		case 7:
			_, err = c.Position(ctx, id)
		}
		if err != nil && !errors.Is(err, ErrNotAssigned) && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
	}
}

// pollOn polls until ctx ends. Within one answer of Poll offsets rise.
func pollOn(ctx context.Context, t *testing.T, c *Consumer) {
	for {
		batches, err := c.Poll(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err != nil {
			t.Error(err)
		}
		last := map[kafka.TopicPartition]int64{}
		for _, b := range batches {
			for o, r := range b.Records() {
				if l, ok := last[b.TopicPartition()]; ok && o <= l || string(r.Value) != fmt.Sprint(o) {
					t.Errorf("%s: offset %d behind %d, %q", b.TopicPartition(), o, l, r.Value)
				}
				last[b.TopicPartition()] = o
			}
		}
	}
}

// rangeOn ranges over a few records, again and again, until ctx ends.
func rangeOn(ctx context.Context, t *testing.T, c *Consumer) {
	for ctx.Err() == nil {
		n := 0
		for r, err := range c.Records(ctx) {
			if err != nil {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				break
			}
			if string(r.Value) != fmt.Sprint(r.Offset) {
				t.Errorf("%s %d: %q", r.TopicPartition(), r.Offset, r.Value)
			}
			if n++; n > 13 {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// A seek or a revoke between the taking of a batch and its first record holds
// for the whole batch. Mutation: yieldAll without its first look.
func TestF38_F47ABatchThatWasOvertakenBeforeItsFirstRecord(t *testing.T) {
	for name, overtake := range map[string]func(*Consumer){
		"seek":   func(c *Consumer) { _ = c.Seek(tp("t", 0), AtOffset(4)) },
		"remove": func(c *Consumer) { c.Remove(tp("t", 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
				w.produce("t", 0, numbers(0, 5)...)
				c := w.consumer(Config{})
				assign(t, c, tp("t", 0))
				b, l, err := c.next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				overtake(c)
				if !c.yieldAll(ctx, b, l, func(r kafka.Record, _ error) bool {
					t.Errorf("offset %d was yielded", r.Offset)
					return true
				}) {
					t.Error("the range is over")
				}
				if name == "seek" {
					for r, err := range c.Records(ctx) {
						if err != nil || r.Offset != 4 {
							t.Errorf("offset %d %v", r.Offset, err)
						}
						break
					}
				}
			})
		})
	}
}

// A range over Records that is in the middle of a batch keeps the partition to
// itself: a Poll beside it brings nothing of it, so that what the range leaves is
// not overtaken by what stands behind. Mutation: Deliver in place of Return, as
// Poll does it.
func TestF47APollBesideARangeDoesNotOvertakeIt(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 2}}, func(ctx context.Context, w *world) {
		w.produceBatches("t", 0, 3, 10)
		w.produceBatches("t", 1, 1, 10)
		c := w.consumer(Config{MaxPollBytes: 1 << 20})
		assign(t, c, tp("t", 0))
		var seen []kafka.Offset
		pollAll := func() {
			short, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			for {
				batches, err := c.Poll(short)
				for _, b := range batches {
					for o := range b.Records() {
						seen = append(seen, kafka.Offset(o))
					}
				}
				if err != nil {
					return
				}
			}
		}
		for r, err := range c.Records(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, r.Offset)
			if r.Offset == 4 {
				pollAll()
				break
			}
		}
		if len(seen) != 5 {
			t.Errorf("%v: a poll overtook the range", seen)
		}
		pollAll()
		if len(seen) != 30 || !slices.IsSorted(seen) {
			t.Errorf("%v: the order is broken", seen)
		}
	})
}

// Pause holds from the next record of a range on, and nothing is lost by it.
// Mutation: mayYield without Stopped.
func TestF48APauseEndsARangeInTheMiddleOfABatch(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		w.produceBatches("t", 0, 2, 10)
		c := w.consumer(Config{})
		assign(t, c, tp("t", 0))
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		n := 0
		for r, err := range c.Records(short) {
			if err != nil {
				break
			}
			if n++; r.Offset == 3 {
				c.Pause(tp("t", 0))
			}
		}
		if n != 4 {
			t.Fatalf("%d records, want 4", n)
		}
		if at, err := c.Position(ctx, tp("t", 0)); at != 4 || err != nil {
			t.Errorf("position %d %v", at, err)
		}
		c.Resume(tp("t", 0))
		for r, err := range c.Records(ctx) {
			if err != nil || r.Offset != kafka.Offset(n) {
				t.Fatalf("%d %v, want %d", r.Offset, err, n)
			}
			if n++; n == 20 {
				break
			}
		}
	})
}

// F51: what was fetched and not handed out is given up by Close, though the
// consumer is still referenced.
func TestF51CloseGivesUpWhatWasFetched(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		w.produce("t", 0, numbers(0, 5)...)
		c := w.consumer(Config{})
		assign(t, c, tp("t", 0))
		time.Sleep(time.Second)
		c.mu.Lock()
		ready := c.machine.Ready()
		c.mu.Unlock()
		if !ready {
			t.Fatal("nothing was fetched: the test shows nothing")
		}
		c.Close()
		c.mu.Lock()
		if _, ok := c.machine.Take(time.Now()); ok || len(c.machine.Assigned()) > 0 || len(c.inbox) > 0 {
			t.Error("what was fetched is kept")
		}
		c.mu.Unlock()
		if _, err := c.Position(ctx, tp("t", 0)); !errors.Is(err, cluster.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}
