package netconn

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// pending is what the flight keeps for one request.
type pending struct {
	call     *Call         // nil once the caller gave up
	gen      uint64        // of call
	resp     kmsg.Response // to decode into
	flexible bool
	reserve  int // bytes that its answer's own buffer may reserve at once; 0 = no buffer of its own
	buffer   func(n int) []byte
}

// socket is one connection of a lane. Fields without a comment of their own
// are set before its goroutines start and do not change.
type socket struct {
	lane    *Lane
	conn    net.Conn     // as it is read and written: TLS, if that is on
	raw     net.Conn     // the connection below, which is the one to close
	tcp     *net.TCPConn // for vectored writes; nil if there is something between
	counted *countConn   // below TLS; nil otherwise
	bytesIn atomic.Int64
	ctx     context.Context // ends once the socket is lost, with why
	cancel  context.CancelCauseFunc

	// Guarded by the lane's mutex.
	flight   *conn.Flight[pending]
	session  conn.Session
	versions conn.Versions // set by the handshake
	greeted  greeting      // set by the handshake
	ready    bool          // the handshake is over
	dead     bool
	err      error // why it is dead
	requests int   // written since the handshake
	answers  int   // read since the handshake
	alarm    alarm
	writing  *Call     // its frame is being written
	renewed  time.Time // deadline of the session that the writer was told of
}

// alarm is the timer of a socket.
type alarm struct {
	timer *time.Timer // nil until it is first needed
	at    time.Time   // when it fires, zero if it does not
}

// errIdle closes a socket that was not used for a while.
var errIdle = errors.New("idle for longer than the limit")

// fail closes the socket and gives every request on it its fate: those that
// may be repeated go again, the others end. Only the first call counts.
func (s *socket) fail(err error) { s.failWith(err, 0, -1) }

// failWith is fail with how many bytes of the oldest answer were read, and the
// id of a request that ran out of its time, -1 for none.
func (s *socket) failWith(err error, read int, expired int32) {
	s.lane.mu.Lock()
	s.failAndUnlock(err, read, expired)
}

// failAndUnlock is failWith for who holds the lane's mutex already; it is
// released.
func (s *socket) failAndUnlock(err error, read int, expired int32) {
	l := s.lane
	if s.dead {
		l.mu.Unlock()
		return
	}
	s.dead, s.err = true, err
	if s.alarm.timer != nil {
		s.alarm.timer.Stop()
	}
	if l.sock == s {
		l.sock, l.draining = nil, false
	}
	if protocol := (*kafka.ProtocolError)(nil); s.ready && s.answers == 0 && (isLoss(err) || errors.As(err, &protocol)) {
		l.barren.add()
	}
	over := append(l.drainLocked(s, err, read, expired), l.strandedLocked()...)
	l.stats.BytesIn += s.bytesIn.Load()
	ready := s.ready
	l.wakeLocked()
	l.mu.Unlock()

	s.cancel(err)
	s.raw.Close()
	if ready && l.peer.cfg.Hooks.Closed != nil {
		l.peer.cfg.Hooks.Closed(l.peer.addr, l.kind, err)
	}
	for i := range over {
		over[i].finish()
	}
}

// drainLocked empties the flight of a dead socket.
func (l *Lane) drainLocked(s *socket, err error, read int, expired int32) (over []ending) {
	var again []*Call
	for o, ok := s.flight.Drain(); ok; o, ok = s.flight.Drain() {
		c := o.Value.call
		if c == nil {
			read = 0
			continue
		}
		if c == s.writing && c.state == callWriting && o.ID != expired {
			continue // the writer knows in a moment how much of it went out
		}
		if o.ID != expired && l.mayRepeatLocked(c, err) {
			again = append(again, c)
			continue
		}
		e := ending{c, nil, l.lossOf(c, err, read, o.ID == expired)}
		e.takeLocked()
		over = append(over, e)
		read = 0
	}
	l.queue.putBack(again)
	return over
}

