package ottlatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ottla/ottla/kafka"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// everywhere runs f on loopback and in memory inside a bubble.
func everywhere(t *testing.T, cfg Config, f func(t *testing.T, c *Cluster)) {
	t.Helper()
	t.Run("loopback", func(t *testing.T) { f(t, New(t, cfg)) })
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cfg.InMemory = true
			f(t, New(t, cfg))
		})
	})
}

// peer is another client, so that the cluster is tested by itself.
func peer(t *testing.T, c *Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap()...), kgo.Dialer(c.Dial), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.DisableClientMetrics(), kgo.AlwaysRetryEOF(), kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond }),
		kgo.MetadataMinAge(10 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func produce(t *testing.T, cl *kgo.Client, topic string, partition int32, values ...string) {
	t.Helper()
	for _, v := range values {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func logOf(t *testing.T, c *Cluster, topic string, partition int32) []string {
	t.Helper()
	rs, err := c.Records(topic, partition)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for i, r := range rs {
		if r.Offset != kafka.Offset(i) || r.Topic != topic || r.Partition != partition {
			t.Errorf("record %d is %s-%d@%d", i, r.Topic, r.Partition, r.Offset)
		}
		out = append(out, string(r.Value))
	}
	return out
}

func wantLog(t *testing.T, c *Cluster, topic string, partition int32, want ...string) {
	t.Helper()
	if got := logOf(t, c, topic, partition); !slices.Equal(got, want) {
		t.Errorf("the log of %s-%d is %q, want %q", topic, partition, got, want)
	}
}

// consume reads n values of one partition from the start.
func consume(t *testing.T, c *Cluster, topic string, partition int32, n int) (out []string) {
	t.Helper()
	cl := peer(t, c, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	for len(out) < n {
		fs := cl.PollFetches(t.Context())
		if err := fs.Err0(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) { out = append(out, string(r.Value)) })
	}
	return out
}

func TestPeerProducesAndConsumes(t *testing.T) {
	everywhere(t, Config{Topics: map[string]int{"orders": 3}}, func(t *testing.T, c *Cluster) {
		cl := peer(t, c)
		for p := range int32(3) {
			produce(t, cl, "orders", p, fmt.Sprint("a", p), fmt.Sprint("b", p))
		}
		for p := range int32(3) {
			wantLog(t, c, "orders", p, fmt.Sprint("a", p), fmt.Sprint("b", p))
		}
		if got := consume(t, c, "orders", 2, 2); !slices.Equal(got, []string{"a2", "b2"}) {
			t.Errorf("consumed %q", got)
		}
	})
}

func TestLeadersArePlaced(t *testing.T) {
	everywhere(t, Config{Topics: map[string]int{"a": 4}, AutoCreate: true, DefaultPartitions: 5}, func(t *testing.T, c *Cluster) {
		if err := c.CreateTopic("b", 3); err != nil {
			t.Fatal(err)
		}
		if err := c.AddPartitions("b", 7); err != nil {
			t.Fatal(err)
		}
		produce(t, peer(t, c, kgo.AllowAutoTopicCreation()), "c", 4, "x")
		for topic, n := range map[string]int32{"a": 4, "b": 7, "c": 5} {
			for p := range n {
				if got := c.Leader(topic, p); got != kafka.NodeID(p%3) {
					t.Errorf("%s-%d is led by %d", topic, p, got)
				}
			}
			if got := c.Leader(topic, n); got != kafka.NoNode {
				t.Errorf("%s-%d exists", topic, n)
			}
		}
		if err := c.CreateTopic("b", 3); !errors.Is(err, kerr.TopicAlreadyExists) {
			t.Error(err)
		}
		if err := c.DeleteTopic("b"); err != nil || c.Leader("b", 0) != kafka.NoNode {
			t.Errorf("delete: %v", err)
		}
	})
}

func TestATopicMadeByAClientHasPlacedLeaders(t *testing.T) {
	everywhere(t, Config{}, func(t *testing.T, c *Cluster) {
		cl := peer(t, c)
		req := kmsg.NewPtrCreateTopicsRequest()
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "mine", 6, 1
		req.Topics = append(req.Topics, topic)
		if _, err := req.RequestWith(t.Context(), cl); err != nil {
			t.Fatal(err)
		}
		for p := range int32(6) {
			if got := c.Leader("mine", p); got != kafka.NodeID(p%3) {
				t.Errorf("partition %d is led by %d", p, got)
			}
		}
	})
}

func TestCloseAfterCutsOneConnection(t *testing.T) {
	for _, d := range []Direction{Requests, Answers} {
		everywhere(t, Config{Topics: map[string]int{"t": 1}}, func(t *testing.T, c *Cluster) {
			cl := peer(t, c)
			produce(t, cl, "t", 0, "1")
			_, before := c.Connections(0)
			c.CloseAfter(0, d, 30)
			produce(t, cl, "t", 0, "2", "3") // the peer is idempotent
			wantLog(t, c, "t", 0, "1", "2", "3")
			if _, after := c.Connections(0); after <= before {
				t.Errorf("nothing was cut: %d connections before, %d after", before, after)
			}
			produces := len(c.Journal(0))
			if want := 3 + int(d); produces != want { // only a request that was read whole is accepted
				t.Errorf("%d produce requests accepted, want %d", produces, want)
			}
		})
	}
}

func TestHangAndPartitionHoldEverythingBack(t *testing.T) {
	type fault struct{ begin, end func(*Cluster, kafka.NodeID) }
	for name, f := range map[string]fault{"hang": {(*Cluster).Hang, (*Cluster).Resume}, "partition": {(*Cluster).Partition, (*Cluster).Heal}} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, Config{Topics: map[string]int{"t": 2}}, func(t *testing.T, c *Cluster) {
				cl := peer(t, c)
				other := peer(t, c)
				produce(t, cl, "t", 0, "1")
				produce(t, other, "t", 1, "warm")
				f.begin(c, 0)
				done := make(chan error, 1)
				cl.Produce(context.Background(), &kgo.Record{Topic: "t", Partition: 0, Value: []byte("2")}, func(_ *kgo.Record, err error) { done <- err })
				produce(t, other, "t", 1, "x") // another broker goes on
				wantLog(t, c, "t", 0, "1")
				select {
				case err := <-done:
					t.Fatalf("answered: %v", err)
				default:
				}
				f.end(c, 0)
				if err := <-done; err != nil {
					t.Error(err)
				}
				wantLog(t, c, "t", 0, "1", "2")
			})
		})
	}
}

