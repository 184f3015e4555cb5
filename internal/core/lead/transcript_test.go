package lead

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ottla/ottla/internal/transcript"
	"github.com/ottla/ottla/kafka"
)

// TestTurns plays what a candidate sees and shows what it may do: its turn, its
// rank and when the answer changes. Files are named after the rules they show.
func TestTurns(t *testing.T) {
	transcript.Run(t, "turn/*.txt", func(t *testing.T) func([]string) string {
		p := &turns{log: newLog(t), me: Candidate{Member: "me", Token: NoToken}}
		p.live = true
		return p.do
	})
}

type turns struct {
	*log
	me  Candidate
	now time.Duration
	off kafka.Offset
}

// do carries out a command: register M, remove M, lease M pair, clear, found (what
// follows is of the first read), hold pair, wait d, turn [M], roster.
func (p *turns) do(cmd []string) string {
	p.t.Helper()
	now := at(p.now)
	switch cmd[0] {
	case "found":
		p.live = cmd[1] == "no"
		return ""
	case "wait":
		d, err := time.ParseDuration(cmd[1])
		if err != nil {
			p.t.Fatal(err)
		}
		p.now += d
		return ""
	case "hold":
		p.me.Token = tokenOf(p.t, cmd[1])
		return ""
	case "turn":
		return p.turn(cmd[1:])
	case "roster":
		var b strings.Builder
		for _, m := range p.f.Roster() {
			fmt.Fprintf(&b, "%s, rank %d\n", m.Name, p.f.Rank(m.Name))
		}
		return b.String()
	}
	p.off += 2 // a record and its marker
	switch cmd[0] {
	case "register":
		p.register(now, p.off, cmd[1])
		if cmd[1] == p.me.Member {
			p.me.Registered = p.now
		}
	case "remove":
		p.remove(now, p.off, cmd[1])
	case "lease":
		p.grant(now, p.off, cmd[1], tokenOf(p.t, cmd[2]))
	case "clear":
		p.clear(now, p.off)
	default:
		p.t.Fatalf("what is %q?", cmd[0])
	}
	return ""
}

func (p *turns) turn(who []string) string {
	c := p.me
	if len(who) > 0 {
		c = Candidate{Member: who[0], Token: NoToken}
	}
	d := p.f.Evaluate(c, timing, at(p.now))
	s := fmt.Sprintf("at %v: %v", p.now, d.Turn)
	if d.Turn == Wait {
		s += fmt.Sprintf(" until %v", d.At)
	}
	if d.Rank >= 0 {
		s += fmt.Sprintf(", rank %d", d.Rank)
	}
	return s + "\n"
}

func tokenOf(t *testing.T, s string) Token {
	t.Helper()
	tok, err := ParseToken(s)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestWrites plays the answers that a lease's requests get and shows the request
// that comes next, or what became of the write.
func TestWrites(t *testing.T) {
	transcript.Run(t, "write/*.txt", func(t *testing.T) func([]string) string {
		s := newScript(t)
		return s.do
	})
}

// do carries out a command: begin, join, left HOW, give-up, wait d, or an answer:
// ok [offset|pair], a code [offset|pair], none (no answer), unsent.
func (s *script) do(cmd []string) string {
	s.t.Helper()
	switch cmd[0] {
	case "begin":
		s.w.Begin(s.now)
	case "join":
		s.w.Join(s.now)
	case "abandon":
		s.w.Abandon()
	case "give-up":
		s.w.GiveUp(true)
		return ""
	case "left":
		s.left(cmd[1])
		return ""
	case "wait":
		d, err := time.ParseDuration(cmd[1])
		if err != nil {
			s.t.Fatal(err)
		}
		s.now += d
		return ""
	default:
		s.answer(cmd)
	}
	return s.next()
}

func (s *script) left(how string) {
	leave, ok := map[string]Leave{
		"committed": {Asked: Commit, Known: true}, "aborted": {Asked: Abort, Known: true}, "unused": {Known: true},
		"doubtful": {Asked: Abort, Known: true, Doubt: true}, "unknown": {Asked: Commit},
	}[how]
	if !ok {
		s.t.Fatalf("how is %q?", how)
	}
	s.w.Left(s.now, leave)
}

func (s *script) answer(cmd []string) {
	s.t.Helper()
	var a Answer
	switch cmd[0] {
	case "ok":
	case "none":
		a.Code = NoAnswer
	case "unsent":
		a.Code, a.Unsent = NoAnswer, true
	default:
		code, err := strconv.ParseInt(cmd[0], 10, 16)
		if err != nil {
			s.t.Fatal(err)
		}
		a.Code = int16(code)
	}
	if len(cmd) > 1 && strings.Contains(cmd[1], ":") {
		a.Pair = tokenOf(s.t, cmd[1])
	} else if len(cmd) > 1 {
		off, err := strconv.ParseInt(cmd[1], 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		a.Offset = kafka.Offset(off)
	}
	s.w.OnAnswer(s.now, a)
}

func (s *script) next() string {
	act, ok := s.w.Next()
	if !ok {
		o, step, code, err := s.w.Outcome()
		out := fmt.Sprintf("%v under %v", o, s.w.Pair())
		if o == Written {
			return out + fmt.Sprintf(" at %d\n", s.w.Offset())
		}
		out += fmt.Sprintf(": %v, code %d", step, code)
		if err != nil {
			out += ", " + err.Error()
		}
		if s.w.MayHaveHappened() {
			out += ", may have happened"
		}
		return out + "\n"
	}
	out := fmt.Sprintf("%v as %v", act.Step, act.Pair)
	if act.Step == Produce {
		out += fmt.Sprintf(" number %d", act.Sequence)
	}
	if act.Attempt > 1 {
		out += fmt.Sprintf(", attempt %d", act.Attempt)
	}
	if act.Move {
		out += ", elsewhere"
	}
	return out + "\n"
}
