package producer

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// batch is one batch from its first record to its result. Until it is closed
// its partition's mutex guards it, afterwards it belongs to the actor, except
// while it is being sealed, when it is the worker's. What stands behind done
// is written before done is closed and never again.
type batch struct {
	id      produce.BatchID
	tp      kafka.TopicPartition
	part    *partition // nil in a topic's waiting area
	since   time.Time  // of its first record
	builder record.Builder
	count   int   // records, once closed
	raw     int   // size uncompressed, once closed
	room    int64 // bytes taken from the budget
	ahead   int64 // size of the buffer that it began with
	choices []int32
	urgent  bool // in the waiting area: do not linger once placed; the actor's

	wire  []byte         // sealed
	codec compress.Codec // of wire
	stamp record.Stamp   // in wire
	withdrawals
	closed bool // handed over by its partition; the actor's, as sealed is
	sealed bool

	done chan struct{}
	verdict
}

// verdict is what became of a batch.
type verdict struct {
	base       kafka.Offset
	appendTime kafka.Timestamp
	err        error
	reasons    []produce.Reason // records that are the cause of err, if the broker named some
	placed     []Receipt        // where the records went: to partitions, or to halves of this batch
}

// undecided is the verdict of a batch without a result.
func undecided() verdict { return verdict{base: -1, appendTime: kafka.NoTimestamp} }

// entry is what the machine is told of a closed batch.
func (b *batch) entry() produce.Batch {
	return produce.Batch{ID: b.id, Partition: b.tp, Count: int32(b.count), Since: b.since}
}

// now is the time, read with one look at the clock: time.Now takes two.
func (b *batch) now() kafka.Timestamp {
	return kafka.TimestampOf(b.since) + kafka.Timestamp(time.Since(b.since).Milliseconds())
}

// errOf is the error of one record.
func (b *batch) errOf(index int32) error {
	if len(b.reasons) == 0 || b.err == nil {
		return b.err
	}
	op, ok := b.err.(*kafka.OpError)
	if !ok {
		return b.err
	}
	own := *op
	rejected := &RejectedError{Err: op.Err}
	for _, r := range b.reasons {
		if r.Index == index {
			rejected.Reason = r.Text
			rejected.Guilty = true
		}
	}
	own.Err = rejected
	return &own
}

// RejectedError is a record of a batch that the broker rejected because of some
// of its records. None of the batch was written.
type RejectedError struct {
	Guilty bool   // this record is one of those that the broker objects to
	Reason string // what the broker says of it, if it says something
	Err    error  // the broker's code
}

func (e *RejectedError) Error() string {
	switch {
	case !e.Guilty:
		return "not written because of another record of its batch: " + e.Err.Error()
	case e.Reason == "":
		return "this record was rejected: " + e.Err.Error()
	}
	return "this record was rejected: " + e.Reason + ": " + e.Err.Error()
}

func (e *RejectedError) Unwrap() error       { return e.Err }
func (*RejectedError) MayHaveHappened() bool { return false }

func (b *batch) unfinished(err error) Result {
	return Result{
		Topic: b.tp.Topic, Partition: b.tp.Partition, Offset: -1, Timestamp: kafka.NoTimestamp, Err: err,
	}
}

// finish publishes the result.
func (b *batch) finish(out produce.Outcome) {
	b.verdict = verdict{base: out.Offset, appendTime: out.AppendTime, err: out.Err, reasons: out.Reasons}
	var op *kafka.OpError
	if errors.Is(b.err, kerr.MessageTooLarge) && b.count == 1 && errors.As(b.err, &op) && !kafka.MayHaveHappened(op.Err) {
		own := *op
		own.Err = &kafka.TooLargeError{TopicPartition: b.tp, Size: b.raw, Wire: len(b.wire), Refused: op.Err}
		b.err = &own
	}
	close(b.done)
}