func TestFailStrikesAsOftenAsAskedAfterSoMany(t *testing.T) {
	everywhere(t, Config{Topics: map[string]int{"t": 1}}, func(t *testing.T, c *Cluster) {
		cl := peer(t, c, kgo.RecordRetries(0), kgo.DisableIdempotentWrite(), kgo.RequestRetries(0))
		f := c.Fail(int16(kmsg.Produce), kerr.InvalidTopicException.Code, 2, 1)
		var got []string
		for i := range 4 {
			err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte{'0' + byte(i)}}).FirstErr()
			got = append(got, fmt.Sprint(errors.Is(err, kerr.InvalidTopicException)))
		}
		if !slices.Equal(got, []string{"false", "true", "true", "false"}) || f.Hits() != 2 {
			t.Errorf("failed: %v, %d hits", got, f.Hits())
		}
		wantLog(t, c, "t", 0, "0", "3")
		all := c.Fail(int16(kmsg.ApiVersions), 999, -1, 0)
		defer all.Remove()
		nc, err := c.Dial(t.Context(), "tcp", c.Bootstrap()[0])
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		resp, err := exchange(nc, kmsg.NewPtrApiVersionsRequest())
		if err != nil || resp.(*kmsg.ApiVersionsResponse).ErrorCode != 999 {
			t.Errorf("an unknown code: %v %v", resp, err)
		}
	})
}

func TestFaultsLeaveTheClusterItselfAlone(t *testing.T) {
	c := New(t, Config{Topics: map[string]int{"t": 1}})
	produce(t, peer(t, c), "t", 0, "1")
	for key := range int16(40) {
		c.Fail(key, kerr.UnknownServerError.Code, -1, 0)
	}
	wantLog(t, c, "t", 0, "1")
	if err := errors.Join(c.CreateTopic("u", 1), c.AddPartitions("u", 2), c.DeleteTopic("u"), c.StopBroker(0)); err != nil {
		t.Error(err)
	}
	if c.Leader("t", 0) != 1 {
		t.Error("the leader did not move")
	}
}

func TestThrottleIsInTheAnswers(t *testing.T) {
	everywhere(t, Config{Topics: map[string]int{"t": 1}}, func(t *testing.T, c *Cluster) {
		c.Throttle(1500*time.Microsecond, int16(kmsg.Metadata))
		c.Throttle(2*time.Millisecond, int16(kmsg.FindCoordinator))
		cl := peer(t, c)
		md := kmsg.NewPtrMetadataRequest()
		resp, err := md.RequestWith(t.Context(), cl)
		if err != nil || resp.ThrottleMillis != 1 || len(resp.Brokers) != 3 {
			t.Fatalf("%+v, %v", resp, err)
		}
		hb := kmsg.NewPtrListGroupsRequest()
		lg, err := cl.Broker(1).Request(t.Context(), hb)
		if err != nil || lg.(*kmsg.ListGroupsResponse).ThrottleMillis != 0 {
			t.Errorf("%+v, %v", lg, err)
		}
	})
}

func TestSlowLinkTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Config{InMemory: true, Topics: map[string]int{"t": 1}})
		cl := peer(t, c, kgo.ProducerBatchCompression(kgo.NoCompression()))
		produce(t, cl, "t", 0, "warm")
		c.SlowLink(0, 1000)
		start := time.Now()
		produce(t, cl, "t", 0, string(make([]byte, 5000)))
		if d := time.Since(start); d < 5*time.Second || d > 6*time.Second {
			t.Errorf("5000 bytes at 1000 bytes/s took %v", d)
		}
	})
}

