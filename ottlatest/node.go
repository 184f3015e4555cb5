package ottlatest

import (
	"crypto/tls"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/ottla/ottla/kafka"
)

// node is one broker's front: the real listener, the checks and faults behind
// it, and, as a net.Listener, the gate through which kfake gets its
// connections.
type node struct {
	c       *Cluster
	id      kafka.NodeID
	host    string
	port    string
	toKafka chan net.Conn
	gone    chan struct{} // closed by Close
	once    sync.Once

	mu       sync.Mutex
	front    net.Listener // nil while stopped
	conns    map[*conn]struct{}
	accepted int
	hung     chan struct{} // closed when a hang is over; nil = none
	rate     int           // bytes per second and direction; 0 = unlimited
	left     [2]int64      // bytes until CloseAfter strikes, by Direction; negative = never
}

func newNode(c *Cluster, id kafka.NodeID) (*node, error) {
	n := &node{
		c: c, id: id, toKafka: make(chan net.Conn), gone: make(chan struct{}),
		conns: map[*conn]struct{}{}, left: [2]int64{-1, -1},
	}
	n.host, n.port = "127.0.0.1", "0"
	if c.cfg.Port != 0 {
		n.port = strconv.Itoa(c.cfg.Port + int(id))
	}
	if c.net != nil {
		n.host, n.port = "b"+strconv.Itoa(int(id)), "9092"
	}
	if err := n.listen(); err != nil {
		return nil, err
	}
	_, n.port, _ = net.SplitHostPort(n.front.Addr().String())
	return n, nil
}

// listen opens the front, at the address of before if there was one.
func (n *node) listen() error {
	addr := net.JoinHostPort(n.host, n.port)
	var l net.Listener
	var err error
	if n.c.net != nil {
		l, err = n.c.net.Listen(addr)
	} else {
		l, err = net.Listen("tcp", addr)
	}
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.front = l
	n.mu.Unlock()
	return nil
}

// serve accepts on the front until it is closed.
func (n *node) serve() {
	n.mu.Lock()
	l := n.front
	n.mu.Unlock()
	n.c.tasks.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			if c := n.add(l, nc); c != nil && !n.offer(c) {
				c.Close()
			}
		}
	})
}

// offer hands a connection to kfake.
func (n *node) offer(c net.Conn) bool {
	select {
	case n.toKafka <- c:
		return true
	case <-n.gone:
	case <-n.c.done:
	}
	return false
}

// add registers a connection, unless its listener was stopped meanwhile.
func (n *node) add(l net.Listener, nc net.Conn) *conn {
	m := &meter{Conn: nc, n: n, closed: make(chan struct{})}
	c := &conn{Conn: m, n: n, m: m}
	if n.c.cfg.TLS != nil {
		c.Conn = tls.Server(m, n.c.cfg.TLS)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.front != l {
		nc.Close()
		return nil
	}
	n.accepted++
	c.num = n.accepted
	n.conns[c] = struct{}{}
	return c
}

// stop closes the front and every connection.
func (n *node) stop() {
	n.mu.Lock()
	l := n.front
	n.front = nil
	n.mu.Unlock()
	if l != nil {
		l.Close()
	}
	n.closeConns()
}

// closeConns closes every connection and says how many there were.
func (n *node) closeConns() int {
	n.mu.Lock()
	open := n.conns
	n.conns = map[*conn]struct{}{}
	n.mu.Unlock()
	for c := range open {
		c.m.Close()
	}
	return len(open)
}

func (n *node) running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.front != nil
}

// Accept gives kfake the next connection.
func (n *node) Accept() (net.Conn, error) {
	select {
	case c := <-n.toKafka:
		return c, nil
	case <-n.gone:
		return nil, net.ErrClosed
	}
}

// Close ends kfake's accept loop.
func (n *node) Close() error {
	n.once.Do(func() { close(n.gone) })
	return nil
}

// address is a host and port that kfake tells its clients.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// Addr is the address that clients dial.
func (n *node) Addr() net.Addr { return address(net.JoinHostPort(n.host, n.port)) }

// meter is the connection below TLS, where faults of bytes and time act.
type meter struct {
	net.Conn
	n      *node
	closed chan struct{}
	once   sync.Once
}

// Close closes the connection and ends every wait on it.
func (m *meter) Close() error {
	m.once.Do(func() { close(m.closed) })
	return m.Conn.Close()
}

// Read gives what the client sent, as faults allow.
func (m *meter) Read(p []byte) (int, error) {
	k, err := m.Conn.Read(p)
	if k == 0 {
		return k, err
	}
	if perr := m.pass(k); perr != nil {
		return 0, perr
	}
	if ok := m.n.spend(Requests, k); ok < k {
		m.Close()
		return ok, nil
	}
	return k, err
}

// Write sends to the client, as faults allow.
func (m *meter) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		part := p[done:]
		if rate := m.n.rateNow(); rate > 0 {
			part = part[:min(len(part), max(rate/20, 1))]
		}
		if err := m.pass(len(part)); err != nil {
			return done, err
		}
		ok := m.n.spend(Answers, len(part))
		k, err := m.Conn.Write(part[:ok])
		done += k
		if err == nil && ok < len(part) {
			m.Close()
			err = net.ErrClosed
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// pass waits until a hang is over and a slow link has moved k bytes.
func (m *meter) pass(k int) error {
	for {
		m.n.mu.Lock()
		hung := m.n.hung
		m.n.mu.Unlock()
		if hung == nil {
			break
		}
		select {
		case <-hung:
		case <-m.closed:
			return net.ErrClosed
		}
	}
	rate := m.n.rateNow()
	if rate == 0 {
		return nil
	}
	t := time.NewTimer(time.Duration(float64(k) / float64(rate) * float64(time.Second)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-m.closed:
		return net.ErrClosed
	}
}

func (n *node) rateNow() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rate
}

// spend takes k bytes from what CloseAfter leaves, and says how many may pass.
// The strike disarms it.
func (n *node) spend(d Direction, k int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left[d] < 0 {
		return k
	}
	if int64(k) <= n.left[d] {
		n.left[d] -= int64(k)
		return k
	}
	ok := int(n.left[d])
	n.left[d] = -1
	return ok
}
