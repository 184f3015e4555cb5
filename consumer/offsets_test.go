package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/memnet"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// The end of a log is asked for at the isolation level of the consumer.
// Mutation: listOffsets with a level of its own.
func TestF39TheEndIsAskedForAtTheIsolationLevel(t *testing.T) {
	for level, wire := range map[Isolation]int8{ReadCommitted: 1, ReadUncommitted: 0} {
		synctest.Test(t, func(t *testing.T) {
			s, c := scripted(t, 1, 1)
			asked := make(chan int8, 10)
			s.Broker(1).Handle(2, func(r *sim.Request) sim.Answer {
				asked <- r.Req.(*kmsg.ListOffsetsRequest).IsolationLevel
				resp := r.Response().(*kmsg.ListOffsetsResponse)
				rt, rp := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
				rt.Topic, rp.Offset = "t", 42
				rt.Partitions = append(rt.Partitions, rp)
				resp.Topics = append(resp.Topics, rt)
				return sim.Reply(resp)
			})
			cons, err := New(c, Config{Isolation: level})
			if err != nil {
				t.Fatal(err)
			}
			defer cons.Close()
			if end, err := cons.End(t.Context(), tp("t", 0)); err != nil || end[tp("t", 0)] != 42 {
				t.Errorf("%v %v", end, err)
			}
			if got := <-asked; got != wire {
				t.Errorf("%v: asked at level %d", level, got)
			}
		})
	}
}

// A code in an answer is an error that names its partition, whatever offset
// stands beside it. Mutation: listed without the code.
func TestF39ACodeBesideAnOffsetIsAnError(t *testing.T) {
	resp := kmsg.NewPtrListOffsetsResponse()
	rt := kmsg.NewListOffsetsResponseTopic()
	rt.Topic = "t"
	for p, code := range []int16{0, kerr.TopicAuthorizationFailed.Code} {
		rp := kmsg.NewListOffsetsResponseTopicPartition()
		rp.Partition, rp.Offset, rp.ErrorCode = int32(p), 7, code
		rt.Partitions = append(rt.Partitions, rp)
	}
	resp.Topics = append(resp.Topics, rt)
	out, errs := listed(resp)
	if len(out) != 1 || out[tp("t", 0)].Offset != 7 {
		t.Errorf("%v", out)
	}
	var op *kafka.OpError
	if err := errors.Join(errs...); !errors.As(err, &op) || op.Partition != 1 || !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("%v", err)
	}
}

// F39: the record with the highest timestamp is asked for by -3, at versions that
// know it. Mutation: no bound on the version, in the connection's needs.
func TestF39TheHighestTimestamp(t *testing.T) {
	for _, high := range []int16{6, 8} {
		synctest.Test(t, func(t *testing.T) {
			n := memnet.New(1)
			ln, err := n.Listen("b1:9092")
			if err != nil {
				t.Fatal(err)
			}
			s := sim.New(t, ln)
			s.SetTopic("t", 1)
			s.Broker(1).SetVersions(2, 1, high)
			c, err := cluster.Connect(t.Context(), cluster.Config{Bootstrap: s.Seeds(), Dial: n.Dial})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			s.Broker(1).Handle(2, func(r *sim.Request) sim.Answer {
				q := r.Req.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0]
				resp := r.Response().(*kmsg.ListOffsetsResponse)
				rt, rp := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
				rt.Topic = "t"
				if q.Timestamp == -3 {
					rp.Offset, rp.Timestamp = 7, 9000
				}
				rt.Partitions = append(rt.Partitions, rp)
				resp.Topics = append(resp.Topics, rt)
				return sim.Reply(resp)
			})
			cons, err := New(c, Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer cons.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got, err := cons.MaxTimestamp(ctx, tp("t", 0))
			var version *kafka.VersionError
			switch {
			case high < 7 && !errors.As(err, &version):
				t.Errorf("an old broker: %v, %v", got, err)
			case high >= 7 && (err != nil || got[tp("t", 0)].Offset != 7 || got[tp("t", 0)].Timestamp != 9000):
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// TestB043ALookUpKeepsNoTopicThatIsGivenUp: the topic is deleted, and given up
// while it is looked for.
func TestB043ALookUpKeepsNoTopicThatIsGivenUp(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t1": 1, "t2": 1}, Journal: 100000}, func(ctx context.Context, w *world) {
		c := w.consumer(Config{})
		if err := c.Assign(ctx, map[kafka.TopicPartition]Start{tp("t1", 0): Earliest(), tp("t2", 0): Earliest()}); err != nil {
			w.t.Fatal(err)
		}
		stop := drainAll(ctx, c)
		settle(10 * time.Second)
		if err := w.k.DeleteTopic("t2"); err != nil {
			w.t.Fatal(err)
		}
		settle(2 * time.Second)
		c.Remove(tp("t2", 0))
		settle(20 * time.Second)
		before := metadataRequests(w)
		settle(time.Minute)
		if n := metadataRequests(w) - before; n > 1 {
			w.t.Errorf("%d Metadata requests in a minute for a topic that nobody reads", n)
		}
		if _, ok := w.c.CachedTopic("t2"); ok {
			w.t.Error("the map still holds t2")
		}
		stop()
	})
}
