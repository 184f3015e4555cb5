// Package task holds the only go statement of the library: a group of
// goroutines with one context, one join and the first error.
package task

import (
	"context"
	"sync"
)

// Group runs goroutines that share a context. The context ends with the first
// error of one of them, with Cancel, or with its parent. A Group is safe for
// concurrent use and must not be copied.
type Group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	wg     sync.WaitGroup
	closed bool // guarded by mu: no goroutine starts any more
	err    error
}

// New makes a group below parent.
func New(parent context.Context) *Group {
	ctx, cancel := context.WithCancelCause(parent)
	return &Group{ctx: ctx, cancel: cancel}
}

// Context is the context of the group's goroutines.
func (g *Group) Context() context.Context { return g.ctx }

// Go starts f and reports whether it did: after Wait was called it does not.
// The first error of an f ends the group's context with that cause.
func (g *Group) Go(f func(ctx context.Context) error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		if err := f(g.ctx); err != nil {
			g.fail(err)
		}
	}()
	return true
}

func (g *Group) fail(err error) {
	g.mu.Lock()
	if g.err == nil {
		g.err = err
	}
	g.mu.Unlock()
	g.cancel(err)
}

// Cancel ends the group's context with cause and returns at once.
func (g *Group) Cancel(cause error) { g.cancel(cause) }

// Wait refuses new goroutines, waits for the running ones and returns the
// first error. It does not cancel them.
func (g *Group) Wait() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.wg.Wait()
	g.cancel(nil)
	return g.err
}
