package admin

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// Topic is a topic as a broker describes it.
type Topic struct {
	Name       string
	ID         kafka.TopicID // zero before 2.8
	Internal   bool          // such as __consumer_offsets
	Partitions []Partition   // in order of their numbers
}

// Partition is one partition of a Topic.
type Partition struct {
	Partition int32
	Leader    kafka.NodeID // kafka.NoNode without one
	Epoch     kafka.LeaderEpoch
	Replicas  []kafka.NodeID // the preferred leader first
	ISR       []kafka.NodeID // replicas in sync
	Offline   []kafka.NodeID // replicas on brokers or disks that are down

	EligibleLeaders  []kafka.NodeID // replicas out of sync that may still lead (KIP-966); nil before Kafka 4.0
	LastKnownLeaders []kafka.NodeID // the same, without a guarantee

	Err error // why there is no leader, if the broker says so
}

// Replicas is the replication factor: the most replicas that a partition has.
func (t *Topic) Replicas() int {
	most := 0
	for i := range t.Partitions {
		most = max(most, len(t.Partitions[i].Replicas))
	}
	return most
}

// ListTopics describes all topics that this user may see, internal ones
// included, in order of their names.
func (a *Admin) ListTopics(ctx context.Context) ([]Topic, error) {
	req := metadataRequest()
	req.Topics = nil // all
	resp, err := a.metadata(ctx, req)
	if err != nil {
		return nil, err
	}
	var out []Topic
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic != nil && t.ErrorCode != kerr.UnknownTopicOrPartition.Code {
			out = append(out, topicOf(t))
		}
	}
	slices.SortFunc(out, func(a, b Topic) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// DescribeTopics describes topics. Topics by name are asked for in pages where
// the brokers have that (from Kafka 3.8 on), so that no answer grows with the
// number of partitions. A topic that the broker asked does not know is asked
// of all others before it is UNKNOWN_TOPIC_OR_PARTITION: after a creation some
// may be behind.
func (a *Admin) DescribeTopics(ctx context.Context, topics []TopicRef) Results[TopicRef, Topic] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	res := make(Results[TopicRef, Topic], len(topics))
	found, err := a.describe(ctx, topics)
	var unknown []int
	for i, ref := range topics {
		res[i].Item = ref
		f, ok := found[ref]
		switch {
		case err != nil:
			f.err = err
		case !ok:
			f.err = errLeftOut
		case isUnknown(f.err):
			unknown = append(unknown, i)
		}
		res[i].Value, res[i].Err = f.topic, opError("describe topic", ref.String(), f.err)
	}
	a.askAll(ctx, res, unknown)
	return res
}

func isUnknown(err error) bool {
	code, ok := err.(*kafka.BrokerError)
	return ok && (code.Code == kerr.UnknownTopicOrPartition.Code || code.Code == kerr.UnknownTopicID.Code)
}

// described is a topic of an answer, or its error.
type described struct {
	topic Topic
	err   error
}

// describe asks one broker, in pages if it can.
func (a *Admin) describe(ctx context.Context, topics []TopicRef) (map[TopicRef]described, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	if !slices.ContainsFunc(topics, func(r TopicRef) bool { return r.Name == "" }) {
		found, err := a.describePages(ctx, topics)
		if !unsupported(err) {
			return found, err
		}
	}
	found := make(map[TopicRef]described)
	for _, req := range metadataRequests(topics) {
		resp, err := a.metadata(ctx, req)
		if err != nil {
			return nil, err
		}
		for i := range resp.Topics {
			addTopic(found, topics, &resp.Topics[i])
		}
	}
	return found, nil
}

// addTopic adds a topic of a Metadata answer under the name that it was asked
// by.
func addTopic(found map[TopicRef]described, topics []TopicRef, t *kmsg.MetadataResponseTopic) {
	d := described{topic: topicOf(t), err: kafka.CodeError(t.ErrorCode, nil)}
	if t.ErrorCode == kerr.LeaderNotAvailable.Code {
		d.err = nil // partitions say it each for themselves
	}
	for _, ref := range topics {
		if ref.is(t.Topic, t.TopicID) {
			found[ref] = d
		}
	}
}

// askAll asks every broker about topics that one did not know.
func (a *Admin) askAll(ctx context.Context, res Results[TopicRef, Topic], unknown []int) {
	if len(unknown) == 0 {
		return
	}
	var want []wanted
	for _, i := range unknown {
		want = append(want, wanted{topic: res[i].Item})
	}
	views, _, err := a.views(ctx, want)
	if err != nil {
		return // the one answer stands
	}
	for _, i := range unknown {
		for _, v := range views {
			if t := v.of(res[i].Item); t != nil && t.ErrorCode == 0 {
				res[i].Value, res[i].Err = topicOf(t), nil
			}
		}
	}
}

// metadataRequests ask for topics and create none: one request for those by
// name and one for those by id, since a broker ignores names beside ids.
func metadataRequests(topics []TopicRef) []*kmsg.MetadataRequest {
	named, byID := metadataRequest(), metadataRequest()
	for i := range topics {
		t := kmsg.NewMetadataRequestTopic()
		if topics[i].Name != "" {
			t.Topic = kmsg.StringPtr(topics[i].Name)
			named.Topics = append(named.Topics, t)
		} else {
			t.TopicID = topics[i].ID
			byID.Topics = append(byID.Topics, t)
		}
	}
	return slices.DeleteFunc([]*kmsg.MetadataRequest{named, byID}, func(r *kmsg.MetadataRequest) bool { return len(r.Topics) == 0 })
}

// metadata asks any broker. An answer that is refused as a whole, or that names
// no broker, as one that is just starting may give, is an error and no empty list.
func (a *client) metadata(ctx context.Context, req *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error) {
	resp, err := req.RequestWith(ctx, a.c)
	if err == nil {
		err = opError("metadata", "", refused(resp))
	}
	return resp, err
}

// refused is why a Metadata answer says nothing about the cluster.
func refused(resp *kmsg.MetadataResponse) error {
	if len(resp.Brokers) == 0 && resp.ErrorCode == 0 {
		return errNoBrokers
	}
	return kafka.CodeError(resp.ErrorCode, nil)
}

var errNoBrokers error = unsent("the answer names no broker")

// metadataRequest asks for the brokers alone.
func metadataRequest() *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	req.Topics = []kmsg.MetadataRequestTopic{}
	return req
}

// topicOf is a topic as Metadata has it.
func topicOf(t *kmsg.MetadataResponseTopic) Topic {
	out := Topic{ID: t.TopicID, Internal: t.IsInternal}
	if t.Topic != nil {
		out.Name = *t.Topic
	}
	for i := range t.Partitions {
		p := &t.Partitions[i]
		out.Partitions = append(out.Partitions, Partition{
			Partition: p.Partition, Leader: kafka.NodeID(p.Leader), Epoch: kafka.LeaderEpoch(p.LeaderEpoch),
			Replicas: nodes(p.Replicas), ISR: nodes(p.ISR), Offline: nodes(p.OfflineReplicas),
			Err: kafka.CodeError(p.ErrorCode, nil),
		})
	}
	sortPartitions(out.Partitions)
	return out
}

func sortPartitions(ps []Partition) {
	slices.SortFunc(ps, func(a, b Partition) int { return int(a.Partition) - int(b.Partition) })
}
