package memnet

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Conn is one end of a connection. It is a net.Conn with the manners of a
// TCP connection, and the faults that a test may want.
type Conn struct {
	n              *Network
	w              *wire
	side           int // index of the half this end writes
	local, remote  *net.TCPAddr
	host, peerHost string
	dialled        bool // the end that dialled

	rd, wd  time.Time // deadlines; guarded by w.mu
	closed  bool      // guarded by w.mu
	told    bool      // a reset was reported; guarded by w.mu
	linger  int       // as SetLinger; guarded by w.mu
	noDelay bool      // as SetNoDelay; guarded by w.mu
}

func newPair(h Host, r route, to netip.AddrPort) (client, server *Conn) {
	w := &wire{}
	for i := range w.half {
		w.half[i] = half{window: r.window, latency: r.latency, rate: r.rate, cut: -1}
	}
	la, ra := net.TCPAddrFromAddrPort(r.local), net.TCPAddrFromAddrPort(to)
	client = &Conn{n: h.n, w: w, side: 0, local: la, remote: ra, host: h.name, peerHost: r.host, dialled: true, linger: -1}
	server = &Conn{n: h.n, w: w, side: 1, local: ra, remote: la, host: r.host, peerHost: h.name, linger: -1}
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.n.conns[client], h.n.conns[server] = struct{}{}, struct{}{}
	client.hold(h.n.cutLocked(h.name, r.host))
	return client, server
}

// drop forgets a pair that was never connected.
func (c *Conn) drop() {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for o := range c.n.conns {
		if o.w == c.w {
			delete(c.n.conns, o)
		}
	}
}

// LocalAddr is this end's *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the other end's *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

func (c *Conn) out() *half { return &c.w.half[c.side] }
func (c *Conn) in() *half  { return &c.w.half[1-c.side] }

func (c *Conn) fail(op string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = os.NewSyscallError(op, errno)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// Read reads what has arrived, and blocks until something has, the deadline
// passes (os.ErrDeadlineExceeded) or the connection ends: io.EOF after the
// peer's close, syscall.ECONNRESET after a reset, net.ErrClosed after Close.
func (c *Conn) Read(p []byte) (int, error) {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		now := time.Now()
		if c.closed {
			return 0, c.fail("read", net.ErrClosed)
		}
		if passed(c.rd, now) {
			return 0, c.fail("read", os.ErrDeadlineExceeded)
		}
		if len(p) == 0 {
			return 0, nil
		}
		in := c.in()
		if n := in.take(p, now); n > 0 {
			w.broadcastLocked()
			return n, nil
		}
		if err := in.ended(now); err == io.EOF {
			return 0, io.EOF
		} else if err != nil {
			c.told = true
			return 0, c.fail("read", err)
		}
		w.waitLocked(earliest(c.rd, in.next()))
	}
}

// Write queues p for the peer and blocks while the window is full. It
// returns before the peer has read anything, as TCP does.
func (c *Conn) Write(p []byte) (int, error) {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	done := 0
	for {
		now := time.Now()
		if err := c.writableLocked(now); err != nil {
			return done, c.fail("write", err)
		}
		if done == len(p) {
			return done, nil
		}
		if c.out().dead && c.in().end == syscall.ECONNRESET {
			w.waitLocked(earliest(c.wd, c.in().resetDue()))
			continue
		}
		n := c.out().put(p[done:], now)
		done += n
		switch {
		case c.out().dead: // the peer's kernel answers with a reset
			c.in().finish(syscall.ECONNRESET, now.Add(c.out().latency))
			w.broadcastLocked()
			return len(p), nil
		case c.out().cut == 0:
			w.resetLocked()
			return len(p), nil
		case n > 0:
			w.broadcastLocked()
		default:
			w.waitLocked(earliest(c.wd, c.in().resetDue()))
		}
	}
}

func (c *Conn) writableLocked(now time.Time) error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.out().end != nil && c.out().end != syscall.ECONNRESET:
		return syscall.EPIPE // after CloseWrite
	case c.in().wasReset(now) && c.told:
		return syscall.EPIPE
	case c.in().wasReset(now):
		c.told = true
		return syscall.ECONNRESET
	case passed(c.wd, now):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Close ends both directions. Unread bytes, or SetLinger(0), make it a reset.
