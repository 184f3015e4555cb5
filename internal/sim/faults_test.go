package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
	"github.com/ottla/ottla/producer"
)

const (
	partitions = 4
	keys       = 13
)

// world is a whole client, producer and consumer, on an in-memory cluster in
// virtual time, with something that goes wrong.
type world struct {
	t      *testing.T
	k      *ottlatest.Cluster
	cl     *cluster.Cluster
	rng    *rand.Rand // of the strikes
	pace   *rand.Rand // of the producer
	p      *producer.Producer
	c      *consumer.Consumer
	stop   chan struct{}
	struck int // strikes so far; owned by haunt
}

// strike is something that goes wrong, and mend undoes it; nil where nothing
// is to be undone.
type strike struct {
	name string
	do   func(w *world, id kafka.NodeID)
	mend func(w *world, id kafka.NodeID)
}

var strikes = []strike{
	{"a leader moves", func(w *world, id kafka.NodeID) {
		w.must(w.k.MoveLeader("t", w.rng.Int32N(partitions), id))
	}, nil},
	{"a broker stops", func(w *world, id kafka.NodeID) { w.must(w.k.StopBroker(id)) },
		func(w *world, id kafka.NodeID) { w.must(w.k.StartBroker(id)) }},
	{"a broker hangs", func(w *world, id kafka.NodeID) { w.k.Hang(id) }, func(w *world, id kafka.NodeID) { w.k.Resume(id) }},
	{"a broker is cut off", func(w *world, id kafka.NodeID) { w.k.Partition(id) }, func(w *world, id kafka.NodeID) { w.k.Heal(id) }},
	{"connections close", func(w *world, id kafka.NodeID) { w.k.CloseConnections(id) }, nil},
	{"a request is cut", func(w *world, id kafka.NodeID) { w.k.CloseAfter(id, ottlatest.Requests, w.rng.Int64N(2000)) }, nil},
	{"an answer is cut", func(w *world, id kafka.NodeID) { w.k.CloseAfter(id, ottlatest.Answers, w.rng.Int64N(2000)) }, nil},
	{"produce is refused", func(w *world, _ kafka.NodeID) { w.k.Fail(0, 6, 1+w.rng.IntN(4), w.rng.IntN(3)) }, nil},
	{"the answer says it timed out", func(w *world, _ kafka.NodeID) { w.k.Fail(0, 7, 1+w.rng.IntN(2), 0) }, nil},
	{"replicas are missing after the append", func(w *world, _ kafka.NodeID) { w.k.Fail(0, 20, 1+w.rng.IntN(2), 0) }, nil},
	{"a fetch session is lost", func(w *world, _ kafka.NodeID) { w.k.Fail(1, 70, 1, w.rng.IntN(3)) }, nil},
	{"a leader epoch is fenced", func(w *world, _ kafka.NodeID) { w.k.Fail(1, 74, 1+w.rng.IntN(2), 0) }, nil},
	{"a link is slow", func(w *world, id kafka.NodeID) { w.k.SlowLink(id, 20_000) }, func(w *world, id kafka.NodeID) { w.k.SlowLink(id, 0) }},
	{"brokers throttle", func(w *world, _ kafka.NodeID) { w.k.Throttle(300 * time.Millisecond) },
		func(w *world, _ kafka.NodeID) { w.k.Throttle(0) }},
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Error(err)
	}
}

// inWorld runs f in a bubble with everything seeded.
func inWorld(t *testing.T, seed uint64, f func(ctx context.Context, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, rng: rand.New(rand.NewPCG(seed, 7)), pace: rand.New(rand.NewPCG(seed, 8)), stop: make(chan struct{}),
			k: ottlatest.New(t, ottlatest.Config{InMemory: true, Seed: seed, Topics: map[string]int{"t": partitions}}),
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var err error
		if w.cl, err = cluster.Connect(ctx, w.k.ClientConfig()); err != nil {
			t.Fatal(err)
		}
		defer w.cl.Close()
		if w.p, err = producer.New(w.cl, producer.Config{}); err != nil {
			t.Fatal(err)
		}
		defer w.p.Close()
		if w.c, err = consumer.New(w.cl, consumer.Config{}); err != nil {
			t.Fatal(err)
		}
		defer w.c.Close()
		f(ctx, w)
	})
}

// keyed is the nth record of a key.
func keyed(key, n int) kafka.Record {
	k := fmt.Sprintf("key-%d", key)
	return kafka.Record{Topic: "t", Key: []byte(k), Value: fmt.Appendf(nil, "%s:%d:%s", k, n, strings.Repeat("x", 50))}
}

