package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

// Offsets reads what groups have committed, for each every partition that
// it has an offset of. A group that does not exist has none. It may be asked for
// many groups at once.
func (a *Groups) Offsets(ctx context.Context, groups []string) Results[string, Results[kafka.TopicPartition, kafka.Commit]] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	res := make(Results[string, Results[kafka.TopicPartition, kafka.Commit]], len(groups))
	if len(groups) == 0 {
		return res
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	for _, g := range groups {
		one := kmsg.NewOffsetFetchRequestGroup()
		one.Group, one.Topics = g, nil // all
		req.Groups = append(req.Groups, one)
	}
	// From version 10 on an answer about all topics names them by id only.
	kresp, err := cluster.Within(a.c, -1, 9).Request(ctx, req)
	l := lostIn(err)
	got := make(map[string]*kmsg.OffsetFetchResponseGroup)
	if resp, ok := kresp.(*kmsg.OffsetFetchResponse); ok && resp != nil {
		for i := range resp.Groups {
			got[resp.Groups[i].Group] = &resp.Groups[i]
		}
	}
	for i, g := range groups {
		err := l.of(g, 0, nil)
		if f := got[g]; f != nil {
			err = l.of(g, f.ErrorCode, nil)
			res[i].Value = committed(g, f)
		} else if err == nil {
			err = errLeftOut
		}
		res[i].Item, res[i].Err = g, opError("offsets of group "+g, "", err)
	}
	return res
}

func committed(g string, f *kmsg.OffsetFetchResponseGroup) Results[kafka.TopicPartition, kafka.Commit] {
	found := make(answered[kafka.Commit])
	for _, t := range f.Topics {
		for _, p := range t.Partitions {
			if p.Offset >= 0 || p.ErrorCode != 0 {
				c := kafka.Commit{Offset: kafka.Offset(p.Offset), LeaderEpoch: kafka.LeaderEpoch(p.LeaderEpoch), Metadata: text(p.Metadata)}
				found.add(t.Topic, p.Partition, answer[kafka.Commit]{c, p.ErrorCode, nil})
			}
		}
	}
	return found.results("offset of group "+g+" for", partitions(found), lost{}, kafka.Commit{Offset: -1, LeaderEpoch: kafka.NoEpoch})
}

// GroupActiveError is a change of a group's offsets that the coordinator
// refuses while the group has members: they commit for themselves.
type GroupActiveError struct {
	Group string
	Err   error // the broker's code
}

func (e *GroupActiveError) Error() string {
	return fmt.Sprintf("ottla: group %s has members, and only they may change its offsets: stop them first (%v)", e.Group, e.Err)
}

func (e *GroupActiveError) Unwrap() error { return e.Err }

// MayHaveHappened is false.
func (*GroupActiveError) MayHaveHappened() bool { return false }

// active is err, as a GroupActiveError where that is what it means.
func active(group string, err error) error {
	for _, code := range []error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.FencedMemberEpoch, kerr.StaleMemberEpoch} {
		if errors.Is(err, code) {
			return &GroupActiveError{group, err}
		}
	}
	return err
}

// AlterOffsets sets the offsets of a group that has no members, and makes
// the group if it does not exist. While it has members each item is a
// [*GroupActiveError].
func (a *Groups) AlterOffsets(ctx context.Context, group string, offsets map[kafka.TopicPartition]kafka.Commit) Results[kafka.TopicPartition, struct{}] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	tps := partitions(offsets)
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, kafka.NoGeneration
	for topic, ps := range byTopic(tps) {
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic = topic
		for _, p := range ps {
			c := offsets[kafka.TopicPartition{Topic: topic, Partition: p}]
			one := kmsg.NewOffsetCommitRequestTopicPartition()
			one.Partition, one.Offset, one.LeaderEpoch, one.Metadata = p, int64(c.Offset), int32(c.LeaderEpoch), kmsg.StringPtr(c.Metadata)
			t.Partitions = append(t.Partitions, one)
		}
		req.Topics = append(req.Topics, t)
	}
	if len(tps) == 0 {
		return nil
	}
	resp, err := req.RequestWith(ctx, a.c)
	got := make(answered[struct{}])
	if resp != nil {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				got.add(t.Topic, p.Partition, answer[struct{}]{code: p.ErrorCode})
			}
		}
	}
	return groupResults(got.results("set offset of group "+group+" for", tps, lostIn(err), struct{}{}), group)
}

