package model

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

func (c request) initProducerID(req *kmsg.InitProducerIDRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID == nil {
		resp.ProducerID, resp.ProducerEpoch = int64(c.coord.newProducerID(c.node)), 0
		return resp
	}
	p, code := c.mint(req)
	if code == kerr.ProducerFenced.Code && req.Version < 4 {
		code = kerr.InvalidProducerEpoch.Code
	}
	resp.ErrorCode = code
	if code == 0 {
		resp.ProducerID, resp.ProducerEpoch = int64(p.id), int16(p.epoch)
	}
	return resp
}

// mint gives out a pair that fences all before it (KIP-98), or follows the one
// that the caller holds (KIP-360).
func (c request) mint(req *kmsg.InitProducerIDRequest) (pair, int16) {
	name := *req.TransactionalID
	timeout := time.Duration(req.TransactionTimeoutMillis) * time.Millisecond
	switch {
	case name == "":
		return pair{}, kerr.InvalidRequest.Code
	case timeout <= 0 || timeout > c.cfg.MaxTimeout:
		return pair{}, kerr.InvalidTransactionTimeout.Code
	case !c.coordinates(name):
		return pair{}, kerr.NotCoordinator.Code
	}
	held := pair{-1, noEpoch}
	if req.Version >= 3 {
		held = pair{kafka.ProducerID(req.ProducerID), kafka.ProducerEpoch(req.ProducerEpoch)}
	}
	t := c.coord.txn(name)
	if t == nil {
		t = &txn{name: name, state: Empty, id: c.coord.newProducerID(c.node), epoch: noEpoch, lastEpoch: noEpoch, prevID: -1, updated: c.now}
		c.coord.txns[name] = t
	}
	switch {
	case t.stuck:
		return pair{}, kerr.ConcurrentTransactions.Code
	case held.epoch >= 0 && !c.coord.mayHold(t, held):
		return pair{}, kerr.ProducerFenced.Code
	case t.state.prepared():
		return pair{}, kerr.ConcurrentTransactions.Code
	case t.state == Ongoing: // whoever asks, and with whatever epoch
		c.coord.fence(t)
		return pair{}, kerr.ConcurrentTransactions.Code
	}
	if code := c.coord.bump(t, c.node, held); code != 0 {
		return pair{}, code
	}
	t.state, t.timeout, t.updated = Empty, timeout, c.now
	return pair{t.id, t.epoch}, 0
}

// mayHold reports whether a pair can be one that t was at.
func (c *coordinator) mayHold(t *txn, held pair) bool {
	return t.epoch == noEpoch || held.id == t.id || held.id == t.prevID && c.exhausted(held.epoch)
}

// bump moves a pair at rest to the next one.
func (c *coordinator) bump(t *txn, node kafka.NodeID, held pair) int16 {
	expected := held.epoch >= 0
	switch {
	case c.exhausted(t.epoch) && (!expected || held.epoch == t.epoch):
		last := noEpoch
		if expected {
			last = t.epoch
		}
		t.prevID, t.id, t.epoch, t.lastEpoch = t.id, c.newProducerID(node), 0, last
	case !expected:
		t.epoch, t.lastEpoch = t.epoch+1, noEpoch
	case t.epoch == noEpoch || held.epoch == t.epoch:
		t.epoch, t.lastEpoch = t.epoch+1, t.epoch
	case held.epoch == t.lastEpoch: // its answer was lost
	default:
		return kerr.ProducerFenced.Code
	}
	return 0
}
