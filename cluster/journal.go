package cluster

import (
	"time"

	"github.com/ottla/ottla/internal/netconn"
)

// Journal keeps the envelopes of the last frames of clients: time, address,
// purpose, API, version, correlation id, size and code, never a body. Give it
// to Config.Journal and read it at any time with Frames or String, also after
// a Connect that failed. It is safe for concurrent use. Make it with
// [NewJournal].
type Journal struct{ frames *netconn.Journal }

// NewJournal makes a journal of the last size frames, at least one.
func NewJournal(size int) *Journal { return &Journal{netconn.NewJournal(size)} }

// Frame is the envelope of one request or answer in a [Journal].
type Frame struct {
	At      time.Time
	Addr    string
	Purpose string // of the connection: general, produce, fetch, coordinator or join
	Answer  bool   // false: a request
	API     int16  // the API key
	Version int16
	ID      int32 // correlation id
	Size    int   // bytes, length prefix included
	Code    int16 // top-level error code of an answer, 0 if it has none
}

// Frames are the frames that are kept, oldest first. They are the caller's.
func (j *Journal) Frames() []Frame {
	es := j.frames.Entries()
	out := make([]Frame, len(es))
	for i, e := range es {
		out[i] = Frame{At: e.At, Addr: e.Addr, Purpose: e.Kind.String(), Answer: e.Answer, API: e.API,
			Version: e.Version, ID: e.ID, Size: e.Size, Code: e.Code}
	}
	return out
}

// String is the journal, one frame a line.
func (j *Journal) String() string { return j.frames.String() }
