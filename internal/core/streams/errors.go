package streams

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/kafka"
)

// ErrStaleAssignment refuses an acknowledgement of a snapshot that a loss, or a
// later acknowledgement, overtook. Nothing changed by it.
var ErrStaleAssignment = errors.New("ottla: streams: the acknowledged snapshot is outdated")

// ErrNotTouched is why a member left the group by itself: nobody called Touch
// for Config.PollInterval.
var ErrNotTouched = errors.New("ottla: streams: left the group: the owner did not call Touch within PollInterval")

// ConfigError is a setting that Join refuses.
type ConfigError struct{ Field, Reason string }

func (e *ConfigError) Error() string       { return "ottla: streams.Config." + e.Field + " " + e.Reason }
func (*ConfigError) MayHaveHappened() bool { return false }

// UnsupportedError is a cluster that lacks what the call needs.
type UnsupportedError struct{ Missing, Hint string }

func (e *UnsupportedError) Error() string {
	return "ottla: streams: the broker lacks " + e.Missing + ": " + e.Hint
}
func (*UnsupportedError) MayHaveHappened() bool { return false }

// BrokerError is an error code that a broker answered. errors.Is matches the
// value of package kerr with the same code.
type BrokerError struct {
	Code    int16
	Name    string // Kafka's name of the code
	Message string // the broker's own text, with what to do about it where that is known
	Group   string
	Tries   int // how many requests were sent for the call; 0 if it is not known
}

// NewBrokerError is the error for a code, with what to do about it where that is
// known. text may be nil.
func NewBrokerError(group string, code int16, text *string) *BrokerError {
	e := &BrokerError{Code: code, Name: codeName(code), Group: group}
	if text != nil {
		e.Message = *text
	}
	if h := hints[code]; h != "" {
		e.Message = strings.TrimSpace(strings.TrimSuffix(e.Message, ".") + " (" + h + ")")
	}
	return e
}

func codeName(code int16) string {
	if ke := kerr.TypedErrorForCode(code); ke != nil && ke.Code == code {
		return ke.Message
	}
	return fmt.Sprintf("error code %d", code)
}

// hints say what to do about codes that end a member.
var hints = map[int16]string{
	35:  "streams groups are off: they need Kafka 4.2 or newer with kafka-features.sh upgrade --feature streams.version=1",
	42:  "a changed topology needs a new group id, or the group deleted while it is empty; instance ids and task offsets need Kafka 4.4",
	81:  "the group is full: see group.streams.max.size of the brokers",
	82:  "another member holds this instance id",
	111: "the instance id is in use by another member until that leaves or its session ends",
}

func (e *BrokerError) Error() string {
	s := "ottla: streams: group " + e.Group + ": " + e.Name
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Tries > 1 {
		s += fmt.Sprintf(", after %d tries", e.Tries)
	}
	return s
}

// Unwrap is the value of package kerr, nil for a code that it does not know.
func (e *BrokerError) Unwrap() error {
	if ke := kerr.TypedErrorForCode(e.Code); ke != nil && ke.Code == e.Code {
		return ke
	}
	return nil
}

// MayHaveHappened is true only for codes that leave the outcome open.
func (e *BrokerError) MayHaveHappened() bool {
	return kafka.MayHaveHappened(kafka.CodeError(e.Code, nil))
}

// GroupTypeError is a name under which there is no Streams group: for a member
// that joins because there is another kind of group, for whoever asks about it
// perhaps also because there is none.
type GroupTypeError struct {
	Group, Message string
	asked          bool // by somebody who does not join
}

// NoStreamsGroup is the error for a question about a group; text may be nil.
func NoStreamsGroup(group string, text *string) *GroupTypeError {
	e := &GroupTypeError{Group: group, asked: true}
	if text != nil {
		e.Message = *text
	}
	return e
}

func (e *GroupTypeError) Error() string {
	s := "ottla: streams: group " + e.Group + " is no streams group, and an empty consumer group is not replaced by one: take another group id, or delete that group"
	if e.asked {
		s = "ottla: streams: there is no streams group " + e.Group
	}
	if e.Message != "" {
		s += "; the broker says: " + e.Message
	}
	return s
}

// Unwrap is the broker's code, GROUP_ID_NOT_FOUND.
func (*GroupTypeError) Unwrap() error         { return kerr.GroupIDNotFound }
func (*GroupTypeError) MayHaveHappened() bool { return false }

// MissingSourceTopicsError is a group whose source topics did not appear in
// time.
type MissingSourceTopicsError struct {
	Detail string        // the broker's text, which names the topics
	After  time.Duration // how long they were missing
}

func (e *MissingSourceTopicsError) Error() string {
	return fmt.Sprintf("ottla: streams: source topics are missing for %v: %s", e.After, e.Detail)
}
func (*MissingSourceTopicsError) MayHaveHappened() bool { return false }

// PartitioningError is a group whose topics do not have the numbers of
// partitions that its topology needs.
type PartitioningError struct{ Detail string }

func (e *PartitioningError) Error() string {
	return "ottla: streams: topics are incorrectly partitioned: " + e.Detail
}
func (*PartitioningError) MayHaveHappened() bool { return false }

// ProtocolError is an answer that no coordinator should give. Nothing of it was
// applied.
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string {
	return "ottla: streams: the coordinator's answer makes no sense: " + e.Reason
}
func (*ProtocolError) MayHaveHappened() bool { return false }

// TaskError is a task that cannot be meant.
type TaskError struct {
	Subtopology string
	Partition   int32
	Reason      string
}

func (e *TaskError) Error() string {
	return fmt.Sprintf("ottla: streams: task %s_%d %s", e.Subtopology, e.Partition, e.Reason)
}
func (*TaskError) MayHaveHappened() bool { return false }

// ConflictError is a task that stands twice in lists of tasks.
type ConflictError struct {
	Task          TaskID
	First, Second Role
}

func (e *ConflictError) Error() string {
	if e.First == e.Second {
		return fmt.Sprintf("ottla: streams: task %v stands twice as %v", e.Task, e.First)
	}
	return fmt.Sprintf("ottla: streams: task %v stands as %v and as %v", e.Task, e.First, e.Second)
}
func (*ConflictError) MayHaveHappened() bool { return false }

// FailedError frames what stopped a call after several tries without an answer.
type FailedError struct {
	Group string
	Tries int
	Err   error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("ottla: streams: group %s: no answer after %d tries: %s", e.Group, e.Tries, strings.TrimPrefix(e.Err.Error(), "ottla: "))
}

// Unwrap is the reason of the last try.
func (e *FailedError) Unwrap() error         { return e.Err }
func (e *FailedError) MayHaveHappened() bool { return kafka.MayHaveHappened(e.Err) }
