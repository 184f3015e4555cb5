package producer

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// budget bounds the bytes of all records without a result. Who finds no room
// waits, in order of arrival.
type budget struct {
	limit   int64
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

// try takes n bytes if there is room and nobody waits.
func (b *budget) try(n int64) bool {
	return b.waiting.Load() == 0 && b.take(n)
}

// take takes n bytes if they are free. It never takes more than there are, not
// even for a moment, as that would turn away others who fit.
func (b *budget) take(n int64) bool {
	for {
		used := b.used.Load()
		if used+n > b.limit {
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
	select {
	case <-w.ready:
		return w.err
	case <-ctx.Done():
	}
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
	b.used.Add(-n)
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
