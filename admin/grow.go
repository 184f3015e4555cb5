package admin

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// MorePartitions says how a topic is to grow.
type MorePartitions struct {
	Total int32 // partitions that the topic shall have in all
	// Assignment places the replicas of the new partitions, in their order;
	// nil leaves that to the cluster.
	Assignment [][]kafka.NodeID
}

// CreatePartitions raises the number of partitions of topics to a total. With
// Visible it returns when every live broker shows them with a leader each, with
// ValidateOnly nothing is changed. Each Value is the total asked for.
//
// Keyed records go to other partitions from then on. A topic that has as many
// partitions or more is INVALID_PARTITIONS.
func (a *Admin) CreatePartitions(ctx context.Context, topics map[string]MorePartitions, mode Mode) Results[string, int32] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	names := slices.Sorted(maps.Keys(topics))
	errs := a.change(ctx, len(names), func(open []int) (answers, error) {
		resp, err := growRequest(ctx, names, open, topics, mode).RequestWith(ctx, a.c)
		if err != nil {
			return nil, err
		}
		got := answers{}
		for _, i := range open {
			for j := range resp.Topics {
				if t := &resp.Topics[j]; t.Topic == names[i] {
					got[i] = kafka.CodeError(t.ErrorCode, t.ErrorMessage)
				}
			}
		}
		return got, nil
	})
	res := make(Results[string, int32], len(names))
	var want []wanted
	for i, name := range names {
		w := wanted{TopicRef{Name: name}, hasPartitions(topics[name].Total)}
		res[i] = Result[string, int32]{Item: name, Value: topics[name].Total}
		switch {
		case errs[i] != nil:
			res[i].Value = 0
			res[i].Err = a.inDoubt(opError("create partitions of", name, errs[i]), mode, "topic "+name, a.madeOf(w))
		case mode == Visible:
			want = append(want, w)
		}
	}
	unseen := a.await(ctx, want)
	for i := range res {
		if res[i].Err == nil {
			res[i].Err = opError("create partitions of", res[i].Item, unseen[TopicRef{Name: res[i].Item}])
		}
	}
	return res
}

func growRequest(ctx context.Context, names []string, open []int, topics map[string]MorePartitions, mode Mode) *kmsg.CreatePartitionsRequest {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = brokerTimeout(ctx)
	req.ValidateOnly = mode == ValidateOnly
	for _, i := range open {
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic, t.Count = names[i], topics[names[i]].Total
		for _, replicas := range topics[names[i]].Assignment {
			ra := kmsg.NewCreatePartitionsRequestTopicAssignment()
			ra.Replicas = ids(replicas)
			t.Assignment = append(t.Assignment, ra)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}
