package cluster

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

func TestC1OneSocketForEachPurposeServesEveryPartitionAndGoroutine(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		leaders := make([]int32, 64)
		for i := range leaders {
			leaders[i] = 1
		}
		r.topic("t", leaders...)
		r.answerOffsets()
		r.sim.Broker(1).Handle(1, func(q *sim.Request) sim.Answer { return sim.Reply(q.Response()) })
		c := r.connect()
		var wg sync.WaitGroup
		for g := range 32 {
			wg.Go(func() {
				for p := range int32(64) {
					if _, err := c.Request(r.within(time.Minute), listOffsets(tp("t", p))); err != nil {
						t.Error(err)
					}
					if g%2 == 0 {
						c.Broker(1).Start(t.Context(), fetchOf(p), func(kmsg.Response, error) {})
					}
				}
			})
		}
		wg.Wait()
		if n := r.sim.Broker(1).Accepted(); n != 2 {
			t.Errorf("%d sockets for two purposes", n)
		}
	})
}

func fetchOf(p int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = "t"
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition = p
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func describe(id kafka.NodeID, c *Cluster, r *rig) error {
	_, err := c.Broker(id).Request(r.within(time.Minute), kmsg.NewPtrDescribeClusterRequest())
	return err
}

// TestC2ANodeIDThatChangesAtAnAddressKeepsTheSocket is points 1 and 4 of the
// key of the pool.
func TestC2ANodeIDThatChangesAtAnAddressKeepsTheSocket(t *testing.T) {
	for _, version := range []int16{4, 5} {
		t.Run(fmt.Sprint("ApiVersions ", version), func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, r *rig) {
				r.sim.Broker(1).SetVersions(18, 0, version)
				c := r.connect()
				mustDo(t, describe(1, c, r))
				r.sim.Update(func(tp *sim.Topology) { tp.Nodes[0].ID, tp.Controller = 9, 9 })
				mustDo(t, c.refresh(t.Context(), nil, needNow))
				mustDo(t, describe(9, c, r))
				synctest.Wait()
				if n := r.sim.Broker(1).Accepted(); n != 1 {
					t.Errorf("%d sockets, want the one", n)
				}
				var asked []int32
				for _, f := range r.sim.Broker(1).FramesOf(18) {
					if q := f.Req.(*kmsg.ApiVersionsRequest); q.ClusterID != nil {
						asked = append(asked, q.NodeID)
					}
				}
				if version == 5 && !slices.Contains(asked, 9) {
					t.Errorf("the open socket was not asked whether it is node 9: %v", asked)
				}
				if version < 5 && len(asked) > 0 {
					t.Errorf("asked for a node below version 5: %v", asked)
				}
			})
		})
	}
}

// TestC2ANodeThatMovesLeavesItsOldSocketToItsAnswers is point 2.
func TestC2ANodeThatMovesLeavesItsOldSocketToItsAnswers(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes = tp.Nodes[:2] })
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		mustDo(t, describe(2, c, r))
		release := make(chan struct{})
		r.sim.Broker(2).Handle(60, func(q *sim.Request) sim.Answer { return sim.Answer{Response: q.Response(), Until: release} })
		old := make(chan error, 1)
		c.Broker(2).Start(t.Context(), kmsg.NewPtrDescribeClusterRequest(), func(_ kmsg.Response, err error) { old <- err })
		time.Sleep(10 * time.Millisecond)
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes[1].Host = "b3" })
		r.sim.Broker(3).Handle(18, checkIdentity(r.sim.Broker(3), "sim", 2))
		mustDo(t, c.refresh(t.Context(), nil, needNow))
		mustDo(t, describe(2, c, r))
		if r.sim.Broker(3).Accepted() != 1 || len(r.sim.Broker(2).Open()) != 1 {
			t.Error("requests do not go to the new address, or the old socket did not wait for its answer")
		}
		close(release)
		if err := <-old; err != nil {
			t.Errorf("the request on the old socket: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
		if n := len(r.sim.Broker(2).Open()); n != 0 {
			t.Errorf("C61: the old address has %d sockets", n)
		}
	})
}

