//go:build kafka

package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

// F2: real brokers keep sessions, so that what is idle is not named again: a
// fetch of 90 partitions costs less than naming ten. Pausing, seeking and removing
// work within them, and no data is lost by it. Mutation: a session that is never
// granted, begin with epoch -1.
func TestF2OnKafkaIdlePartitionsAreNotNamedAgain(t *testing.T) {
	const partitions = 90
	ctx, c := onKafka(t, "sessions", partitions)
	at := map[kafka.TopicPartition]Start{}
	for p := range int32(partitions) {
		at[tp("sessions", p)] = Earliest()
	}
	n := realConsumer(t, c, Config{MaxWait: 50 * time.Millisecond}, at)
	for id := range at {
		if _, err := n.Position(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	idle(ctx, t, c, n, 10) // the full ones
	before := fetched(c)
	idle(ctx, t, c, n, 100)
	after := fetched(c)
	requests, bytes := after.Requests-before.Requests, after.BytesOut-before.BytesOut
	if each := bytes / requests; each > 150 {
		t.Errorf("%d requests of %d bytes on average", requests, each)
	}

	n.Pause(tp("sessions", 1))
	n.Remove(tp("sessions", 2))
	cl := realPeer(t)
	w := &world{t: t, prod: cl}
	for p := range int32(4) {
		w.produce("sessions", p, numbers(0, 10)...)
	}
	r := newReader(t, n)
	r.until(ctx, 20)
	if len(r.values[tp("sessions", 1)])+len(r.values[tp("sessions", 2)]) > 0 {
		t.Error("records of a partition that is paused or removed")
	}
	n.Resume(tp("sessions", 1))
	if err := n.Seek(tp("sessions", 0), AtOffset(5)); err != nil {
		t.Fatal(err)
	}
	delete(r.last, tp("sessions", 0))
	if err := n.Add(ctx, map[kafka.TopicPartition]Start{tp("sessions", 2): Earliest()}); err != nil {
		t.Fatal(err)
	}
	r.until(ctx, 45)
	r.want(tp("sessions", 0), append(numbers(0, 10), numbers(5, 10)...)...)
	for p := int32(1); p < 4; p++ {
		r.want(tp("sessions", p), numbers(0, 10)...)
	}
}

// idle waits for n more Fetch requests.
func idle(ctx context.Context, t *testing.T, c *cluster.Cluster, cons *Consumer, n int64) {
	t.Helper()
	for until := fetched(c).Requests + n; fetched(c).Requests < until; {
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		if b, _ := cons.Poll(short); len(b) > 0 || ctx.Err() != nil {
			t.Fatalf("%d batches, %v", len(b), ctx.Err())
		}
		cancel()
	}
}

// fetched sums up the connections that fetch.
func fetched(c *cluster.Cluster) (sum cluster.Connection) {
	for _, k := range c.Stats().Connections {
		if k.Purpose == "fetch" {
			sum.Requests += k.Requests
			sum.BytesOut += k.BytesOut
		}
	}
	return sum
}
