//go:build kafka

package consumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

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

// A replica that lacks what was acknowledged and read is made leader (an unclean
// election): what is lost is told before anything behind it is read. Mutation: a
// position that is not validated at a new epoch; it is then inside the new log,
// and the records between are left out in silence.
func TestF36OnKafkaAnUncleanElectionIsDataLossAndNoGap(t *testing.T) {
	const topic = "unclean"
	ctx, c := onKafka(t, topic+"-ready", 1)
	cl := realPeer(t)
	produce := func(lo, hi int) {
		t.Helper()
		for _, v := range numbers(lo, hi) {
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	leads, lacks := 1, 2
	create := kmsg.NewPtrCreateTopicsRequest()
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = topic, -1, -1
	ct.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: []int32{int32(leads), int32(lacks)}}}
	for name, value := range map[string]string{"min.insync.replicas": "1", "unclean.leader.election.enable": "false"} {
		ct.Configs = append(ct.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: name, Value: &value})
	}
	create.Topics = append(create.Topics, ct)
	resp, err := c.Request(ctx, create)
	do(err)
	do(kafka.CodeError(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode, nil))

	produce(0, 10)
	r := newReader(t, realConsumer(t, c, Config{}, map[kafka.TopicPartition]Start{tp(topic, 0): Earliest()}))
	r.until(ctx, 10)
	do(broker.Kill(lacks))
	produce(10, 20)
	r.until(ctx, 20)
	do(broker.Kill(leads))
	do(broker.Restart(lacks))
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.ElectionType, elect.TimeoutMillis = 1, 30_000 // unclean
	elect.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: topic, Partitions: []int32{0}}}
	wait(ctx, t, "unclean election", func() bool {
		resp, err := c.Request(ctx, elect)
		return err == nil && len(resp.(*kmsg.ElectLeadersResponse).Topics) == 1 &&
			resp.(*kmsg.ElectLeadersResponse).Topics[0].Partitions[0].ErrorCode == 0
	})
	produce(100, 115) // the log is longer than what was read
	r.want(tp(topic, 0), numbers(0, 20)...)
	again := newReader(t, r.c)
	again.poll(ctx)
	var lost *kafka.DataLossError
	if !errors.As(errors.Join(again.errs...), &lost) || lost.Position != 20 || lost.Remaining != 10 {
		t.Fatalf("%v, want a loss of what was read from 10 to 20", again.errs)
	}
	again.errs = nil
	again.until(ctx, 15)
	again.want(tp(topic, 0), numbers(100, 115)...)
	do(broker.Restart(leads))
}
