package record

import (
	"errors"
	"strconv"

	"github.com/ottla/ottla/kafka"
)

// ErrChecksum is the reason of a [CorruptError] for bytes whose checksum is
// not the one the batch carries: they were damaged on the way or on a disk.
var ErrChecksum = errors.New("the checksum does not match")

// CorruptError is a batch that is wholly present and wrong.
type CorruptError struct {
	Base kafka.Offset // first offset of the batch, as it claims
	Next kafka.Offset // the offset after the batch, to continue behind it; -1 if its header is no guide
	What string       // what is wrong with the batch
	Err  error        // may be nil; ErrChecksum, an error of package compress
}

func (e *CorruptError) Error() string {
	s := "ottla: corrupt record batch at offset " + strconv.FormatInt(int64(e.Base), 10)
	if e.Next >= 0 {
		s += " (next offset " + strconv.FormatInt(int64(e.Next), 10) + ")"
	}
	s += ": " + e.What
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *CorruptError) Unwrap() error { return e.Err }

// MayHaveHappened is false: reading changes nothing.
func (*CorruptError) MayHaveHappened() bool { return false }
