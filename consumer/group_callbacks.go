package consumer

import (
	"context"
	"sync"

	"github.com/ottla/ottla/internal/task"
)

// callbacks runs the user's callbacks, one at a time and in order. Its goroutine
// lives while there is something to call.
type callbacks struct {
	outside *task.Group

	cmu     sync.Mutex
	queue   []func() // guarded by cmu
	running bool     // guarded by cmu
}

// call runs f after those before it, and closes what it returns when f is over.
// No lock is held meanwhile, and nobody has to wait.
func (c *callbacks) call(f func()) <-chan struct{} {
	done := make(chan struct{})
	c.cmu.Lock()
	defer c.cmu.Unlock()
	c.queue = append(c.queue, func() {
		defer close(done)
		f()
	})
	if !c.running {
		c.running = c.outside.Go(c.run)
	}
	return done
}

func (c *callbacks) run(context.Context) error {
	for {
		c.cmu.Lock()
		if len(c.queue) == 0 {
			c.running = false
			c.cmu.Unlock()
			return nil
		}
		f := c.queue[0]
		c.queue = c.queue[1:]
		c.cmu.Unlock()
		f()
	}
}

// busy reports whether a callback runs, which may be the one that asks.
func (c *callbacks) busy() bool {
	c.cmu.Lock()
	defer c.cmu.Unlock()
	return c.running
}
