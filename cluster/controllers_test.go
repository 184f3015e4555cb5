package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// controllers makes the brokers of the rig controllers: they have the APIs of
// such and describe themselves. A request of another API fails the test.
func (r *rig) controllers() {
	all, table := sim.DefaultVersions(), map[int16]sim.Versions{}
	for _, key := range append(slices.Clone(controllerAPIs), 17, 36, 52, 62) {
		table[key] = all[key]
	}
	for _, b := range r.sim.Brokers() {
		b.SetTable(table)
		b.Handle(60, r.describe)
	}
}

// describe answers DescribeCluster as a controller does.
func (r *rig) describe(q *sim.Request) sim.Answer {
	resp := q.Response().(*kmsg.DescribeClusterResponse)
	if q.Req.(*kmsg.DescribeClusterRequest).EndpointType != 2 {
		resp.ErrorCode = kerr.MismatchedEndpointType.Code
		return sim.Reply(resp)
	}
	resp.EndpointType = 2
	r.sim.Update(func(t *sim.Topology) {
		resp.ClusterID, resp.ControllerID = t.ClusterID, t.Controller
		for _, n := range t.Nodes {
			b := kmsg.NewDescribeClusterResponseBroker()
			b.NodeID, b.Host, b.Port = n.ID, n.Host, n.Port
			resp.Brokers = append(resp.Brokers, b)
		}
	})
	return sim.Reply(resp)
}

func (r *rig) activate(id int32) {
	r.sim.Update(func(t *sim.Topology) { t.Controller = id })
}

// atControllers makes a client start from controllers, by default from all.
func atControllers(addrs ...string) func(*Config) {
	return func(cfg *Config) {
		if len(addrs) == 0 {
			addrs = cfg.Bootstrap
		}
		cfg.Bootstrap, cfg.BootstrapControllers = nil, addrs
	}
}

func TestA8AClientOfControllersLearnsThemFromOne(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.controllers()
		r.activate(3)
		c := r.connect(atControllers("B2:9092"))
		if got := c.Brokers(); len(got) != 3 || got[0].Addr() != "b1:9092" || c.ID() != "sim" || !AtControllers(c) {
			t.Errorf("map %v of %q", got, c.ID())
		}
		b, err := c.Controller(r.within(time.Minute))
		if mustDo(t, err); b.ID != 3 {
			t.Errorf("controller %v", b)
		}
		mustDo(t, second(c.Request(r.within(time.Minute), kmsg.NewPtrListPartitionReassignmentsRequest())))
		if n := r.sim.Broker(3).Count(46); n != 1 {
			t.Errorf("the active controller saw %d requests", n)
		}
		for _, b := range r.sim.Brokers() {
			if b.Addr() != "b2:9092" && b.Count(60) > 0 {
				t.Errorf("%s was asked for the map", b.Addr())
			}
		}
		time.Sleep(6 * time.Minute) // beyond the age of the map
		if n := r.sim.Count(60); n < 2 {
			t.Errorf("the map was asked for %d times", n)
		}
	})
}

// TestA8RequestsFollowTheActiveController has it move four times: told by the
// one that was, with an election of two seconds in between, by a crash, and told
// as the partition's leader that it is.
func TestA8RequestsFollowTheActiveController(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.controllers()
		active := int32(1)
		r.everywhere(46, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.ListPartitionReassignmentsResponse)
			if q.Broker.ID != active {
				resp.ErrorCode = kerr.NotController.Code
			}
			return sim.Reply(resp)
		})
		c := r.connect(atControllers())
		list := func() {
			t.Helper()
			resp, err := c.Request(r.within(time.Minute), kmsg.NewPtrListPartitionReassignmentsRequest())
			if mustDo(t, err); resp.(*kmsg.ListPartitionReassignmentsResponse).ErrorCode != 0 {
				t.Errorf("answer %+v", resp)
			}
		}
		list()
		active = 2
		r.activate(2)
		list()
		active = 3
		r.activate(-1)
		time.AfterFunc(2*time.Second, func() { r.activate(3) })
		list()
		r.sim.Broker(3).Close()
		r.activate(1)
		active = 1
		list()
		if got := []int{r.sim.Broker(1).Count(46), r.sim.Broker(2).Count(46), r.sim.Broker(3).Count(46)}; !slices.Equal(got, []int{3, 2, 1}) {
			t.Errorf("requests by controller: %v", got)
		}
		r.everywhere(55, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DescribeQuorumResponse)
			if q.Broker.ID != active {
				resp.ErrorCode = kerr.NotLeaderForPartition.Code
			}
			return sim.Reply(resp)
		})
		active = 2
		r.activate(2)
		resp, err := c.Request(r.within(time.Minute), kmsg.NewPtrDescribeQuorumRequest())
		if mustDo(t, err); resp.(*kmsg.DescribeQuorumResponse).ErrorCode != 0 || r.sim.Broker(2).Count(55) != 1 {
			t.Errorf("quorum %+v", resp)
		}
	})
}

