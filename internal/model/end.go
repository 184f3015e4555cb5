package model

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// bumpingEnd is the version of EndTxn that moves the epoch (KIP-890).
const bumpingEnd = 5

func (c request) endTxn(req *kmsg.EndTxnRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	t := c.coord.txn(req.TransactionalID)
	held := pair{kafka.ProducerID(req.ProducerID), kafka.ProducerEpoch(req.ProducerEpoch)}
	switch {
	case req.TransactionalID == "":
		resp.ErrorCode = kerr.InvalidRequest.Code
	case !c.coordinates(req.TransactionalID):
		resp.ErrorCode = kerr.NotCoordinator.Code
	case t == nil:
		resp.ErrorCode = kerr.InvalidProducerIDMapping.Code
	case t.stuck:
		resp.ErrorCode = kerr.ConcurrentTransactions.Code
	case req.Version >= bumpingEnd:
		resp.ErrorCode = c.coord.endAndBump(t, c.node, held, req.Commit)
		if resp.ErrorCode == 0 {
			resp.ProducerID, resp.ProducerEpoch = int64(t.id), int16(t.epoch)
		}
	default:
		resp.ErrorCode = c.coord.end(t, c.node, held, req.Commit)
	}
	if resp.ErrorCode == kerr.ProducerFenced.Code && req.Version < 2 {
		resp.ErrorCode = kerr.InvalidProducerEpoch.Code
	}
	return resp
}

// end is EndTxn below version 5: the pair stays.
func (c *coordinator) end(t *txn, node kafka.NodeID, held pair, commit bool) int16 {
	switch {
	case t.id != held.id:
		return kerr.InvalidProducerIDMapping.Code
	case t.epoch != held.epoch:
		return kerr.ProducerFenced.Code
	case t.state == Ongoing:
		c.prepare(t, node, commit, pinned)
		return 0
	case t.state.prepared() && t.state == prepared(commit):
		return kerr.ConcurrentTransactions.Code
	case t.state.complete() && t.state == completed(commit):
		return 0
	}
	return kerr.InvalidTxnState.Code
}

// endAndBump is EndTxn from version 5 on. A request with the pair before is a
// copy of the one that ended the transaction, or looks like it.
func (c *coordinator) endAndBump(t *txn, node kafka.NodeID, held pair, commit bool) int16 {
	if c.level == 0 {
		t.stuck = true
		return kerr.UnsupportedVersion.Code
	}
	overflow := t.prevID >= 0 && held.id == t.prevID && c.exhausted(held.epoch) && t.epoch == 0
	copied := overflow || held.id == t.id && held.epoch == t.epoch-1
	same := held.id == t.id && held.epoch == t.epoch
	switch {
	case held.id != t.id && !overflow:
		return kerr.InvalidProducerIDMapping.Code
	case t.state.prepared() && copied && t.state == prepared(commit):
		return kerr.ConcurrentTransactions.Code
	case t.state.prepared() && copied, t.state.complete() && copied && t.state != completed(commit):
		return kerr.InvalidTxnState.Code
	case t.state.complete() && copied:
		return 0
	case !same:
		return kerr.ProducerFenced.Code
	case t.state.prepared(): // the end of the next one, and the last is under way
		return kerr.ConcurrentTransactions.Code
	case t.state == Ongoing, !commit: // an abort of nothing moves the epoch too
		if t.state != Ongoing {
			t.parts, t.started = nil, c.now
		}
		c.prepare(t, node, commit, bumping)
		return 0
	}
	return kerr.InvalidTxnState.Code
}

func prepared(commit bool) State {
	if commit {
		return PrepareCommit
	}
	return PrepareAbort
}

func completed(commit bool) State {
	if commit {
		return CompleteCommit
	}
	return CompleteAbort
}
