package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// Seeks, pauses and assignments come from several goroutines while others poll:
// nothing races, nothing hangs, within a poll offsets rise, and when all are
// quiet everything is read once from where it was sought. The bubble fails if a
// goroutine outlives Close.
func TestF38F47F48F49CallsFromSeveralGoroutines(t *testing.T) {
	const parts, records = 4, 200
	cfg := ottlatest.Config{Brokers: 2, Topics: map[string]int{"t": parts}}
	inWorld(t, cfg, func(ctx context.Context, w *world) {
		p := w.peer()
		for i := range int32(parts) {
			var rs []*kgo.Record
			for n := range records {
				rs = append(rs, &kgo.Record{Topic: "t", Partition: i, Value: []byte(fmt.Sprint(n))})
			}
			for len(rs) > 0 { // batches of ten
				if err := p.ProduceSync(ctx, rs[:10]...).FirstErr(); err != nil {
					t.Fatal(err)
				}
				rs = rs[10:]
			}
		}
		p.Close()
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
func TestF38F47ABatchThatWasOvertakenBeforeItsFirstRecord(t *testing.T) {
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
