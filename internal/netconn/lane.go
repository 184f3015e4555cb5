package netconn

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/kafka"
)

// Lane is one kind of traffic to one address: at most one socket, with one
// goroutine that dials and writes and one that reads, and the queue before it.
// It is safe for concurrent use.
type Lane struct {
	peer *Peer
	kind Kind
	wake chan struct{} // capacity 1; tells the writer goroutine to look again
	pool sync.Pool     // of *waiter

	mu         sync.Mutex
	queue      callQueue
	sock       *socket // nil if there is none; not usable before sock.ready
	running    bool    // the writer goroutine exists
	asleep     bool    // it waits on wake
	draining   bool
	closed     error // cause of Close
	phase      kafka.Phase
	cancelDial context.CancelCauseFunc // of the dial under way, nil if none
	barren     barren
	stats      LaneStats
}

// barren counts sockets in a row that were lost before any answer.
type barren struct {
	n    int
	last time.Time // when the last of them was lost
}

func (b *barren) add() { *b = barren{b.n + 1, time.Now()} }

func (l *Lane) init(p *Peer, k Kind) {
	l.peer, l.kind = p, k
	l.wake = make(chan struct{}, 1)
	l.stats.Addr, l.stats.Kind = p.addr, k
	l.pool.New = func() any { return &waiter{ch: make(chan struct{}, 1)} }
}

var (
	errNobodyWaits  = errors.New("nobody waits for the connection any more")
	errNotConnected = errors.New("not connected")
)

// Send queues a call and returns at once. If the lane has no socket, one is
// dialled. c.Done is called once the call is over; not within Send.
func (l *Lane) Send(c *Call) {
	ctx := c.Ctx
	gen := l.enqueue(c)
	if ctx == nil || ctx.Done() == nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { l.abandon(c, gen) })
	l.mu.Lock()
	if c.gen == gen && c.state != callIdle {
		c.stop, stop = stop, nil
	}
	l.mu.Unlock()
	if stop != nil { // it is over already
		stop()
	}
}

// Do sends a call and waits until it is over or ctx ends, whichever is first.
// c.Ctx and c.Done are not used.
func (l *Lane) Do(ctx context.Context, c *Call) (kmsg.Response, error) {
	w := l.pool.Get().(*waiter)
	c.Ctx = ctx
	if ctx.Err() != nil {
		l.pool.Put(w)
		return nil, l.timeoutOf(c, kafka.PhaseQueue, context.Cause(ctx))
	}
	c.w = w
	gen := l.enqueue(c)
	done := ctx.Done()
	if done == nil {
		<-w.ch
	} else {
		select {
		case <-w.ch:
		case <-done:
			l.abandon(c, gen)
			<-w.ch
		}
	}
	resp, err := w.resp, w.err
	w.resp, w.err = nil, nil
	l.pool.Put(w)
	return resp, err
}

// enqueue gives the number of this use of c.
func (l *Lane) enqueue(c *Call) (gen uint64) {
	l.mu.Lock()
	gen = c.gen + 1
	c.progress = progress{state: callQueued, gen: gen, w: c.w}
	switch {
	case l.closed != nil:
		l.refuseLocked(c, l.closed)
		return gen
	case c.OpenOnly && (l.sock == nil || !l.sock.ready):
		l.refuseLocked(c, &kafka.DialError{Addr: l.peer.addr, Err: errNotConnected})
		return gen
	}
	if !l.startLocked() {
		l.refuseLocked(c, groupOver(l.peer.tasks.Context()))
		return gen
	}
	l.queue.push(c)
	l.wakeLocked()
	l.mu.Unlock()
	return gen
}

// startLocked makes sure that the writer goroutine runs; it does not once the
// group is over.
func (l *Lane) startLocked() bool {
	if !l.running {
		l.running = l.peer.tasks.Go(l.write)
	}
	return l.running
}

// groupOver is why a group runs nothing more.
func groupOver(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return context.Canceled
}

// refuseLocked ends a call that never entered the queue, and unlocks. Done is
// not called on the goroutine of Send, which may hold locks of its own.
func (l *Lane) refuseLocked(c *Call, err error) {
	e := ending{c, nil, err}
	e.takeLocked()
	l.mu.Unlock()
	if e.call.w != nil {
		e.finish()
		return
	}
	time.AfterFunc(0, e.finish)
}

