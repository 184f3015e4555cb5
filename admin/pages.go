package admin

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// describePages describes topics by name with DescribeTopicPartitions, page by
// page.
func (a *Admin) describePages(ctx context.Context, topics []TopicRef) (map[TopicRef]described, error) {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	asked := make(map[string]bool)
	for _, ref := range topics {
		if !asked[ref.Name] {
			asked[ref.Name] = true
			t := kmsg.NewDescribeTopicPartitionsRequestTopic()
			t.Topic = ref.Name
			req.Topics = append(req.Topics, t)
		}
	}
	found := make(map[TopicRef]described)
	for {
		resp, err := req.RequestWith(ctx, a.c)
		if err != nil {
			return nil, err
		}
		added := 0
		for i := range resp.Topics {
			added += addPage(found, &resp.Topics[i])
		}
		next := resp.NextCursor
		if next == nil {
			return found, nil
		}
		if added == 0 { // the same page again would never end
			return nil, &kafka.ProtocolError{What: "DescribeTopicPartitions: a page adds nothing and names another one"}
		}
		req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: next.Topic, Partition: next.Partition}
	}
}

// addPage adds what a page says of a topic, and tells how much was new.
func addPage(found map[TopicRef]described, t *kmsg.DescribeTopicPartitionsResponseTopic) (added int) {
	if t.Topic == nil {
		return 0
	}
	ref := TopicRef{Name: *t.Topic}
	d, seen := found[ref]
	if !seen {
		added++
		d.topic = Topic{Name: ref.Name, ID: t.TopicID, Internal: t.IsInternal}
		d.err = kafka.CodeError(t.ErrorCode, nil)
	}
	has := make(map[int32]bool)
	for i := range d.topic.Partitions {
		has[d.topic.Partitions[i].Partition] = true
	}
	for i := range t.Partitions {
		if p := &t.Partitions[i]; !has[p.Partition] {
			added++
			d.topic.Partitions = append(d.topic.Partitions, Partition{
				Partition: p.Partition, Leader: kafka.NodeID(p.LeaderID), Epoch: kafka.LeaderEpoch(p.LeaderEpoch),
				Replicas: nodes(p.Replicas), ISR: nodes(p.ISR), Offline: nodes(p.OfflineReplicas),
				EligibleLeaders: nodes(p.EligibleLeaderReplicas), LastKnownLeaders: nodes(p.LastKnownELR),
				Err: kafka.CodeError(p.ErrorCode, nil),
			})
		}
	}
	sortPartitions(d.topic.Partitions)
	found[ref] = d
	return added
}
