package producer

import (
	"context"

	"github.com/ottla/ottla/kafka"
)

// Receipt stands for the result of one appended record. It is a small value;
// one that nobody reads costs and holds up nothing. The zero Receipt has no
// result.
type Receipt struct {
	batch *batch
	index int32
}

// Result is what became of one record.
type Result struct {
	Topic     string
	Partition int32           // -1 if it never got one
	Offset    kafka.Offset    // -1 if it is not known, also when Err is nil: the broker has the record and no longer knows where
	Timestamp kafka.Timestamp // the broker's time if the topic uses it, else kafka.NoTimestamp
	Err       error           // nil, or why not; see kafka.MayHaveHappened
}

// Wait waits for the result of the record: its offset, or why it has none. It
// does not hurry the record; see [Producer.Flush]. If ctx ends first the error
// unwraps to its cause; the record is still on its way then.
func (r Receipt) Wait(ctx context.Context) (kafka.Offset, error) {
	res := r.Result(ctx)
	return res.Offset, res.Err
}

// Result is Wait with all that is known of the record.
func (r Receipt) Result(ctx context.Context) Result {
	b := r.batch
	if b == nil {
		return Result{Partition: -1, Offset: -1, Timestamp: kafka.NoTimestamp, Err: errNoRecord}
	}
	select {
	case <-b.done:
	default:
		select {
		case <-b.done:
		case <-ctx.Done():
			select { // both at once: the result wins
			case <-b.done:
			default:
				return b.unfinished(&WaitError{context.Cause(ctx)})
			}
		}
	}
	if b.placed != nil {
		return b.placed[r.index].Result(ctx)
	}
	res := b.unfinished(b.errOf(r.index))
	if b.base >= 0 {
		res.Offset = b.base + kafka.Offset(r.index)
	}
	res.Timestamp = b.appendTime
	return res
}

// WaitError is a wait that its context ended. The record is still on its way:
// whether it is written is not known.
type WaitError struct{ Cause error }

func (e *WaitError) Error() string {
	return "ottla: no longer waiting for a record that may still be written: " + e.Cause.Error()
}

func (e *WaitError) Unwrap() error       { return e.Cause }
func (*WaitError) MayHaveHappened() bool { return true }
