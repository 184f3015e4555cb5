package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

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

// leadEvents writes the events of `lead`. It is safe for concurrent use.
type leadEvents struct {
	mu   sync.Mutex
	w    io.Writer // nil = nobody wants them
	file *os.File
}

func newLeadEvents(a *app, name string) (*leadEvents, error) {
	switch name {
	case "":
		return &leadEvents{}, nil
	case "-":
		return &leadEvents{w: a.notes}, nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--events: %w", err)
	}
	return &leadEvents{w: f, file: f}, nil
}

func (l *leadEvents) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w = nil
	if l.file != nil {
		l.file.Close()
	}
}

func (l *leadEvents) write(e leadEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w == nil {
		return
	}
	e.At = e.At.UTC()
	line, err := json.Marshal(e)
	if err == nil {
		_, _ = l.w.Write(append(line, '\n'))
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