// haunt lets a strike happen from time to time, until stop is closed; at most
// one broker is out of order at a time.
func (w *world) haunt(ctx context.Context, among []strike) {
	for {
		select {
		case <-w.stop:
			return
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(w.rng.Int64N(int64(700 * time.Millisecond)))):
		}
		s, id := among[w.rng.IntN(len(among))], kafka.NodeID(w.rng.IntN(3))
		s.do(w, id)
		w.struck++
		if s.mend != nil {
			time.Sleep(time.Duration(w.rng.Int64N(int64(4 * time.Second))))
			s.mend(w, id)
		}
	}
}

// produce appends n records of every key at a seeded pace, ends the haunting
// and waits for all receipts.
func (w *world) produce(ctx context.Context, n int) (acknowledged map[string]kafka.Offset) {
	receipts := map[string]producer.Receipt{}
	for i := range n {
		for key := range keys {
			r := keyed(key, i)
			got, err := w.p.Append(ctx, r)
			if err != nil {
				w.t.Fatal(err)
			}
			receipts[string(r.Value)] = got
		}
		time.Sleep(time.Duration(w.pace.Int64N(int64(300 * time.Millisecond))))
	}
	close(w.stop)
	if err := w.p.Flush(ctx); err != nil {
		w.t.Fatal(err)
	}
	failed := 0
	acknowledged = map[string]kafka.Offset{}
	for v, r := range receipts {
		res := r.Result(ctx)
		if res.Err != nil {
			failed++
			if failed == 1 {
				w.t.Errorf("%.12s…: %v", v, res.Err)
			}
			continue
		}
		acknowledged[v] = res.Offset
	}
	return acknowledged
}

// consume reads from the start until it has seen total records, and returns
// what it saw by partition.
func (w *world) consume(ctx context.Context, total int) map[int32][]kafka.Record {
	at := map[kafka.TopicPartition]consumer.Start{}
	for p := range int32(partitions) {
		at[kafka.TopicPartition{Topic: "t", Partition: p}] = consumer.Earliest()
	}
	if err := w.c.Assign(ctx, at); err != nil {
		w.t.Error(err)
		return nil
	}
	seen := map[int32][]kafka.Record{}
	for r, err := range w.c.Records(ctx) {
		if err != nil {
			w.t.Errorf("after %d of %d records: %v", count(seen), total, err)
			return seen
		}
		seen[r.Partition] = append(seen[r.Partition], r.Clone())
		if count(seen) >= total {
			break
		}
	}
	return seen
}

func count(m map[int32][]kafka.Record) (n int) {
	for _, rs := range m {
		n += len(rs)
	}
	return n
}

// judge compares the brokers' logs with what was sent, acknowledged and read.
func (w *world) judge(n int, acknowledged map[string]kafka.Offset, seen map[int32][]kafka.Record) {
	t := w.t
	next := map[string]int{}
	stored := 0
	for p := range int32(partitions) {
		log, err := w.k.Records("t", p)
		if err != nil {
			t.Fatal(err)
		}
		stored += len(log)
		for _, r := range log {
			want := fmt.Sprintf("%s:%d:", r.Key, next[string(r.Key)])
			if !strings.HasPrefix(string(r.Value), want) {
				t.Fatalf("partition %d, offset %d holds %.20s, want %s…: lost, doubled or out of order", p, r.Offset, r.Value, want)
			}
			next[string(r.Key)]++
			if o, ok := acknowledged[string(r.Value)]; ok && o >= 0 && o != r.Offset {
				t.Errorf("%.20s was acknowledged at offset %d and is at %d", r.Value, o, r.Offset)
			}
		}
		if !slices.EqualFunc(log, seen[p], func(a, b kafka.Record) bool { return a.Offset == b.Offset && string(a.Value) == string(b.Value) }) {
			t.Errorf("partition %d: the log has %d records, the consumer read %d, or others", p, len(log), len(seen[p]))
		}
	}
	if stored != n*keys || len(acknowledged) != n*keys {
		t.Errorf("%d records stored, %d acknowledged, %d sent", stored, len(acknowledged), n*keys)
	}
}

// scenario is producing and consuming at once while among strikes.
func scenario(t *testing.T, seed uint64, among []strike) {
	t.Helper()
	inWorld(t, seed, func(ctx context.Context, w *world) {
		const n = 60
		haunted, read := make(chan struct{}), make(chan map[int32][]kafka.Record, 1)
		go func() { defer close(haunted); w.haunt(ctx, among) }()
		go func() { read <- w.consume(ctx, n*keys) }()
		acknowledged := w.produce(ctx, n)
		<-haunted
		if w.struck < 2 {
			t.Errorf("only %d strikes", w.struck)
		}
		w.judge(n, acknowledged, <-read)
	})
}

func TestNothingIsLostDoubledOrReorderedThroughEachFault(t *testing.T) {
	for i, s := range strikes {
		t.Run(s.name, func(t *testing.T) { scenario(t, uint64(i), []strike{s}) })
	}
}

func TestNothingIsLostDoubledOrReorderedThroughAllFaults(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { scenario(t, 100+seed, strikes) })
	}
}