// strandedLocked takes the calls out of the queue that wanted the socket that
// was open, and no new one.
func (l *Lane) strandedLocked() (over []ending) {
	if l.closed != nil {
		return nil
	}
	for _, c := range l.queue.waiting(func(c *Call) bool { return c.OpenOnly }) {
		l.queue.remove(c)
		e := ending{c, nil, &kafka.DialError{Addr: l.peer.addr, Err: errNotConnected}}
		e.takeLocked()
		over = append(over, e)
	}
	return over
}

// mayRepeatLocked decides whether a call whose socket was lost is written once
// more (C41, C43). One of which no byte was written does not count as sent. One
// whose answer goes into the caller's buffer is over: the reader may still write
// there.
func (l *Lane) mayRepeatLocked(c *Call, err error) bool {
	if l.closed != nil || c.answer != nil || c.filling || c.NoRedial || c.OpenOnly || !isLoss(err) {
		return false
	}
	if c.size == 0 {
		return true
	}
	if c.lost != nil || !retry.ClassOfRequest(c.Req).Repeatable() {
		return false
	}
	c.lost = l.connError(c, lossCause(err), 0)
	l.stats.Retries++
	return true
}

// lossOf is the error of a call whose socket was lost.
func (l *Lane) lossOf(c *Call, err error, read int, expired bool) error {
	switch {
	case l.closed != nil && c.size == 0:
		return l.closed
	case l.closed != nil:
		return l.connError(c, l.closed, read)
	}
	if expired {
		phase := kafka.PhaseAnswer
		if c.state == callWriting {
			phase = kafka.PhaseWrite
		}
		return l.timeoutOf(c, phase, nil)
	}
	var protocol *kafka.ProtocolError
	garbled := errors.As(err, &protocol) && c.answer == nil // the answers of a broker that was one until then
	if !isLoss(err) && !garbled && (c.answer != nil || c.size == 0 || kafka.MayHaveHappened(err)) {
		return err
	}
	return l.connError(c, lossCause(err), read)
}

func (l *Lane) connError(c *Call, err error, read int) *kafka.ConnError {
	return &kafka.ConnError{
		Name: conn.APIName(c.Req.Key()), Addr: l.peer.addr, Lane: l.kind.String(),
		Written: int64(c.size), Read: int64(read), First: c.first, Err: err,
	}
}

// armLocked makes the timer of the socket fire when its clocks may have
// something to say. It fires too early rather than being moved for every
// request.
func (s *socket) armLocked() {
	d := s.flight.Deadline()
	if s.lane.queue.len() > 0 {
		if until, ok := s.flight.Blocked(time.Now()); ok {
			d = retry.Earlier(d, until)
		}
	}
	if at := s.session.Deadline(); at.After(s.renewed) {
		d = retry.Earlier(d, at)
	}
	if d.IsZero() || s.dead || !s.alarm.at.IsZero() && !d.Before(s.alarm.at) {
		return
	}
	s.alarm.at = d
	wait := max(time.Until(d), minTimer)
	if s.alarm.timer == nil {
		s.alarm.timer = time.AfterFunc(wait, s.onTimer)
		return
	}
	s.alarm.timer.Reset(wait)
}

// minTimer keeps a clock that has struck already from spinning.
const minTimer = time.Millisecond

// onTimer runs on a goroutine of the timer.
func (s *socket) onTimer() {
	l := s.lane
	l.mu.Lock()
	if s.dead {
		l.mu.Unlock()
		return
	}
	now := time.Now()
	s.alarm.at = time.Time{}
	if phase, id, ok := s.flight.Expired(now); ok {
		o, _ := s.flight.Find(id)
		s.failAndUnlock(&kafka.TimeoutError{Name: conn.APIName(o.Key), Addr: l.peer.addr, Phase: phase}, 0, id)
		return
	}
	l.wakeLocked() // the end of a throttle or of the idle limit, or a session to renew
	s.renewed = s.session.Deadline()
	if s.renewed.After(now) {
		s.renewed = time.Time{}
	}
	s.armLocked()
	l.mu.Unlock()
}

// countConn counts the bytes that reach the network below TLS, which does not
// tell how much of a failed write went out.
type countConn struct {
	net.Conn
	out atomic.Int64
}

func (c *countConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.out.Add(int64(n))
	return n, err
}
