package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/kafka"
)

// Timestamps with a meaning of their own in ListOffsets.
const (
	timeEnd       kafka.Timestamp = -1
	timeBeginning kafka.Timestamp = -2

	timeMaxTimestamp kafka.Timestamp = -3
)

// OffsetAt is an offset that was looked up by time.
type OffsetAt struct {
	Offset    kafka.Offset
	Timestamp kafka.Timestamp   // of the record there
	Epoch     kafka.LeaderEpoch // of the leader that appended it, kafka.NoEpoch if unknown
}

// lookups ask for offsets of partitions, assigned or not.
type lookups struct{ c *actor }

// Beginning asks for the first offset of partitions, assigned or not. The
// leaders are asked at the same time, elections are waited for until ctx ends,
// and a partition without an answer is absent from the result: the error then
// holds a [*kafka.OpError] for it.
func (l *lookups) Beginning(ctx context.Context, tps ...kafka.TopicPartition) (map[kafka.TopicPartition]kafka.Offset, error) {
	return l.ends(ctx, tps, timeBeginning)
}

// End asks for the end of partitions, assigned or not: the offset behind the
// last record, or under [ReadCommitted] the last stable offset. It is otherwise
// as Beginning.
func (l *lookups) End(ctx context.Context, tps ...kafka.TopicPartition) (map[kafka.TopicPartition]kafka.Offset, error) {
	return l.ends(ctx, tps, timeEnd)
}

func (l *lookups) ends(ctx context.Context, tps []kafka.TopicPartition, ts kafka.Timestamp) (map[kafka.TopicPartition]kafka.Offset, error) {
	at := make(map[kafka.TopicPartition]kafka.Timestamp, len(tps))
	for _, tp := range tps {
		at[tp] = ts
	}
	found, err := l.listOffsets(ctx, at)
	out := make(map[kafka.TopicPartition]kafka.Offset, len(found))
	for tp, o := range found {
		out[tp] = o.Offset
	}
	return out, err
}

// OffsetsForTimes asks for the first record of each partition whose timestamp is
// the given time or later. A partition without such a record is absent from the
// result, which is no error. It is otherwise as Beginning.
func (l *lookups) OffsetsForTimes(ctx context.Context, times map[kafka.TopicPartition]time.Time) (map[kafka.TopicPartition]OffsetAt, error) {
	at := make(map[kafka.TopicPartition]kafka.Timestamp, len(times))
	for tp, t := range times {
		at[tp] = max(kafka.TimestampOf(t), 0)
	}
	return l.listOffsets(ctx, at)
}

// MaxTimestamp asks for the record with the highest timestamp of each partition
// (KIP-734). An empty partition is absent from the result. A broker before Kafka
// 3.0 cannot tell: [*kafka.VersionError]. It is otherwise as Beginning.
func (l *lookups) MaxTimestamp(ctx context.Context, tps ...kafka.TopicPartition) (map[kafka.TopicPartition]OffsetAt, error) {
	at := make(map[kafka.TopicPartition]kafka.Timestamp, len(tps))
	for _, tp := range tps {
		at[tp] = timeMaxTimestamp
	}
	return l.listOffsets(ctx, at)
}

// listOffsets asks for an offset of each partition.
func (l *lookups) listOffsets(ctx context.Context, at map[kafka.TopicPartition]kafka.Timestamp) (map[kafka.TopicPartition]OffsetAt, error) {
	if err := l.c.ready(ctx); err != nil {
		return nil, err
	}
	if len(at) == 0 {
		return nil, nil
	}
	tps := make([]kafka.TopicPartition, 0, len(at))
	for tp := range at {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, kafka.TopicPartition.Compare)
	req := fetch.NewListOffsets(fetch.Isolation(l.c.cfg.Isolation), listTimeout)
	for _, tp := range tps {
		fetch.AddListOffsets(req, tp, kafka.NoEpoch, at[tp])
	}
	resp, err := l.c.cluster.Request(ctx, req)
	r, ok := resp.(*kmsg.ListOffsetsResponse)
	if !ok || r == nil {
		return nil, err
	}
	out, errs := listed(r)
	var partial *cluster.PartialError
	if errors.As(err, &partial) {
		err = nil
		for _, f := range partial.Failed {
			errs = append(errs, failedItem(tps, f))
		}
	}
	return out, errors.Join(append(errs, err)...)
}

// failedItem is the error of a partition that no broker answered for.
func failedItem(tps []kafka.TopicPartition, f cluster.Failure) error {
	op := &kafka.OpError{Op: "list offsets", Broker: f.Broker, Partition: -1, Err: f.Err}
	if i := slices.IndexFunc(tps, func(tp kafka.TopicPartition) bool { return tp.String() == f.Item }); i >= 0 {
		op.Topic, op.Partition = tps[i].Topic, tps[i].Partition
	}
	return op
}

func listed(resp *kmsg.ListOffsetsResponse) (map[kafka.TopicPartition]OffsetAt, []error) {
	out := make(map[kafka.TopicPartition]OffsetAt)
	var errs []error
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			if err := kafka.CodeError(rp.ErrorCode, nil); err != nil {
				errs = append(errs, &kafka.OpError{
					Op: "list offsets", Broker: kafka.NoNode, Topic: rt.Topic, Partition: rp.Partition, Err: err,
				})
				continue
			}
			if rp.Offset >= 0 {
				out[kafka.TopicPartition{Topic: rt.Topic, Partition: rp.Partition}] = OffsetAt{
					Offset: kafka.Offset(rp.Offset), Timestamp: kafka.Timestamp(rp.Timestamp), Epoch: kafka.LeaderEpoch(rp.LeaderEpoch),
				}
			}
		}
	}
	return out, errs
}
