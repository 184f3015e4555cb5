package consumer

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
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
