package consumer

import (
	"context"

	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/kafka"
)

// The seam to group membership. A group gives partitions to a Consumer and takes
// them back with the calls below; the Consumer knows no group. All may be called
// from any goroutine, and none waits but withhold.
//
//	assigned:  grant, with committed offsets as fetch.AtProgress
//	revoked:   withhold, which waits for unfinished work; the callback; a commit
//	           of finished; then revoke
//	lost:      revoke, and nothing of its result is committed
//	in between: finished, for commits; finish, for a Commit that counts
//	           everything handed out; tell, for an error that Poll is to return
//
// What is finished: with Poll and Batches everything that was handed out, when
// somebody polls again; with Records a record when the range comes back for the
// next one. A partition under withhold is neither fetched nor handed out, a range
// over Records leaves its batch before the next record, and it stays the group's
// until revoke. Nothing is handed out after revoke has returned (F47).

// grant adds partitions; those that are there stay as they are.
func (c *actor) grant(at map[kafka.TopicPartition]fetch.Start) {
	c.do(func(m *fetch.Machine) { m.Add(at) })
}

// withhold stops handing partitions out, and waits until the user has finished
// with everything that was, or until ctx ends. Partitions that are not assigned
// are ignored.
func (c *actor) withhold(ctx context.Context, tps []kafka.TopicPartition) error {
	for {
		idle := true
		c.mu.Lock()
		for _, tp := range tps {
			idle = c.machine.Withhold(tp) && idle
		}
		c.interrupts.Add(1)
		change := c.waiterLocked()
		c.mu.Unlock()
		if idle {
			return nil
		}
		if err := c.wait(ctx, change); err != nil {
			return err
		}
	}
}

// revoke takes partitions away and tells how far the user had finished with
// each. Those whose position was not known yet are absent.
func (c *actor) revoke(tps []kafka.TopicPartition) map[kafka.TopicPartition]fetch.Progress {
	var at map[kafka.TopicPartition]fetch.Progress
	c.do(func(m *fetch.Machine) {
		at = finishedOf(m, tps)
		m.Remove(tps)
	})
	return at
}

// finished tells how far the user has finished with partitions.
func (c *actor) finished(tps []kafka.TopicPartition) map[kafka.TopicPartition]fetch.Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return finishedOf(c.machine, tps)
}

func finishedOf(m *fetch.Machine, tps []kafka.TopicPartition) map[kafka.TopicPartition]fetch.Progress {
	out := make(map[kafka.TopicPartition]fetch.Progress, len(tps))
	for _, tp := range tps {
		if at, ok := m.Finished(tp); ok {
			out[tp] = at
		}
	}
	return out
}

// finish notes that the user is done with everything that was handed out, and
// comes for more.
func (c *actor) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machine.NextTurn()
	c.buffers.recycleLocked()
	if c.machine.Finish() {
		c.signalLocked()
	}
}

// tell has the next Poll, Batches or Records return err, once, beside whatever
// there is.
func (c *actor) tell(err error) {
	c.do(func(m *fetch.Machine) { m.Tell(err) })
}
