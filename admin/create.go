package admin

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// NewTopic says how a topic is to be made.
type NewTopic struct {
	Name       string
	Partitions int32             // 0 = the brokers' default (num.partitions), from Kafka 2.4 on
	Replicas   int16             // of each partition; 0 = the brokers' default (default.replication.factor), from 2.4 on
	Configs    map[string]string // settings of the topic; the others are the brokers'

	// Assignment places the replicas of partition i on the brokers of element
	// i, the preferred leader first. Partitions and Replicas are ignored then.
	Assignment [][]kafka.NodeID
}

// CreatedTopic is a topic as the controller made it. Brokers before 2.4 tell
// nothing of it: the numbers are those that were asked for.
type CreatedTopic struct {
	ID         kafka.TopicID // zero before 2.8
	Partitions int32
	Replicas   int16
}

// CreateTopics makes topics. With Visible it returns when every live broker
// shows them with a leader for each partition; with ValidateOnly none is made.
//
// A name that is taken is TOPIC_ALREADY_EXISTS. A topic of which it is not
// known whether it was made is an [*InDoubtError].
func (a *Admin) CreateTopics(ctx context.Context, topics []NewTopic, mode Mode) Results[string, CreatedTopic] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	res := make(Results[string, CreatedTopic], len(topics))
	errs := a.change(ctx, len(topics), func(open []int) (answers, error) {
		resp, err := createRequest(ctx, topics, open, mode).RequestWith(ctx, a.c)
		if err != nil {
			return nil, err
		}
		got := answers{}
		for _, i := range open {
			for j := range resp.Topics {
				if t := &resp.Topics[j]; t.Topic == topics[i].Name {
					got[i] = kafka.CodeError(t.ErrorCode, t.ErrorMessage)
					res[i].Value = created(&topics[i], t)
				}
			}
		}
		return got, nil
	})
	var want []wanted
	for i := range topics {
		ref := TopicRef{Name: topics[i].Name}
		res[i].Item, res[i].Err = ref.Name, opError("create topic", ref.Name, errs[i])
		switch {
		case errs[i] != nil:
			res[i].Value = CreatedTopic{}
			res[i].Err = a.inDoubt(res[i].Err, mode, "topic "+ref.Name, a.madeOf(wanted{ref, hasPartitions(1)}))
		case mode == Visible:
			want = append(want, wanted{ref, hasPartitions(res[i].Value.Partitions)})
		}
	}
	unseen := a.await(ctx, want)
	for i := range res {
		if res[i].Err == nil {
			res[i].Err = opError("create topic", res[i].Item, unseen[TopicRef{Name: res[i].Item}])
		}
	}
	return res
}

func createRequest(ctx context.Context, topics []NewTopic, open []int, mode Mode) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = brokerTimeout(ctx)
	req.ValidateOnly = mode == ValidateOnly
	for _, i := range open {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = topics[i].Name, topics[i].Partitions, topics[i].Replicas
		if t.NumPartitions == 0 || len(topics[i].Assignment) > 0 {
			t.NumPartitions = -1
		}
		if t.ReplicationFactor == 0 || len(topics[i].Assignment) > 0 {
			t.ReplicationFactor = -1
		}
		for p, replicas := range topics[i].Assignment {
			ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			ra.Partition, ra.Replicas = int32(p), ids(replicas)
			t.ReplicaAssignment = append(t.ReplicaAssignment, ra)
		}
		for _, name := range slices.Sorted(maps.Keys(topics[i].Configs)) {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = name, kmsg.StringPtr(topics[i].Configs[name])
			t.Configs = append(t.Configs, c)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// created is the topic as the answer describes it, or as it was asked for.
func created(asked *NewTopic, t *kmsg.CreateTopicsResponseTopic) CreatedTopic {
	made := CreatedTopic{ID: t.TopicID, Partitions: t.NumPartitions, Replicas: t.ReplicationFactor}
	if made.Partitions <= 0 { // the broker is old, or may not tell
		made.Partitions, made.Replicas = asked.Partitions, asked.Replicas
		if n := len(asked.Assignment); n > 0 {
			made.Partitions, made.Replicas = int32(n), int16(len(asked.Assignment[0]))
		}
	}
	return made
}
