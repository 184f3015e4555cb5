package producer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// connect starts an in-memory cluster with topic t and a producer on it.
func connect(t *testing.T, seed uint64, partitions int, cfg Config) (*ottlatest.Cluster, *Producer) {
	t.Helper()
	c := ottlatest.New(t, ottlatest.Config{InMemory: true, Seed: seed, Topics: map[string]int{"t": partitions}})
	return c, attach(t, c, seed, cfg)
}

func attach(t *testing.T, c *ottlatest.Cluster, seed uint64, cfg Config) *Producer {
	t.Helper()
	cl, err := cluster.Connect(t.Context(), cluster.Config{
		Bootstrap: c.Bootstrap(), Dial: c.Dial, Rand: rand.NewPCG(seed, 7), RequestTimeout: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	p, err := New(cl, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func logOf(t *testing.T, c *ottlatest.Cluster, partition int32) []kafka.Record {
	t.Helper()
	rs, err := c.Records("t", partition)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func TestP33_P36RecordsOfEachCodecArriveWhereTheirKeySays(t *testing.T) {
	for codec := DefaultCompression; int(codec) < len(compressions); codec++ {
		synctest.Test(t, func(t *testing.T) {
			c, p := connect(t, 1, 12, Config{Compression: codec})
			var rs []kafka.Record
			for i := range 500 {
				rs = append(rs, kafka.Record{Topic: "t", Key: fmt.Appendf(nil, "user-%d", i%50), Value: fmt.Append(nil, i)})
			}
			results, err := p.Send(t.Context(), rs...)
			if err != nil {
				t.Fatal(err)
			}
			logs := map[int32][]kafka.Record{}
			for part := range int32(12) {
				logs[part] = logOf(t, c, part)
			}
			for i, res := range results {
				r := logs[res.Partition][res.Offset]
				if string(r.Value) != string(rs[i].Value) || string(r.Key) != string(rs[i].Key) {
					t.Fatalf("%v: record %d is at %+v, where the log has %q", codec, i, res, r.Value)
				}
			}
			if r := results[1]; r.Partition != 8 { // user-1
				t.Errorf("user-1 went to %d", r.Partition)
			}
		})
	}
}

// Connections that close in the middle of requests and answers, leaders that
// move, brokers that stop: judged by what the brokers' logs hold. A retry with
// new sequences doubles records, giving up without a new epoch loses them.
func TestP6_P8_P23BrokersFailAndTheLogsHoldEverythingOnceAndInOrder(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			c, p := connect(t, seed, 3, Config{BatchBytes: 2000})
			rng := rand.New(rand.NewPCG(seed, 3))
			stopped := kafka.NoNode
			var receipts []Receipt
			for i := range 1500 {
				rc, err := p.Append(t.Context(), kafka.Record{Topic: "t", Key: fmt.Append(nil, i%9), Value: fmt.Append(nil, i)})
				if err != nil {
					t.Fatal(err)
				}
				receipts = append(receipts, rc)
				if rng.IntN(15) == 0 {
					stopped = misfortune(t, c, rng, stopped)
					time.Sleep(time.Duration(rng.IntN(8000)) * time.Microsecond)
				}
			}
			if stopped != kafka.NoNode {
				if err := c.StartBroker(stopped); err != nil {
					t.Fatal(err)
				}
			}
			for i, rc := range receipts {
				if _, err := rc.Wait(t.Context()); err != nil {
					t.Fatalf("seed %d: record %d: %v", seed, i, err)
				}
			}
			onceAndInOrder(t, c, seed, 1500)
		})
	}
}

func misfortune(t *testing.T, c *ottlatest.Cluster, rng *rand.Rand, stopped kafka.NodeID) kafka.NodeID {
	id := kafka.NodeID(rng.IntN(3))
	switch rng.IntN(6) {
	case 0:
		c.CloseAfter(id, ottlatest.Requests, rng.Int64N(3000))
	case 1:
		c.CloseAfter(id, ottlatest.Answers, rng.Int64N(100))
	case 2:
		c.CloseConnections(id)
	case 3:
		if stopped == kafka.NoNode {
			if err := c.StopBroker(id); err != nil {
				t.Fatal(err)
			}
			return id
		}
		if err := c.StartBroker(stopped); err != nil {
			t.Fatal(err)
		}
		return kafka.NoNode
	default:
		if id != stopped {
			if err := c.MoveLeader("t", rng.Int32N(3), id); err != nil {
				t.Fatal(err)
			}
		}
	}
	return stopped
}

func onceAndInOrder(t *testing.T, c *ottlatest.Cluster, seed uint64, want int) {
	t.Helper()
	seen, last := map[int]bool{}, map[string]int{}
	for part := range int32(3) {
		for _, r := range logOf(t, c, part) {
			var n int
			fmt.Sscan(string(r.Value), &n)
			if seen[n] {
				t.Errorf("seed %d: record %d is there twice", seed, n)
			}
			if before, ok := last[string(r.Key)]; ok && n < before {
				t.Errorf("seed %d: key %s: %d behind %d", seed, r.Key, n, before)
			}
			seen[n], last[string(r.Key)] = true, n
		}
	}
	if len(seen) != want {
		t.Errorf("seed %d: %d of %d records", seed, len(seen), want)
	}
}

func TestP12_B080CodesOfTheBrokerAreRetriedWithTheSameBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t, 5, 1, Config{})
		for i, code := range []int16{20, 7, 6, 19, 5, 3, 56, 2} {
			fault := c.Fail(0, code, 1, 0)
			began := time.Now()
			res, err := p.Send(t.Context(), text(fmt.Sprint(i)))
			if err != nil || res[0].Offset != kafka.Offset(i) || fault.Hits() != 1 {
				t.Errorf("code %d: %+v, %v, %d hits", code, res, err, fault.Hits())
			}
			if d := time.Since(began); d > time.Second {
				t.Errorf("code %d: the second try came after %v", code, d)
			}
		}
		if rs := logOf(t, c, 0); len(rs) != 8 {
			t.Errorf("%d records in the log", len(rs))
		}
	})
}

