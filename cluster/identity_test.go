package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// identities are the nodes that a broker was asked to be.
func identities(b *sim.Broker) (ids []int32) {
	for _, f := range b.FramesOf(18) {
		if q := f.Req.(*kmsg.ApiVersionsRequest); q.ClusterID != nil {
			ids = append(ids, q.NodeID)
		}
	}
	return ids
}

// slowMetadata has a broker answer Metadata after a second.
func slowMetadata(r *rig, b *sim.Broker) {
	b.Handle(3, func(q *sim.Request) sim.Answer {
		return sim.Answer{Response: r.sim.Metadata(q), Delay: time.Second}
	})
}

// TestC2NoNodeIsExpectedWhileAProbeRuns: a change of the brokers in the middle
// of a probe does not set the expectation again that the probe is about.
func TestC2NoNodeIsExpectedWhileAProbeRuns(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes = tp.Nodes[:2] })
		b := r.sim.Broker(2)
		b.Handle(18, checkIdentity(b, "sim", 7))
		slowMetadata(r, b)
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
		_ = describe(2, c, r)
		time.Sleep(100 * time.Millisecond) // the probe is out
		if !c.LearnLeader(tp("t", 0), 3, 5, []kafka.Broker{{ID: 3, Host: "b3", Port: 9092}}) {
			t.Fatal("the hint was not taken")
		}
		time.Sleep(5 * time.Second)
		if asked := identities(b); !slices.Equal(asked, []int32{2}) {
			t.Errorf("asked to be %v", asked)
		}
	})
}

// TestC2SeveralMismatchesAtOnceAreOneProbe: every lane that is dialled finds out
// by itself.
func TestC2SeveralMismatchesAtOnceAreOneProbe(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		b := r.sim.Broker(2)
		b.Handle(18, checkIdentity(b, "sim", 7))
		slowMetadata(r, b)
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		time.Sleep(time.Second)
		for _, req := range []kmsg.Request{kmsg.NewPtrDescribeClusterRequest(), fetchOf(0), kmsg.NewPtrHeartbeatRequest()} {
			c.Broker(2).Start(t.Context(), req, func(kmsg.Response, error) {})
		}
		time.Sleep(5 * time.Second)
		if asked := identities(b); !slices.Equal(asked, []int32{2, 2, 2}) || b.Count(3) != 1 {
			t.Errorf("asked to be %v, and %d times for its cluster", asked, b.Count(3))
		}
	})
}

// TestC2AProbeOutlivesADialWithTheExpectation: the probe may find its lane in
// the middle of a dial that still asks for the wrong node.
func TestC2AProbeOutlivesADialWithTheExpectation(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		b := r.sim.Broker(2)
		check := checkIdentity(b, "sim", 7)
		b.Handle(18, func(q *sim.Request) sim.Answer {
			a := check(q)
			if b.Count(18) == 1 {
				a.Delay = 500 * time.Millisecond
			}
			return a
		})
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		c.Broker(2).Start(t.Context(), kmsg.NewPtrDescribeClusterRequest(), func(kmsg.Response, error) {})
		time.Sleep(10 * time.Millisecond)
		c.Broker(2).Start(t.Context(), fetchOf(0), func(kmsg.Response, error) {})
		time.Sleep(10 * time.Second)
		mustDo(t, describe(2, c, r))
		if asked := identities(b); !slices.Equal(asked, []int32{2, 2}) {
			t.Errorf("asked to be %v", asked)
		}
	})
}

// TestC2AProbeEnds also at a broker that refuses whoever asks.
func TestC2AProbeEnds(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		b := r.sim.Broker(2)
		b.Handle(18, func(q *sim.Request) sim.Answer {
			resp := b.ApiVersions(q)
			resp.ErrorCode = kerr.RebootstrapRequired.Code
			return sim.Reply(resp)
		})
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		_ = describe(2, c, r)
		time.Sleep(10 * time.Second)
		dials := b.Accepted()
		time.Sleep(time.Minute)
		if n := b.Accepted(); n != dials || n > 1+probeTries {
			t.Errorf("%d dials, then %d", dials, n)
		}
	})
}

// TestC2AnAddressIsCheckedAgainOnceItIsLearnedAnew: "node not checked" is about
// one node at the address.
func TestC2AnAddressIsCheckedAgainOnceItIsLearnedAnew(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		b := r.sim.Broker(2)
		b.Handle(18, checkIdentity(b, "sim", 7))
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		_ = describe(2, c, r)
		time.Sleep(time.Second)
		for _, id := range []int32{7, 2} {
			b.Handle(18, checkIdentity(b, "sim", id))
			r.sim.Update(func(tp *sim.Topology) { tp.Nodes[1].ID = id })
			mustDo(t, c.refresh(t.Context(), nil, needNow))
			mustDo(t, describe(kafka.NodeID(id), c, r))
			time.Sleep(time.Second)
		}
		if asked := identities(b); !slices.Equal(asked, []int32{2, 7, 2}) {
			t.Errorf("asked to be %v", asked)
		}
	})
}

// TestC69ALateRejectionForgetsOnlyTheLeaderThatRejected: the answer of a former
// leader says nothing about the one that is known by now.
func TestC69ALateRejectionForgetsOnlyTheLeaderThatRejected(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		r.answerOffsets()
		r.sim.Broker(1).Handle(2, func(q *sim.Request) sim.Answer {
			resp := offsetsOf(q)
			resp.Topics[0].Partitions[0].ErrorCode = kerr.NotLeaderForPartition.Code
			return sim.Answer{Response: resp, Delay: 100 * time.Millisecond}
		})
		c := r.connect()
		mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
		done := make(chan error, 1)
		go func() {
			_, err := c.Request(r.within(time.Minute), listOffsets(tp("t", 0)))
			done <- err
		}()
		time.Sleep(50 * time.Millisecond)
		r.sim.SetLeader("t", 0, 2)
		for _, b := range r.sim.Brokers() {
			slowMetadata(r, b)
		}
		if !c.LearnLeader(tp("t", 0), 2, 1, nil) {
			t.Fatal("the hint was not taken")
		}
		time.Sleep(500 * time.Millisecond)
		if top, _ := c.CachedTopic("t"); top.Partitions[0].Leader != 2 {
			t.Errorf("the leader after the answer of the former one: %+v", top.Partitions[0])
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