func TestB019SeveralNodesAtOneAddressShareItsSockets(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.Update(func(tp *sim.Topology) {
			tp.Nodes = append(tp.Nodes, sim.Node{ID: 2, Host: "b1", Port: 9092}, sim.Node{ID: 3, Host: "b1", Port: 9092})
		})
		c := r.connect()
		for range 3 {
			for id := range kafka.NodeID(3) {
				mustDo(t, describe(id+1, c, r))
			}
			mustDo(t, c.refresh(t.Context(), nil, needNow))
		}
		if n := r.sim.Broker(1).Accepted(); n != 1 {
			t.Errorf("%d sockets for one address", n)
		}
		for _, f := range r.sim.Broker(1).FramesOf(18) {
			if q := f.Req.(*kmsg.ApiVersionsRequest); q.ClusterID != nil {
				t.Errorf("node %d was expected at a shared address", q.NodeID)
			}
		}
	})
}

func TestC61ARetiredAddressIsDialledNoMore(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"}; cfg.MetadataMaxAge = time.Second })
		mustDo(t, describe(3, c, r))
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes = tp.Nodes[:2] })
		mustDo(t, c.refresh(t.Context(), nil, needNow))
		time.Sleep(time.Second)
		if n := len(r.sim.Broker(3).Open()); n != 0 {
			t.Errorf("%d sockets are open to a retired address", n)
		}
		accepted := r.sim.Broker(3).Accepted()
		if err := describe(3, c, r); !errors.Is(err, ErrUnknownBroker) || kafka.MayHaveHappened(err) {
			t.Errorf("a retired broker: %v", err)
		}
		time.Sleep(10 * time.Second)
		if r.sim.Broker(3).Accepted() != accepted {
			t.Error("a retired address was dialled")
		}
	})
}

// TestC2AnswersOfTheWrongNodeAreProbedOnce is the first half of point 5: 129
// for a wrong node keeps the sockets.
func TestC2AnswersOfTheWrongNodeAreProbedOnce(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		b := r.sim.Broker(2)
		b.Handle(18, checkIdentity(b, "sim", 7)) // it says it is node 7
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		if err := describe(2, c, r); kafka.CodeOf(err) != kerr.RebootstrapRequired.Code || kafka.MayHaveHappened(err) {
			t.Errorf("a request for another node than the one that answers: %v", err)
		}
		time.Sleep(time.Second)
		probes := b.Count(3)
		for range 5 {
			mustDo(t, describe(2, c, r))
		}
		if n := c.Stats().ClusterMismatches; n != 0 {
			t.Errorf("%d mismatches for another node of the same cluster", n)
		}
		if n := b.Count(3); n != probes {
			t.Errorf("%d more probes", n-probes)
		}
		if n := len(b.Open()); n != 1 {
			t.Errorf("%d sockets stayed", n)
		}
	})
}

// checkIdentity answers ApiVersions 5 with 129 unless it asks for this node of
// this cluster, or for none.
func checkIdentity(b *sim.Broker, cluster string, node int32) sim.Handler {
	return func(q *sim.Request) sim.Answer {
		av := *q.Req.(*kmsg.ApiVersionsRequest)
		plain := *q
		plain.Req = &kmsg.ApiVersionsRequest{Version: av.Version}
		resp := b.ApiVersions(&plain)
		if av.ClusterID != nil && (*av.ClusterID != cluster || av.NodeID != node) {
			resp.ErrorCode = kerr.RebootstrapRequired.Code
		}
		return sim.Reply(resp)
	}
}

