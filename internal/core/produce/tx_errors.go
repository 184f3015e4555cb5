package produce

import (
	"fmt"
	"time"

	"github.com/ottla/ottla/kafka"
)

// ErrOpen is the error of a second transaction beside an open one.
var ErrOpen error = fixed("ottla: a transaction is open: commit or abort it first")

// ErrCommitted is the error of an abort that finds the transaction committed: an
// earlier Commit, whose outcome was not known, has gone through.
var ErrCommitted error = fixed("ottla: the transaction is committed: an earlier commit, whose outcome was unknown, has gone through")

// fixed is an error of a call that has sent nothing.
type fixed string

func (e fixed) Error() string       { return string(e) }
func (fixed) MayHaveHappened() bool { return false }

// abortable is the error of a transaction that can only be aborted.
type abortable struct{ cause error }

func (a abortable) Error() string {
	return "the transaction can only be aborted: " + a.cause.Error()
}

func (a abortable) Unwrap() []error     { return []error{kafka.ErrAbortable, a.cause} }
func (abortable) MayHaveHappened() bool { return false }

// fencedError is the end of an instance.
type fencedError struct{ cause error }

func (e *fencedError) Error() string {
	return "ottla: fenced: another instance took over this transactional id, or the coordinator ended its transaction at the timeout; only a new producer can go on: " + e.cause.Error()
}

func (e *fencedError) Unwrap() []error     { return []error{kafka.ErrFenced, e.cause} }
func (*fencedError) MayHaveHappened() bool { return false }

// timedOut is a transaction that its coordinator has ended.
type timedOut struct {
	cause error
	after time.Duration // since it was begun
}

func (e timedOut) Error() string {
	return fmt.Sprintf("not committed: the coordinator had aborted the transaction, begun %v before, most likely at its timeout (transaction.timeout.ms): %v",
		e.after.Round(time.Millisecond), e.cause)
}

func (e timedOut) Unwrap() []error     { return []error{kafka.ErrAbortable, e.cause} }
func (timedOut) MayHaveHappened() bool { return false }

func opFailed(op string, err error) error {
	return &kafka.OpError{Op: op, Broker: kafka.NoNode, Partition: -1, Err: err}
}
