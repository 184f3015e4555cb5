package sim

import (
	"cmp"
	"crypto/sha256"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cluster is a few scripted brokers that share a Topology. Broker n has node
// id n, from 1.
type Cluster struct {
	brokers []*Broker

	mu sync.Mutex
	t  Topology
}

// Topology is what the default handlers of Metadata and FindCoordinator say.
type Topology struct {
	ClusterID    string
	Controller   int32            // -1 = none
	Nodes        []Node           // as told to clients
	Topics       []Topic          // by name in any order
	Coordinators map[string]int32 // key → node; others: the lowest node
	Error        int16            // top-level error of Metadata v13
	Throttle     int32            // milliseconds in every default answer
	Features     map[string]int16 // finalized features, told by ApiVersions
}

// Node is one broker as metadata shows it.
type Node struct {
	ID   int32
	Host string
	Port int32
	Rack *string
}

// Topic is one topic as metadata shows it.
type Topic struct {
	Name       string
	ID         [16]byte
	Error      int16
	Internal   bool
	Partitions []Partition
}

// Partition is one partition as metadata shows it; its index is its id.
type Partition struct {
	Leader int32
	Epoch  int32
	Error  int16
}

// New starts a cluster with one broker for each listener and closes it when
// the test ends. The cluster id is "sim", the controller node 1.
func New(tb testing.TB, listeners ...net.Listener) *Cluster {
	tb.Helper()
	c := &Cluster{t: Topology{ClusterID: "sim", Controller: 1}}
	for i, l := range listeners {
		id := int32(i + 1)
		host, port, err := net.SplitHostPort(hostPort(l))
		if err != nil {
			tb.Fatal(err)
		}
		p, _ := strconv.Atoi(port)
		c.t.Nodes = append(c.t.Nodes, Node{ID: id, Host: host, Port: int32(p)})
		c.brokers = append(c.brokers, newBroker(c, id, l))
	}
	tb.Cleanup(c.Close)
	tb.Cleanup(func() {
		for _, b := range c.brokers {
			if n := b.OutOfRange(); n > 0 && !b.mayStray() {
				tb.Errorf("C27: broker %d saw %d requests at versions that it does not have: %v", b.ID, n, b.strays())
			}
		}
	})
	return c
}

// NewBroker starts a cluster of one broker. See New.
func NewBroker(tb testing.TB, l net.Listener) *Broker {
	tb.Helper()
	return New(tb, l).Broker(1)
}

// hostPort prefers the name under which a listener was made to its address.
func hostPort(l net.Listener) string {
	if n, ok := l.(interface{ HostPort() string }); ok {
		return n.HostPort()
	}
	return l.Addr().String()
}

// Close closes every broker.
func (c *Cluster) Close() {
	for _, b := range c.brokers {
		b.Close()
	}
}

// Broker is the broker that was started as node id.
func (c *Cluster) Broker(id int32) *Broker { return c.brokers[id-1] }

// Brokers is all brokers in the order of their ids.
func (c *Cluster) Brokers() []*Broker { return slices.Clone(c.brokers) }

// Seeds is the address of every broker.
func (c *Cluster) Seeds() []string {
	out := make([]string, len(c.brokers))
	for i, b := range c.brokers {
		out[i] = b.Addr()
	}
	return out
}

// Cluster is the cluster that the broker belongs to.
func (b *Broker) Cluster() *Cluster { return b.cluster }

// Update changes the topology under its lock.
func (c *Cluster) Update(f func(t *Topology)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.t)
}

// SetTopic adds or replaces a topic whose partitions have these leaders, all
// at epoch 0. Its id is derived from the name.
func (c *Cluster) SetTopic(name string, leaders ...int32) {
	sum := sha256.Sum256([]byte(name))
	t := Topic{Name: name, ID: [16]byte(sum[:16])}
	for _, l := range leaders {
		t.Partitions = append(t.Partitions, Partition{Leader: l})
	}
	c.Update(func(tp *Topology) {
		tp.Topics = append(slices.DeleteFunc(tp.Topics, func(o Topic) bool { return o.Name == name }), t)
	})
}

// SetLeader moves a partition to another leader and raises its epoch. It
// panics on a partition that does not exist.
func (c *Cluster) SetLeader(topic string, partition, leader int32) {
	c.Update(func(t *Topology) {
		i := slices.IndexFunc(t.Topics, func(o Topic) bool { return o.Name == topic })
		p := &t.Topics[i].Partitions[partition]
		p.Leader = leader
		p.Epoch++
	})
}

