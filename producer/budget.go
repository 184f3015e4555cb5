package producer

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// budget bounds the bytes of all records without a result. Who finds no room
// waits, in order of arrival.
//
// Not all of it is opened at once. Where the brokers keep up, a small part is
// enough, and what is written there is still in the processor's cache when it is
// compressed and sent. Where no room has come for growAfter, more is opened.
type budget struct {
	limit   int64
	opened  atomic.Int64 // at most limit; 0 = limit
	least   atomic.Int64 // of opened
	used    atomic.Int64
	waiting atomic.Int32 // len(line), read without mu

	mu   sync.Mutex
	line []*waiter // guarded by mu
	over error     // guarded by mu: set by close
}

type waiter struct {
	n     int64
	ready chan struct{} // closed when the bytes are granted, or err is set
	err   error
}

const (
	firstOpened  = 2 << 20
	perPartition = 128 << 10 // for the open batch of each
	growAfter    = 25 * time.Millisecond
)

func (b *budget) init(limit int64) {
	b.limit = limit
	b.least.Store(min(limit, firstOpened))
	b.opened.Store(b.least.Load())
}

// addPartitions opens more for the open batches of n partitions.
func (b *budget) addPartitions(n int) {
	b.least.Store(min(b.limit, b.least.Load()+int64(n)*perPartition))
	for now := b.opened.Load(); now < b.least.Load() && !b.opened.CompareAndSwap(now, b.least.Load()); {
		now = b.opened.Load()
	}
}

// size is how much may be used at present.
func (b *budget) size() int64 {
	if n := b.opened.Load(); n > 0 {
		return n
	}
	return b.limit
}

// grow opens more, and reports whether there was more.
func (b *budget) grow() bool {
	now := b.size()
	if now >= b.limit || !b.opened.CompareAndSwap(now, min(2*now, b.limit)) {
		return now < b.limit
	}
	b.mu.Lock()
	b.grantLocked()
	b.mu.Unlock()
	return true
}

// maybeShrink closes a part that has not been needed for a while.
func (b *budget) maybeShrink(used int64) {
	if now := b.opened.Load(); now > b.least.Load() && used < now/8 {
		b.opened.CompareAndSwap(now, max(now/2, b.least.Load()))
	}
}

// try takes n bytes if there is room and nobody waits.
func (b *budget) try(n int64) bool {
	return b.waiting.Load() == 0 && b.take(n)
}

// take takes n bytes if they are free. It never takes more than there are, not
// even for a moment, as that would turn away others who fit.
func (b *budget) take(n int64) bool {
	for {
		used := b.used.Load()
		if used+n > b.size() {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// join stands in line for n bytes. It reports a waiter, or nil if the bytes
// were free meanwhile.
func (b *budget) join(n int64) (*waiter, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over != nil {
		return nil, b.over
	}
	b.waiting.Add(1) // before looking: give looks after giving
	if len(b.line) == 0 && b.take(n) {
		b.waiting.Add(-1)
		return nil, nil
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	b.line = append(b.line, w)
	return w, nil
}

// wait waits until w has its bytes, or leaves the line.
func (b *budget) wait(ctx context.Context, w *waiter) error {
	for more := b.size() < b.limit; more; more = b.grow() {
		t := time.NewTimer(growAfter)
		select {
		case <-w.ready:
			t.Stop()
			return w.err
		case <-ctx.Done():
			t.Stop()
			return b.leave(ctx, w)
		case <-t.C:
		}
	}
	select {
	case <-w.ready:
		return w.err
	case <-ctx.Done():
		return b.leave(ctx, w)
	}
}

// leave takes w out of the line.
func (b *budget) leave(ctx context.Context, w *waiter) error {
	b.mu.Lock()
	i := slices.Index(b.line, w)
	if i >= 0 {
		b.line = slices.Delete(b.line, i, i+1)
		b.waiting.Add(-1)
		b.grantLocked() // who stood behind may need less
	}
	b.mu.Unlock()
	if i < 0 && w.err == nil { // granted at the same moment
		b.give(w.n)
	}
	return context.Cause(ctx)
}

// give gives n bytes back.
func (b *budget) give(n int64) {
	b.maybeShrink(b.used.Add(-n))
	if b.waiting.Load() > 0 {
		b.mu.Lock()
		b.grantLocked()
		b.mu.Unlock()
	}
}

func (b *budget) grantLocked() {
	for len(b.line) > 0 && b.take(b.line[0].n) {
		close(b.line[0].ready)
		b.line[0] = nil
		b.line = b.line[1:]
		b.waiting.Add(-1)
	}
}

// close ends every wait with err.
func (b *budget) close(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = err
	for _, w := range b.line {
		w.err = err
		close(w.ready)
		b.waiting.Add(-1)
	}
	b.line = nil
}
