package conn

import (
	"encoding/binary"
	"slices"

	"github.com/ottla/ottla/kafka"
)

// Sizes of the splitter's reads and of what it reserves.
const (
	minRead   = 16 << 10  // the smallest space that is offered to a read
	maxRead   = 1 << 20   // the largest one
	maxShared = 128 << 10 // the largest frame that goes through the shared buffer
	maxAhead  = 1 << 20   // reserved for an announced frame before its bytes are there
	minFrame  = 4         // a correlation id
	headBytes = 8         // length prefix and correlation id
)

// Frame is one answer: what follows the length prefix, correlation id first.
type Frame struct {
	ID   int32
	Data []byte
	// Own says that Data has a buffer of its own, which belongs to whoever
	// takes the frame. Otherwise Data is valid until the next call of the
	// splitter.
	Own bool
}

// Splitter cuts the stream of bytes from a broker into frames. A length prefix
// is checked against the limit before it is believed, and memory grows with the
// bytes received, not with those announced. A frame above 128 KiB gets a buffer
// of its own, so what the splitter keeps stays small. Call Next until it gives
// nothing, then read into Space and report with OnRead. Not for concurrent use.
type Splitter struct {
	limit int
	owner func(id int32) int

	// Alloc, if set, gives the buffer of a frame that may reserve all of its n
	// bytes at once. What is shorter than n is not used.
	Alloc func(id int32, n int) []byte

	buf   []byte // shared; filled[:] of it is buf[from:to]
	from  int
	to    int
	own   []byte // frame with a buffer of its own that is being read, nil if none
	ownID int32
	size  int // of the frame being read, -1 if its prefix is not there yet
	err   error
}

// NewSplitter makes a splitter that refuses frames above limit bytes. owner is
// asked with the correlation id of a frame whether it gets a buffer of its
// own: if so it returns how many bytes may be reserved at once, else 0. It may
// be nil, and a frame above 128 KiB has a buffer of its own in any case.
func NewSplitter(limit int, owner func(id int32) int) *Splitter {
	return &Splitter{limit: limit, owner: owner, size: -1}
}

// Space is where the next read goes: never empty, at most 1 MiB.
func (s *Splitter) Space() []byte {
	if s.own != nil {
		if len(s.own) == cap(s.own) {
			s.own = slices.Grow(s.own, min(s.size-len(s.own), max(len(s.own), maxAhead)))
		}
		free := s.own[len(s.own):cap(s.own)]
		return free[:min(len(free), maxRead, s.size-len(s.own))]
	}
	s.makeRoom()
	free := s.buf[s.to:]
	return free[:min(len(free), maxRead)]
}

// makeRoom leaves at least one byte free behind the filled part of the shared
// buffer, and as much as the frame being read needs.
func (s *Splitter) makeRoom() {
	filled := s.to - s.from
	want := max(minRead, 4+min(s.size, maxShared))
	switch {
	case len(s.buf) < want:
		grown := make([]byte, want)
		copy(grown, s.buf[s.from:s.to])
		s.buf, s.from, s.to = grown, 0, filled
	case filled == 0:
		s.from, s.to = 0, 0
	case s.from > 0 && len(s.buf)-s.from < want:
		copy(s.buf, s.buf[s.from:s.to])
		s.from, s.to = 0, filled
	}
}

// OnRead takes note of n bytes read into what Space returned last.
func (s *Splitter) OnRead(n int) {
	if s.own != nil {
		s.own = s.own[:len(s.own)+n]
		return
	}
	s.to += n
}

// Partial is how many bytes of a frame that is not complete are there.
func (s *Splitter) Partial() int {
	if s.own != nil {
		return 4 + len(s.own)
	}
	return s.to - s.from
}

// Next is the next complete frame. ok is false if more bytes are needed. After
// an error, a [*kafka.ProtocolError] without an address, the stream cannot be
// read any further.
func (s *Splitter) Next() (f Frame, ok bool, err error) {
	if s.err != nil {
		return Frame{}, false, s.err
	}
	if s.own != nil {
		if len(s.own) < s.size {
			return Frame{}, false, nil
		}
		f = Frame{ID: s.ownID, Data: s.own, Own: true}
		s.own, s.size = nil, -1
		return f, true, nil
	}
	if !s.maybeSize() {
		return Frame{}, false, s.err
	}
	have := s.buf[s.from:s.to]
	if len(have) < headBytes {
		return Frame{}, false, nil
	}
	id := int32(binary.BigEndian.Uint32(have[4:]))
	reserve := 0
	if s.owner != nil {
		reserve = s.owner(id)
	}
	if reserve > 0 || s.size > maxShared {
		s.moveOut(id, have[4:], reserve)
		return s.Next()
	}
	if len(have) < 4+s.size {
		return Frame{}, false, nil
	}
	f = Frame{ID: id, Data: have[4 : 4+s.size]}
	s.from += 4 + s.size
	s.size = -1
	return f, true, nil
}

// maybeSize reads and checks the length prefix, and reports whether one is
// there.
func (s *Splitter) maybeSize() bool {
	have := s.buf[s.from:s.to]
	if s.size >= 0 {
		return true
	}
	if len(have) < 4 {
		return false
	}
	size := int32(binary.BigEndian.Uint32(have))
	what := ""
	switch {
	case string(have[:4]) == httpPrefix:
		what = "an HTTP endpoint answered: its first bytes are those of an HTTP answer, not of a Kafka frame"
	case isTLS(have):
		what = "a TLS endpoint answered: its first bytes are those of a TLS record, not of a Kafka frame"
	case size < 0:
		what = "a frame of negative length " + itoa(int64(size))
	case size < minFrame:
		what = "a frame of " + itoa(int64(size)) + " bytes is too short for an answer"
	case int(size) > s.limit:
		what = "a frame of " + itoa(int64(size)) + " bytes is above the limit of " + itoa(int64(s.limit))
	default:
		s.size = int(size)
		return true
	}
	s.err = &kafka.ProtocolError{What: what, First: slices.Clone(have[:min(len(have), 16)])}
	return false
}

// httpPrefix is how an HTTP answer begins; as a length it is 1,213,486,160.
const httpPrefix = "HTTP"

// isTLS reports whether b begins like a TLS record that is no application
// data: an alert or a handshake of TLS 1.0 to 1.2, which 1.3 mimics.
func isTLS(b []byte) bool {
	return (b[0] == 0x15 || b[0] == 0x16) && b[1] == 3 && b[2] <= 4
}

// moveOut gives the frame that begins with data a buffer of its own.
func (s *Splitter) moveOut(id int32, data []byte, reserve int) {
	data = data[:min(len(data), s.size)]
	s.ownID = id
	if s.Alloc != nil && reserve >= s.size {
		s.own = s.Alloc(id, s.size)
	}
	if cap(s.own) < s.size {
		s.own = make([]byte, 0, max(len(data), min(s.size, max(reserve, maxAhead))))
	}
	s.own = append(s.own[:0], data...)
	s.from += 4 + len(data)
}
