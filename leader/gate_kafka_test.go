//go:build kafka

package leader

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// gate is a member's only way to the brokers: a proxy on loopback that is told
// the address in the first line of each connection. Ways can be cut: by
// closing connections and letting none in, or by carrying nothing, so that what
// was sent arrives once the way is open again.
type gate struct {
	l  net.Listener
	wg sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed with the next change
	cut     map[string]cut
	conns   map[net.Conn]string // both ends of each passage, to where it leads
	closed  bool
}

type cut uint8

const (
	whole      cut = iota
	dropped        // connections are closed
	stalled        // nothing is carried
	unanswered     // requests arrive, answers wait
)

func newGate(t *testing.T) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{l: l, changed: make(chan struct{}), cut: map[string]cut{}, conns: map[net.Conn]string{}}
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			g.wg.Add(1)
			go func() {
				defer g.wg.Done()
				g.serve(c)
			}()
		}
	}()
	t.Cleanup(g.close)
	return g
}

func (g *gate) addr() string { return g.l.Addr().String() }

// set changes the ways to brokers.
func (g *gate) set(c cut, brokers ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range brokers {
		g.cut[b] = c
		for conn, to := range g.conns {
			if to == b && c == dropped {
				_ = conn.Close()
			}
		}
	}
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	for c := range g.conns {
		_ = c.Close()
	}
	close(g.changed)
	g.changed = make(chan struct{})
	g.mu.Unlock()
	_ = g.l.Close()
	g.wg.Wait()
}

// enter takes note of a connection, unless there is no way.
func (g *gate) enter(c net.Conn, to string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.cut[to] == dropped {
		return false
	}
	g.conns[c] = to
	return true
}

func (g *gate) leave(c net.Conn) {
	_ = c.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
}

// pass waits while nothing is carried in this direction.
func (g *gate) pass(to string, answer bool) {
	for {
		g.mu.Lock()
		c, changed := g.cut[to], g.changed
		wait := !g.closed && (c == stalled || c == unanswered && answer)
		g.mu.Unlock()
		if !wait {
			return
		}
		<-changed
	}
}

func (g *gate) serve(c net.Conn) {
	defer g.leave(c)
	if !g.enter(c, "") {
		return
	}
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	to := strings.TrimSpace(line)
	if err != nil || !g.enter(c, to) {
		return
	}
	b, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer g.leave(b)
	if !g.enter(b, to) {
		return
	}
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		g.carry(b, r, to, false)
		_ = b.Close()
	}()
	g.carry(c, b, to, true)
	_ = c.Close()
}

func (g *gate) carry(dst io.Writer, src io.Reader, to string, answer bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		g.pass(to, answer)
		if n > 0 {
			if _, werr := dst.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
