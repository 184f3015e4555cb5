package admin

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// TopicRef names a topic: by its Name, or where that is empty by its ID, which
// no other topic ever has (KIP-516, brokers from 2.8 on).
type TopicRef struct {
	Name string
	ID   kafka.TopicID
}

// Topics names topics by their names.
func Topics(names ...string) []TopicRef {
	refs := make([]TopicRef, len(names))
	for i, n := range names {
		refs[i].Name = n
	}
	return refs
}

// String is the name, or the id.
func (r TopicRef) String() string {
	if r.Name != "" {
		return r.Name
	}
	return r.ID.String()
}

var errNoDryRun error = unsent("ottla: Kafka has no dry run for the deletion of topics")

// DeleteTopics deletes topics and all their records. With Visible it returns
// when no live broker shows them any more. ValidateOnly is refused: Kafka has no
// such form. Each Value is the id of the deleted topic, zero before 2.8.
//
// A topic of which it is not known whether it was deleted is an
// [*InDoubtError].
func (a *Admin) DeleteTopics(ctx context.Context, topics []TopicRef, mode Mode) Results[TopicRef, kafka.TopicID] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	res := make(Results[TopicRef, kafka.TopicID], len(topics))
	names := make([]TopicRef, len(topics)) // brokers of 2.8 delete by id and describe by name only
	errs := a.change(ctx, len(topics), func(open []int) (answers, error) {
		if mode == ValidateOnly {
			return nil, errNoDryRun
		}
		resp, err := deleteRequest(ctx, topics, open).RequestWith(ctx, a.c)
		if err != nil {
			return nil, err
		}
		got := answers{}
		for _, i := range open {
			for j := range resp.Topics {
				t := &resp.Topics[j]
				if !topics[i].is(t.Topic, t.TopicID) {
					continue
				}
				got[i] = kafka.CodeError(t.ErrorCode, t.ErrorMessage)
				res[i].Value, names[i] = t.TopicID, topics[i]
				if t.Topic != nil {
					names[i] = TopicRef{Name: *t.Topic}
				}
			}
		}
		return got, nil
	})
	var want []wanted
	for i, ref := range topics {
		res[i].Item, res[i].Err = ref, opError("delete topic", ref.String(), errs[i])
		w := wanted{names[i], gone(res[i].Value)}
		switch {
		case errs[i] != nil:
			res[i].Value = kafka.TopicID{}
			res[i].Err = a.inDoubt(res[i].Err, mode, "topic "+ref.String(), a.goneOf(wanted{ref, gone(kafka.TopicID{})}))
		case mode == Visible:
			want = append(want, w)
		}
	}
	unseen := a.await(ctx, want)
	for i := range res {
		if res[i].Err == nil {
			res[i].Err = opError("delete topic", res[i].Item.String(), unseen[names[i]])
		}
	}
	return res
}

func deleteRequest(ctx context.Context, topics []TopicRef, open []int) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = brokerTimeout(ctx)
	for _, i := range open {
		t := kmsg.NewDeleteTopicsRequestTopic()
		if topics[i].Name != "" {
			t.Topic = &topics[i].Name
		} else {
			t.TopicID = topics[i].ID
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// is reports whether an answer about a name and an id is about this topic.
func (r TopicRef) is(name *string, id kafka.TopicID) bool {
	if r.Name != "" {
		return name != nil && *name == r.Name
	}
	return id == r.ID
}

// gone is true for a topic that does not exist, or has an id other than this:
// its name was taken again.
func gone(id kafka.TopicID) func(*kmsg.MetadataResponseTopic) bool {
	return func(t *kmsg.MetadataResponseTopic) bool {
		switch t.ErrorCode {
		case kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code:
			return true
		}
		return t.ErrorCode == 0 && !id.IsZero() && t.TopicID != id
	}
}
