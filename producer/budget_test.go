package producer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

// Waking the waiters in another order makes this fail.
func TestP30WaitersGetRoomInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{limit: 100}
		if !b.try(90) {
			t.Fatal("no room in an empty buffer")
		}
		var mu sync.Mutex
		var order []int
		for i, n := range []int64{60, 5, 20} { // the second would fit at once
			w, err := b.join(n)
			if w == nil || err != nil {
				t.Fatalf("waiter %d: %v, %v", i, w, err)
			}
			go func() {
				if err := b.wait(t.Context(), w); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			}()
			synctest.Wait()
		}
		if b.try(1) {
			t.Error("a newcomer overtook the line")
		}
		for range 9 {
			b.give(10)
			synctest.Wait()
		}
		if fmt.Sprint(order) != "[0 1 2]" || b.used.Load() != 85 || b.waiting.Load() != 0 {
			t.Errorf("order %v, %d bytes used, %d waiting", order, b.used.Load(), b.waiting.Load())
		}
	})
}

// A waiter that leaves and keeps its place, or its bytes, makes this fail.
func TestP30_R11ACancelledWaiterLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{limit: 100}
		b.try(90)
		ctx, cancel := context.WithCancelCause(t.Context())
		first, _ := b.join(60)
		second, _ := b.join(10)
		done := make(chan error)
		go func() { done <- b.wait(ctx, first) }()
		reason := errors.New("enough")
		cancel(reason)
		if err := <-done; err != reason {
			t.Errorf("the cause is lost: %v", err)
		}
		if err := b.wait(t.Context(), second); err != nil { // what stood in its way is gone
			t.Error(err)
		}
		b.give(100)
		if b.used.Load() != 0 || b.waiting.Load() != 0 {
			t.Errorf("%d bytes used, %d waiting", b.used.Load(), b.waiting.Load())
		}
		b.close(cluster.ErrClosed)
		if _, err := b.join(1); err != cluster.ErrClosed {
			t.Errorf("after close: %v", err)
		}
	})
}

// Room that is not given back on one of the paths makes this fail, and so does
// a buffer that grows beyond its bound.
func TestP30_R11ManyProducersOnASmallBufferNeverStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 3)
		rng := rand.New(rand.NewPCG(3, 4))
		f.fault = func(kafka.TopicPartition, int) fault {
			switch rng.IntN(12) {
			case 0:
				return fault{code: 10}
			case 1:
				return fault{lost: true}
			case 2:
				return fault{code: -1}
			}
			return fault{}
		}
		p := begin(t, f, Config{BufferBytes: 1 << 20, BatchBytes: 64 << 10, Linger: 10 * time.Second, Compression: Uncompressed})
		var wg sync.WaitGroup
		for g := range 100 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(5, uint64(g)))
				for range 100 {
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if rng.IntN(10) == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(3))*time.Millisecond)
					}
					_, err := p.Append(ctx, kafka.Record{
						Topic: "t", Key: []byte{byte(rng.IntN(50))}, Value: make([]byte, rng.IntN(8000)),
					})
					cancel()
					if err != nil && (!errors.Is(err, kafka.ErrBufferFull) || !errors.Is(err, context.DeadlineExceeded) || kafka.MayHaveHappened(err)) {
						t.Errorf("Append: %v", err)
					}
					// A batch of the waiting area counts twice while its records are placed.
					if used := p.budget.used.Load(); used > 1<<20+2*64<<10 {
						t.Errorf("%d bytes in a buffer of 1 MiB", used)
					}
				}
			})
		}
		wg.Wait()
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start0); d > time.Minute {
			t.Errorf("took %v: somebody waited for linger under a full buffer", d)
		}
		if used, ahead := p.budget.used.Load(), p.ahead.Load(); used != 0 || ahead != 0 {
			t.Errorf("%d bytes are not given back, %d of open buffers", used, ahead)
		}
	})
}

func TestP30TryAppendNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.hold = true
		p := begin(t, f, Config{BufferBytes: 10_000, BatchBytes: 1000})
		var n int
		var err error
		for ; err == nil; n++ {
			_, err = p.TryAppend(kafka.Record{Topic: "t", Value: make([]byte, 500)})
		}
		if err != kafka.ErrBufferFull || n < 10 {
			t.Errorf("record %d: %v", n, err)
		}
		f.release()
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := p.TryAppend(text("again")); err != nil {
			t.Error(err)
		}
	})
}

