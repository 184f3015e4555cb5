package admin

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// OffsetAt says which offset of a partition is asked for: one of the constants,
// or with [AtTime] the first record at or after a time.
type OffsetAt int64

// The offsets that have a name. The constants are those of the protocol.
const (
	Latest                OffsetAt = -1 // the end of the log; for ReadCommitted the last stable offset
	Earliest              OffsetAt = -2 // the first offset of the log
	MaxTimestamp          OffsetAt = -3 // the record with the latest timestamp (KIP-734), from Kafka 3.0 on
	EarliestLocal         OffsetAt = -4 // the first offset on the leader's disk (KIP-405), from 3.4 on
	LatestTiered          OffsetAt = -5 // the last offset in tiered storage (KIP-1005), from 3.9 on
	EarliestPendingUpload OffsetAt = -6 // the first offset that is not in tiered storage yet (KIP-1023), from 4.2 on
)

// AtTime asks for the first record whose timestamp is t or later. t is cut to
// milliseconds; times before 1970 are 1970.
func AtTime(t time.Time) OffsetAt { return OffsetAt(max(kafka.TimestampOf(t), 0)) }

// Isolation says whether records of open transactions count (isolation.level).
type Isolation int8

const (
	ReadUncommitted Isolation = 0 // they do
	ReadCommitted   Isolation = 1 // nothing after the first of them counts
)

// Offset is an offset that was asked for.
type Offset struct {
	Offset      kafka.Offset      // -1: there is none, such as no record at or after the time
	Timestamp   kafka.Timestamp   // of the record found by time, else kafka.NoTimestamp
	LeaderEpoch kafka.LeaderEpoch // of that record, kafka.NoEpoch if not known
}

// ListOffsets asks the leaders for offsets of partitions. An offset that a
// leader is too old for is a [*kafka.VersionError], and takes nothing from the
// others. Where Err is set, Offset is -1.
func (a *Admin) ListOffsets(ctx context.Context, at map[kafka.TopicPartition]OffsetAt, level Isolation) Results[kafka.TopicPartition, Offset] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	kinds := make(map[OffsetAt][]kafka.TopicPartition) // what needs a version of its own goes alone
	for _, tp := range partitions(at) {
		kind := min(at[tp], Latest)
		if kind == Earliest {
			kind = Latest
		}
		kinds[kind] = append(kinds[kind], tp)
	}
	res := make(Results[kafka.TopicPartition, Offset], 0, len(at))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		res = append(res, a.listOffsets(ctx, kinds[kind], at, level)...)
	}
	slices.SortFunc(res, func(a, b Result[kafka.TopicPartition, Offset]) int { return a.Item.Compare(b.Item) })
	return res
}

func (a *client) listOffsets(ctx context.Context, tps []kafka.TopicPartition, at map[kafka.TopicPartition]OffsetAt, level Isolation) Results[kafka.TopicPartition, Offset] {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel, req.TimeoutMillis = -1, int8(level), brokerTimeout(ctx)
	for topic, ps := range byTopic(tps) {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for _, p := range ps {
			one := kmsg.NewListOffsetsRequestTopicPartition()
			one.Partition, one.Timestamp = p, int64(at[kafka.TopicPartition{Topic: topic, Partition: p}])
			t.Partitions = append(t.Partitions, one)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, a.c)
	got := make(answered[Offset])
	if resp != nil {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				o := Offset{kafka.Offset(p.Offset), kafka.Timestamp(p.Timestamp), kafka.LeaderEpoch(p.LeaderEpoch)}
				got.add(t.Topic, p.Partition, answer[Offset]{o, p.ErrorCode, nil})
			}
		}
	}
	return got.results("list offsets of", tps, lostIn(err), Offset{-1, kafka.NoTimestamp, kafka.NoEpoch})
}

// EpochEnd is where a leader epoch ends in a log.
type EpochEnd struct {
	Epoch kafka.LeaderEpoch // the largest epoch of the log up to the one asked for
	End   kafka.Offset      // the offset after its last record; -1 for an epoch that the log does not have
}

// EpochEndOffsets asks the leaders where leader epochs end in their logs
// (OffsetForLeaderEpoch).
func (a *Admin) EpochEndOffsets(ctx context.Context, epochs map[kafka.TopicPartition]kafka.LeaderEpoch) Results[kafka.TopicPartition, EpochEnd] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	tps := partitions(epochs)
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	for topic, ps := range byTopic(tps) {
		t := kmsg.NewOffsetForLeaderEpochRequestTopic()
		t.Topic = topic
		for _, p := range ps {
			one := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			one.Partition, one.LeaderEpoch = p, int32(epochs[kafka.TopicPartition{Topic: topic, Partition: p}])
			t.Partitions = append(t.Partitions, one)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, a.c)
	got := make(answered[EpochEnd])
	if resp != nil {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				got.add(t.Topic, p.Partition, answer[EpochEnd]{EpochEnd{kafka.LeaderEpoch(p.LeaderEpoch), kafka.Offset(p.EndOffset)}, p.ErrorCode, nil})
			}
		}
	}
	return got.results("epoch end offset of", tps, lostIn(err), EpochEnd{kafka.NoEpoch, -1})
}