// A batch that may be appended is given up; what comes next is neither refused
// nor taken for it.
func TestP14AfterAGivenUpBatchTheNextOneIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t, 6, 1, Config{DeliveryTimeout: 8 * time.Second})
		if _, err := p.Send(t.Context(), text("0")); err != nil {
			t.Fatal(err)
		}
		fault := c.Fail(0, 20, -1, 0) // appended, and never confirmed
		_, err := p.Send(t.Context(), text("1"))
		if err == nil || !kafka.MayHaveHappened(err) {
			t.Fatalf("%v", err)
		}
		fault.Remove()
		if _, err := p.Send(t.Context(), text("2")); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range logOf(t, c, 0) {
			got = append(got, string(r.Value))
		}
		if !slices.Equal(got, []string{"0", "1", "2"}) {
			t.Errorf("the log has %q", got)
		}
	})
}

func TestP48AHangingBrokerEndsInTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t, 7, 1, Config{DeliveryTimeout: 12 * time.Second})
		if _, err := p.Send(t.Context(), text("0")); err != nil {
			t.Fatal(err)
		}
		for id := range kafka.NodeID(3) {
			c.Hang(id)
		}
		began := time.Now()
		_, err := p.Send(t.Context(), text("1"))
		if d := time.Since(began); err == nil || !kafka.MayHaveHappened(err) || d != 12*time.Second {
			t.Errorf("after %v: %v", d, err)
		}
		for id := range kafka.NodeID(3) {
			c.Resume(id)
		}
		if _, err := p.Send(t.Context(), text("2")); err != nil {
			t.Error(err)
		}
	})
}

func TestP23ATopicThatIsCreatedOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := ottlatest.New(t, ottlatest.Config{InMemory: true, AutoCreate: true})
		p := attach(t, c, 1, Config{})
		res, err := p.Send(t.Context(), kafka.Record{Topic: "new", Value: []byte("x")})
		if err != nil || res[0].Offset != 0 {
			t.Errorf("%+v, %v", res, err)
		}
		late := ottlatest.New(t, ottlatest.Config{InMemory: true})
		p = attach(t, late, 1, Config{})
		rc, err := p.Append(t.Context(), kafka.Record{Topic: "late", Value: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if err := late.CreateTopic("late", 2); err != nil {
			t.Fatal(err)
		}
		if _, err := rc.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestP39GrowthIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t, 8, 1, Config{})
		keyed := kafka.Record{Topic: "t", Key: []byte("abc"), Value: []byte("x")} // partition 3 of 4
		if res, err := p.Send(t.Context(), keyed); err != nil || res[0].Partition != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		if err := c.AddPartitions("t", 4); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // metadata.max.age
		if res, err := p.Send(t.Context(), keyed); err != nil || res[0].Partition != 479470107%4 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

func TestP49AClosedClusterEndsRecordsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := ottlatest.New(t, ottlatest.Config{InMemory: true, Topics: map[string]int{"t": 1, "u": 1}})
		cl, err := cluster.Connect(t.Context(), cluster.Config{Bootstrap: c.Bootstrap(), Dial: c.Dial})
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(cl, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if _, err := p.Send(t.Context(), text("x")); err != nil {
			t.Fatal(err)
		}
		c.Hang(c.Leader("t", 0))
		out := appendText(t, p, "out")
		time.Sleep(time.Second)
		began := time.Now()
		cl.Close()
		if _, err := out.Wait(t.Context()); !errors.Is(err, cluster.ErrClosed) || !kafka.MayHaveHappened(err) {
			t.Errorf("the record that was out: %v", err)
		}
		for _, topic := range []string{"t", "u"} { // its leader known, and not
			_, err := p.Send(t.Context(), kafka.Record{Topic: topic, Value: []byte("y")})
			if !errors.Is(err, cluster.ErrClosed) || kafka.MayHaveHappened(err) {
				t.Errorf("topic %s: %v", topic, err)
			}
		}
		if d := time.Since(began); d > 100*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		c.Resume(c.Leader("t", 0))
	})
}

// Nothing but the producer's own goroutine is left when it has nothing to do,
// and none after Close: the bubble waits for all of them.
func TestK18ManyProducersShareOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, first := connect(t, 9, 3, Config{})
		for i := range 5 {
			p, err := New(first.seam.(clusterSeam).Cluster, Config{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Send(t.Context(), kafka.Record{Topic: "t", Key: fmt.Append(nil, i), Value: []byte("x")}); err != nil {
				t.Error(err)
			}
			if err := p.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
		open, _ := c.Connections(c.Leader("t", 0))
		if open > 2 { // general and produce
			t.Errorf("%d connections to one broker", open)
		}
	})
}
