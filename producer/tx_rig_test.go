package producer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/memnet"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/internal/model/serve"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// txRig is a client of a modelled cluster in virtual time: three brokers, topic
// "t" with three partitions.
type txRig struct {
	t   *testing.T
	ctx context.Context
	s   *serve.Server
	net *memnet.Network
}

// inTxBubble runs f at a level of transaction.version.
func inTxBubble(t *testing.T, level int16, f func(r *txRig)) {
	t.Helper()
	inTxBubbleOf(t, model.Config{TransactionVersion: level, MarkerDelay: 5 * time.Millisecond, Rand: rand.New(rand.NewPCG(1, 2))}, f)
}

func inTxBubbleOf(t *testing.T, cfg model.Config, f func(r *txRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nw := memnet.New(1)
		nw.SetLatency(100*time.Microsecond, 900*time.Microsecond)
		var ls []net.Listener
		cfg.Brokers = 3
		for i := range cfg.Brokers {
			l, err := nw.Listen(fmt.Sprintf("b%d:9092", i+1))
			if err != nil {
				t.Fatal(err)
			}
			ls = append(ls, l)
		}
		m := model.New(cfg)
		m.CreateTopic("t", 3)
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		f(&txRig{t: t, ctx: ctx, s: serve.Start(t, m, ls...), net: nw})
	})
}

// atBothLevels runs f under both protocols.
func atBothLevels(t *testing.T, f func(r *txRig, level int16)) {
	for _, level := range []int16{1, 2} {
		t.Run(fmt.Sprintf("transaction.version %d", level), func(t *testing.T) {
			inTxBubble(t, level, func(r *txRig) { f(r, level) })
		})
	}
}

func (r *txRig) cluster(change ...func(*cluster.Config)) *cluster.Cluster {
	r.t.Helper()
	cfg := cluster.Config{Bootstrap: r.s.Seeds(), Dial: r.net.Dial, Rand: rand.NewPCG(7, 7)}
	for _, f := range change {
		f(&cfg)
	}
	c, err := cluster.Connect(r.ctx, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// producer is one of the transactional id "id", on a cluster handle of its own.
func (r *txRig) producer(change ...func(*Config)) *Producer {
	r.t.Helper()
	cfg := Config{TransactionalID: "id", Partitioner: Manual}
	for _, f := range change {
		f(&cfg)
	}
	p, err := New(r.cluster(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { p.Close() })
	return p
}

func (r *txRig) begin(p *Producer) *Tx {
	r.t.Helper()
	tx, err := p.Begin(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return tx
}

// send writes one record to a partition and waits for its result.
func (r *txRig) send(tx *Tx, partition int32, value string) error {
	r.t.Helper()
	_, err := tx.Send(r.ctx, kafka.Record{Topic: "t", Partition: partition, Value: []byte(value)})
	return err
}

// add appends one record without waiting for its result.
func (r *txRig) add(tx *Tx, partition int32, value string) Receipt {
	r.t.Helper()
	rc, err := tx.Append(r.ctx, kafka.Record{Topic: "t", Partition: partition, Value: []byte(value)})
	if err != nil {
		r.t.Fatal(err)
	}
	return rc
}

func (r *txRig) must(what string, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// fates is what became of each value that the logs hold, after everything that
// happens by itself within a second. One that is there twice fails the test.
func (r *txRig) fates() map[string]model.Fate {
	r.t.Helper()
	time.Sleep(time.Second)
	out := map[string]model.Fate{}
	r.s.Model(func(m *model.Cluster) {
		for i := range int32(3) {
			for _, rec := range m.Records(kafka.TopicPartition{Topic: "t", Partition: i}) {
				if _, twice := out[string(rec.Value)]; twice {
					r.t.Errorf("%q is in the logs twice", rec.Value)
				}
				out[string(rec.Value)] = rec.Fate
			}
		}
	})
	return out
}

// want compares the fates with what the test says, of all values in the logs.
func (r *txRig) want(want map[string]model.Fate) {
	r.t.Helper()
	got := r.fates()
	for v, fate := range want {
		if g, ok := got[v]; !ok || g != fate {
			r.t.Errorf("%q: %v (in the log: %v), want %v", v, g, ok, fate)
		}
	}
	for v, fate := range got {
		if _, ok := want[v]; !ok {
			r.t.Errorf("%q is in the log, %v", v, fate)
		}
	}
}

// Keys of the requests that tests look at.
const (
	keyProduce    = 0
	keyInit       = 22
	keyEnrol      = 24
	keyAddOffsets = 25
	keyEnd        = 26
	keyOffsets    = 28
)

// intercept has f answer the requests of a key at every broker; what it leaves
// alone the model answers. nth counts from 1, over all brokers.
func (r *txRig) intercept(key int16, f func(q *sim.Request, nth int) (sim.Answer, bool)) {
	var nth atomic.Int32
	for _, b := range r.s.Brokers() {
		b.Handle(key, func(q *sim.Request) sim.Answer {
			if a, ok := f(q, int(nth.Add(1))); ok {
				return a
			}
			return r.s.Answer(q)
		})
	}
}

// refuse has the first n requests of a key answered with a code; the model does
// not see them. A negative n is all of them.
func (r *txRig) refuse(key int16, n int, code int16) {
	r.intercept(key, func(q *sim.Request, nth int) (sim.Answer, bool) {
		return sim.Reply(refusal(q, code)), n < 0 || nth <= n
	})
}

// refusal is an answer to q with a code everywhere.
func refusal(q *sim.Request, code int16) kmsg.Response {
	switch req := q.Req.(type) {
	case *kmsg.InitProducerIDRequest:
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = code, -1, -1
		return resp
	case *kmsg.EndTxnRequest:
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = code, -1, -1
		return resp
	case *kmsg.AddOffsetsToTxnRequest:
		resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
		resp.ErrorCode = code
		return resp
	case *kmsg.AddPartitionsToTxnRequest:
		resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewAddPartitionsToTxnResponseTopic()
			rt.Topic = t.Topic
			for _, i := range t.Partitions {
				rt.Partitions = append(rt.Partitions, kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: i, ErrorCode: code})
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	case *kmsg.TxnOffsetCommitRequest:
		resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewTxnOffsetCommitResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions, kmsg.TxnOffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	case *kmsg.ProduceRequest:
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode, rp.BaseOffset, rp.LogStartOffset = p.Partition, code, -1, 0
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	}
	panic("no refusal of " + kmsg.NameForKey(q.Key))
}

// frames is what the brokers read of a key, in the order of time.
func (r *txRig) frames(key int16) (out []sim.Frame) {
	for _, f := range r.s.Frames() {
		if f.Key == key {
			out = append(out, f)
		}
	}
	return out
}

// versions are those of the requests of a key, without repetitions.
func (r *txRig) versions(key int16) (vs []int16) {
	for _, f := range r.frames(key) {
		if !slices.Contains(vs, f.Version) {
			vs = append(vs, f.Version)
		}
	}
	slices.Sort(vs)
	return vs
}

// within is a context that ends after d.
func (r *txRig) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(r.ctx, d)
	r.t.Cleanup(cancel)
	return ctx
}