// TestC2AnotherClusterLosesItsSocketsAndChangesNothing is the second half of
// point 5, and point 6 below version 5.
func TestC2AnotherClusterLosesItsSocketsAndChangesNothing(t *testing.T) {
	for _, version := range []int16{4, 5} {
		t.Run(fmt.Sprint("ApiVersions ", version), func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, r *rig) {
				r.topic("t", 1, 2)
				b := r.sim.Broker(2)
				b.SetVersions(18, 0, version)
				c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
				mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
				mustDo(t, describe(2, c, r))
				w := c.Watch()
				defer w.Close()
				// Another cluster takes over the address of node 2.
				other := "other"
				b.Handle(18, checkIdentity(b, other, 1))
				b.Handle(3, func(q *sim.Request) sim.Answer {
					resp := r.sim.Metadata(q)
					resp.ClusterID = &other
					resp.Brokers = resp.Brokers[1:]
					resp.ControllerID = 2
					return sim.Reply(resp)
				})
				b.EndAll(sim.Close)
				time.Sleep(time.Millisecond)
				_ = describe(2, c, r)
				if version < 5 { // only a Metadata answer shows it
					r.sim.Broker(1).EndAll(sim.Close)
					r.sim.Broker(1).OnAccept(func(int, netConn) sim.End { return sim.Reset })
					ctx := r.within(time.Second)
					for ctx.Err() == nil && c.Stats().ClusterMismatches == 0 {
						_ = c.refresh(ctx, nil, needNow)
					}
					r.sim.Broker(1).OnAccept(nil)
				}
				time.Sleep(time.Second)
				if n := c.Stats().ClusterMismatches; n < 1 {
					t.Fatal("another cluster was not noticed")
				}
				if n := c.Stats().Rebootstraps; version == 5 && n != 1 { // the probe of the address tells
					t.Errorf("%d rebootstraps", n)
				}
				if n := len(b.Open()); n != 0 {
					t.Errorf("%d sockets of the other cluster stayed", n)
				}
				if top, _ := c.CachedTopic("t"); top.Count() != 2 || c.ID() != "sim" {
					t.Errorf("the map was changed: %v %q", top, c.ID())
				}
				i := slices.IndexFunc(w.Take(), func(e Event) bool { return e.Kind == ClusterMismatch && e.Want == "sim" && e.Found == "other" })
				if i < 0 {
					t.Error("no event names both ids")
				}
				var me *MismatchError
				if _, err := c.pool.at("b2:9092"); !errors.As(err, &me) {
					t.Errorf("the address is not barred: %v", err)
				}
				b.Handle(18, nil)
				b.Handle(3, nil) // the address is the cluster's own again
				time.Sleep(barTime)
				mustDo(t, describe(2, c, r))
			})
		})
	}
}

func TestB038AHintTouchesOneEndpointOnly(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.topic("t", 1, 3)
		c := r.connect()
		mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
		mustDo(t, describe(3, c, r))
		accepted := r.sim.Broker(3).Accepted()
		held := make(chan error, 1)
		r.sim.Broker(3).Handle(60, func(q *sim.Request) sim.Answer { return sim.Answer{Response: q.Response(), Delay: time.Second} })
		c.Broker(3).Start(t.Context(), kmsg.NewPtrDescribeClusterRequest(), func(_ kmsg.Response, err error) { held <- err })
		if c.LearnLeader(tp("t", 0), 2, 0, nil) {
			t.Error("B037: a hint without a higher epoch was taken")
		}
		if c.LearnLeader(tp("t", 0), 8, 5, nil) {
			t.Error("B037: a hint without an address was taken")
		}
		if !c.LearnLeader(tp("t", 0), 2, 5, []kafka.Broker{{ID: 2, Host: "b2", Port: 9092}}) {
			t.Error("a good hint was not taken")
		}
		if b, err := c.Leader(r.within(time.Minute), tp("t", 0)); err != nil || b.ID != 2 {
			t.Errorf("leader after the hint: %v, %v", b, err)
		}
		if err := <-held; err != nil || r.sim.Broker(3).Accepted() != accepted {
			t.Errorf("broker 3 felt it: %v", err)
		}
	})
}
