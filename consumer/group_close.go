package consumer

import (
	"context"
	"time"

	"github.com/ottla/ottla/kafka"
)

// Shutdown closes the consumer in order: nothing more is handed out, the
// contexts of batches end, unfinished work has until ctx ends (and at most
// Config.Group.RevokeTimeout), what is finished is committed, and the member
// leaves its group. It returns when that is done or ctx has ended, whatever the
// group or a callback is doing; then everything is as after Close. The error is
// why the commit failed, or the cause of ctx. Without a group it is Close.
//
// It may be called from anywhere, callbacks included, more than once and at the
// same time as Close.
func (c *Consumer) Shutdown(ctx context.Context) error {
	if c.group == nil || c.closed() != nil {
		return c.Close()
	}
	err := c.group.moves.leave(ctx)
	if gone := c.group.goodbye("the consumer is shut down"); gone != nil {
		select {
		case <-gone:
		case <-ctx.Done():
		}
	}
	_ = c.Close()
	return err
}

// farewell is how long Close waits for the goodbye to reach the coordinator: a
// client that is closed next would take it along.
const farewell = 50 * time.Millisecond

// close leaves the group, once.
func (m *member) close() {
	if gone := m.goodbye("the consumer is closed"); gone != nil {
		t := time.NewTimer(farewell)
		defer t.Stop()
		select {
		case <-gone:
		case <-t.C:
		}
	}
	m.joins.Close()
	m.watch.Close()
}

// soughtLocked notes that the user moved a position.
func (m *member) soughtLocked(tp kafka.TopicPartition, to Start) {
	if m == nil {
		return
	}
	o, ok := to.at.Offset()
	if !ok {
		o = -1 // the broker is to tell
	}
	m.book.Seek(tp, o)
}

// byHand reports why partitions cannot be assigned by hand.
func (c *actor) byHand(ctx context.Context) error {
	if c.group != nil {
		return ErrGroupAssigns
	}
	return c.ready(ctx)
}
