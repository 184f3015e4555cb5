package consumer

import (
	"context"
	"iter"

	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/internal/core/group"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// Batch is a view of one record batch, verified and decompressed. It is a value
// and may be kept, copied and used from several goroutines; it keeps its bytes
// alive. The zero Batch holds no records; only its fields, Records, Count and
// Size may be used.
type Batch struct {
	Topic     string
	Partition int32
	batch     record.Batch
	payload   []byte
	from      kafka.Offset // records below it are not handed out
	ctx       context.Context
	work      *group.Work // in the book of a member, where handlers or marks finish it
}

func newBatch(l fetch.Loan, b record.Batch) Batch {
	return Batch{Topic: l.Topic, Partition: l.Partition, batch: b, payload: l.Payload, from: l.From}
}

// TopicPartition is the partition the batch belongs to.
func (b Batch) TopicPartition() kafka.TopicPartition {
	return kafka.TopicPartition{Topic: b.Topic, Partition: b.Partition}
}

// Records ranges over the records of the batch from the position on, as offset
// and record, in rising order. It can be ranged over again. Nothing is
// allocated per record; headers lie in slabs of about a hundred. Key, Value and
// Headers alias the batch: see the package's section on memory.
func (b Batch) Records() iter.Seq2[int64, kafka.Record] {
	return func(yield func(int64, kafka.Record) bool) {
		if b.batch.IsZero() {
			return
		}
		var r record.Reader
		r.Reset(b.batch, b.payload)
		epoch, kind := b.LeaderEpoch(), b.TimestampType()
		for {
			key, value, o, t, ok := r.Read()
			if !ok {
				return
			}
			if o >= b.from && !yield(int64(o), kafka.Record{
				Topic: b.Topic, Partition: b.Partition, LeaderEpoch: epoch, Offset: o, Timestamp: t, TimestampType: kind,
				Key: key, Value: value, Headers: r.Headers(),
			}) {
				return
			}
		}
	}
}

// Context ends when work on the batch should: in a group when its partition
// goes, with [ErrRevoked] or the loss as cause, and when the consumer is closed.
func (b Batch) Context() context.Context {
	if b.ctx == nil {
		return context.Background()
	}
	return b.ctx
}

// Next is the position behind the batch. It can be above the last record's
// offset + 1, where compaction removed records.
func (b Batch) Next() kafka.Offset { return b.batch.NextOffset() }

// First is the position that the batch was read from: no record of it has a
// lower offset.
func (b Batch) First() kafka.Offset { return max(b.from, b.batch.BaseOffset()) }

// Count is the number of records in the batch, those below the position
// included.
func (b Batch) Count() int {
	if b.batch.IsZero() {
		return 0
	}
	return b.batch.CountIn(b.payload)
}

// Size is the number of bytes of the batch as it was on the wire.
func (b Batch) Size() int { return b.batch.Size() }

// Codec is how the batch was compressed (compression.type).
func (b Batch) Codec() compress.Codec { return b.batch.Codec() }

// LeaderEpoch is the epoch of the leader that appended the batch.
func (b Batch) LeaderEpoch() kafka.LeaderEpoch { return b.batch.LeaderEpoch() }

// TimestampType says whose clock the timestamps of the records are.
func (b Batch) TimestampType() kafka.TimestampType { return b.batch.TimestampType() }

// MaxTimestamp is the highest timestamp in the batch.
func (b Batch) MaxTimestamp() kafka.Timestamp { return b.batch.MaxTimestamp() }

// Producer is the id and epoch of the idempotent or transactional producer that
// wrote the batch, -1 and -1 if it was neither.
func (b Batch) Producer() (kafka.ProducerID, kafka.ProducerEpoch) {
	return b.batch.ProducerID(), b.batch.ProducerEpoch()
}

// Transactional reports whether the batch was written in a transaction.
func (b Batch) Transactional() bool { return b.batch.Transactional() }
