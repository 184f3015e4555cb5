package memnet

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// Listener accepts connections at one address. It is a net.Listener whose
// connections are *Conn.
type Listener struct {
	n    *Network
	at   netip.AddrPort
	host string

	mu     sync.Mutex
	queue  []*Conn // dialled, not accepted
	closed bool
	wake   chan struct{} // closed when queue or closed changes; nil = nobody waits
}

// Listen opens a listener at "host:port". The host is an IP address or a
// name; a new name becomes a host with an address of its own. An empty host
// is 127.0.0.1, port 0 takes a free one.
func (n *Network) Listen(addr string) (net.Listener, error) {
	host, port, err := splitHostPort(addr)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: err}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	ip := n.addrLocked(host)
	if port == 0 {
		port = n.freePortLocked(ip)
	}
	at := netip.AddrPortFrom(ip, port)
	if n.listeners[at] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: net.TCPAddrFromAddrPort(at),
			Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	l := &Listener{n: n, at: at, host: n.hostLocked(ip)}
	n.listeners[at] = l
	return l, nil
}

func (n *Network) freePortLocked(ip netip.Addr) uint16 {
	for {
		n.nextPort++
		if n.nextPort < firstEphemeral {
			n.nextPort = firstEphemeral
		}
		if n.listeners[netip.AddrPortFrom(ip, n.nextPort)] == nil {
			return n.nextPort
		}
	}
}

func splitHostPort(addr string) (string, uint16, error) {
	host, ps, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.ParseUint(ps, 10, 16)
	if err != nil {
		return "", 0, &net.AddrError{Err: "invalid port", Addr: addr}
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return host, uint16(port), nil
}

// Addr is the listener's *net.TCPAddr.
func (l *Listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

// Accept waits for the next connection; Close ends it with net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.closed {
			return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
		}
		if len(l.queue) > 0 {
			c := l.queue[0]
			l.queue = l.queue[1:]
			l.broadcastLocked()
			return c, nil
		}
		l.waitLocked()
	}
}

// Close stops the listener: dials are refused and connections that nobody
// accepted are reset. Accepted ones stay open.
func (l *Listener) Close() error {
	l.n.mu.Lock()
	if l.n.listeners[l.at] == l {
		delete(l.n.listeners, l.at)
	}
	l.n.mu.Unlock()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
	l.closed = true
	left := l.queue
	l.queue = nil
	l.broadcastLocked()
	l.mu.Unlock()
	for _, c := range left {
		c.Reset()
	}
	return nil
}

// offer queues c and reports false when the listener is closed. A full
// backlog answers wait, to be repeated when the channel closes.
func (l *Listener) offer(c *Conn) (ok bool, wait <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, nil
	}
	if len(l.queue) >= backlog {
		return false, l.wakeLocked()
	}
	l.queue = append(l.queue, c)
	l.broadcastLocked()
	return true, nil
}

func (l *Listener) wakeLocked() <-chan struct{} {
	if l.wake == nil {
		l.wake = make(chan struct{})
	}
	return l.wake
}

func (l *Listener) waitLocked() {
	ch := l.wakeLocked()
	l.mu.Unlock()
	<-ch
	l.mu.Lock()
}

func (l *Listener) broadcastLocked() {
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// HostPort is the listener's address with the name of its host.
func (l *Listener) HostPort() string {
	return net.JoinHostPort(l.host, strconv.Itoa(int(l.at.Port())))
}
