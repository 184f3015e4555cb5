package netconn

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/kafka"
)

// step is what the writer goroutine of a lane does next.
type step uint8

const (
	stepWrite step = iota // the frame
	stepEnd               // tell the end of a call that is not written at all
	stepSleep             // until something changes
	stepDial
	stepRenew // authenticate again
	stepClose // the socket, with why
	stepExit
)

// work is one step with what it needs.
type work struct {
	step step
	f    frame
	end  ending
	sock *socket
	why  error
}

// frame is an encoded request that is about to be written.
type frame struct {
	sock *socket
	call *Call
	gen  uint64 // of call
	id   int32
	size int // bytes in all
}

// writer is the state of a lane's writer goroutine: the one that dials,
// authenticates and writes.
type writer struct {
	lane *Lane
	head []byte      // prefix, header and body, or what of it is not in vec; used again
	vec  net.Buffers // head and the request's own buffers; used again
	tail net.Buffers // what a vectored write has left to do
}

var errDrained = errors.New("no longer needed")

// write is the writer goroutine. It lives while there is a socket or a call.
func (l *Lane) write(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { l.close(groupOver(ctx)) })
	defer stop()
	w := &writer{lane: l}
	for {
		next := w.next()
		switch next.step {
		case stepExit:
			return nil
		case stepSleep:
			<-l.wake
		case stepDial:
			dialer{l}.dial(ctx)
		case stepRenew:
			next.sock.renew(ctx)
		case stepClose:
			next.sock.fail(next.why)
		case stepEnd:
			next.end.finish()
		default:
			n, err := w.send(next.f.sock)
			w.wrote(next.f, n, err)
		}
	}
}

// next decides what to do; it encodes the request that is to be written.
func (w *writer) next() work {
	l := w.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	now, s, waiting := time.Now(), l.sock, l.queue.len() > 0
	switch {
	case l.closed != nil || s == nil && !waiting:
		l.running = false
		return work{step: stepExit}
	case s == nil:
		return work{step: stepDial}
	case !s.flight.Usable(now):
		return work{step: stepClose, sock: s, why: errIdle}
	}
	if !waiting {
		s.session.OnIdle()
		if l.draining && s.flight.Len() == 0 {
			return work{step: stepClose, sock: s, why: errDrained}
		}
	}
	_, blocked := s.flight.Blocked(now)
	switch {
	case blocked && waiting, !waiting && !s.session.Due(now, false):
		s.armLocked()
		l.asleep = true
		return work{step: stepSleep}
	case s.session.Due(now, waiting):
		return work{step: stepRenew, sock: s}
	}
	return w.prepareLocked(now, s)
}

// prepareLocked takes the oldest call out of the queue and encodes it, unless
// its context ended and abandon only has not come to it yet.
func (w *writer) prepareLocked(now time.Time, s *socket) work {
	l := w.lane
	c := l.queue.pop()
	if c.Ctx != nil && c.Ctx.Err() != nil {
		return over(ending{c, nil, l.timeoutOf(c, kafka.PhaseQueue, context.Cause(c.Ctx))})
	}
	if c.table {
		return over(ending{c, nil, nil})
	}
	version, err := s.versions.Pick(c.Req, conn.Bounds{Min: c.Min, Max: c.Max, Cap: l.peer.cfg.cap(c.Req.Key())})
	if err != nil {
		return over(ending{c, nil, l.peer.versionError(err)})
	}
	c.Req.SetVersion(version)
	f, err := w.encodeLocked(now, s, c)
	if err != nil {
		return over(ending{c, nil, err})
	}
	return work{f: f}
}

func over(e ending) work {
	e.takeLocked()
	return work{step: stepEnd, end: e}
}

// fetchKey is the key of Fetch, whose answers get buffers of their own.
const fetchKey = 1

// fetchOverhead is more than a Fetch answer has around its batches, but for
// thousands of partitions.
const fetchOverhead = 64 << 10

// encode makes the frame of req, but for its correlation id, and gives its
// size.
func (w *writer) encode(req kmsg.Request) (size int, err error) {
	client := w.lane.peer.cfg.clientID()
	w.head = conn.AppendHeader(w.head[:0], req, &client)
	w.vec = w.vec[:0]
	body, more := 0, 0
	if b, ok := req.(BufferAppender); ok {
		w.vec = b.AppendBuffers(append(w.vec, nil))
		for _, part := range w.vec[1:] {
			more += len(part)
		}
	} else {
		body = -len(w.head)
		w.head = req.AppendTo(w.head)
		body += len(w.head)
	}
	size = len(w.head) + more
	if err := conn.Fits(req, body, size); err != nil {
		w.release()
		return 0, err
	}
	return size, nil
}