// TestA8WhatControllersDoNotServeIsRefusedByTypeAndUnsent asks for everything
// that has a route; the scripted controllers fail the test if one that they do
// not have arrives.
func TestA8WhatControllersDoNotServeIsRefusedByTypeAndUnsent(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.controllers()
		c := r.connect(atControllers())
		before := len(r.sim.Frames())
		refused := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, kafka.ErrUnsupportedEndpointType) || kafka.MayHaveHappened(err) || !strings.Contains(err.Error(), "bootstrap.servers") {
				t.Errorf("%s: %v", what, err)
			}
		}
		for key := range routes {
			if !slices.Contains(controllerAPIs, key) {
				refused(kmsg.NameForKey(key), second(c.Request(t.Context(), kmsg.RequestForKey(key))))
			}
		}
		began := time.Now()
		refused("Topic", second(c.Topic(t.Context(), "t")))
		refused("PartitionCount", second(c.PartitionCount(t.Context(), "t")))
		refused("Leader", second(c.Leader(t.Context(), tp("t", 0))))
		refused("RefreshIfStale", second(c.RefreshIfStale(t.Context(), "t")))
		refused("TopicNames", second(c.TopicNames(t.Context())))
		refused("TopicName", second(c.TopicName(t.Context(), kafka.TopicID{1})))
		refused("Coordinator", second(c.Coordinator(t.Context(), GroupCoordinator, "g")))
		refused("RequestCoordinator", second(c.RequestCoordinator(t.Context(), "g", kmsg.NewPtrHeartbeatRequest())))
		if took := time.Since(began); took > 0 {
			t.Errorf("the refusals took %v", took)
		}
		if n := len(r.sim.Frames()); n != before {
			t.Errorf("%d requests were sent", n-before)
		}
		refused("one by name", second(c.Broker(1).Request(r.within(time.Minute), kmsg.NewPtrMetadataRequest())))
		resp, err := c.Request(r.within(time.Minute), kmsg.NewPtrDescribeClusterRequest())
		if mustDo(t, err); resp.(*kmsg.DescribeClusterResponse).ErrorCode != kerr.MismatchedEndpointType.Code {
			t.Errorf("a question about brokers: %+v", resp)
		}
	})
}

