// Package compress holds Kafka's compression codecs, both ways, as values that
// belong to the worker that uses them: a [Compressor] and a [Decompressor] keep
// the memory their codecs work in and share nothing.
//
// Decompression is bounded. Output is produced in steps up to the caller's
// limit, and a size that compressed bytes announce is a hint: it is never
// allocated on their word alone.
package compress

import (
	"fmt"
	"strconv"
	"strings"
)

// Codec is a compression codec by Kafka's number (compression.type).
type Codec int8

// The codecs.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd // needs Kafka 2.1
)

var names = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

// Valid reports whether the codec exists.
func (c Codec) Valid() bool { return c >= 0 && int(c) < len(names) }

// String is Kafka's name of the codec.
func (c Codec) String() string {
	if !c.Valid() {
		return "codec " + strconv.Itoa(int(c))
	}
	return names[c]
}

// ParseCodec is the codec of a name as in Kafka's compression.type, in any
// case. The empty name is none.
func ParseCodec(name string) (Codec, error) {
	for i, n := range names {
		if strings.EqualFold(name, n) {
			return Codec(i), nil
		}
	}
	if name == "" {
		return None, nil
	}
	return None, fmt.Errorf("ottla: compression codec %q is not one of %s", name, strings.Join(names[:], ", "))
}

// DefaultLimit is the limit of a decompressed batch where the caller gives 0:
// 256 MiB.
const DefaultLimit = 256 << 20

// LimitError is compressed data that would be longer than the limit.
type LimitError struct {
	Codec Codec
	Limit int // bytes allowed
}

func (e *LimitError) Error() string {
	return "ottla: " + e.Codec.String() + " data is longer than the limit of " + strconv.Itoa(e.Limit) + " bytes when decompressed"
}

// MayHaveHappened is false: reading changes nothing.
func (*LimitError) MayHaveHappened() bool { return false }

// Error is compressed data that cannot be read, a codec that does not exist,
// or a level that the codec does not have.
type Error struct {
	Codec Codec
	What  string
	Err   error // of the codec's library; may be nil
}

func (e *Error) Error() string {
	s := "ottla: " + e.Codec.String() + ": " + e.What
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// MayHaveHappened is false: reading and compressing change nothing.
func (*Error) MayHaveHappened() bool { return false }

// Levels is the range of levels that Compress takes for the codec; both are 0
// where it has none. Level 0 is the default everywhere.
func (c Codec) Levels() (lowest, highest int) {
	switch c {
	case Gzip, LZ4:
		return 1, 9
	case Zstd:
		return 1, 22
	}
	return 0, 0
}
