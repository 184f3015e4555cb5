package task

import (
	"context"
	"sync/atomic"
)

// Calls runs functions of the user's one after the other on a goroutine of its
// own, and holds nobody up: while too many wait, further ones are left out. It
// is safe for concurrent use.
type Calls struct {
	queue   chan func()
	dropped atomic.Int64
	tasks   *Group
}

// NewCalls lets up to backlog functions wait. Close ends its goroutine.
func NewCalls(backlog int) *Calls {
	c := &Calls{queue: make(chan func(), backlog), tasks: New(context.Background())}
	c.tasks.Go(c.run)
	return c
}

func (c *Calls) run(ctx context.Context) error {
	for {
		select {
		case f := <-c.queue:
			if ctx.Err() != nil {
				return nil
			}
			f()
		case <-ctx.Done():
			return nil
		}
	}
}

// Add has f called in its turn, or leaves it out. It does not block.
func (c *Calls) Add(f func()) {
	select {
	case c.queue <- f:
	default:
		c.dropped.Add(1)
	}
}

// Dropped is how many were left out so far.
func (c *Calls) Dropped() int64 { return c.dropped.Load() }

// Close ends the goroutine: no call begins after it. It does not wait for one
// that is running.
func (c *Calls) Close(cause error) { c.tasks.Cancel(cause) }
