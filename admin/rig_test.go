package admin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/memnet"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// rig is an Admin's surroundings in virtual time: scripted brokers b1, b2, …
// on a network in memory.
type rig struct {
	t   *testing.T
	net *memnet.Network
	sim *sim.Cluster
}

// inBubble runs f with n brokers in a bubble of its own.
func inBubble(t *testing.T, n int, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, net: memnet.New(1)}
		r.net.SetLatency(100*time.Microsecond, 900*time.Microsecond)
		var ls []net.Listener
		for i := range n {
			l, err := r.net.Listen(fmt.Sprintf("b%d:9092", i+1))
			if err != nil {
				t.Fatal(err)
			}
			ls = append(ls, l)
		}
		r.sim = sim.New(t, ls...)
		f(t, r)
	})
}

// admin makes an Admin whose client the test closes at its end.
func (r *rig) admin(change ...func(*cluster.Config)) *Admin {
	r.t.Helper()
	cfg := cluster.Config{Bootstrap: r.sim.Seeds(), Dial: r.net.Dial, Rand: rand.NewPCG(7, 7)}
	for _, f := range change {
		f(&cfg)
	}
	c, err := cluster.Connect(r.t.Context(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return New(c)
}

// within is a context that ends after d.
func (r *rig) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), d)
	r.t.Cleanup(cancel)
	return ctx
}

// everywhere sets the handler of an API on all brokers.
func (r *rig) everywhere(key int16, h sim.Handler) {
	for _, b := range r.sim.Brokers() {
		b.Handle(key, h)
	}
}

// old caps the versions of an API on all brokers.
func (r *rig) old(key, high int16) {
	for _, b := range r.sim.Brokers() {
		b.SetVersions(key, 0, high)
	}
}

// without takes APIs out of the tables of all brokers.
func (r *rig) without(keys ...int16) {
	for _, b := range r.sim.Brokers() {
		b.RemoveVersions(keys...)
	}
}

// sent are the requests of one API that a broker saw.
func sent[R kmsg.Request](b *sim.Broker) []R {
	var out []R
	for _, f := range b.Frames() {
		if r, ok := f.Req.(R); ok {
			out = append(out, r)
		}
	}
	return out
}

// makesTopics has every broker act as a controller that makes topics: those
// named in codes are answered with that code instead. Broker 1 leads all.
func (r *rig) makesTopics(codes map[string]int16) {
	r.everywhere(19, func(q *sim.Request) sim.Answer {
		req, resp := q.Req.(*kmsg.CreateTopicsRequest), q.Response().(*kmsg.CreateTopicsResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewCreateTopicsResponseTopic()
			rt.Topic, rt.ErrorCode, rt.NumPartitions, rt.ReplicationFactor = t.Topic, codes[t.Topic], max(t.NumPartitions, 1), 1
			if rt.ErrorCode == 0 && !req.ValidateOnly {
				r.sim.SetTopic(t.Topic, slices.Repeat([]int32{1}, int(rt.NumPartitions))...)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return sim.Reply(resp)
	})
}

func tp(topic string, p int32) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: topic, Partition: p}
}

// mustDo fails the test on an error.
func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
