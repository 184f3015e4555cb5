//go:build kafka

package consumer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

var broker *realkafka.Cluster

func TestMain(m *testing.M) {
	os.Exit(sim.NoLeaks(func() int {
		return realkafka.Run(m, realkafka.Options{Brokers: 3}, func(c *realkafka.Cluster) { broker = c })
	}))
}

// onKafka connects to the real cluster and makes a topic.
func onKafka(t *testing.T, topic string, partitions int32) (context.Context, *cluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	c, err := cluster.Connect(ctx, cluster.Config{Bootstrap: strings.Split(broker.Bootstrap(), ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, partitions, 3
	req.Topics = append(req.Topics, rt)
	resp, err := c.Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if code := resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 {
		t.Fatal(kerr.ErrorForCode(code))
	}
	return ctx, c
}

func realPeer(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(broker.Bootstrap(), ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1)}, opts...)...) // brokers may hear of a topic late
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func realConsumer(t *testing.T, c *cluster.Cluster, cfg Config, at map[kafka.TopicPartition]Start) *Consumer {
	t.Helper()
	n, err := New(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if err := n.Assign(context.Background(), at); err != nil {
		t.Fatal(err)
	}
	return n
}

func values(n int, size int) (vs []string) {
	for i := range n {
		vs = append(vs, fmt.Sprintf("%d:%s", i, strings.Repeat("v", size)))
	}
	return vs
}

var codecs = map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}

func TestF20OnKafkaEveryCodecOfJavaAndKgoIsRead(t *testing.T) {
	ctx, c := onKafka(t, "codecs", 5)
	p := int32(0)
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			kgoP := p
			p++
			vs := values(300, 100)
			cl := realPeer(t, kgo.ProducerBatchCompression(codec))
			for _, v := range vs {
				cl.Produce(ctx, &kgo.Record{Topic: "codecs", Partition: kgoP, Key: []byte("k"), Value: []byte(v),
					Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}}}, nil)
			}
			if err := cl.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			topic := "java-" + name
			onKafka(t, topic, 1)
			if out, err := broker.ToolInput(strings.Join(vs, "\n")+"\n", "ConsoleProducer", "--topic", topic, "--compression-codec", name); err != nil {
				t.Fatal(out, err)
			}
			n := realConsumer(t, c, Config{}, map[kafka.TopicPartition]Start{tp(topic, 0): Earliest(), tp("codecs", kgoP): Earliest()})
			r := newReader(t, n)
			r.until(ctx, 600)
			r.want(tp(topic, 0), vs...)
			r.want(tp("codecs", kgoP), vs...)
		})
	}
}

// B145, B146, F10-F13, R28: what a consumer is given of transactions, by level
// and codec.
func TestF10OnKafkaTransactionsByIsolationLevel(t *testing.T) {
	ctx, c := onKafka(t, "tx", 5)
	p := int32(-1)
	for name, codec := range codecs {
		t.Run("B145 B146 "+name, func(t *testing.T) {
			p++
			cl := realPeer(t, kgo.TransactionalID("tx-"+name), kgo.ProducerBatchCompression(codec))
			var committed, all []string
			for i := range 6 {
				if err := cl.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				commit := i%2 == 1
				for j := range 50 {
					v := fmt.Sprintf("%d-%d-%s", i, j, strings.Repeat("v", 50))
					all = append(all, v)
					if commit {
						committed = append(committed, v)
					}
					cl.Produce(ctx, &kgo.Record{Topic: "tx", Partition: p, Value: []byte(v)}, nil)
				}
				if err := cl.Flush(ctx); err != nil {
					t.Fatal(err)
				}
				if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
					t.Fatal(err)
				}
			}
			at := map[kafka.TopicPartition]Start{tp("tx", p): Earliest()}
			rc := newReader(t, realConsumer(t, c, Config{}, at))
			rc.until(ctx, len(committed))
			ru := newReader(t, realConsumer(t, c, Config{Isolation: ReadUncommitted}, at))
			ru.until(ctx, len(all))
			for _, r := range []*reader{rc, ru} {
				end, err := r.c.End(ctx, tp("tx", p))
				if err != nil || end[tp("tx", p)] != kafka.Offset(len(all)+6) {
					t.Fatalf("end %d %v, want %d with six markers", end[tp("tx", p)], err, len(all)+6)
				}
				wait(ctx, t, "a position at the end", func() bool {
					short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
					defer cancel()
					r.poll(short) // nothing more comes
					pos, err := r.c.Position(ctx, tp("tx", p))
					return err == nil && pos == end[tp("tx", p)]
				})
			}
			rc.want(tp("tx", p), committed...)
			ru.want(tp("tx", p), all...)
		})
	}
}

