package cluster

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/netconn"
	"github.com/ottla/ottla/kafka"
)

// target is the kind of broker that a request is for.
type target uint8

const (
	named         target = iota // only through Broker(id): between brokers, or bound to one of them
	anyBroker                   // whichever answers
	theController               // the controller
	leaders                     // the leaders of its partitions
	groupKeys                   // the coordinators of its groups
	txnKeys                     // the coordinators of its transactional ids
	everyBroker                 // every broker
	resources                   // the broker that a resource names, else any or the controller
)

// routes says where each API goes; what is not in it goes only to a named
// broker.
var routes = map[int16]target{
	0: leaders, 1: leaders, 2: leaders, 21: leaders, 23: leaders, 61: leaders,

	3: anyBroker, 10: anyBroker, 18: anyBroker, 29: anyBroker, 38: anyBroker, 39: anyBroker, 40: anyBroker, 41: anyBroker, 48: anyBroker,
	50: anyBroker, 60: anyBroker, 71: anyBroker, 72: anyBroker, 74: anyBroker, 75: anyBroker,

	19: theController, 20: theController, 30: theController, 31: theController, 37: theController,
	43: theController, 45: theController, 46: theController, 49: theController, 51: theController,
	55: theController, 57: theController, 64: theController, 80: theController, 81: theController, 94: theController,

	8: groupKeys, 9: groupKeys, 11: groupKeys, 12: groupKeys, 13: groupKeys, 14: groupKeys, 15: groupKeys, 28: groupKeys,
	42: groupKeys, 47: groupKeys, 68: groupKeys, 69: groupKeys, 76: groupKeys, 77: groupKeys, 88: groupKeys, 89: groupKeys,
	90: groupKeys, 91: groupKeys, 92: groupKeys, 93: groupKeys,

	22: txnKeys, 24: txnKeys, 25: txnKeys, 26: txnKeys, 65: txnKeys,

	16: everyBroker, 35: everyBroker, 66: everyBroker,

	32: resources, 33: resources, 44: resources,
}

// Request sends a request to the broker or brokers that it is for, and is the
// one way for requests of any kind: to any broker, the controller, the leaders
// of its partitions, the coordinators of its groups or transactional ids, every
// broker, or the broker that a config resource names. Where several brokers are
// meant, the request is split, and the answers are merged in the order of the
// request.
//
// What failed without effect is repeated with backoff until ctx ends, or
// without a deadline for Config.RetryTimeout: a broker that is not reached,
// codes that ask for another broker or for patience. A request that changes
// something is never sent twice once it may have been read: then the error's
// MayHaveHappened says so. Other codes are in the answer, as the broker sent
// it; the error is nil then. A client of controllers refuses what they do not
// serve with kafka.ErrUnsupportedEndpointType.
//
// Items of a split request that got no answer have a code of the client in the
// merged answer, and a [*PartialError] says what happened to them. The version
// is the highest that both sides speak. req is not changed; requests between
// brokers are [ErrNotRouted].
func (c *Cluster) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return bounded{c, netconn.NoBound, netconn.NoBound}.Request(ctx, req)
}

// Within is [Cluster.Request] of c with bounds on the version, -1 being none:
// with both the same the version is pinned. Where a broker speaks none of them
// nothing is sent to it, and the error is a [*kafka.VersionError].
func Within(c *Cluster, least, most int16) kmsg.Requestor { return bounded{c, least, most} }

type bounded struct {
	c           *Cluster
	least, most int16
}

func (b bounded) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if ctx.Err() != nil {
		return nil, opError(apiName(req), -1, ended(ctx))
	}
	a := b.c.attempts(ctx, bothForms(req))
	a.lo, a.hi = b.least, b.most
	return a.routed()
}

func (a *attempts) routed() (kmsg.Response, error) {
	to := routes[a.req.Key()]
	if err := a.c.cfg.unserved(a.req.Key()); err != nil {
		return nil, opError(a.api, kafka.NoNode, err)
	}
	if r, ok := a.req.(*kmsg.InitProducerIDRequest); ok && r.TransactionalID == nil {
		to = anyBroker
	}
	switch to {
	case anyBroker:
		if r, ok := a.req.(*kmsg.FindCoordinatorRequest); ok {
			return a.toFindCoordinator(r)
		}
		return a.toAny()
	case theController:
		return a.toController()
	case leaders:
		return a.toLeaders()
	case groupKeys:
		return a.toKeys(GroupCoordinator)
	case txnKeys:
		return a.toKeys(TransactionCoordinator)
	case everyBroker:
		return a.toEvery()
	case resources:
		return a.toResources()
	}
	return nil, opError(a.api, -1, ErrNotRouted)
}
