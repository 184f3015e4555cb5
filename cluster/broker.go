package cluster

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/internal/netconn"
	"github.com/ottla/ottla/kafka"
)

// Broker sends requests to one broker of the cluster, wherever it is at the
// time. It is safe for concurrent use, and a kmsg.Requestor.
type Broker struct {
	c  *client
	id kafka.NodeID
}

// Broker is the handle of a broker id, whether the cluster names it or not.
func (c *Cluster) Broker(id kafka.NodeID) *Broker { return &Broker{c: c.client, id: id} }

// ID is the broker's id.
func (b *Broker) ID() kafka.NodeID { return b.id }

// Request sends one request to the broker, on the connection for its kind of
// traffic, and waits for the answer until ctx ends. It makes one attempt; only
// a repeatable request whose connection broke is sent once more. A broker that
// the cluster does not name, after one refresh, is [ErrUnknownBroker].
func (b *Broker) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return b.request(ctx, laneOf(req), req, netconn.NoBound)
}

// RequestBroker is [Broker.Request] for a caller that pins a version: it is at
// most maxVersion, -1 for no bound. A Fetch that waits for records has a
// connection apart from that of consumers, and one that does not wait goes with
// other requests, so that neither delays the other.
func (c *Cluster) RequestBroker(ctx context.Context, id kafka.NodeID, req kmsg.Request, maxVersion int16) (kmsg.Response, error) {
	lane := laneOf(req)
	if r, ok := req.(*kmsg.FetchRequest); ok {
		lane = netconn.General
		if r.MaxWaitMillis > 0 {
			lane = netconn.Follow
		}
	}
	return c.Broker(id).request(ctx, lane, req, maxVersion)
}

func (b *Broker) request(ctx context.Context, lane netconn.Kind, req kmsg.Request, maxVersion int16) (kmsg.Response, error) {
	at, ok := b.c.snap.Load().Broker(b.id)
	if !ok {
		if err := b.c.refresh(ctx, nil, meta.Need{}); err != nil {
			return nil, opError(apiName(req), b.id, notAsked(err))
		}
		if at, ok = b.c.snap.Load().Broker(b.id); !ok {
			return nil, opError(apiName(req), b.id, ErrUnknownBroker)
		}
	}
	call := netconn.NewCall(ctx, req)
	call.Max = maxVersion
	resp, err := b.c.sendOn(ctx, at, lane, call)
	return resp, opError(apiName(req), b.id, err)
}

// Start is Request without waiting: done is called exactly once, when the
// answer is there, or the error, or ctx has ended. It runs on a goroutine of
// the connection, never within Start, and must not block. req is the client's
// until then. An unknown broker is not looked up first.
func (b *Broker) Start(ctx context.Context, req kmsg.Request, done func(kmsg.Response, error)) {
	b.start(ctx, req, netconn.NewCall(ctx, req), done)
}

// StartInto is Start for a Fetch whose answer is read into what buffer gives for
// n bytes; the response aliases it. buffer runs on a goroutine of the connection
// and must not block. After an error the connection may still write to what it
// gave.
func (b *Broker) StartInto(ctx context.Context, req *kmsg.FetchRequest, buffer func(n int) []byte, done func(kmsg.Response, error)) {
	call := netconn.NewCall(ctx, req)
	call.Buffer = buffer
	b.start(ctx, req, call, done)
}

// StartOneWay is Start for a request without an answer, Produce with acks 0:
// done is called with a nil response once it is written.
func (b *Broker) StartOneWay(ctx context.Context, req kmsg.Request, done func(error)) {
	call := netconn.NewCall(ctx, req)
	call.OneWay = true
	b.start(ctx, req, call, func(_ kmsg.Response, err error) { done(err) })
}

// StartOpen is Start on the connection that is open: if there is none, or it is
// lost, the request fails and is not sent on another one. It is for requests
// that must not overtake those before them.
func (b *Broker) StartOpen(ctx context.Context, req kmsg.Request, done func(kmsg.Response, error)) {
	call := netconn.NewCall(ctx, req)
	call.OpenOnly = true
	b.start(ctx, req, call, done)
}

func (b *Broker) start(ctx context.Context, req kmsg.Request, call *netconn.Call, done func(kmsg.Response, error)) {
	peer, err := b.peer()
	if err != nil {
		b.c.later(func() { done(nil, opError(apiName(req), b.id, err)) })
		return
	}
	if r, ok := req.(leastVersion); ok {
		call.Min = r.MinVersion()
	}
	call.Done = func(resp kmsg.Response, err error) {
		if err != nil {
			b.c.sendFailed(err)
			err = opError(apiName(req), b.id, err)
		}
		done(resp, err)
	}
	peer.Lane(laneOf(req)).Send(call)
}

// leastVersion is implemented by requests whose contents need a version.
type leastVersion interface{ MinVersion() int16 }

// peer is the way to the broker as the cluster names it now.
func (b *Broker) peer() (*netconn.Peer, error) {
	at, ok := b.c.snap.Load().Broker(b.id)
	if !ok {
		return nil, ErrUnknownBroker
	}
	return b.c.peerOf(at)
}

// later runs f on the metadata goroutine, or at once if it has ended.
func (c *client) later(f func()) {
	if !c.inbox.post(func(*state) { f() }) {
		f()
	}
}

// send makes one attempt at one broker, within bounds of the version.
func (c *client) send(ctx context.Context, b kafka.Broker, req kmsg.Request, lo, hi int16) (kmsg.Response, error) {
	call := netconn.NewCall(ctx, req)
	call.Min, call.Max = lo, hi
	return c.sendOn(ctx, b, laneOf(req), call)
}

func (c *client) sendOn(ctx context.Context, b kafka.Broker, lane netconn.Kind, call *netconn.Call) (kmsg.Response, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	peer, err := c.peerOf(b)
	if err != nil {
		return nil, err
	}
	resp, err := peer.Lane(lane).Do(ctx, call)
	if err != nil {
		c.sendFailed(err)
	}
	return resp, err
}

// sendFailed has the brokers looked at again where a connection could not be
// made: the broker may have moved.
func (c *client) sendFailed(err error) {
	var dial *kafka.DialError
	if errors.As(err, &dial) {
		c.inbox.post((*state).wantBrokers)
	}
}

// wantBrokers has the brokers and the controller looked at again; what is known
// holds until then.
func (s *state) wantBrokers() { s.topics.WantCluster() }

func apiName(req kmsg.Request) string { return conn.APIName(req.Key()) }

// laneOf is the kind of traffic that a request belongs to.
func laneOf(req kmsg.Request) netconn.Kind {
	switch req.Key() {
	case 0:
		return netconn.Produce
	case 1, 78: // Fetch, ShareFetch
		return netconn.Fetch
	case 11, 14: // JoinGroup, SyncGroup
		return netconn.Join
	case 8, 9, 12, 13, 24, 25, 26, 28, 68, 76, 79, 88, 93:
		return netconn.Coordinator
	case 22:
		if r, ok := req.(*kmsg.InitProducerIDRequest); ok && r.TransactionalID != nil {
			return netconn.Coordinator
		}
	}
	return netconn.General
}
