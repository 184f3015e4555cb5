package netconn

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ottla/ottla/internal/core/conn"
)

// Entry is one frame in a [Journal]: its envelope, never its body.
type Entry struct {
	At      time.Time
	Addr    string
	Kind    Kind
	Answer  bool // false: a request
	API     int16
	Version int16
	ID      int32 // correlation id
	Size    int   // bytes, length prefix included
	Code    int16 // top-level error code of an answer, 0 if it has none
}

// String is the entry on one line.
func (e Entry) String() string {
	dir := "->"
	if e.Answer {
		dir = "<-"
	}
	s := fmt.Sprintf("%s %s %s/%s %s v%d #%d %d bytes", e.At.UTC().Format("15:04:05.000000"), dir, e.Addr, e.Kind,
		conn.APIName(e.API), e.Version, e.ID, e.Size)
	if e.Code != 0 {
		s += fmt.Sprintf(" code %d", e.Code)
	}
	return s
}

// Journal keeps the envelopes of the last frames of a client. It is safe for
// concurrent use; a nil Journal keeps nothing.
type Journal struct {
	mu   sync.Mutex
	ring []Entry
	n    uint64 // frames seen
}

// NewJournal keeps the last size frames.
func NewJournal(size int) *Journal { return &Journal{ring: make([]Entry, max(size, 1))} }

func (j *Journal) add(e Entry) {
	if j == nil {
		return
	}
	j.mu.Lock()
	j.ring[j.n%uint64(len(j.ring))] = e
	j.n++
	j.mu.Unlock()
}

// Entries are the frames kept, oldest first. The slice is the caller's.
func (j *Journal) Entries() []Entry {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	size := uint64(len(j.ring))
	out := make([]Entry, 0, min(j.n, size))
	for i := j.n - min(j.n, size); i < j.n; i++ {
		out = append(out, j.ring[i%size])
	}
	return out
}

// String is the journal, one frame a line.
func (j *Journal) String() string {
	var b strings.Builder
	for _, e := range j.Entries() {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}