// DeleteOffsets deletes offsets of a group (KIP-496, from Kafka 2.4 on).
// A topic that members of the group subscribe to is GROUP_SUBSCRIBED_TO_TOPIC.
func (a *Groups) DeleteOffsets(ctx context.Context, group string, tps []kafka.TopicPartition) Results[kafka.TopicPartition, struct{}] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if len(tps) == 0 {
		return nil
	}
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	for topic, ps := range byTopic(tps) {
		t := kmsg.NewOffsetDeleteRequestTopic()
		t.Topic = topic
		for _, p := range ps {
			one := kmsg.NewOffsetDeleteRequestTopicPartition()
			one.Partition = p
			t.Partitions = append(t.Partitions, one)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, a.c)
	if err == nil {
		err = kafka.CodeError(resp.ErrorCode, nil)
	}
	got := make(answered[struct{}])
	if resp != nil {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				got.add(t.Topic, p.Partition, answer[struct{}]{code: p.ErrorCode})
			}
		}
	}
	return groupResults(got.results("delete offset of group "+group+" for", tps, lostIn(err), struct{}{}), group)
}

func groupResults(res Results[kafka.TopicPartition, struct{}], group string) Results[kafka.TopicPartition, struct{}] {
	for i := range res {
		res[i].Err = active(group, res[i].Err)
	}
	return res
}

// Lag is how far a group is behind in one partition.
type Lag struct {
	Committed kafka.Offset // -1: it has committed none
	Start     kafka.Offset // first offset of the partition
	End       kafka.Offset // its last stable offset
	Records   int64        // offsets still to read; from the start where none is committed
	Member    string       // the member that has the partition, empty if none does
}

// Lag tells how far a group is behind, for every partition that it has
// committed an offset of or that a member has. The error is about the group as
// a whole.
func (a *Groups) Lag(ctx context.Context, group string) (Results[kafka.TopicPartition, Lag], error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	described := a.Describe(ctx, []string{group})[0]
	if described.Err != nil && !errors.Is(described.Err, kerr.GroupIDNotFound) {
		return nil, described.Err
	}
	offsets := a.Offsets(ctx, []string{group})[0]
	if offsets.Err != nil {
		return nil, offsets.Err
	}
	lags := make(map[kafka.TopicPartition]Lag)
	ends, starts := make(map[kafka.TopicPartition]OffsetAt), make(map[kafka.TopicPartition]OffsetAt)
	add := func(tp kafka.TopicPartition, change func(*Lag)) {
		l, ok := lags[tp]
		if !ok {
			l.Committed = -1
		}
		change(&l)
		lags[tp], ends[tp], starts[tp] = l, Latest, Earliest
	}
	failed := make(map[kafka.TopicPartition]error)
	for _, o := range offsets.Value {
		failed[o.Item] = o.Err
		add(o.Item, func(l *Lag) { l.Committed = o.Value.Offset })
	}
	for _, m := range described.Value.Members {
		for _, tp := range m.Assigned {
			add(tp, func(l *Lag) { l.Member = m.ID })
		}
	}
	topics := Admin{a.client}
	end, start := topics.ListOffsets(ctx, ends, ReadCommitted), topics.ListOffsets(ctx, starts, ReadCommitted)
	res := make(Results[kafka.TopicPartition, Lag], len(end))
	for i := range end {
		l := lags[end[i].Item]
		l.Start, l.End = start[i].Value.Offset, end[i].Value.Offset
		l.Records = int64(max(l.End-max(l.Committed, l.Start), 0))
		res[i] = Result[kafka.TopicPartition, Lag]{Item: end[i].Item, Value: l, Err: failed[end[i].Item]}
		if res[i].Err == nil {
			res[i].Err = errors.Join(end[i].Err, start[i].Err)
		}
	}
	return res, nil
}
