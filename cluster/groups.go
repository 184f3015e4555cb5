package cluster

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// toKeys sends a request to the coordinator of its group or transactional
// id; one for several is split.
func (a *attempts) toKeys(kind CoordinatorKind) (kmsg.Response, error) {
	if s := splitByKey(a.req); s != nil {
		return a.spread(s, &coordinatorRouter{c: a.c, kind: kind, s: s})
	}
	key, ok := coordinatorKey(a.req)
	if !ok {
		return nil, opError(a.api, kafka.NoNode, ErrNotRouted)
	}
	return a.toCoordinator(kind, key)
}

// coordinatorKey is the one group or transactional id of a request.
func coordinatorKey(req kmsg.Request) (string, bool) {
	switch r := req.(type) {
	case *kmsg.OffsetCommitRequest:
		return r.Group, true
	case *kmsg.JoinGroupRequest:
		return r.Group, true
	case *kmsg.HeartbeatRequest:
		return r.Group, true
	case *kmsg.LeaveGroupRequest:
		return r.Group, true
	case *kmsg.SyncGroupRequest:
		return r.Group, true
	case *kmsg.TxnOffsetCommitRequest:
		return r.Group, true
	case *kmsg.OffsetDeleteRequest:
		return r.Group, true
	case *kmsg.ConsumerGroupHeartbeatRequest:
		return r.Group, true
	case *kmsg.ShareGroupHeartbeatRequest:
		return r.GroupID, true
	case *kmsg.StreamsGroupHeartbeatRequest:
		return r.Group, true
	case *kmsg.StreamsGroupTopologyDescriptionUpdateRequest:
		return r.Group, true
	case *kmsg.AlterShareGroupOffsetsRequest:
		return r.GroupID, true
	case *kmsg.DeleteShareGroupOffsetsRequest:
		return r.GroupID, true
	}
	return transactionKey(req)
}

func transactionKey(req kmsg.Request) (string, bool) {
	switch r := req.(type) {
	case *kmsg.InitProducerIDRequest:
		if r.TransactionalID != nil {
			return *r.TransactionalID, true
		}
	case *kmsg.AddPartitionsToTxnRequest:
		// Without any id a broker gives no answer.
		return r.TransactionalID, r.TransactionalID != ""
	case *kmsg.AddOffsetsToTxnRequest:
		return r.TransactionalID, true
	case *kmsg.EndTxnRequest:
		return r.TransactionalID, true
	}
	return "", false
}

// coordinatorRouter leads groups and transactional ids to their coordinators.
type coordinatorRouter struct {
	c     *client
	kind  CoordinatorKind
	s     split
	found map[string]located
}

// located is what a look-up gave.
type located struct {
	broker kafka.Broker
	err    error
}

// route looks all coordinators up at once, and answers for each item.
func (r *coordinatorRouter) route(ctx context.Context, i int) (kafka.Broker, error) {
	if r.found == nil {
		keys := make([]string, r.s.len())
		for i := range keys {
			keys[i] = r.s.name(i)
		}
		r.found = r.c.locate(ctx, r.kind, keys)
	}
	l, ok := r.found[r.s.name(i)]
	if !ok {
		l.broker, l.err = r.c.coordinator(ctx, r.kind, r.s.name(i))
		r.found[r.s.name(i)] = l
	}
	return l.broker, l.err
}

func (r *coordinatorRouter) rejected(ctx context.Context, i int, b kafka.Broker, err error) bool {
	key := r.s.name(i)
	switch t := troubleOf(ctx, err); {
	case t == overdue:
		r.c.renewCoordinator(r.kind, key, b.ID)
		return false
	case t != cut && !moved(err, retry.FindCoordinator):
		return false
	}
	r.c.forgetCoordinator(r.kind, key, b.ID)
	delete(r.found, key)
	return true
}

func (r *coordinatorRouter) refresh(context.Context, []int) {}

// locate looks several coordinators up, in as few requests as the broker can.
func (c *client) locate(ctx context.Context, kind CoordinatorKind, keys []string) map[string]located {
	found := make(map[string]located, len(keys))
	waits := make(map[string]*answer, len(keys))
	for _, k := range keys {
		waits[k] = newAnswer()
	}
	if !c.inbox.post(func(s *state) { s.wantCoordinators(kind, waits) }) {
		return nowhere(keys, ErrClosed)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.cfg.RetryTimeout, errRetryTimeout)
		defer cancel()
	}
	for k, a := range waits {
		err := c.wait(ctx, a, func() {
			c.inbox.post(func(s *state) { s.leaveCoordinator(keyOf(kind, k), a) })
		})
		l := located{err: opError("find "+kind.String()+" coordinator of "+k, kafka.NoNode, err)}
		if err == nil {
			l.broker = a.broker
		}
		found[k] = l
	}
	return found
}

func nowhere(keys []string, err error) map[string]located {
	found := make(map[string]located, len(keys))
	for _, k := range keys {
		found[k] = located{err: err}
	}
	return found
}
