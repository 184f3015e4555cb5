package admin

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// ActiveProducer is a producer that a partition's leader remembers.
type ActiveProducer struct {
	ID               kafka.ProducerID
	Epoch            kafka.ProducerEpoch
	LastSequence     int32        // of its last batch
	LastTime         time.Time    // of its last batch; zero if it has none
	CoordinatorEpoch int32        // of the last marker, -1 if it has none
	TxnStart         kafka.Offset // first offset of its open transaction, -1 if none is open
}

// DescribeProducers asks the leaders of partitions for the producers that they
// remember: idempotent and transactional ones that wrote lately (KIP-664, from
// Kafka 2.8 on).
func (a *Admin) DescribeProducers(ctx context.Context, tps []kafka.TopicPartition) Results[kafka.TopicPartition, []ActiveProducer] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrDescribeProducersRequest()
	for topic, ps := range byTopic(tps) {
		t := kmsg.NewDescribeProducersRequestTopic()
		t.Topic, t.Partitions = topic, ps
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, a.c)
	got := make(answered[[]ActiveProducer])
	if resp != nil {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				got.add(t.Topic, p.Partition, answer[[]ActiveProducer]{producersOf(p.ActiveProducers), p.ErrorCode, p.ErrorMessage})
			}
		}
	}
	return got.results("describe producers of", tps, lostIn(err), nil)
}

func producersOf(ps []kmsg.DescribeProducersResponseTopicPartitionActiveProducer) []ActiveProducer {
	var out []ActiveProducer
	for _, p := range ps {
		one := ActiveProducer{
			ID: kafka.ProducerID(p.ProducerID), Epoch: kafka.ProducerEpoch(p.ProducerEpoch), LastSequence: p.LastSequence,
			CoordinatorEpoch: p.CoordinatorEpoch, TxnStart: kafka.Offset(p.CurrentTxnStartOffset),
		}
		if p.LastTimestamp >= 0 {
			one.LastTime = kafka.Timestamp(p.LastTimestamp).Time()
		}
		out = append(out, one)
	}
	return out
}
