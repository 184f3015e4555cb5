package producer

import (
	"time"

	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
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
	room    int64 // bytes taken from the budget
	ahead   int64 // size of the buffer that it began with
	choices []int32
	urgent  bool // in the waiting area: do not linger once placed; the actor's

	wire   []byte       // sealed
	stamp  record.Stamp // in wire
	closed bool         // handed over by its partition; the actor's, as sealed is
	sealed bool

	done       chan struct{}
	base       kafka.Offset
	appendTime kafka.Timestamp
	err        error
	placed     []Receipt // in the waiting area: where the records went
}

func (b *batch) unfinished(err error) Result {
	return Result{
		Topic: b.tp.Topic, Partition: b.tp.Partition, Offset: -1, Timestamp: kafka.NoTimestamp, Err: err,
	}
}

// finish publishes the result.
func (b *batch) finish(out produce.Outcome) {
	b.base, b.appendTime, b.err = out.Offset, out.AppendTime, out.Err
	close(b.done)
}
