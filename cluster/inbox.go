package cluster

import (
	"sync"
)

// inbox hands functions over to the metadata goroutine, in order. Putting one
// in never blocks.
type inbox struct {
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	queue  []func(*state)
	taken  bool // what was taken may not be done yet
	closed bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// post queues f and reports whether it will run.
func (b *inbox) post(f func(*state)) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.queue = append(b.queue, f)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return true
}

// take empties the inbox. The metadata goroutine calls done once it has run
// what it took and published the outcome.
func (b *inbox) take() []func(*state) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queue
	b.queue = nil
	b.taken = len(q) > 0
	return q
}

func (b *inbox) done() {
	b.mu.Lock()
	b.taken = false
	b.mu.Unlock()
}

// close refuses what comes later and returns what had not run.
func (b *inbox) close() []func(*state) {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	return b.take()
}

// settled reports whether everything that was posted has run and its outcome
// is published.
func (b *inbox) settled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) == 0 && !b.taken
}