// wakeLocked makes the writer goroutine look at the lane again.
func (l *Lane) wakeLocked() {
	if !l.asleep {
		return
	}
	l.asleep = false
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// abandon ends a call whose context ended: withdrawn if it was not written,
// else its answer will be read and dropped.
func (l *Lane) abandon(c *Call, gen uint64) {
	l.mu.Lock()
	if c.gen != gen || c.state == callIdle {
		l.mu.Unlock()
		return
	}
	phase := kafka.PhaseQueue
	switch c.state {
	case callQueued:
		l.queue.remove(c)
		if l.sock == nil || !l.sock.ready {
			phase = l.phase
		}
		if l.queue.len() == 0 && l.cancelDial != nil {
			l.cancelDial(errNobodyWaits)
		}
	case callWriting, callWaiting:
		phase = kafka.PhaseAnswer
		if c.state == callWriting {
			phase = kafka.PhaseWrite
		}
		l.forgetLocked(c)
	}
	e := ending{c, nil, l.timeoutOf(c, phase, l.withLastDial(phase, context.Cause(c.Ctx)))}
	e.takeLocked()
	l.mu.Unlock()
	e.finish()
}

// forgetLocked leaves the answer to a call to nobody. A call whose answer is being
// decoded may come from the socket before; its id is another's on this one.
func (l *Lane) forgetLocked(c *Call) {
	if l.sock == nil {
		return
	}
	if o, ok := l.sock.flight.Find(c.id); ok && o.Value.call == c {
		l.sock.flight.Abandon(c.id)
	}
}

// withLastDial adds why the last dial failed to the end of a context that came
// while the lane was dialling.
func (l *Lane) withLastDial(phase kafka.Phase, cause error) error {
	if phase != kafka.PhaseDial {
		return cause
	}
	if _, last := l.peer.Failing(); last != nil {
		return &causes{cause, last}
	}
	return cause
}

func (l *Lane) timeoutOf(c *Call, phase kafka.Phase, cause error) error {
	name := "ApiVersions"
	if c.Req != nil {
		name = conn.APIName(c.Req.Key())
	}
	e := &kafka.TimeoutError{Name: name, Addr: l.peer.addr, Phase: phase, Err: cause}
	if !c.began.IsZero() && phase >= kafka.PhaseWrite {
		e.After = time.Since(c.began)
	}
	return e
}

// ending is a call that is over, with its outcome.
type ending struct {
	call *Call
	resp kmsg.Response
	err  error
}

// takeLocked makes the call over: nobody else may end it. The lane's mutex is
// held. A call that was sent before may have happened then, whatever became of
// its repetition.
func (e *ending) takeLocked() {
	c := e.call
	if c.lost != nil && e.err != nil && !kafka.MayHaveHappened(e.err) {
		first := *c.lost
		first.Err = &causes{e.err, first.Err}
		e.err = &first
	}
	c.state, c.lost = callIdle, nil
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

// finish tells the caller. No lock is held.
func (e *ending) finish() {
	c := e.call
	if w := c.w; w != nil {
		c.w = nil
		w.resp, w.err = e.resp, e.err
		w.ch <- struct{}{}
		return
	}
	if c.Done != nil {
		c.Done(e.resp, e.err)
	}
}

func (l *Lane) openVersions() (conn.Versions, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sock == nil || !l.sock.ready {
		return conn.Versions{}, false
	}
	return l.sock.versions, true
}

// checkIdentity asks the broker of an open socket whether it is that node of
// that cluster.
func (l *Lane) checkIdentity(clusterID string, node kafka.NodeID) {
	l.mu.Lock()
	able := l.sock != nil && l.sock.ready && l.sock.greeted.version >= 5
	l.mu.Unlock()
	if !able {
		return
	}
	id := l.peer.identity()
	id.ClusterID, id.Node = clusterID, node
	c := NewCall(context.Background(), conn.NewAPIVersions(id, 5))
	c.Min, c.Max, c.NoRedial, c.OpenOnly = 5, 5, true, true
	c.Done = func(resp kmsg.Response, _ error) {
		if r, ok := resp.(*kmsg.ApiVersionsResponse); ok && r.ErrorCode == rebootstrapRequired {
			l.peer.mismatch(clusterID, node)
		}
	}
	l.Send(c)
}

const rebootstrapRequired = 129

func (l *Lane) drain() {
	l.mu.Lock()
	l.draining = l.sock != nil || l.cancelDial != nil
	l.wakeLocked()
	l.mu.Unlock()
}

func (l *Lane) disconnect(cause error) {
	l.mu.Lock()
	s := l.sock
	l.mu.Unlock()
	if s != nil {
		s.fail(cause)
	}
}

func (l *Lane) close(cause error) {
	l.mu.Lock()
	if l.closed != nil {
		l.mu.Unlock()
		return
	}
	l.closed = cause
	s := l.sock
	if l.cancelDial != nil {
		l.cancelDial(cause)
	}
	var over []ending
	for l.queue.len() > 0 {
		over = append(over, ending{l.queue.pop(), nil, cause})
		over[len(over)-1].takeLocked()
	}
	l.wakeLocked()
	l.mu.Unlock()
	if s != nil {
		s.fail(cause)
	}
	for i := range over {
		over[i].finish()
	}
}

// Stats are the counts of the lane.
func (l *Lane) Stats() LaneStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.stats
	st.Queued = l.queue.len()
	switch s := l.sock; {
	case s != nil && s.ready:
		st.State, st.InFlight = Open, s.flight.Len()
		if l.draining {
			st.State = Draining
		}
	case l.cancelDial != nil:
		st.State = Dialling
	}
	if s := l.sock; s != nil {
		st.BytesIn += s.bytesIn.Load()
	}
	return st
}

// causes joins what ended a call with what had gone wrong before, on one line.
type causes struct{ end, before error }

func (e *causes) Error() string   { return e.end.Error() + "; before: " + e.before.Error() }
func (e *causes) Unwrap() []error { return []error{e.end, e.before} }
