package ottlatest

import (
	"slices"
	"sync"
	"time"

	"github.com/ottla/ottla/internal/sim/frame"
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
	if hb, ok := req.(*kmsg.StreamsGroupHeartbeatRequest); ok {
		c.streams.sees(hb, r.ClientID)
	}
	if md, ok := req.(*kmsg.MetadataRequest); ok && md.AllowAutoTopicCreation && c.cfg.AutoCreate {
		placer{c}.createMissing(md)
	}
}

// onAnswer sees kfake's answer to a before the client does, and returns the
// bytes to send.
func (c *Cluster) onAnswer(n *node, a asked, wire []byte) []byte {
	ms := c.throttle.of(a.key)
	interest := ms > 0
	switch kmsg.Key(a.key) {
	case kmsg.CreateTopics, kmsg.CreatePartitions, kmsg.OffsetForLeaderEpoch, kmsg.DescribeConfigs,
		kmsg.ApiVersions, kmsg.ListGroups, kmsg.DeleteGroups, kmsg.InitProducerID, kmsg.EndTxn:
		interest = true
	case kmsg.Metadata, kmsg.FindCoordinator, kmsg.DescribeCluster:
		interest = interest || c.nodes.anyStopped()
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
	case *kmsg.ApiVersionsResponse:
		c.streams.offer(resp)
	case *kmsg.ListGroupsResponse:
		c.streams.list(n.id, resp)
	case *kmsg.DeleteGroupsResponse:
		c.streams.onDeleted(resp)
	case *kmsg.CreateTopicsResponse:
		for _, t := range resp.Topics {
			if t.ErrorCode == 0 {
				placer{c}.place(t.Topic, 0)
			}
		}
	case *kmsg.CreatePartitionsResponse:
		for _, t := range resp.Topics {
			placer{c}.placeAstray(t.Topic)
		}
	case *kmsg.OffsetForLeaderEpochResponse:
		fixEpochEnds(c, a.req.(*kmsg.OffsetForLeaderEpochRequest), resp)
	case *kmsg.DescribeConfigsResponse:
		addVerification(a.req.(*kmsg.DescribeConfigsRequest), resp)
	case *kmsg.InitProducerIDResponse, *kmsg.EndTxnResponse:
		c.pairs.sees(a.req, resp)
	case *kmsg.MetadataResponse:
		c.nodes.hideStopped(resp)
	case *kmsg.FindCoordinatorResponse:
		c.nodes.refuseStopped(resp)
	case *kmsg.DescribeClusterResponse:
		resp.Brokers = slices.DeleteFunc(resp.Brokers, func(b kmsg.DescribeClusterResponseBroker) bool { return c.nodes.stopped(b.NodeID) })
		if c.nodes.stopped(resp.ControllerID) {
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
