package cluster

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/internal/netconn"
)

// Once makes single attempts to send a request to the coordinator of a key, at a
// version of at most maxVersion, -1 for no bound. Nothing is sent twice, and
// codes in the answer are the caller's: it is for protocols where a late copy of
// a request does harm, so that the caller has to know of each. A coordinator
// that cannot be reached, or whose answer says as a whole that it is not the
// one, is looked up anew at the next request.
//
// Request blocks until the answer is there or its context ends; an error answers
// kafka.MayHaveHappened.
func Once(c *Cluster, kind CoordinatorKind, key string, maxVersion int16) kmsg.Requestor {
	return once{c, kind, key, maxVersion}
}

type once struct {
	c          *Cluster
	kind       CoordinatorKind
	key        string
	maxVersion int16
}

func (o once) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	c := o.c
	b, err := c.Coordinator(ctx, o.kind, o.key)
	if err != nil {
		return nil, notAsked(err)
	}
	call := netconn.NewCall(ctx, req)
	call.Max, call.NoRedial = o.maxVersion, true
	resp, err := c.sendOn(ctx, b, laneOf(req), call)
	if err != nil {
		c.coordinatorFailed(ctx, keyOf(o.kind, o.key), b, err)
		return nil, opError(apiName(req), b.ID, err)
	}
	if retry.Of(soleCode(resp)) == retry.FindCoordinator {
		c.forgetCoordinator(o.kind, o.key, b.ID)
	}
	return resp, nil
}

// Version is the version at which req would be sent to the broker: the highest
// that both sides, the fields of req and Config.MaxVersions allow, else a
// [*kafka.VersionError]. It connects to the broker if need be.
func (b *Broker) Version(ctx context.Context, req kmsg.Request) (int16, error) {
	peer, err := b.peer()
	if err != nil {
		return -1, opError(apiName(req), b.id, err)
	}
	vs, err := peer.Versions(ctx)
	if err != nil {
		return -1, opError("api versions", b.id, err)
	}
	limit := conn.NoBound
	if most, ok := b.c.cfg.MaxVersions[req.Key()]; ok {
		limit = most
	}
	v, err := vs.Pick(req, conn.Bounds{Min: conn.NoBound, Max: conn.NoBound, Cap: limit})
	return v, opError(apiName(req), b.id, err)
}
