package consumer

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ottla/ottla/ottlatest"
)

// F25: batches are decompressed before anybody polls, on workers, and what is
// handed out is the same with and without. Mutation: an actor that starts no
// worker.
func TestF25BatchesAreDecompressedBeforeAPoll(t *testing.T) {
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 3}}, func(ctx context.Context, w *world) {
				for p := range int32(3) {
					w.produceBatches("t", p, 10, 20) // in snappy
				}
				c := w.consumer(Config{Workers: workers, MaxPollRecords: 20})
				assign(t, c, tp("t", 0), tp("t", 1), tp("t", 2))
				time.Sleep(time.Second)
				c.mu.Lock()
				if c.ahead.working != 0 || len(c.ahead.idle) == 0 || len(c.ahead.idle) > workers {
					t.Errorf("%d workers at work, %d decoders", c.ahead.working, len(c.ahead.idle))
				}
				if _, more := c.machine.Ahead(); more {
					t.Error("there is work left for which there is room")
				}
				c.mu.Unlock()
				r := newReader(t, c)
				r.until(ctx, 600)
				for p := range int32(3) {
					r.want(tp("t", p), numbers(0, 200)...)
				}
			})
		})
	}
}

// F46: without ReuseBuffers what was handed out stays as it was; with it, it is
// overwritten by the next poll and good until then, by each way to poll.
// Mutations: recycle at the return of Poll; a buffer recycled that a range is in
// the middle of.
func TestF46BuffersAreReusedFromTheNextPollOn(t *testing.T) {
	for _, reuse := range []bool{false, true} {
		t.Run(fmt.Sprint("reuse ", reuse), func(t *testing.T) {
			inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
				w.produceBatches("t", 0, 30, 20)
				c := w.consumer(Config{ReuseBuffers: reuse, Workers: 1, MaxPollRecords: 20, poison: true})
				assign(t, c, tp("t", 0))
				n := 0
				good := func(v []byte) {
					t.Helper()
					if string(v) != fmt.Sprint(n) {
						t.Fatalf("record %d is %q", n, v)
					}
					n++
				}
				var old, kept []byte
				for n < 200 {
					batches, err := c.Poll(ctx)
					if err != nil {
						t.Fatal(err)
					}
					synctest.Wait() // nobody writes while this looks at what it may not keep
					if old != nil && reuse != (string(old) != string(kept)) {
						t.Errorf("a value of the last poll is %q, was %q", old, kept)
					}
					for _, b := range batches {
						for _, r := range b.Records() {
							old, kept = r.Value, append([]byte(nil), r.Value...)
							good(r.Value)
						}
					}
				}
				for n < 400 {
					for r, err := range c.Records(ctx) { // leaves batches in the middle
						if err != nil {
							t.Fatal(err)
						}
						if good(r.Value); n%13 == 0 || n == 400 {
							break
						}
					}
				}
				for b, err := range c.Batches(ctx) {
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range b.Records() {
						good(r.Value)
					}
					if n == 600 {
						break
					}
				}
				c.buffers.mu.Lock()
				if got := len(c.buffers.free) > 0; got != reuse {
					t.Errorf("%d buffers were recycled", len(c.buffers.free))
				}
				c.buffers.mu.Unlock()
			})
		})
	}
}

// F43: one partition with all the data does not keep others out of a poll.
func TestF43APollHasALimitForEachPartition(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 2}}, func(ctx context.Context, w *world) {
		w.produceBatches("t", 0, 20, 10)
		w.produceBatches("t", 1, 2, 10)
		c := w.consumer(Config{MaxPollPartitionRecords: 10})
		assign(t, c, tp("t", 0), tp("t", 1))
		time.Sleep(time.Second)
		for range 2 {
			batches, err := c.Poll(ctx)
			if err != nil || len(batches) != 2 || batches[0].Partition == batches[1].Partition {
				t.Fatalf("%d batches, %v", len(batches), err)
			}
		}
		r := newReader(t, c)
		r.until(ctx, 180)
		if len(r.values[tp("t", 0)]) != 180 {
			t.Errorf("%d records", len(r.values[tp("t", 0)]))
		}
	})
}
