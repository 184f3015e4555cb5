package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/internal/memnet"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// rig is a client's surroundings in virtual time: scripted brokers b1, b2, …
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
			ls = append(ls, r.listen(fmt.Sprintf("b%d:9092", i+1)))
		}
		r.sim = sim.New(t, ls...)
		f(t, r)
	})
}

func (r *rig) listen(addr string) net.Listener {
	r.t.Helper()
	l, err := r.net.Listen(addr)
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

// config is a configuration for the brokers of the rig.
func (r *rig) config() Config {
	return Config{Bootstrap: r.sim.Seeds(), Dial: r.net.Dial, Rand: rand.NewPCG(7, 7)}
}

// connect makes a client that the test closes at its end.
func (r *rig) connect(change ...func(*Config)) *Cluster {
	r.t.Helper()
	cfg := r.config()
	for _, f := range change {
		f(&cfg)
	}
	c, err := Connect(r.t.Context(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// within is a context that ends after d.
func (r *rig) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), d)
	r.t.Cleanup(cancel)
	return ctx
}

// topic has the brokers know a topic.
func (r *rig) topic(name string, leaders ...int32) { r.sim.SetTopic(name, leaders...) }

// must fails the test on an error.
func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func tp(topic string, p int32) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: topic, Partition: p}
}

// allMetadata are the Metadata requests that all brokers saw, in their order.
func (r *rig) allMetadata() []*kmsg.MetadataRequest {
	var out []*kmsg.MetadataRequest
	for _, f := range r.sim.Frames() {
		if m, ok := f.Req.(*kmsg.MetadataRequest); ok && f.Key == 3 {
			out = append(out, m)
		}
	}
	return out
}

// names are the topics of a Metadata request.
func names(m *kmsg.MetadataRequest) []string {
	out := make([]string, 0, len(m.Topics))
	for _, t := range m.Topics {
		out = append(out, *t.Topic)
	}
	return out
}

// listOffsets asks for the end of partitions.
func listOffsets(at ...kafka.TopicPartition) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	for _, tp := range at {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != tp.Topic {
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = tp.Topic
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = tp.Partition, -1
		rt := &req.Topics[len(req.Topics)-1]
		rt.Partitions = append(rt.Partitions, rp)
	}
	return req
}

// answerOffsets has every broker answer ListOffsets with 1000 × its id plus
// the partition.
func (r *rig) answerOffsets() {
	for _, b := range r.sim.Brokers() {
		b.Handle(2, func(q *sim.Request) sim.Answer { return sim.Reply(offsetsOf(q)) })
	}
}

func offsetsOf(q *sim.Request) *kmsg.ListOffsetsResponse {
	resp := q.Response().(*kmsg.ListOffsetsResponse)
	for _, t := range q.Req.(*kmsg.ListOffsetsRequest).Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Offset = p.Partition, int64(1000*q.Broker.ID+p.Partition)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// needNow is a refresh that no answer under way can stand for.
var needNow = meta.Need{Force: true}

type netConn = net.Conn

// mustDo fails the test on an error.
func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
