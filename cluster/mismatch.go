package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/internal/netconn"
	"github.com/ottla/ottla/kafka"
)

// A broker that is asked for another node or cluster id than its own answers
// with code 129 (KIP-1242). That does not say which of the two was wrong, so
// the address is asked once, without an expectation, for its cluster id.

// onMismatch starts the probe of an address.
func (s *state) onMismatch(addr string, node kafka.NodeID) {
	if s.probing[addr] {
		return
	}
	s.probing[addr] = true
	s.probe(addr, node, probeTries)
}

// probeTries is how often an address is asked for its cluster: a dial that was
// begun before may still carry the expectation.
const probeTries = 3

func (s *state) probe(addr string, node kafka.NodeID, tries int) {
	peer, err := s.c.pool.at(addr)
	if err != nil {
		delete(s.probing, addr)
		return
	}
	peer.Expect("", kafka.NoNode)
	call := netconn.NewCall(s.c.tasks.Context(), s.c.cfg.mapRequest(meta.Refresh{}))
	if !s.c.cfg.atControllers() {
		call.Min = 2 // the first version of Metadata with a cluster id
	}
	call.Done = func(resp kmsg.Response, err error) {
		s.c.inbox.post(func(s *state) {
			if kafka.CodeOf(err) == kerr.RebootstrapRequired.Code && tries > 1 {
				s.probe(addr, node, tries-1)
				return
			}
			s.probed(addr, node, resp, err)
		})
	}
	peer.Lane(netconn.General).Send(call)
}

// probed ends the probe of an address: another node of the same cluster keeps
// its sockets, another cluster loses them.
func (s *state) probed(addr string, node kafka.NodeID, resp kmsg.Response, err error) {
	delete(s.probing, addr)
	var mr *kmsg.MetadataResponse
	if err == nil {
		mr = mapAnswer(resp)
	}
	snap := s.topics.Snapshot()
	switch {
	case err != nil: // the next dial asks again
	case snap.Foreign(mr.ClusterID):
		_ = s.otherCluster(addr, &MismatchError{Want: snap.ClusterID, Found: *mr.ClusterID})
		s.rebootstrap(&MismatchError{Addr: addr, Want: snap.ClusterID, Found: *mr.ClusterID})
		return
	default:
		s.unchecked[addr] = node
		s.topics.Merge(s.now, addr, mr)
	}
	s.connections(s.topics.Snapshot())
}

// otherCluster bars an address that belongs to another cluster: its sockets
// close, and nothing that it said is used.
func (s *state) otherCluster(addr string, err error) error {
	var me *MismatchError
	if !errors.As(err, &me) {
		return err
	}
	e := &MismatchError{Addr: addr, Want: me.Want, Found: me.Found}
	s.c.counts.mismatches.Add(1)
	s.c.pool.bar(addr, e)
	ev := kafka.Event{Kind: ClusterMismatch, Partition: -1, Addr: addr, Want: me.Want, Found: me.Found}
	s.log(ev)
	s.c.deliver([]Event{ev})
	return e
}

// unbar takes back the barred addresses that the right cluster has left.
func (s *state) unbar(resp *kmsg.MetadataResponse) {
	named := make(map[string]bool, len(resp.Brokers))
	for _, b := range resp.Brokers {
		named[kafka.JoinAddr(b.Host, b.Port)] = true
	}
	s.c.pool.unbar(named)
}

// hooks pass on what connections tell.
func (c *client) hooks() netconn.Hooks {
	return netconn.Hooks{
		Mismatch: func(addr, _ string, node kafka.NodeID) {
			c.inbox.post(func(s *state) { s.onMismatch(addr, node) })
		},
		Dialled: func(addr string, kind netconn.Kind, took time.Duration, err error) {
			if err != nil {
				c.counts.dialFailures.Add(1)
			}
			c.tracer.dialled(addr, kind.String(), took, err)
		},
		Closed: func(addr string, kind netconn.Kind, err error) { c.tracer.closed(addr, kind.String(), err) },
		Throttled: func(addr string, kind netconn.Kind, d time.Duration) {
			c.tracer.throttled(addr, kind.String(), d)
		},
	}
}

// FinalizedFeature is the level of a feature that the cluster has finalized
// (KIP-584), such as transaction.version; ok is false if it has none. It asks
// any broker if no connection knows.
func (c *Cluster) FinalizedFeature(ctx context.Context, name string) (level int16, ok bool, err error) {
	if err := c.over(); err != nil {
		return 0, false, err
	}
	var last error
	walk := meta.NewWalk(c.candidates(nil), c.rand.derive())
	for addr, more := walk.Next(); more; addr, more = walk.Next() {
		peer, err := c.pool.at(addr)
		if err == nil {
			vs, verr := peer.Versions(ctx)
			if verr == nil {
				level, ok = vs.Feature(name)
				return level, ok, nil
			}
			err = verr
		}
		if ctx.Err() != nil {
			return 0, false, opError("api versions", kafka.NoNode, err)
		}
		walk.Failed(addr, err)
		last = walk.Err()
	}
	return 0, false, opError("api versions", kafka.NoNode, last)
}
