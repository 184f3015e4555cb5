package conn

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ottla/ottla/internal/transcript"
	"github.com/ottla/ottla/kafka"
)

func newFlight() *Flight[string] {
	return NewFlight[string](FlightConfig{WriteTimeout: 30 * time.Second, Idle: 3 * time.Minute}, begin)
}

// flightStep is one command of flight.txt.
func flightStep(t *testing.T, f *Flight[string], c []string) string {
	now := at(t, c[0])
	var out string
	switch c[1] {
	case "writing": // name limit
		limit, _ := time.ParseDuration(c[3])
		out = fmt.Sprintf("id %d", f.OnWriting(now, 3, 12, limit, c[2]))
	case "oneway":
		out = fmt.Sprintf("id %d", f.OnWritingOneWay(now))
	case "written":
		f.OnWritten(now)
	case "answer": // id
		o, stray, err := f.OnAnswer(now, int32(number(t, c[2])))
		switch {
		case err != nil:
			out = err.Error()
		case stray:
			out = "stray, dropped"
		case o.Value == "":
			out = "for nobody, dropped"
		default:
			out = fmt.Sprintf("for %s, %s %d", o.Value, APIName(o.Key), o.Version)
		}
	case "abandon":
		f.Abandon(int32(number(t, c[2])))
	case "throttle":
		d, _ := time.ParseDuration(c[2])
		f.OnThrottle(now, d)
	case "drain":
		for o, ok := f.Drain(); ok; o, ok = f.Drain() {
			out += fmt.Sprintf("lost: %d %q\n", o.ID, o.Value)
		}
	case "look":
	default:
		t.Fatalf("command %v", c)
	}
	f.check()
	if out != "" && !strings.HasSuffix(out, "\n") {
		out += "\n"
	}
	out += fmt.Sprintf("outstanding %d, deadline %s", f.Len(), since(f.Deadline()))
	if until, ok := f.Blocked(now); ok {
		out += ", silent until " + since(until)
	}
	if phase, id, ok := f.Expired(now); ok {
		out += fmt.Sprintf(", EXPIRED #%d in phase %s", id, phase)
	}
	if !f.Usable(now) {
		out += ", IDLE"
	}
	return out
}

// TestFlightTranscripts holds what the names of the files say.
func TestFlightTranscripts(t *testing.T) {
	transcript.Run(t, "flight/*.txt", func(t *testing.T) func([]string) string {
		f := newFlight()
		return func(c []string) string {
			if c[0] == "new" {
				f = newFlight()
				return ""
			}
			return flightStep(t, f, c)
		}
	})
}

// TestC37PipelinedSlowAnswersDoNotExpireEarly has ten requests written at once
// and answered 29 s after each other: 290 s in all, none expires.
func TestC37PipelinedSlowAnswersDoNotExpireEarly(t *testing.T) {
	f := newFlight()
	for range 10 {
		f.OnWriting(begin, 3, 12, 30*time.Second, "r")
		f.OnWritten(begin)
	}
	now := begin
	for i := range int32(10) {
		now = now.Add(29 * time.Second)
		if _, id, ok := f.Expired(now); ok {
			t.Fatalf("#%d expired at %s", id, since(now))
		}
		if _, _, err := f.OnAnswer(now, i); err != nil {
			t.Fatal(err)
		}
	}
}

func TestC39TheAnswerWinsAtTheSameInstant(t *testing.T) {
	f := newFlight()
	f.OnWriting(begin, 3, 12, 30*time.Second, "r")
	f.OnWritten(begin)
	end := begin.Add(30 * time.Second)
	if _, _, ok := f.Expired(end); ok {
		t.Error("expired at the instant of its time")
	}
	if _, _, ok := f.Expired(end.Add(Grace)); !ok {
		t.Error("not expired after the grace")
	}
	if o, _, err := f.OnAnswer(end, 0); err != nil || o.Value != "r" {
		t.Errorf("the answer at that instant: %v %v", o, err)
	}
}

func TestC32IdsGoOnAfterTheLargest(t *testing.T) {
	f := newFlight()
	f.next = 1<<31 - 2
	for range 4 {
		f.OnWritingOneWay(begin)
		f.OnWritten(begin)
	}
	a := f.OnWriting(begin, 3, 12, time.Second, "a")
	f.OnWritten(begin)
	if a != 2 {
		t.Fatalf("id %d", a)
	}
	for _, id := range []int32{1<<31 - 2, 1<<31 - 1, 0, 1} {
		if _, stray, err := f.OnAnswer(begin, id); !stray || err != nil {
			t.Errorf("answer %d to a one-way request: stray %v, %v", id, stray, err)
		}
	}
	if o, _, err := f.OnAnswer(begin, 2); err != nil || o.Value != "a" {
		t.Errorf("%v %v", o, err)
	}
	if _, _, err := f.OnAnswer(begin, -1); err == nil {
		t.Error("a negative id was taken")
	}
	f = newFlight()
	f.OnWritingOneWay(begin)
	if _, stray, err := f.OnAnswer(begin, -1<<31); stray || err == nil { // 0 with the sign bit
		t.Error("a negative id passed for that of a one-way request")
	}
}

