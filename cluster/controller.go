package cluster

import (
	"context"

	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/kafka"
)

// Controller is the cluster's controller. If it is not known it waits for one
// refresh of the brokers; if there is none then, as during an election, the
// error is [ErrNoController], which is worth another try.
func (c *Cluster) Controller(ctx context.Context) (kafka.Broker, error) {
	b, err := c.controller(ctx)
	return b, opError("controller", kafka.NoNode, err)
}

func (c *client) controller(ctx context.Context) (kafka.Broker, error) {
	if err := c.settle(ctx); err != nil {
		return kafka.Broker{ID: kafka.NoNode}, err
	}
	snap := c.snap.Load()
	if b, ok := snap.Broker(snap.Controller); ok {
		return b, nil
	}
	if err := c.refresh(ctx, nil, meta.Need{}); err != nil {
		return kafka.Broker{ID: kafka.NoNode}, err
	}
	snap = c.snap.Load()
	if b, ok := snap.Broker(snap.Controller); ok {
		return b, nil
	}
	return kafka.Broker{ID: kafka.NoNode}, ErrNoController
}

// InvalidateController forgets the controller if it still is id; the next
// look-up asks again.
func (c *Cluster) InvalidateController(id kafka.NodeID) { c.invalidateController(id) }

func (c *client) invalidateController(id kafka.NodeID) {
	c.inbox.post(func(s *state) { s.topics.InvalidateController(id) })
}