func (c *Conn) Close() error {
	c.w.mu.Lock()
	if c.closed {
		c.w.mu.Unlock()
		return c.fail("close", net.ErrClosed)
	}
	err := error(io.EOF)
	if c.linger == 0 || c.in().size > 0 {
		err = syscall.ECONNRESET
	}
	c.endLocked(err)
	c.w.mu.Unlock()
	c.forget()
	return nil
}

// Reset ends the connection with a reset: the peer reads what already arrived
// or is under way, then syscall.ECONNRESET.
func (c *Conn) Reset() {
	c.w.mu.Lock()
	if !c.closed {
		c.endLocked(syscall.ECONNRESET)
	}
	c.w.mu.Unlock()
	c.forget()
}

func (c *Conn) endLocked(err error) {
	c.closed = true
	if c.out().end == nil || err != io.EOF {
		c.out().finish(err, time.Now())
	}
	in := c.in()
	in.dead, in.segs, in.size = true, nil, 0
	c.w.broadcastLocked()
}

func (c *Conn) forget() {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	delete(c.n.conns, c)
}

// CloseWrite ends this end's direction only: the peer reads io.EOF after the
// bytes that were written.
func (c *Conn) CloseWrite() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.closed {
		return c.fail("close", net.ErrClosed)
	}
	if c.out().end == nil {
		c.out().finish(io.EOF, time.Now())
		c.w.broadcastLocked()
	}
	return nil
}

// SetDeadline sets both deadlines; the zero time means none.
func (c *Conn) SetDeadline(t time.Time) error {
	return c.setDeadlines(&t, &t)
}

// SetReadDeadline sets when Read gives up, for waiting calls too.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(&t, nil) }

// SetWriteDeadline sets when Write gives up, for waiting calls too.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(nil, &t) }

func (c *Conn) setDeadlines(rd, wd *time.Time) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.closed {
		return c.fail("set", net.ErrClosed)
	}
	if rd != nil {
		c.rd = *rd
	}
	if wd != nil {
		c.wd = *wd
	}
	c.w.broadcastLocked()
	return nil
}

// SetNoDelay records what a client asked for; it changes nothing.
func (c *Conn) SetNoDelay(on bool) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.noDelay = on
	return nil
}

// NoDelay is the last value given to SetNoDelay, false at first.
func (c *Conn) NoDelay() bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.noDelay
}

// SetLinger makes Close a reset when sec is 0, as for a TCP connection.
func (c *Conn) SetLinger(sec int) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.linger = sec
	return nil
}

// SetWindow sets how many bytes the peer may have written that this end has
// not read. Zero stops the peer's next Write.
func (c *Conn) SetWindow(bytes int) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.in().window = bytes
	c.w.broadcastLocked()
}

// SetRate limits both directions to so many bytes per second from here on; 0
// lifts the limit.
func (c *Conn) SetRate(bytesPerSecond int) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.out().rate, c.in().rate = bytesPerSecond, bytesPerSecond
}

// CutAfter resets the connection once this end has written so many further
// bytes; the peer still reads those. A negative number calls it off.
func (c *Conn) CutAfter(written int64) { c.setCut(c.side, written) }

// CutAfterReceived is CutAfter for the bytes that the peer writes.
func (c *Conn) CutAfterReceived(written int64) { c.setCut(1-c.side, written) }

func (c *Conn) setCut(side int, written int64) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.half[side].cut = max(written, -1)
	if written == 0 {
		c.w.resetLocked()
	}
}

// Hang stops delivery in both directions, close and reset included, until it
// is called with false. Writers go on until their window is full.
func (c *Conn) Hang(on bool) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for i := range c.w.half {
		c.w.half[i].hung = on
	}
	c.w.broadcastLocked()
}

// hold is Hang for a partition of the network.
func (c *Conn) hold(on bool) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for i := range c.w.half {
		c.w.half[i].held = on
	}
	c.w.broadcastLocked()
}
