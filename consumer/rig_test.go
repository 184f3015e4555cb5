package consumer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// world is a cluster in memory with a peer that produces, in virtual time.
type world struct {
	t    *testing.T
	k    *ottlatest.Cluster
	c    *cluster.Cluster
	prod *kgo.Client
}

// inWorld runs f in a bubble. Its context ends after five minutes.
func inWorld(t *testing.T, cfg ottlatest.Config, f func(ctx context.Context, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.InMemory = true
		cfg.Seed = 7
		k, err := ottlatest.Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, k: k}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		w.c, err = cluster.Connect(ctx, w.client())
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			cancel()
			if w.prod != nil {
				w.prod.Close()
			}
			w.c.Close()
			k.Close()
		}()
		f(ctx, w)
	})
}

func (w *world) client() cluster.Config {
	return cluster.Config{Bootstrap: w.k.Bootstrap(), Dial: w.k.Dial, Rand: rand.NewPCG(1, 2)}
}

// consumer makes a consumer that the test closes.
func (w *world) consumer(cfg Config) *Consumer {
	w.t.Helper()
	c, err := New(w.c, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

// peer is a kgo client of the cluster.
func (w *world) peer(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(w.k.Bootstrap()...), kgo.Dialer(w.k.Dial), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(time.Millisecond), kgo.ProducerBatchCompression(kgo.SnappyCompression()),
	}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	return cl
}

// produce appends values to a partition, each in a batch of its own.
func (w *world) produce(topic string, p int32, values ...string) {
	w.t.Helper()
	if w.prod == nil {
		w.prod = w.peer()
	}
	for _, v := range values {
		r := &kgo.Record{Topic: topic, Partition: p, Value: []byte(v)}
		if err := w.prod.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// produceBatches appends batches of n records each, whose values count from 0.
func (w *world) produceBatches(topic string, p int32, batches, n int) {
	w.t.Helper()
	if w.prod == nil {
		w.prod = w.peer()
	}
	for i := range batches {
		rs := make([]*kgo.Record, n)
		for k := range rs {
			rs[k] = &kgo.Record{Topic: topic, Partition: p, Key: []byte("a key, so that it compresses"), Value: []byte(fmt.Sprint(i*n + k))}
		}
		if err := w.prod.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// numbers are the numbers from lo to hi-1 as values.
func numbers(lo, hi int) (vs []string) {
	for i := lo; i < hi; i++ {
		vs = append(vs, fmt.Sprint(i))
	}
	return vs
}

func tp(topic string, p int32) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: topic, Partition: p}
}

// assign assigns partitions of t from the beginning.
func assign(t testing.TB, c *Consumer, tps ...kafka.TopicPartition) {
	t.Helper()
	at := map[kafka.TopicPartition]Start{}
	for _, tp := range tps {
		at[tp] = Earliest()
	}
	if err := c.Assign(context.Background(), at); err != nil {
		t.Fatal(err)
	}
}

// reader polls and keeps what came, by partition. It fails the test when an
// offset does not rise.
type reader struct {
	t      testing.TB
	c      *Consumer
	values map[kafka.TopicPartition][]string
	last   map[kafka.TopicPartition]kafka.Offset
	n      int
	errs   []error
}

func newReader(t testing.TB, c *Consumer) *reader {
	return &reader{t: t, c: c, values: map[kafka.TopicPartition][]string{}, last: map[kafka.TopicPartition]kafka.Offset{}}
}

func (r *reader) poll(ctx context.Context) {
	r.t.Helper()
	bs, err := r.c.Poll(ctx)
	if err != nil {
		r.errs = append(r.errs, err)
	}
	for _, b := range bs {
		for o, rec := range b.Records() {
			id := rec.TopicPartition()
			if last, ok := r.last[id]; ok && kafka.Offset(o) <= last {
				r.t.Fatalf("%s: offset %d behind %d", id, o, last)
			}
			if rec.Offset != kafka.Offset(o) || id != b.TopicPartition() {
				r.t.Fatalf("record %+v of batch %s at %d", rec, b.TopicPartition(), o)
			}
			r.last[id] = rec.Offset
			r.values[id] = append(r.values[id], string(rec.Value))
			r.n++
		}
	}
}

// until polls until n records came in all.
func (r *reader) until(ctx context.Context, n int) {
	r.t.Helper()
	for r.n < n {
		r.poll(ctx)
		if len(r.errs) > 0 {
			r.t.Fatalf("after %d of %d records: %v", r.n, n, r.errs)
		}
	}
}

func (r *reader) want(tp kafka.TopicPartition, values ...string) {
	r.t.Helper()
	if !slices.Equal(r.values[tp], values) {
		r.t.Errorf("%s: %d records %.200q, want %d", tp, len(r.values[tp]), r.values[tp], len(values))
	}
}
