package produce

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// Reply is what became of a request to a coordinator.
type Reply struct {
	Err     error // there is no answer
	Code    int16
	Message string
	ID      kafka.ProducerID    // InitProducer, EndTxn; -1 if the answer has none
	Epoch   kafka.ProducerEpoch // with ID
	Parts   []PartitionCode     // Enrol, CommitOffsets

	Identity bool // InitProducer: ID and Epoch are new
	Bumping  bool // with Identity: everything that part 2 needs is there
}

// PartitionCode is the code of one partition in an answer.
type PartitionCode struct {
	Partition kafka.TopicPartition
	Code      int16
}

// err is the failure, nil if there is none.
func (r Reply) err() error {
	if r.Err != nil {
		return r.Err
	}
	return kafka.CodeError(r.Code, &r.Message)
}

// lost reports whether the request may have been carried out, or may still be,
// although it got no answer that says so.
func (r Reply) lost() bool {
	err := r.err()
	return err != nil && kafka.MayHaveHappened(err)
}

// ok reports whether the answer has no error as a whole.
func (r Reply) ok() bool { return r.Err == nil && r.Code == 0 }

// repeats reports whether a request that ended so is worth another attempt at
// the coordinator, wherever that is then.
func (r Reply) repeats() bool {
	if r.Err != nil {
		return !final(r.Err)
	}
	switch retry.Of(r.Code) {
	case retry.Retry, retry.FindCoordinator:
		return true
	}
	return r.Code == kerr.UnknownServerError.Code
}

// fenced reports whether the coordinator says that the id has another owner.
// The first versions of its requests call that an invalid epoch.
func (r Reply) fenced() bool {
	return r.Err == nil && (r.Code == kerr.ProducerFenced.Code || r.Code == kerr.InvalidProducerEpoch.Code)
}

// is reports whether the answer has one of these codes.
func (r Reply) is(codes ...*kerr.Error) bool {
	for _, c := range codes {
		if r.Err == nil && r.Code == c.Code {
			return true
		}
	}
	return false
}

// worst is the reply as one about the whole request: the first code of a
// partition that is not 0, or success. A partition that the answer leaves out
// is in doubt.
func (r Reply) worst(asked int) Reply {
	if !r.ok() {
		return r
	}
	for _, p := range r.Parts {
		if p.Code != 0 {
			r.Code = p.Code
			return r
		}
	}
	if len(r.Parts) < asked {
		r.Err = errLeftOut
	}
	return r
}

var errLeftOut error = &kafka.ProtocolError{Addr: "the coordinator", What: "the answer lacks a partition that was asked for"}

// tooOld reports whether a broker lacks the version that a request needs.
func tooOld(err error) bool {
	var version *kafka.VersionError
	return errors.As(err, &version)
}

// maybe is err of something that may have happened, or has not.
func maybe(err error, happened bool) error {
	if happened {
		return inDoubt(err)
	}
	return refusal{err}
}
