package cli

import (
	"fmt"
	"sync"
)

// journal holds the last frames on the wire, for -vv. It is safe for
// concurrent use; its zero value is empty.
type journal struct {
	mu    sync.Mutex
	lines []string // guarded by mu: a ring once it is full
	next  int      // guarded by mu
}

// mostJournal is how many lines a journal keeps.
const mostJournal = 200

// add keeps a line.
func (j *journal) add(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.lines) < mostJournal {
		j.lines = append(j.lines, line)
		return
	}
	j.lines[j.next] = line
	j.next = (j.next + 1) % mostJournal
}

// dump writes the lines, oldest first.
func (j *journal) dump(n *notes) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.lines {
		n.printf("  wire %s", j.lines[(j.next+i)%len(j.lines)])
	}
}
