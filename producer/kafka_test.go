//go:build kafka

package producer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
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

var real *realkafka.Cluster

func TestMain(m *testing.M) {
	os.Exit(sim.NoLeaks(func() int {
		return realkafka.Run(m, realkafka.Options{Brokers: brokers()}, func(c *realkafka.Cluster) { real = c })
	}))
}

// brokers is how many the version under test is started with: older lines have
// one only.
func brokers() int {
	switch v := os.Getenv("OTTLA_KAFKA_VERSION"); {
	case v == "" || strings.HasPrefix(v, "4.") || strings.HasPrefix(v, "3.9"):
		return 3
	default:
		return 1
	}
}

func onKafka(t *testing.T, cfg Config) (*cluster.Cluster, *Producer) {
	t.Helper()
	cl := connectKafka(t, cluster.Config{})
	p, err := New(cl, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return cl, p
}

func connectKafka(t *testing.T, cfg cluster.Config) *cluster.Cluster {
	t.Helper()
	cfg.Bootstrap, cfg.NoTopicCreation = strings.Split(real.Bootstrap(), ","), true
	cl, err := cluster.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	return cl
}

// createTopic makes a topic whose name is the test's, by a client of its own: a
// busy controller takes longer for it than some tests give a request.
func createTopic(t *testing.T, partitions int32, config map[string]string) string {
	t.Helper()
	cl := connectKafka(t, cluster.Config{})
	defer cl.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic = strings.ReplaceAll(strings.ReplaceAll(t.Name(), "/", "-"), " ", "-") + fmt.Sprint(time.Now().UnixNano())
	topic.NumPartitions, topic.ReplicationFactor = partitions, int16(brokers())
	for k, v := range config {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = k, &v
		topic.Configs = append(topic.Configs, c)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := cl.Request(t.Context(), req)
	if err == nil {
		err = kafka.CodeError(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return topic.Topic
}

// read gives the records of a topic to each, as another client reads them, and
// fails if they are not n.
func read(t *testing.T, topic string, n int, each func(*kgo.Record)) {
	t.Helper()
	if got := readAll(t, topic, n, each); got != n {
		t.Errorf("%d records, want %d", got, n)
	}
}

// readAll gives the records of a topic to each, and waits for some: up to the
// ends that the partitions have when so many were read. It tells how many came.
func readAll(t *testing.T, topic string, some int, each func(*kgo.Record)) (got int) {
	t.Helper()
	peer, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(real.Bootstrap(), ",")...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	next := map[int32]int64{}
	poll := func() {
		fs := peer.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d records, up to %v: %v", got, next, fs.Err())
		}
		fs.EachRecord(func(r *kgo.Record) { got++; next[r.Partition] = r.Offset + 1; each(r) })
	}
	for got < some {
		poll()
	}
	for p, end := range ends(t, ctx, topic) {
		for next[p] < end {
			poll()
		}
	}
	return got
}

// ends are the ends of the partitions of a topic that holds no transactions.
func ends(t *testing.T, ctx context.Context, topic string) map[int32]int64 {
	t.Helper()
	cl := connectKafka(t, cluster.Config{})
	defer cl.Close()
	found, err := cl.Topic(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for p := range found.Count() {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = int32(p), -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.ReplicaID, req.Topics = -1, append(req.Topics, rt)
	resp, err := cl.Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	at := map[int32]int64{}
	for _, p := range resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
		if err := kafka.CodeError(p.ErrorCode, nil); err != nil {
			t.Fatal(err)
		}
		at[p.Partition] = p.Offset
	}
	return at
}

func TestKafkaP33_P34AnotherClientReadsEachCodec(t *testing.T) {
	for codec := Uncompressed; int(codec) < len(compressions); codec++ {
		t.Run(codec.String(), func(t *testing.T) {
			_, p := onKafka(t, Config{Compression: codec})
			topic := createTopic(t, 3, nil)
			var rs []kafka.Record
			base := kafka.TimestampOf(time.Now()) - 10_000 // older than the retention, and the broker deletes them
			for i := range 5000 {
				rs = append(rs, kafka.Record{
					Topic: topic, Key: fmt.Appendf(nil, "user-%d", i%97), Value: fmt.Appendf(nil, "value %d of a test", i), Timestamp: base + kafka.Timestamp(i),
					Headers: []kafka.Header{{Key: "n", Value: fmt.Append(nil, i)}, {Key: "n"}},
				})
			}
			rs = append(rs, kafka.Record{Topic: topic, Key: []byte{}}, kafka.Record{Topic: topic, Key: []byte("nil")})
			results, err := p.Send(t.Context(), rs...)
			if err != nil {
				t.Fatal(err)
			}
			at := map[string]kafka.Record{}
			for i, res := range results {
				at[fmt.Sprint(res.Partition, res.Offset)] = rs[i]
			}
			read(t, topic, len(rs), func(r *kgo.Record) {
				want, ok := at[fmt.Sprint(r.Partition, r.Offset)]
				if !ok || string(r.Key) != string(want.Key) || string(r.Value) != string(want.Value) ||
					(r.Value == nil) != (want.Value == nil) || len(r.Headers) != len(want.Headers) {
					t.Fatalf("%d-%d: %+v, want %+v", r.Partition, r.Offset, r, want)
				}
				if want.Timestamp != 0 && r.Timestamp.UnixMilli() != int64(want.Timestamp) {
					t.Errorf("timestamp %v", r.Timestamp)
				}
			})
		})
	}
}

// Java's own console consumer reads what was written, and the brokers' files
// have the sequences without a gap.
func TestKafkaP3_P33JavaReadsEachCodecAndSequencesAreContiguous(t *testing.T) {
	topic := createTopic(t, 1, nil)
	want := ""
	for codec := Uncompressed; int(codec) < len(compressions); codec++ {
		_, p := onKafka(t, Config{Compression: codec})
		for i := range 3 {
			value := fmt.Sprintf("%v %d %s", codec, i, strings.Repeat("all work and no play ", 50))
			want += fmt.Sprintf("key-%d\t%s\n", i, value)
			if _, err := p.Send(t.Context(), kafka.Record{Topic: topic, Key: fmt.Appendf(nil, "key-%d", i), Value: []byte(value)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	n := strings.Count(want, "\n")
	got, err := real.Tool("consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", fmt.Sprint(n),
		"--timeout-ms", "120000", "--property", "print.key=true")
	if _, after, ok := strings.Cut(got, "key-0"); ok { // 4.4 has a word to say about --property first
		got = "key-0" + after
	}
	if err != nil || got != want {
		t.Errorf("%v, Java reads %d bytes:\n%.300s\nwant %d:\n%.300s", err, len(got), got, len(want), want)
	}
	log, err := real.DumpLog(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	batches := 0
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "baseOffset:") {
			base := fmt.Sprintf("baseSequence: %d ", batches%3)
			if !strings.Contains(line, base) || !strings.Contains(line, "producerEpoch: 0 ") || !strings.Contains(line, "isvalid: true") {
				t.Errorf("batch %d: %s", batches, line)
			}
			batches++
		}
	}
	if batches != n {
		t.Errorf("%d batches in the file, want %d", batches, n)
	}
}

// 100,000 records while brokers are killed and come back: nothing is lost,
// nothing is there twice, each key keeps its order.
// Lines before 3.9 are started as one broker and have nobody to fail over to:
// there, and only there, it is skipped.
func TestKafkaP6_P8_P14BrokersAreKilledAndNothingIsLostOrDoubled(t *testing.T) {
	if brokers() < 3 {
		t.Skip("one broker has no other leader") // the version has no three-broker mode
	}
	p, err := New(connectKafka(t, cluster.Config{RequestTimeout: 2 * time.Second}), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	topic := createTopic(t, 6, map[string]string{"min.insync.replicas": "2"})
	const n = 100_000
	receipts := make([]Receipt, 0, n)
	chaos := make(chan error, 1)
	go func() {
		var err error
		for id := 1; id <= 2 && err == nil; id++ {
			time.Sleep(time.Second)
			if err = real.Kill(id); err == nil {
				time.Sleep(2 * time.Second)
				err = real.Restart(id)
			}
		}
		chaos <- err
	}()
	over := false
	for i := 0; i < n; i++ {
		rc, err := p.Append(t.Context(), kafka.Record{
			Topic: topic, Key: fmt.Append(nil, i%100), Value: fmt.Appendf(nil, "%d some more bytes, so that there are batches", i),
		})
		if err != nil {
			t.Fatal(err)
		}
		receipts = append(receipts, rc)
		if !over && i%50 == 0 {
			select {
			case err := <-chaos:
				if err != nil {
					t.Fatal(err)
				}
				over = true
			case <-time.After(4 * time.Millisecond): // spreads the records over the time of the faults
			}
		}
	}
	if !over {
		if err := <-chaos; err != nil {
			t.Fatal(err)
		}
	}
	for i, rc := range receipts {
		if _, err := rc.Wait(t.Context()); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	seen, last := map[int]bool{}, map[string]int{}
	read(t, topic, n, func(r *kgo.Record) {
		var i int
		fmt.Sscan(string(r.Value), &i)
		if seen[i] {
			t.Errorf("record %d is there twice", i)
		}
		if before, ok := last[string(r.Key)]; ok && i < before {
			t.Errorf("key %s: %d behind %d", r.Key, i, before)
		}
		seen[i], last[string(r.Key)] = true, i
	})
}

// The broker appends a batch, its answer is lost, and so is every further
// attempt until the batch is given up. The next batch comes under a new epoch.
// The line is mended only when no request is outstanding any more: a late
// answer would be good news, and the epoch could stay.
func TestKafkaP14AfterAGivenUpBatchTheNextOneIsAccepted(t *testing.T) {
	var line deafLine
	cl := connectKafka(t, cluster.Config{Dial: line.dial, RequestTimeout: time.Second})
	counted := &countingSeam{seam: clusterSeam{cl}}
	p, err := start(counted, Config{RequestTimeout: time.Second, DeliveryTimeout: 8 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	topic := createTopic(t, 1, nil)
	send := func(v string) error {
		_, err := p.Send(t.Context(), kafka.Record{Topic: topic, Value: []byte(v)})
		return err
	}
	if err := send("a"); err != nil {
		t.Fatal(err)
	}
	line.deaf.Store(true)
	if lost := send("b"); lost == nil || !kafka.MayHaveHappened(lost) {
		t.Errorf("the record without an answer ended with %v", lost)
	}
	for counted.outstanding.Load() > 0 && t.Context().Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	line.deaf.Store(false)
	for _, v := range []string{"c", "d"} {
		if err := send(v); err != nil {
			t.Fatal(err)
		}
	}
	all := ""
	read(t, topic, 4, func(r *kgo.Record) { all += string(r.Value) })
	if all != "abcd" {
		t.Errorf("the log has %q", all)
	}
	if epoch := checkSequences(t, topic); epoch != 1 {
		t.Errorf("the last batch came under epoch %d", epoch)
	}
}

// deafLine passes on what is written, and while it is deaf loses what comes
// back, and the connection with it.
type deafLine struct{ deaf atomic.Bool }

func (l *deafLine) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return &deafConn{conn, l}, err
}

type deafConn struct {
	net.Conn
	line *deafLine
}

func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.line.deaf.Load() {
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// countingSeam counts the Produce requests whose end the actor has not seen.
type countingSeam struct {
	seam
	outstanding atomic.Int64
}

func (c *countingSeam) produce(ctx context.Context, at kafka.NodeID, req *produceRequest, done func(kmsg.Response, error)) {
	c.outstanding.Add(1)
	c.seam.produce(ctx, at, req, func(resp kmsg.Response, err error) {
		done(resp, err)
		c.outstanding.Add(-1)
	})
}

// checkSequences fails unless the sequences in the log of partition 0, written
// by one producer, start at 0 in each epoch and have no gap. It gives the last
// epoch.
func checkSequences(t *testing.T, topic string) (epoch int) {
	t.Helper()
	log, err := real.DumpLog(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	batches, next := 0, 0
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "baseOffset:") {
			continue
		}
		field := func(name string) (n int) {
			_, v, ok := strings.Cut(line, " "+name+": ")
			if _, err := fmt.Sscan(v, &n); !ok || err != nil {
				t.Fatalf("no %s in %s", name, line)
			}
			return n
		}
		if e := field("producerEpoch"); e != epoch {
			epoch, next = e, 0
		}
		if field("baseSequence") != next {
			t.Errorf("sequence %d is wanted: %s", next, line)
		}
		next = field("lastSequence") + 1
		batches++
	}
	if batches == 0 {
		t.Errorf("no batch in the log:\n%s", log)
	}
	return epoch
}

// Whether the records of the time around it went to the old topic or to the new
// one, each of those that are acknowledged was appended, and none is there twice.
func TestKafkaP27ARecreatedTopicDoublesNothing(t *testing.T) {
	cl, p := onKafka(t, Config{DeliveryTimeout: 20 * time.Second, TopicPatience: 20 * time.Second})
	topic := createTopic(t, 1, nil)
	send := func(v string) error {
		_, err := p.Send(t.Context(), kafka.Record{Topic: topic, Value: []byte(v)})
		return err
	}
	for i := range 5 {
		if err := send(fmt.Sprint("old ", i)); err != nil {
			t.Fatal(err)
		}
	}
	del := kmsg.NewPtrDeleteTopicsRequest()
	del.TopicNames = []string{topic}
	named := kmsg.NewDeleteTopicsRequestTopic()
	named.Topic = &topic
	del.Topics = append(del.Topics, named)
	if _, err := cl.Request(t.Context(), del); err != nil {
		t.Fatal(err)
	}
	again := kmsg.NewPtrCreateTopicsRequest()
	again.Topics = append(again.Topics, kmsg.NewCreateTopicsRequestTopic())
	again.Topics[0].Topic, again.Topics[0].NumPartitions, again.Topics[0].ReplicationFactor = topic, 1, int16(brokers())
	for { // the old one may be there for a moment
		resp, err := cl.Request(t.Context(), again)
		if err == nil {
			err = kafka.CodeError(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode, nil)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, kerr.TopicAlreadyExists) || t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	errs := map[string]error{}
	for i := range 20 {
		v := fmt.Sprint("new ", i)
		errs[v] = send(v)
	}
	seen := map[string]int{}
	if errs["new 19"] != nil {
		t.Errorf("the producer does not recover: %v", errs["new 19"])
	}
	readAll(t, topic, 0, func(r *kgo.Record) { seen[string(r.Value)]++ })
	for v, err := range errs {
		if n := seen[v]; n > 1 || err == nil && n == 0 && v != "new 0" || err != nil && !kafka.MayHaveHappened(err) && n > 0 {
			t.Errorf("%q is there %d times and ended with %v", v, n, err)
		}
	}
}

func TestKafkaP29ABatchOverTheTopicsLimitIsRefused(t *testing.T) {
	_, p := onKafka(t, Config{Compression: Uncompressed})
	topic := createTopic(t, 1, map[string]string{"max.message.bytes": "2000"})
	_, err := p.Send(t.Context(), kafka.Record{Topic: topic, Value: make([]byte, 5000)})
	if !errors.Is(err, kerr.MessageTooLarge) || kafka.MayHaveHappened(err) {
		t.Errorf("%v", err)
	}
	if _, err := p.Send(t.Context(), kafka.Record{Topic: topic, Value: make([]byte, 500)}); err != nil {
		t.Error(err)
	}
	read(t, topic, 1, func(*kgo.Record) {})
}

func TestKafkaP23ATopicThatDoesNotExistEndsTyped(t *testing.T) {
	t.Parallel() // it waits for its delivery time
	_, p := onKafka(t, Config{DeliveryTimeout: 10 * time.Second})
	_, err := p.Send(t.Context(), kafka.Record{Topic: "nowhere", Value: []byte("x")})
	if !errors.Is(err, kerr.UnknownTopicOrPartition) || kafka.MayHaveHappened(err) {
		t.Errorf("%v", err)
	}
}

func TestKafkaP34TheBrokersTimeIsReported(t *testing.T) {
	_, p := onKafka(t, Config{})
	topic := createTopic(t, 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	res, err := p.Send(t.Context(), kafka.Record{Topic: topic, Timestamp: kafka.TimestampOf(time.Now().Add(-time.Hour)), Value: []byte("x")})
	if err != nil || time.Since(res[0].Timestamp.Time()).Abs() > time.Minute {
		t.Errorf("%+v, %v", res, err)
	}
}

// Batches that are larger than the topic takes are cut until they fit.
func TestKafkaP24BatchesAreCutUntilTheTopicTakesThem(t *testing.T) {
	_, p := onKafka(t, Config{Compression: Uncompressed, Linger: time.Second, RequestTimeout: time.Minute})
	topic := createTopic(t, 1, map[string]string{"max.message.bytes": "3000"})
	var receipts []Receipt
	for i := range 300 {
		rc, err := p.Append(t.Context(), kafka.Record{Topic: topic, Value: fmt.Appendf(nil, "%0100d", i)})
		if err != nil {
			t.Fatal(err)
		}
		receipts = append(receipts, rc)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, rc := range receipts {
		if off, err := rc.Wait(t.Context()); err != nil || off != kafka.Offset(i) {
			t.Fatalf("record %d: offset %d, %v", i, off, err)
		}
	}
	next := 0
	read(t, topic, 300, func(r *kgo.Record) {
		if string(r.Value) != fmt.Sprintf("%0100d", next) {
			t.Errorf("record %d is %q", next, r.Value)
		}
		next++
	})
	checkSequences(t, topic)
}

func TestKafkaP26EveryDurabilityIsWritten(t *testing.T) {
	for _, d := range []Durability{Idempotent, All, Leader, None} {
		t.Run(d.String(), func(t *testing.T) {
			_, p := onKafka(t, Config{Durability: d, RequestTimeout: time.Minute})
			topic := createTopic(t, 1, nil)
			for i := range 100 {
				if _, err := p.Append(t.Context(), kafka.Record{Topic: topic, Value: fmt.Append(nil, i)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			next := 0
			read(t, topic, 100, func(r *kgo.Record) {
				if string(r.Value) != fmt.Sprint(next) {
					t.Errorf("record %d is %q", next, r.Value)
				}
				next++
			})
		})
	}
}
