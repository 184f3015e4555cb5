package cluster

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/netconn"
	"github.com/ottla/ottla/kafka"
)

// Joins sends the JoinGroup and SyncGroup requests of one member of a group, on
// connections of its own: a broker holds them back until the whole group is
// there, and everything behind them on their connection. So members of one client
// must not share one. It is safe for concurrent use; Close ends it, and so does the
// end of the client.
type Joins struct {
	c *client

	mu    sync.Mutex
	peers map[string]*netconn.Peer // guarded by mu; nil once closed
}

// NewJoins makes the connections of one member. Nothing is dialled.
func NewJoins(c *Cluster) *Joins {
	return &Joins{c: c.client, peers: map[string]*netconn.Peer{}}
}

// Request sends a request to the coordinator of a group, at the highest version
// that both sides speak. It makes one attempt, as [Cluster.RequestCoordinator].
func (j *Joins) Request(ctx context.Context, group string, req kmsg.Request) (kmsg.Response, error) {
	b, err := j.c.coordinator(ctx, GroupCoordinator, group)
	if err != nil {
		return nil, notAsked(err)
	}
	peer, err := j.peer(b)
	if err != nil {
		return nil, opError(apiName(req), b.ID, err)
	}
	resp, err := peer.Lane(netconn.Join).Do(ctx, netconn.NewCall(ctx, req))
	if err != nil {
		j.c.sendFailed(err)
		j.c.coordinatorFailed(ctx, keyOf(GroupCoordinator, group), b, err)
		return nil, opError(apiName(req), b.ID, err)
	}
	return resp, nil
}

// peer is the member's own way to a broker.
func (j *Joins) peer(b kafka.Broker) (*netconn.Peer, error) {
	shared, err := j.c.peerOf(b)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.peers == nil {
		return nil, ErrClosed
	}
	peer := j.peers[b.Addr()]
	if peer == nil {
		peer = netconn.NewPeer(j.c.pool.tasks, b.Addr(), j.c.pool.cfg)
		j.peers[b.Addr()] = peer
	}
	peer.Expect(shared.Expected())
	return peer, nil
}

// Drop closes the connections: what is held back on them ends with an error, and
// the next request dials anew.
func (j *Joins) Drop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.peers {
		p.Disconnect(errDropped)
	}
}

var errDropped = errors.New("ottla: the member gave up joining")

// Close is Drop for good.
func (j *Joins) Close() {
	j.mu.Lock()
	peers := j.peers
	j.peers = nil
	j.mu.Unlock()
	for _, p := range peers {
		p.Close(ErrClosed)
	}
}