// TestB032OneWayRequestsTakeNoMemory sends a million that nobody answers.
func TestB032OneWayRequestsTakeNoMemory(t *testing.T) {
	f := newFlight()
	for range 1_000_000 {
		f.OnWritingOneWay(begin)
		f.OnWritten(begin)
	}
	if len(f.ring) > 8 || f.Len() != 0 {
		t.Errorf("%d entries for requests that want no answer", len(f.ring))
	}
}

// TestC29EveryAnswerGoesToItsOwnRequest runs random writes, answers, cancels
// and one-way requests against a plain list.
func TestC29EveryAnswerGoesToItsOwnRequest(t *testing.T) {
	type entry struct {
		id     int32
		mark   string
		oneWay bool
	}
	rapid.Check(t, func(rt *rapid.T) {
		f, now := newFlight(), begin
		var model []entry
		live := func() (n int) {
			for _, e := range model {
				if !e.oneWay {
					n++
				}
			}
			return n
		}
		for i := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 900).Draw(rt, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0, 1:
				mark := fmt.Sprint("m", i)
				model = append(model, entry{f.OnWriting(now, 3, 1, time.Hour, mark), mark, false})
				f.OnWritten(now)
			case 2:
				model = append(model, entry{f.OnWritingOneWay(now), "", true})
				f.OnWritten(now)
			case 3:
				for len(model) > 0 && model[0].oneWay {
					model = model[1:]
				}
				if len(model) == 0 {
					continue
				}
				o, stray, err := f.OnAnswer(now, model[0].id)
				if err != nil || stray || o.Value != model[0].mark {
					rt.Fatalf("answer %d: %q %v %v, want %q", model[0].id, o.Value, stray, err, model[0].mark)
				}
				model = model[1:]
			case 4:
				if len(model) > 0 {
					at := rapid.IntRange(0, len(model)-1).Draw(rt, "at")
					f.Abandon(model[at].id)
					model[at].mark = ""
				}
			}
			f.check()
			if f.Len() != live() {
				rt.Fatalf("%d outstanding, want %d", f.Len(), live())
			}
			if d := f.Deadline(); d.IsZero() {
				rt.Fatal("no deadline")
			}
		}
	})
}

func TestC32AWrongIdEndsTheSocket(t *testing.T) {
	for name, id := range map[string]int32{"the second first": 1, "unsolicited": 999, "negative": -5} {
		f := newFlight()
		for range 2 {
			f.OnWriting(begin, 3, 12, time.Second, "r")
			f.OnWritten(begin)
		}
		_, _, err := f.OnAnswer(begin, id)
		var pe *kafka.ProtocolError
		if !errors.As(err, &pe) || !strings.Contains(pe.What, "where 0 was due") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := newFlight().OnAnswer(begin, 0); err == nil || !strings.Contains(err.Error(), "nobody asked for") {
		t.Errorf("nothing outstanding: %v", err)
	}
}

// TestC32NothingIsFoundForAnIDThatIsNotOut has a broker that speaks before it
// was asked, and ids around those that are out.
func TestC32NothingIsFoundForAnIDThatIsNotOut(t *testing.T) {
	f := newFlight()
	none := func(when string, ids ...int32) {
		t.Helper()
		for _, id := range ids {
			if o, ok := f.Find(id); ok {
				t.Errorf("%s: %d is %+v", when, id, o)
			}
			f.Abandon(id)
		}
	}
	none("at first", 0, 1, -1, -1<<31)
	for range 3 {
		f.OnWriting(begin, 3, 12, time.Second, "r")
		f.OnWritten(begin)
	}
	f.OnAnswer(begin, 0)
	f.OnWritingOneWay(begin)
	none("two are out and one is not waited for", 0, 3, 4, -1, 1<<31-1, -1<<31, 1-1<<31)
	for _, id := range []int32{1, 2} {
		if o, ok := f.Find(id); !ok || o.ID != id || o.Value != "r" {
			t.Errorf("%d: %+v %v", id, o, ok)
		}
	}
}

func TestSessionIsDueAt80To90Percent(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	lo, hi := time.Hour, time.Duration(0)
	for range 10_000 {
		var s Session
		s.OnLogin(begin, 100*time.Second, rng)
		s.OnWrite()
		d := s.Deadline().Sub(begin)
		lo, hi = min(lo, d), max(hi, d)
	}
	if lo < 80*time.Second || hi > 90*time.Second || lo > 81*time.Second || hi < 89*time.Second {
		t.Errorf("C23: due after %v to %v of 100 s", lo, hi)
	}
}

// TestSessionTranscripts holds what the names of the files say.
func TestSessionTranscripts(t *testing.T) {
	transcript.Run(t, "session/*.txt", func(t *testing.T) func([]string) string {
		s := &Session{}
		return func(c []string) string { return sessionStep(t, s, c) }
	})
}

// sessionStep is one command of a transcript.
func sessionStep(t *testing.T, s *Session, c []string) string {
	now := at(t, c[0])
	switch c[1] {
	case "login":
		d, _ := time.ParseDuration(c[2])
		s.OnLogin(now, d, nil)
	case "write":
		s.OnWrite()
	case "idle":
		s.OnIdle()
	case "refused":
		if !s.Late(now) {
			return "early"
		}
		s.OnRefused(now)
	case "look":
	default:
		t.Fatalf("command %v", c)
	}
	return fmt.Sprintf("due %v, with a request waiting %v, deadline %s", s.Due(now, false), s.Due(now, true), since(s.Deadline()))
}
