package sim

import (
	"net"
	"sync"
	"time"

	"github.com/ottla/ottla/internal/sim/frame"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const maxFrame = 128 << 20

// conn is one accepted connection: one goroutine reads and answers, others
// only for answers out of order.
type conn struct {
	b      *Broker
	n      int
	nc     net.Conn
	done   chan struct{} // closed by end
	turn   chan struct{} // holds one token: the right to write
	once   sync.Once
	counts map[int16]int // owned by serve
	auth   authState     // owned by serve
	wg     sync.WaitGroup
}

func newConn(b *Broker, n int, nc net.Conn) *conn {
	c := &conn{b: b, n: n, nc: nc, done: make(chan struct{}), turn: make(chan struct{}, 1), counts: map[int16]int{}}
	c.turn <- struct{}{}
	return c
}

func (c *conn) serve(hook func(int, net.Conn) End) {
	defer c.forget()
	defer c.wg.Wait()
	defer c.end(Close)
	if hook != nil {
		if how := hook(c.n, c.nc); !c.goesOn(how) {
			return
		}
	}
	for {
		raw, err := frame.Read(c.nc, maxFrame, nil)
		if err != nil {
			return
		}
		r, ok := c.read(raw)
		if !ok || !c.answer(r) {
			return
		}
	}
}

// read turns a frame into a journaled request. A frame that is no request
// ends the connection.
func (c *conn) read(raw []byte) (*Request, bool) {
	head, err := frame.Parse(raw)
	r := &Request{Frame: Frame{Request: head, At: time.Now(), Conn: c.n, Err: err}, Broker: c.b, NetConn: c.nc, done: c.done}
	if err == nil {
		r.Req, r.Err = head.Decode()
	} else {
		r.Request.Raw, r.Key = raw, -1
	}
	c.counts[r.Key]++
	r.NthConn = c.counts[r.Key]
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts[r.Key]++
	r.Nth = b.counts[r.Key]
	b.journal = append(b.journal, r.Frame)
	b.changedLocked()
	if r.Req == nil {
		return nil, false
	}
	if v, ok := b.versions[r.Key]; r.Key != int16(kmsg.ApiVersions) && (!ok || r.Version < v.Min || r.Version > v.Max) {
		b.strayLocked(r.Frame)
		return nil, false
	}
	return r, true
}

func (c *conn) answer(r *Request) bool {
	a := c.decide(r)
	if a.OutOfOrder {
		c.wg.Go(func() { c.deliver(r, a) })
		return true
	}
	return c.deliver(r, a)
}

func (c *conn) decide(r *Request) Answer {
	b := c.b
	b.mu.Lock()
	if s := b.scripts[r.Key]; len(s) > 0 {
		b.scripts[r.Key] = s[1:]
		b.mu.Unlock()
		return fillVersion(s[0], r)
	}
	h := b.handlers[r.Key]
	b.mu.Unlock()
	if a, mine := c.authenticate(r, h); mine {
		return a
	}
	if h != nil {
		return fillVersion(h(r), r)
	}
	return b.Default(r)
}

// fillVersion gives a response that a test made without a version the
// request's.
func fillVersion(a Answer, r *Request) Answer {
	if a.Response != nil && a.Response.GetVersion() == 0 && a.Response.Key() == r.Key && r.Key != int16(kmsg.ApiVersions) {
		a.Response.SetVersion(r.Version)
	}
	return a
}

// deliver waits as the answer says, writes it and carries out its end. It
// reports whether the connection goes on.
func (c *conn) deliver(r *Request, a Answer) bool {
	if a.Delay > 0 {
		t := time.NewTimer(a.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.done:
			return false
		}
	}
	if a.Until != nil {
		select {
		case <-a.Until:
		case <-c.done:
			return false
		}
	}
	if out := a.encode(r.Request); len(out) > 0 && c.write(out) != nil {
		return false
	}
	return c.goesOn(a.End)
}

func (c *conn) goesOn(how End) bool {
	switch how {
	case Keep:
		return true
	case StopReading:
		<-c.done
	default:
		c.end(how)
	}
	return false
}

func (c *conn) write(p []byte) error {
	select {
	case <-c.turn:
	case <-c.done:
		return net.ErrClosed
	}
	defer func() { c.turn <- struct{}{} }()
	_, err := c.nc.Write(p)
	return err
}

// end closes or resets the connection; the first call counts.
func (c *conn) end(how End) {
	c.once.Do(func() {
		close(c.done)
		if how == Reset {
			if l, ok := under(c.nc).(interface{ SetLinger(int) error }); ok {
				l.SetLinger(0)
			}
			under(c.nc).Close()
		}
		c.nc.Close()
	})
}

// under is the connection below TLS.
func under(nc net.Conn) net.Conn {
	for {
		w, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = w.NetConn()
	}
}

func (c *conn) forget() {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	delete(c.b.conns, c.n)
	c.b.changedLocked()
}
