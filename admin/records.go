package admin

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// AllRecords as an offset in DeleteRecords is the end of the log as it is then.
const AllRecords kafka.Offset = -1

// DeleteRecords deletes the records of partitions that stand before an offset,
// for good. Each Value is the first offset that remains. It may be repeated:
// the offset is absolute, so that a second time deletes nothing more, but with
// [AllRecords].
//
// A topic that is compacted only is POLICY_VIOLATION, an offset behind the end
// OFFSET_OUT_OF_RANGE.
func (a *Admin) DeleteRecords(ctx context.Context, before map[kafka.TopicPartition]kafka.Offset) Results[kafka.TopicPartition, kafka.Offset] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	tps := partitions(before)
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = brokerTimeout(ctx)
	for topic, ps := range byTopic(tps) {
		t := kmsg.NewDeleteRecordsRequestTopic()
		t.Topic = topic
		for _, p := range ps {
			one := kmsg.NewDeleteRecordsRequestTopicPartition()
			one.Partition, one.Offset = p, int64(before[kafka.TopicPartition{Topic: topic, Partition: p}])
			t.Partitions = append(t.Partitions, one)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, a.c)
	got := make(answered[kafka.Offset])
	if resp != nil {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				got.add(t.Topic, p.Partition, answer[kafka.Offset]{kafka.Offset(p.LowWatermark), p.ErrorCode, nil})
			}
		}
	}
	return got.results("delete records of", tps, lostIn(err), -1)
}