// Count is how many requests of a key all brokers read.
func (c *Cluster) Count(key int16) int {
	n := 0
	for _, b := range c.brokers {
		n += b.Count(key)
	}
	return n
}

// Frames is the journals of all brokers in the order of time.
func (c *Cluster) Frames() []Frame {
	var out []Frame
	for _, b := range c.brokers {
		out = append(out, b.Frames()...)
	}
	slices.SortStableFunc(out, func(a, b Frame) int { return a.At.Compare(b.At) })
	return out
}

// Metadata is the default answer to r, for handlers that change a detail.
func (c *Cluster) Metadata(r *Request) *kmsg.MetadataResponse {
	req := r.Req.(*kmsg.MetadataRequest)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	c.mu.Lock()
	defer c.mu.Unlock()
	resp.ClusterID, resp.ControllerID = &c.t.ClusterID, c.t.Controller
	resp.ErrorCode, resp.ThrottleMillis = c.t.Error, c.t.Throttle
	for _, n := range c.t.Nodes {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = n.ID, n.Host, n.Port, n.Rack
		resp.Brokers = append(resp.Brokers, b)
	}
	if req.Topics == nil || req.Version == 0 && len(req.Topics) == 0 {
		for _, t := range c.t.Topics {
			resp.Topics = append(resp.Topics, t.metadata())
		}
		return resp
	}
	for _, want := range req.Topics {
		resp.Topics = append(resp.Topics, c.topicLocked(want))
	}
	return resp
}

func (c *Cluster) topicLocked(want kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	for _, t := range c.t.Topics {
		if want.Topic != nil && *want.Topic == t.Name || want.Topic == nil && want.TopicID == t.ID {
			return t.metadata()
		}
	}
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID = want.Topic, want.TopicID
	out.ErrorCode = kerr.UnknownTopicOrPartition.Code
	if want.Topic == nil {
		out.ErrorCode = kerr.UnknownTopicID.Code
	}
	return out
}

func (t Topic) metadata() kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.ErrorCode, out.IsInternal = &t.Name, t.ID, t.Error, t.Internal
	for i, p := range t.Partitions {
		mp := kmsg.NewMetadataResponseTopicPartition()
		mp.Partition, mp.Leader, mp.LeaderEpoch, mp.ErrorCode = int32(i), p.Leader, p.Epoch, p.Error
		mp.Replicas, mp.ISR = []int32{p.Leader}, []int32{p.Leader}
		out.Partitions = append(out.Partitions, mp)
	}
	return out
}

// FindCoordinator is the default answer to r.
func (c *Cluster) FindCoordinator(r *Request) *kmsg.FindCoordinatorResponse {
	req := r.Req.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	c.mu.Lock()
	defer c.mu.Unlock()
	resp.ThrottleMillis = c.t.Throttle
	if req.Version < 4 {
		n := c.coordinatorLocked(req.CoordinatorKey)
		resp.NodeID, resp.Host, resp.Port = n.ID, n.Host, n.Port
		if n.ID < 0 {
			resp.ErrorCode = kerr.CoordinatorNotAvailable.Code
		}
		return resp
	}
	for _, key := range req.CoordinatorKeys {
		n := c.coordinatorLocked(key)
		one := kmsg.NewFindCoordinatorResponseCoordinator()
		one.Key, one.NodeID, one.Host, one.Port = key, n.ID, n.Host, n.Port
		if n.ID < 0 {
			one.ErrorCode = kerr.CoordinatorNotAvailable.Code
		}
		resp.Coordinators = append(resp.Coordinators, one)
	}
	return resp
}

func (c *Cluster) coordinatorLocked(key string) Node {
	if id, ok := c.t.Coordinators[key]; ok {
		i := slices.IndexFunc(c.t.Nodes, func(n Node) bool { return n.ID == id })
		if i < 0 {
			return Node{ID: -1, Port: -1}
		}
		return c.t.Nodes[i]
	}
	if len(c.t.Nodes) == 0 {
		return Node{ID: -1, Port: -1}
	}
	return slices.MinFunc(c.t.Nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
}

func (c *Cluster) throttle() int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t.Throttle
}