func TestF12OnKafkaAnOpenTransactionHoldsReadCommittedBack(t *testing.T) {
	ctx, c := onKafka(t, "open", 1)
	plain := realPeer(t)
	cl := realPeer(t, kgo.TransactionalID("open"))
	produce := func(cl *kgo.Client, v string) {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "open", Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce(plain, "a")
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(cl, "b")
	produce(plain, "c")
	at := map[kafka.TopicPartition]Start{tp("open", 0): Earliest()}
	rc := newReader(t, realConsumer(t, c, Config{}, at))
	rc.until(ctx, 1)
	short, cancel := context.WithTimeout(ctx, time.Second)
	rc.poll(short)
	cancel()
	rc.want(tp("open", 0), "a")
	rc.errs = nil
	end, err := rc.c.End(ctx, tp("open", 0))
	if err != nil || end[tp("open", 0)] != 1 {
		t.Errorf("F39: the end under read committed is %v %v, want the last stable offset 1", end, err)
	}
	ru := newReader(t, realConsumer(t, c, Config{Isolation: ReadUncommitted}, at))
	ru.until(ctx, 3)
	ru.want(tp("open", 0), "a", "b", "c")
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	rc.until(ctx, 3)
	rc.want(tp("open", 0), "a", "b", "c")
}

func TestF30OnKafkaOffsetsByTime(t *testing.T) {
	ctx, c := onKafka(t, "times", 1)
	cl := realPeer(t)
	base := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	for i := range 10 {
		r := &kgo.Record{Topic: "times", Value: []byte("v"), Timestamp: base.Add(time.Duration(i) * time.Minute)}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	n := realConsumer(t, c, Config{}, map[kafka.TopicPartition]Start{tp("times", 0): AtTime(base.Add(150 * time.Second))})
	if at, err := n.Position(ctx, tp("times", 0)); at != 3 || err != nil {
		t.Errorf("position %d %v", at, err)
	}
	got, err := n.OffsetsForTimes(ctx, map[kafka.TopicPartition]time.Time{tp("times", 0): base.Add(4 * time.Minute)})
	if o := got[tp("times", 0)]; err != nil || o.Offset != 4 || o.Timestamp.Time() != base.Add(4*time.Minute).UTC() {
		t.Errorf("%+v %v", o, err)
	}
	got, err = n.OffsetsForTimes(ctx, map[kafka.TopicPartition]time.Time{tp("times", 0): time.Now().Add(time.Hour)})
	if err != nil || len(got) != 0 {
		t.Errorf("B154: %v %v", got, err)
	}
	begin, err := n.Beginning(ctx, tp("times", 0))
	if err != nil || begin[tp("times", 0)] != 0 {
		t.Errorf("%v %v", begin, err)
	}
}

func TestF32OnKafkaAPositionBelowTheLogStart(t *testing.T) {
	ctx, c := onKafka(t, "cut", 1)
	cl := realPeer(t)
	for _, v := range numbers(0, 10) {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "cut", Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	del := kmsg.NewPtrDeleteRecordsRequest()
	dt := kmsg.NewDeleteRecordsRequestTopic()
	dp := kmsg.NewDeleteRecordsRequestTopicPartition()
	dt.Topic, dp.Offset = "cut", 6
	dt.Partitions = append(dt.Partitions, dp)
	del.Topics = append(del.Topics, dt)
	if _, err := c.Request(ctx, del); err != nil {
		t.Fatal(err)
	}
	var resets []PositionReset
	n := realConsumer(t, c, Config{OnReset: func(r PositionReset) { resets = append(resets, r) }},
		map[kafka.TopicPartition]Start{tp("cut", 0): AtOffset(2)})
	r := newReader(t, n)
	r.until(ctx, 4)
	r.want(tp("cut", 0), numbers(6, 10)...)
	if len(resets) != 1 || resets[0].Old != 2 || resets[0].New != 6 {
		t.Errorf("%+v", resets)
	}
	if err := n.Seek(tp("cut", 0), AtOffset(1000)); err != nil {
		t.Fatal(err)
	}
	_, err := n.Poll(ctx)
	var lost *kafka.DataLossError
	if !errors.As(err, &lost) || lost.Position != 1000 || lost.Remaining != 10 {
		t.Errorf("above the end: %v", err)
	}
	n2 := realConsumer(t, c, Config{Reset: ResetFail}, map[kafka.TopicPartition]Start{tp("cut", 0): AtOffset(2)})
	_, err = n2.Poll(ctx)
	var oor *kafka.OutOfRangeError
	if !errors.As(err, &oor) || oor.Start != 6 || oor.End != 10 || oor.Position != 2 {
		t.Errorf("under fail: %v", err)
	}
}

func TestF8OnKafkaALeaderIsKilled(t *testing.T) {
	ctx, c := onKafka(t, "killed", 3)
	cl := realPeer(t)
	produce := func(lo, hi int) {
		for ; lo < hi; lo += 5 { // in batches of five
			var rs []*kgo.Record
			for p := range int32(3) {
				for _, v := range numbers(lo, lo+5) {
					rs = append(rs, &kgo.Record{Topic: "killed", Partition: p, Value: []byte(v)})
				}
			}
			if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	produce(0, 50)
	at := map[kafka.TopicPartition]Start{}
	for p := range int32(3) {
		at[tp("killed", p)] = Earliest()
	}
	r := newReader(t, realConsumer(t, c, Config{MaxPollRecords: 20}, at))
	r.until(ctx, 60)
	b, err := c.Leader(ctx, tp("killed", 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Kill(int(b.ID)); err != nil {
		t.Fatal(err)
	}
	produce(50, 100)
	r.until(ctx, 300)
	if err := broker.Restart(int(b.ID)); err != nil {
		t.Fatal(err)
	}
	produce(100, 120)
	r.until(ctx, 360)
	for p := range int32(3) {
		r.want(tp("killed", p), numbers(0, 120)...)
	}
}

func TestF9OnKafkaARecreatedTopic(t *testing.T) {
	ctx, c := onKafka(t, "again", 1)
	cl := realPeer(t)
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "again", Value: []byte("old")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	n := realConsumer(t, c, Config{}, map[kafka.TopicPartition]Start{tp("again", 0): Earliest()})
	r := newReader(t, n)
	r.until(ctx, 1)
	del := kmsg.NewPtrDeleteTopicsRequest()
	dt := kmsg.NewDeleteTopicsRequestTopic()
	dt.Topic = kmsg.StringPtr("again")
	del.Topics, del.TopicNames = append(del.Topics, dt), []string{"again"}
	if _, err := c.Request(ctx, del); err != nil {
		t.Fatal(err)
	}
	onKafka(t, "again", 1)
	_, err := n.Poll(ctx)
	var re *kafka.RecreatedError
	if !errors.As(err, &re) || re.Topic != "again" {
		t.Fatalf("error %v", err)
	}
}

// With a rack the replica there serves everything but the first answer. Mutation:
// a preferred replica that is not taken.
func TestF41OnKafkaTheReplicaInTheConsumersRackServes(t *testing.T) {
	const topic, n = "racks", 2000
	ctx, c := onKafka(t, topic, 1)
	tp := kafka.TopicPartition{Topic: topic}
	cl := realPeer(t, kgo.ProducerBatchMaxBytes(20_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	for _, v := range values(n, 500) {
		cl.Produce(ctx, &kgo.Record{Topic: topic, Value: []byte(v)}, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	leader, err := c.Leader(ctx, tp)
	for err != nil && ctx.Err() == nil { // a broker that has not heard of the new topic yet
		time.Sleep(50 * time.Millisecond)
		leader, err = c.Leader(ctx, tp)
	}
	if err != nil {
		t.Fatal(err)
	}
	near := kafka.NodeID(int(leader.ID)%3 + 1)
	_, own := onKafka(t, topic+"-2", 1) // a client whose traffic is this consumer's alone
	in := realConsumer(t, own, Config{Rack: fmt.Sprint("r", near), PartitionMaxBytes: 100_000}, map[kafka.TopicPartition]Start{tp: Earliest()})
	got := 0
	for r, err := range in.Records(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%d:", got); r.Offset != kafka.Offset(got) || !strings.HasPrefix(string(r.Value), want) {
			t.Fatalf("record %d is %d, %.10s", got, r.Offset, r.Value)
		}
		if got++; got == n {
			break
		}
	}
	var fromLeader, fromNear int64
	for _, conn := range own.Stats().Connections {
		switch {
		case conn.Purpose != "fetch":
		case conn.Addr == broker.Addr(int(near)):
			fromNear = conn.BytesIn
		default:
			fromLeader += conn.BytesIn
		}
	}
	if fromNear < n*500*3/4 || fromLeader > n*500/4 {
		t.Errorf("%d bytes came from the near replica and %d from others", fromNear, fromLeader)
	}
}