func TestAStoppedBrokerRefusesAndItsLeadersMove(t *testing.T) {
	everywhere(t, Config{Topics: map[string]int{"t": 3}}, func(t *testing.T, c *Cluster) {
		cl := peer(t, c)
		produce(t, cl, "t", 0, "1")
		if err := c.StopBroker(0); err != nil {
			t.Fatal(err)
		}
		if open, _ := c.Connections(0); c.Leader("t", 0) != 1 || open != 0 {
			t.Errorf("leader %d, %d connections open", c.Leader("t", 0), open)
		}
		if _, err := c.Dial(t.Context(), "tcp", c.Bootstrap()[0]); err == nil {
			t.Error("a stopped broker takes connections")
		}
		produce(t, cl, "t", 0, "2")
		wantLog(t, c, "t", 0, "1", "2")
		md, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), cl)
		if err != nil || len(md.Brokers) != 2 {
			t.Errorf("metadata lists %d brokers, %v", len(md.Brokers), err)
		}
		if err := c.StartBroker(0); err != nil {
			t.Fatal(err)
		}
		if err := c.MoveLeader("t", 0, 0); err != nil {
			t.Fatal(err)
		}
		produce(t, cl, "t", 0, "3")
		wantLog(t, c, "t", 0, "1", "2", "3")
		if c.MoveLeader("t", 9, 0) == nil || c.StopBroker(7) == nil {
			t.Error("nonsense is no error")
		}
	})
}

func TestJournalTellsWhatWasAccepted(t *testing.T) {
	everywhere(t, Config{Topics: map[string]int{"t": 1}, Journal: 5}, func(t *testing.T, c *Cluster) {
		cl := peer(t, c, kgo.ClientID("me"), kgo.ProducerBatchCompression(kgo.NoCompression()))
		for i := range 20 {
			produce(t, cl, "t", 0, fmt.Sprint(i))
		}
		log := c.Journal()
		if len(log) != 5 {
			t.Fatalf("%d entries", len(log))
		}
		last := log[4]
		if last.Key != 0 || last.ClientID != "me" || last.Node != 0 || last.Body.(*kmsg.ProduceRequest).Topics == nil {
			t.Errorf("%+v", last)
		}
		for i, r := range log {
			got := r.Body.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records
			if want := fmt.Sprint(15 + i); !bytes.Contains(got, []byte(want)) {
				t.Errorf("entry %d does not hold its record %s: %q", i, want, got)
			}
		}
		if len(c.Journal(99)) != 0 {
			t.Error("the filter lets everything through")
		}
	})
}

func TestSameSeedSameTimes(t *testing.T) {
	run := func(seed uint64) (out []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			c := New(t, Config{InMemory: true, Seed: seed})
			start := time.Now()
			for _, addr := range c.Bootstrap() {
				nc, err := c.Dial(t.Context(), "tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, time.Since(start))
				nc.Close()
			}
		})
		return out
	}
	if a, b := run(4), run(4); !slices.Equal(a, b) {
		t.Errorf("%v and %v", a, b)
	}
	if a, b := run(4), run(5); slices.Equal(a, b) {
		t.Errorf("two seeds give %v", a)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, cfg := range []Config{
		{Brokers: -1}, {Port: 65535}, {Port: 9092, InMemory: true}, {Topics: map[string]int{"t": 0}},
		{Users: []User{{Mechanism: "GSSAPI", Name: "x"}}},
	} {
		if c, err := Start(cfg); err == nil {
			c.Close()
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

func TestClosedClusterAnswersErrClosed(t *testing.T) {
	c, err := Start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for _, err := range []error{c.CreateTopic("t", 1), c.MoveLeader("t", 0, 1), c.StartBroker(0), c.StopBroker(0)} {
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	if c.Leader("t", 0) != kafka.NoNode {
		t.Error("a closed cluster has leaders")
	}
}

func TestFixedPortsAreKept(t *testing.T) {
	// From where no system gives a port to who asks for any: it comes back free.
	var free net.Listener
	err := errors.New("none was tried")
	for try := 0; err != nil && try < 100; try++ {
		free, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", 15_000+rand.IntN(5000)))
	}
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	if _, err := Start(Config{Brokers: 1, Port: port}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a taken port: %v", err)
	}
	free.Close()
	c := New(t, Config{Brokers: 1, Port: port})
	want := fmt.Sprint("127.0.0.1:", port)
	if got := c.Bootstrap(); len(got) != 1 || got[0] != want {
		t.Errorf("listens on %v, want %s", got, want)
	}
	if err := c.StopBroker(0); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", want)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.StartBroker(0); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("started on a taken port: %v", err)
	}
	taken.Close()
	if err := c.StartBroker(0); err != nil {
		t.Error(err)
	}
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		c, err := Start(Config{Topics: map[string]int{"t": 3}})
		if err != nil {
			t.Fatal(err)
		}
		cl := peer(t, c)
		produce(t, cl, "t", 1, "x")
		cl.Close()
		c.Close()
	}
	for range 500 { // kfake's goroutines end by themselves
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
}
