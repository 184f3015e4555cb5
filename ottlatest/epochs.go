package ottlatest

import (
	"github.com/ottla/ottla/kafka"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fixEpochEnds gives an answer to OffsetForLeaderEpoch what a real broker
// knows and kfake does not: where an epoch ended whose successors have not
// appended anything yet, which is the end of the log. kfake answers -1, and a
// client would take that for a lost log.
func fixEpochEnds(c *Cluster, req *kmsg.OffsetForLeaderEpochRequest, resp *kmsg.OffsetForLeaderEpochResponse) {
	for _, t := range resp.Topics {
		for j := range t.Partitions {
			fixEpochEnd(c, t.Topic, &t.Partitions[j], epochAsked(req, t.Topic, t.Partitions[j].Partition))
		}
	}
}

func fixEpochEnd(c *Cluster, topic string, p *kmsg.OffsetForLeaderEpochResponseTopicPartition, asked int32) {
	if p.ErrorCode != 0 || p.LeaderEpoch != -1 || asked < 0 {
		return
	}
	if now, end, ok := (own{c}).epochEnd(topic, p.Partition); ok && asked < now {
		p.LeaderEpoch, p.EndOffset = asked, end
	}
}

func epochAsked(req *kmsg.OffsetForLeaderEpochRequest, topic string, partition int32) int32 {
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			if t.Topic == topic && p.Partition == partition {
				return p.LeaderEpoch
			}
		}
	}
	return -1
}

// epochEnd is the current leader epoch of a partition and the end of its log.
func (o own) epochEnd(topic string, partition int32) (epoch int32, end int64, ok bool) {
	md := kmsg.NewPtrMetadataRequest()
	md.Version, md.Topics = 9, []kmsg.MetadataRequestTopic{{Topic: &topic}}
	resp, err := o.ask(0, md)
	if err != nil {
		return 0, 0, false
	}
	var leader kafka.NodeID
	for _, p := range resp.(*kmsg.MetadataResponse).Topics[0].Partitions {
		if p.Partition == partition {
			leader, epoch, ok = kafka.NodeID(p.Leader), p.LeaderEpoch, true
		}
	}
	if !ok {
		return 0, 0, false
	}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version, req.ReplicaID = 4, -1
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = partition, -1, epoch
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	if resp, err = o.ask(leader, req); err != nil {
		return 0, 0, false
	}
	got := resp.(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
	return epoch, got.EndOffset, got.ErrorCode == 0
}
