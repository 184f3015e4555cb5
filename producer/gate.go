package producer

import (
	"context"
	"sync"
)

// gate lets records into a transaction until it is closed. The zero value is
// open.
type gate struct {
	mu     sync.Mutex
	inside int           // guarded by mu
	closed bool          // guarded by mu
	empty  chan struct{} // guarded by mu: closed when the last is out of a closed gate
}

// enter reports whether the caller may go in; then leave has to follow.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.closed && g.inside == 0 {
		close(g.empty)
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed, g.empty = true, make(chan struct{})
	if g.inside == 0 {
		close(g.empty)
	}
}

// ended reports whether the gate is closed.
func (g *gate) ended() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// wait waits until nobody is inside of a closed gate, or ctx ends, whose cause
// it returns.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	empty := g.empty
	g.mu.Unlock()
	select {
	case <-empty:
		return nil
	default:
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
