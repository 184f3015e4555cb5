package netconn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// read is the reader goroutine of a socket: it cuts frames, matches them to
// requests and hands the answers over, until the socket ends.
func (s *socket) read(context.Context) error {
	split := conn.NewSplitter(s.lane.peer.cfg.maxResponse(), s.reserve)
	split.Alloc = s.buffer
	for {
		n, err := s.conn.Read(split.Space())
		if n > 0 {
			s.bytesIn.Add(int64(n))
			split.OnRead(n)
			if !s.frames(split) {
				return nil
			}
		}
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = io.EOF // TLS says so where a close notice is missing
			}
			s.failWith(s.lane.peer.explainRead(err), split.Partial(), -1)
			return nil
		}
	}
}

// reserve says how much the answer with that id may reserve for a buffer of
// its own, 0 if it goes through the shared one.
func (s *socket) reserve(id int32) int {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	o, _ := s.flight.Find(id)
	return o.Value.reserve
}

// buffer is what the caller of a request gives for its answer, nil if nothing.
func (s *socket) buffer(id int32, n int) []byte {
	s.lane.mu.Lock()
	o, _ := s.flight.Find(id)
	c := o.Value.call
	if c == nil || o.Value.buffer == nil { // given up: it may be used again
		s.lane.mu.Unlock()
		return nil
	}
	c.filling = true
	s.lane.mu.Unlock()
	return o.Value.buffer(n)
}

// frames handles every whole frame, and reports whether the socket lives on.
func (s *socket) frames(split *conn.Splitter) bool {
	for {
		f, ok, err := split.Next()
		if err != nil {
			s.fail(s.lane.peer.protocolError(err))
			return false
		}
		if !ok {
			return true
		}
		if !s.onFrame(f) {
			return false
		}
	}
}

func (s *socket) onFrame(f conn.Frame) bool {
	l := s.lane
	now := time.Now()
	l.mu.Lock()
	o, stray, err := s.flight.OnAnswer(now, f.ID)
	if err != nil {
		l.mu.Unlock()
		var pe *kafka.ProtocolError
		if errors.As(err, &pe) {
			pe.First = append([]byte(nil), f.Data[:min(len(f.Data), 16)]...)
		}
		s.fail(l.peer.protocolError(err))
		return false
	}
	e := ending{call: o.Value.call}
	held := e.call != nil && s.mayRenewLocked(now, e.call)
	if e.call != nil && !held {
		e.takeLocked()
	}
	if s.ready {
		s.answers++
		l.barren.n = 0
	}
	if s.flight.Len() == 0 {
		s.armLocked()
		if l.draining {
			l.wakeLocked()
		}
	}
	l.mu.Unlock()
	if stray {
		return true
	}
	s.decode(&e, o, f)
	if held && !s.settle(&e, o.Value.gen) {
		return true
	}
	l.peer.cfg.Journal.add(Entry{
		At: now, Addr: l.peer.addr, Kind: l.kind, Answer: true, API: o.Key, Version: o.Version,
		ID: f.ID, Size: len(f.Data) + 4, Code: codeOf(e.resp),
	})
	if e.call != nil {
		e.finish()
	}
	return true
}

// decode reads the answer, at the version that was asked, also for a call that
// was abandoned: it may hold a throttle.
func (s *socket) decode(e *ending, o conn.Outstanding[pending], f conn.Frame) {
	body, err := conn.Body(f.Data, o.Key, o.Value.flexible)
	if !f.Own { // what is decoded keeps parts of its input: byte fields, unknown tags
		body = bytes.Clone(body)
	}
	if err == nil && e.call != nil && e.call.answer != nil {
		e.err = s.lane.peer.protocolError(e.call.answer(body))
		return
	}
	resp := o.Value.resp
	if resp == nil {
		return
	}
	if err == nil {
		if u, ok := resp.(kmsg.UnsafeReadFrom); ok && o.Key == fetchKey && f.Own {
			err = u.UnsafeReadFrom(body)
		} else {
			err = resp.ReadFrom(body)
		}
	}
	if err != nil {
		e.err = s.lane.peer.protocolError(&kafka.ProtocolError{
			What:  "the " + conn.APIName(o.Key) + " answer cannot be decoded",
			First: append([]byte(nil), f.Data[:min(len(f.Data), 16)]...), Err: err,
		})
		return
	}
	e.resp = resp
	if t, ok := resp.(kmsg.ThrottleResponse); ok {
		s.throttle(t.Throttle())
	}
}

// mayRenewLocked reports whether an authorization error in the answer to c may
// only mean that the broker ended the session before its time: then c waits
// for one more authentication. The answer is looked at before c is over.
func (s *socket) mayRenewLocked(now time.Time, c *Call) bool {
	return s.session.Late(now) && !c.renewed && !c.NoRedial && !c.OpenOnly && !c.OneWay && c.answer == nil
}

// settle ends a call that was held until its answer was decoded, or sends it
// once more under a new login (KIP-368). It reports whether the call is over
// by this answer; if not, it was given up meanwhile or goes on.
func (s *socket) settle(e *ending, gen uint64) (over bool) {
	l, c := s.lane, e.call
	refused := refusedBy(e.resp)
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.gen != gen || c.state != callWaiting && c.state != callWriting {
		return false
	}
	may := refused == topRefused || refused == itemRefused && retry.ClassOfRequest(c.Req).Repeatable()
	if refused == notRefused || l.closed != nil {
		e.takeLocked()
		return true
	}
	s.session.OnRefused(time.Now())
	if !may || !l.startLocked() {
		e.takeLocked()
		return true
	}
	c.renewed, c.filling = true, false
	l.stats.Retries++
	l.queue.putBack([]*Call{c})
	l.wakeLocked()
	return false
}

// throttle keeps the lane silent where the broker says so. Old brokers waited
// themselves before they answered.
func (s *socket) throttle(ms int32, after bool) {
	if ms <= 0 {
		return
	}
	l, d := s.lane, time.Duration(ms)*time.Millisecond
	l.mu.Lock()
	if after {
		s.flight.OnThrottle(time.Now(), d)
	}
	l.stats.Throttled += d
	l.mu.Unlock()
	if l.peer.cfg.Hooks.Throttled != nil {
		l.peer.cfg.Hooks.Throttled(l.peer.addr, l.kind, d)
	}
}

// protocolError adds the address to an error of the machines.
func (p *Peer) protocolError(err error) error {
	var pe *kafka.ProtocolError
	if errors.As(err, &pe) {
		pe.Addr = p.addr
	}
	return err
}
