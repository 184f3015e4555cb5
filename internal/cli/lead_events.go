package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/leader"
)

// leadEvent is one line of --events; fields that do not apply are absent.
type leadEvent struct {
	At     time.Time `json:"at"`
	Event  string    `json:"event"`
	Role   string    `json:"role"`
	Member string    `json:"member"`
	Term   *int64    `json:"term,omitempty"`
	Token  string    `json:"token,omitempty"`
	Rank   *int      `json:"rank,omitempty"`
	Cause  string    `json:"cause,omitempty"`
	Status *int      `json:"status,omitempty"`
}

// mostLeadEvents is how many events wait for a slow reader; those that find no
// place are lost.
const mostLeadEvents = 1024

// lastEvents is how long the end of `lead` waits for the reader of its events.
const lastEvents = time.Second

// leadEvents writes the events of `lead` on a goroutine of its own, so that
// nobody who leads waits for their reader. It is safe for concurrent use.
type leadEvents struct {
	lines   chan []byte // nil = nobody wants them
	written chan struct{}

	mu     sync.Mutex
	closed bool
}

func newLeadEvents(a *app, name string) (*leadEvents, error) {
	switch name {
	case "":
		return &leadEvents{}, nil
	case "-":
		return startLeadEvents(a.notes), nil
	}
	mode := os.O_WRONLY
	if i, err := os.Stat(name); err == nil && i.Mode()&os.ModeNamedPipe != 0 {
		mode = os.O_RDWR // write only, to open it would wait for a reader
	}
	f, err := os.OpenFile(name, os.O_CREATE|mode|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--events: %w", err)
	}
	return startLeadEvents(f), nil
}

func startLeadEvents(w io.Writer) *leadEvents {
	l := &leadEvents{lines: make(chan []byte, mostLeadEvents), written: make(chan struct{})}
	task.New(context.Background()).Go(func(context.Context) error {
		defer close(l.written)
		for line := range l.lines {
			_, _ = w.Write(line)
		}
		if f, ok := w.(*os.File); ok {
			f.Close()
		}
		return nil
	})
	return l
}

// close takes no more events, and waits a moment until those before are written.
func (l *leadEvents) close() {
	l.mu.Lock()
	was := l.closed
	l.closed = true
	l.mu.Unlock()
	if was || l.lines == nil {
		return
	}
	close(l.lines)
	select {
	case <-l.written:
	case <-time.After(lastEvents):
	}
}

func (l *leadEvents) write(e leadEvent) {
	e.At = e.At.UTC()
	line, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || l.closed || l.lines == nil {
		return
	}
	select {
	case l.lines <- append(line, '\n'):
	default:
	}
}

// fromElector takes the events of a candidate that no step of the runner tells.
func (l *leadEvents) fromElector(e leader.Event) {
	switch e.Kind {
	case leader.EventRegistered, leader.EventWaiting, leader.EventRenewed:
	default:
		return
	}
	line := leadEvent{At: e.At, Event: string(e.Kind), Role: e.Role, Member: e.Member}
	if e.Term >= 0 {
		line.Term, line.Token = &e.Term, e.Token.String()
	}
	if e.Rank >= 0 {
		line.Rank = &e.Rank
	}
	l.write(line)
}

// term writes a step of a leadership; cause may be nil.
func (l *leadEvents) term(event string, t *leader.Term, cause fmt.Stringer) {
	n := t.Number()
	e := leadEvent{At: time.Now(), Event: event, Role: t.Role(), Member: t.Member(), Term: &n, Token: t.Token().String()}
	if cause != nil {
		e.Cause = cause.String()
	}
	l.write(e)
}

func (l *leadEvents) child(event string, t *leader.Term, status int) {
	n := t.Number()
	e := leadEvent{At: time.Now(), Event: event, Role: t.Role(), Member: t.Member(), Term: &n}
	if event == "child_exited" {
		e.Status = &status
	}
	l.write(e)
}