// release lets go of what was encoded.
func (w *writer) release() {
	clear(w.vec)
	if cap(w.head) > keepBuffer {
		w.head = nil
	}
}

// encodeLocked encodes c at the version of its request and enters it into the
// flight of the socket. It runs under the lock, as the caller gets the request
// back at once when its context ends.
func (w *writer) encodeLocked(now time.Time, s *socket, c *Call) (frame, error) {
	l := w.lane
	size, err := w.encode(c.Req)
	if err != nil {
		return frame{}, err
	}
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = l.peer.cfg.requestTimeout()
	}
	key := c.Req.Key()
	var id int32
	if c.OneWay {
		id = s.flight.OnWritingOneWay(now)
	} else {
		p := pending{call: c, gen: c.gen, resp: c.Req.ResponseKind(), flexible: c.Req.IsFlexible(), buffer: c.Buffer}
		if key == fetchKey {
			p.reserve = 1
		}
		if f, ok := c.Req.(*kmsg.FetchRequest); ok {
			p.reserve = max(int(f.MaxBytes), 0) + fetchOverhead
		}
		id = s.flight.OnWriting(now, key, c.Req.GetVersion(), timeout+c.wait(), p)
	}
	conn.PutPrefix(w.head, size, id)
	f := frame{sock: s, call: c, gen: c.gen, id: id, size: size}
	c.state, c.id, c.began, c.size, c.first = callWriting, id, now, f.size, s.requests == 0
	s.writing = c
	if s.ready {
		s.requests++
		s.session.OnWrite()
		l.stats.Requests++
	}
	s.armLocked()
	l.peer.cfg.Journal.add(Entry{
		At: now, Addr: l.peer.addr, Kind: l.kind, API: key, Version: c.Req.GetVersion(), ID: id, Size: f.size,
	})
	return f, nil
}

// send writes the frame with one call: vectored where the connection can, else
// joined. It gives how many bytes reached the network.
func (w *writer) send(s *socket) (int, error) {
	if len(w.vec) > 1 && s.tcp != nil {
		w.vec[0] = w.head
		w.tail = w.vec
		n, err := w.tail.WriteTo(s.tcp)
		return int(n), err
	}
	for _, part := range w.vec[min(1, len(w.vec)):] {
		w.head = append(w.head, part...)
	}
	if s.counted == nil {
		return s.conn.Write(w.head)
	}
	before := s.counted.out.Load()
	_, err := s.conn.Write(w.head)
	return int(s.counted.out.Load() - before), err
}

// keepBuffer is the largest write buffer that is kept for the next request.
const keepBuffer = 1 << 20

// wrote takes note of a finished write. If the socket was lost meanwhile, the
// call it was for is still here: only now it is known how much of it went out.
func (w *writer) wrote(f frame, n int, err error) {
	w.release()
	l, s, c := w.lane, f.sock, f.call
	if err != nil {
		s.awaitReason()
	}
	now := time.Now()
	l.mu.Lock()
	s.writing = nil
	l.stats.BytesOut += int64(n)
	ours := c.gen == f.gen && c.state == callWriting
	if ours && err != nil {
		c.size = n
	}
	if err == nil && !s.dead {
		s.flight.OnWritten(now)
		s.armLocked()
	}
	if ours {
		c.state = callWaiting
	}
	var e *ending
	switch {
	case !ours:
	case c.OneWay && err == nil:
		e = &ending{c, nil, nil}
	case s.dead || c.OneWay:
		e = l.fateLocked(c, s, err)
	}
	if e != nil {
		e.takeLocked()
	}
	dead := s.dead
	l.mu.Unlock()
	if err != nil && !dead {
		s.fail(l.peer.explainWrite(err))
	}
	if e != nil {
		e.finish()
	}
}

// fateLocked is what becomes of a call that is in no flight and whose socket
// was lost while it was being written: nil if it is written again.
func (l *Lane) fateLocked(c *Call, s *socket, err error) *ending {
	cause := s.err
	if cause == nil {
		cause = l.peer.explainWrite(err)
	}
	if l.mayRepeatLocked(c, cause) {
		l.queue.putBack([]*Call{c})
		return nil
	}
	return &ending{c, nil, l.lossOf(c, cause, 0, false)}
}

// awaitReason gives the reader a moment to tell why the socket was lost: what
// the broker said last stands in the bytes that it sent before it closed.
func (s *socket) awaitReason() {
	t := time.NewTimer(reasonTime)
	defer t.Stop()
	select {
	case <-s.ctx.Done():
	case <-t.C:
	}
}

const reasonTime = 100 * time.Millisecond