// Closing every open batch as soon as somebody waits makes this fail: the
// batches then have one record each. Never closing any makes it take as long
// as linger.
func TestP28_P30_R11AFullBufferMakesFullBatches(t *testing.T) {
	for _, partitions := range []int32{1, 3, 12, 1000} { // of 1000, none is ever full
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, partitions)
			p := begin(t, f, Config{BufferBytes: 1 << 20, BatchBytes: 64 << 10, Linger: 10 * time.Second, Compression: Uncompressed})
			var wg sync.WaitGroup
			for g := range 100 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(5, uint64(g)))
					for range 100 {
						_, err := p.Append(t.Context(), kafka.Record{Topic: "t", Key: fmt.Append(nil, rng.IntN(3000)), Value: make([]byte, rng.IntN(2000))})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if d := time.Since(start0); d > 5*time.Second {
				t.Errorf("%d partitions: took %v", partitions, d)
			}
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			batches, size := 0, 0
			for _, l := range f.logs {
				for _, b := range l.batches {
					batches++
					size += b.Size()
				}
			}
			least := map[int32]float64{1: 0.8, 3: 0.8, 12: 0.7}[partitions] // twelve full batches are most of the buffer
			if fill := float64(size) / float64(batches) / (64 << 10); fill < least {
				t.Errorf("%d partitions: batches are %.0f %% full", partitions, 100*fill)
			}
		})
	}
}

// A buffer held by a partition that goes nowhere must not stop the others for
// longer than linger.
func TestP30AStuckPartitionLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		f.lead(t0, kafka.NoNode)
		p := begin(t, f, Config{BufferBytes: 100_000, BatchBytes: 10_000, Linger: time.Second, Partitioner: Manual, Compression: Uncompressed})
		for range 40 {
			if _, err := p.Append(t.Context(), kafka.Record{Topic: "t", Partition: 0, Value: make([]byte, 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		for range 500 {
			if _, err := p.Append(t.Context(), kafka.Record{Topic: "t", Partition: 1, Value: make([]byte, 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("took %v beside a partition without leader", d)
		}
	})
}

// A buffer of the last batch's size for every open batch, however many there
// are, makes this fail: after a burst a thousand partitions would hold a
// gigabyte.
func TestP30OpenBatchesOfManyPartitionsStayWithinTheBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 200)
		p := begin(t, f, Config{BufferBytes: 2 << 20, BatchBytes: 1 << 20, Linger: time.Second, Partitioner: Manual, Compression: Uncompressed})
		write := func(size int) {
			for i := range int32(200) {
				if _, err := p.Append(t.Context(), kafka.Record{Topic: "t", Partition: i, Value: make([]byte, size)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		write(200_000)
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		write(10)
		held := 0
		for _, q := range p.topics.Load().find("t").parts {
			q.mu.Lock()
			held += cap(q.open.builder.Release())
			q.open.builder.Append(0, nil, nil, nil)
			q.mu.Unlock()
		}
		if held > 2<<20 {
			t.Errorf("open batches hold %d MiB", held>>20)
		}
	})
}

// A buffer that is never opened further makes this fail: with a broker that
// stands still Append must take all that was configured, and no more.
func TestP30ABufferIsOpenedAsFarAsItIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 3)
		p := begin(t, f, Config{BatchBytes: 64 << 10, BufferBytes: 32 << 20, Compression: Uncompressed})
		value := make([]byte, 1000)
		for range 20_000 { // the brokers keep up
			if _, err := p.Append(t.Context(), kafka.Record{Topic: "t", Value: value}); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := p.budget.size(), int64(firstOpened+3*perPartition); got != want {
			t.Errorf("%d bytes are open where the brokers keep up, want %d", got, want)
		}
		f.mu.Lock()
		f.hold = true
		f.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var err error
		for err == nil {
			_, err = p.Append(ctx, kafka.Record{Topic: "t", Value: value})
		}
		used := p.budget.used.Load()
		if !errors.Is(err, kafka.ErrBufferFull) || used > 32<<20 || used < 31<<20 {
			t.Errorf("%d bytes of 32 MiB are used after a second: %v", used, err)
		}
		f.release()
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := p.budget.size(); n > 8<<20 {
			t.Errorf("%d bytes stay open when nothing is there", n)
		}
	})
}

// TryAppend that gives up before the whole buffer is used makes this fail.
func TestP30TryAppendUsesTheWholeBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 3)
		f.hold = true
		p := begin(t, f, Config{BatchBytes: 64 << 10, BufferBytes: 32 << 20, Compression: Uncompressed})
		start, n := time.Now(), 0
		for ; ; n++ {
			if _, err := p.TryAppend(kafka.Record{Topic: "t", Value: make([]byte, 1000)}); err != nil {
				if !errors.Is(err, kafka.ErrBufferFull) {
					t.Fatal(err)
				}
				break
			}
		}
		if n < 31_000 || time.Since(start) != 0 {
			t.Errorf("%d records of 1,000 bytes in a buffer of 32 MiB, %v of waiting", n, time.Since(start))
		}
		f.release()
	})
}
