package ottlatest

import (
	"slices"
	"sync"
	"time"

	"github.com/ottla/ottla/internal/sim/frame"
	"github.com/ottla/ottla/kafka"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// throttle is what Throttle set.
type throttle struct {
	mu     sync.Mutex
	millis map[int16]int32 // by key; -1 = every key
}

func (t *throttle) of(key int16) int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ms, ok := t.millis[key]; ok {
		return ms
	}
	return t.millis[-1]
}

// onRequest sees a checked request before kfake does.
func (c *Cluster) onRequest(from *conn, r frame.Request, req kmsg.Request) {
	c.journal.add(Request{
		At: time.Now(), Node: from.n.id, Conn: from.num, ClientID: r.ClientID,
		Key: r.Key, Version: r.Version, Body: req,
	})
	if md, ok := req.(*kmsg.MetadataRequest); ok && md.AllowAutoTopicCreation && c.cfg.AutoCreate && from.mayAsk() {
		c.createMissing(md)
	}
}

// mayAsk reports whether the connection needs no login: only then may its
// requests have effects before kfake has looked at them.
func (c *conn) mayAsk() bool { return len(c.n.c.cfg.Users) == 0 }

// createMissing creates the topics of a metadata request, so that their
// leaders are in place before the request is answered.
func (c *Cluster) createMissing(md *kmsg.MetadataRequest) {
	for _, t := range md.Topics {
		if t.Topic != nil && *t.Topic != "" && c.Leader(*t.Topic, 0) == kafka.NoNode {
			c.CreateTopic(*t.Topic, c.cfg.DefaultPartitions) // where it fails, kfake says so to the client
		}
	}
}

// onAnswer sees kfake's answer to a before the client does, and returns the
// bytes to send.
func (c *Cluster) onAnswer(a asked, wire []byte) []byte {
	ms := c.throttle.of(a.key)
	interest := ms > 0
	switch kmsg.Key(a.key) {
	case kmsg.CreateTopics, kmsg.CreatePartitions:
		interest = true
	case kmsg.Metadata, kmsg.FindCoordinator, kmsg.DescribeCluster:
		interest = interest || c.anyStopped()
	}
	if !interest {
		return wire
	}
	resp, ok := decodeAnswer(a, wire)
	if !ok {
		return wire
	}
	if t, ok := resp.(kmsg.SetThrottleResponse); ok && ms > 0 {
		t.SetThrottle(ms)
	}
	switch resp := resp.(type) {
	case *kmsg.CreateTopicsResponse:
		for _, t := range resp.Topics {
			if t.ErrorCode == 0 {
				c.place(t.Topic, 0)
			}
		}
	case *kmsg.CreatePartitionsResponse:
		for _, t := range resp.Topics {
			c.placeAstray(t.Topic)
		}
	case *kmsg.MetadataResponse:
		c.hideStopped(resp)
	case *kmsg.FindCoordinatorResponse:
		c.refuseStopped(resp)
	case *kmsg.DescribeClusterResponse:
		resp.Brokers = slices.DeleteFunc(resp.Brokers, func(b kmsg.DescribeClusterResponseBroker) bool { return c.stopped(b.NodeID) })
		if c.stopped(resp.ControllerID) {
			resp.ControllerID = -1
		}
	}
	return frame.AppendResponse(nil, a.correlation, resp)
}

func decodeAnswer(a asked, wire []byte) (kmsg.Response, bool) {
	resp := kmsg.ResponseForKey(a.key)
	if resp == nil {
		return nil, false
	}
	resp.SetVersion(a.version)
	body := wire[8:]
	if resp.IsFlexible() && a.key != int16(kmsg.ApiVersions) {
		body = body[1:] // kfake sends no header tags
	}
	return resp, resp.ReadFrom(body) == nil
}

func (c *Cluster) stopped(id int32) bool {
	return id >= 0 && int(id) < len(c.nodes) && !c.nodes[id].running()
}

func (c *Cluster) anyStopped() bool {
	return slices.ContainsFunc(c.nodes, func(n *node) bool { return !n.running() })
}

// hideStopped takes stopped brokers out of the list, as the controller of a
// real cluster does once it has missed their heartbeats.
func (c *Cluster) hideStopped(resp *kmsg.MetadataResponse) {
	resp.Brokers = slices.DeleteFunc(resp.Brokers, func(b kmsg.MetadataResponseBroker) bool { return c.stopped(b.NodeID) })
	if c.stopped(resp.ControllerID) {
		resp.ControllerID = -1
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			p.ISR = slices.DeleteFunc(slices.Clone(p.ISR), c.stopped)
			for _, r := range p.Replicas {
				if c.stopped(r) {
					p.OfflineReplicas = append(p.OfflineReplicas, r)
				}
			}
			if c.stopped(p.Leader) {
				p.Leader, p.ErrorCode = -1, kerr.LeaderNotAvailable.Code
			}
		}
	}
}

// refuseStopped answers COORDINATOR_NOT_AVAILABLE for coordinators on stopped
// brokers.
func (c *Cluster) refuseStopped(resp *kmsg.FindCoordinatorResponse) {
	if c.stopped(resp.NodeID) && len(resp.Coordinators) == 0 {
		resp.NodeID, resp.Host, resp.Port, resp.ErrorCode = -1, "", -1, kerr.CoordinatorNotAvailable.Code
	}
	for i := range resp.Coordinators {
		if co := &resp.Coordinators[i]; c.stopped(co.NodeID) {
			co.NodeID, co.Host, co.Port, co.ErrorCode = -1, "", -1, kerr.CoordinatorNotAvailable.Code
		}
	}
}