// TestA8SettingsAreReadFromTheirNodeAndChangedByTheActiveController fails where
// the setting of a broker, which is no node of this client, finds no way.
func TestA8SettingsAreReadFromTheirNodeAndChangedByTheActiveController(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.controllers()
		r.activate(3)
		r.everywhere(32, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DescribeConfigsResponse)
			for _, rr := range q.Req.(*kmsg.DescribeConfigsRequest).Resources {
				one := kmsg.NewDescribeConfigsResponseResource()
				one.ResourceType, one.ResourceName = rr.ResourceType, rr.ResourceName
				resp.Resources = append(resp.Resources, one)
			}
			return sim.Reply(resp)
		})
		r.everywhere(44, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.IncrementalAlterConfigsResponse)
			for _, rr := range q.Req.(*kmsg.IncrementalAlterConfigsRequest).Resources {
				one := kmsg.NewIncrementalAlterConfigsResponseResource()
				one.ResourceType, one.ResourceName = rr.ResourceType, rr.ResourceName
				resp.Resources = append(resp.Resources, one)
			}
			return sim.Reply(resp)
		})
		c := r.connect(atControllers())
		read := kmsg.NewPtrDescribeConfigsRequest()
		rr := kmsg.NewDescribeConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeBroker, "2"
		read.Resources = append(read.Resources, rr)
		mustDo(t, second(c.Request(r.within(time.Minute), read)))
		change := kmsg.NewPtrIncrementalAlterConfigsRequest()
		for name, kind := range map[string]kmsg.ConfigResourceType{"107": kmsg.ConfigResourceTypeBroker, "1": kmsg.ConfigResourceTypeBrokerLogger} {
			one := kmsg.NewIncrementalAlterConfigsRequestResource()
			one.ResourceType, one.ResourceName = kind, name
			change.Resources = append(change.Resources, one)
		}
		mustDo(t, second(c.Request(r.within(time.Minute), change)))
		for key, want := range map[int16][]int{32: {0, 1, 0}, 44: {1, 0, 1}} {
			for i, b := range r.sim.Brokers() {
				if b.Count(key) != want[i] {
					t.Errorf("controller %d saw %d requests of API %d", b.ID, b.Count(key), key)
				}
			}
		}
	})
}

func TestA8BrokersNamedAsControllersAreToldSo(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.everywhere(60, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DescribeClusterResponse)
			resp.ErrorCode = kerr.MismatchedEndpointType.Code
			return sim.Reply(resp)
		})
		cfg := r.config()
		atControllers()(&cfg)
		began := time.Now()
		_, err := Connect(t.Context(), cfg)
		if !errors.Is(err, kerr.MismatchedEndpointType) || !strings.Contains(err.Error(), "this is a broker (bootstrap.servers)") || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		for _, b := range r.sim.Brokers() {
			b.SetVersions(60, 0, 0) // of 2.8: it has no endpoint types
		}
		var version *kafka.VersionError
		if _, err = Connect(t.Context(), cfg); !errors.As(err, &version) || !strings.Contains(err.Error(), "controllers are asked for") {
			t.Errorf("an old broker: %v", err)
		}
		// One that knows nothing of endpoint types answers about brokers.
		r.everywhere(60, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DescribeClusterResponse)
			b := kmsg.NewDescribeClusterResponseBroker()
			b.NodeID, b.Host, b.Port = 1, "b1", 9092
			resp.EndpointType, resp.ControllerID, resp.Brokers = 1, 1, append(resp.Brokers, b)
			return sim.Reply(resp)
		})
		for _, b := range r.sim.Brokers() {
			b.SetVersions(60, 0, 2)
		}
		if _, err = Connect(t.Context(), cfg); !errors.Is(err, kerr.MismatchedEndpointType) {
			t.Errorf("an answer about brokers: %v", err)
		}
	})
}

func TestA8ControllersNamedAsBrokersAreToldSo(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.controllers()
		began := time.Now()
		_, err := Connect(t.Context(), r.config())
		if !errors.Is(err, kafka.ErrUnsupportedEndpointType) || !strings.Contains(err.Error(), "at b1:9092 is a controller") || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if n := len(r.sim.Frames()) - r.sim.Count(18); n != 0 {
			t.Errorf("%d requests beside ApiVersions", n)
		}
	})
}

// TestA8AnotherClustersControllerIsNotBelieved has a controller that answers for
// another cluster than the one that the client is connected to.
func TestA8AnotherClustersControllerIsNotBelieved(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.controllers()
		c := r.connect(atControllers("b1:9092"))
		r.sim.Update(func(t *sim.Topology) { t.ClusterID, t.Controller = "other", 2 })
		err := c.refresh(r.within(time.Minute), nil, needNow)
		var other *MismatchError
		if !errors.As(err, &other) || other.Want != "sim" || other.Found != "other" || c.snap.Load().Controller == 2 {
			t.Errorf("%v, controller %d", err, c.snap.Load().Controller)
		}
	})
}
