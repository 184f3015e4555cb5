package cluster

import (
	"context"

	"github.com/ottla/ottla/kafka"
)

// answer is what a caller waits for while the metadata goroutine works. It is
// given once.
type answer struct {
	done   chan struct{}
	broker kafka.Broker
	err    error
}

func newAnswer() *answer { return &answer{done: make(chan struct{})} }

// give ends the wait. The metadata goroutine calls it, once.
func (a *answer) give(err error) {
	a.err = err
	close(a.done)
}

// wait returns the answer, or earlier if ctx or the client ends. leave is
// called if ctx ends first.
func (c *client) wait(ctx context.Context, a *answer, leave func()) error {
	select {
	case <-a.done:
		return a.err
	default:
	}
	select {
	case <-a.done:
		return a.err
	case <-c.done():
		return ErrClosed
	case <-ctx.Done():
		if leave != nil {
			leave()
		}
		return ended(ctx)
	}
}

// settle waits until everything that was posted before has been done, so that
// a caller sees what it changed itself.
func (c *client) settle(ctx context.Context) error {
	if err := c.over(); err != nil {
		return err
	}
	if c.inbox.settled() {
		return nil
	}
	a := newAnswer()
	if !c.inbox.post(func(s *state) { s.publish(); a.give(nil) }) {
		return ErrClosed
	}
	return c.wait(ctx, a, nil)
}

// over is ErrClosed once the client is closed or closes.
func (c *client) over() error {
	select {
	case <-c.done():
		return ErrClosed
	default:
		return nil
	}
}
