package cli

import (
	"context"
	"errors"
	"net"
	"sync"
)

// cutter dials, and can cut every connection to an address and refuse new ones
// for a while, as a network does that fails. It is safe for concurrent use.
type cutter struct {
	mu   sync.Mutex
	cut  map[string]bool                  // guarded by mu: addresses that nothing reaches
	open map[string]map[net.Conn]struct{} // guarded by mu
}

func newCutter() *cutter {
	return &cutter{cut: map[string]bool{}, open: map[string]map[net.Conn]struct{}{}}
}

var errCut = errors.New("the demo cut this connection")

// dial connects to an address that is not cut.
func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c.mu.Lock()
	cut := c.cut[addr]
	c.mu.Unlock()
	if cut {
		return nil, errCut
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut[addr] {
		conn.Close()
		return nil, errCut
	}
	if c.open[addr] == nil {
		c.open[addr] = map[net.Conn]struct{}{}
	}
	c.open[addr][conn] = struct{}{}
	return &cutConn{Conn: conn, c: c, addr: addr}, nil
}

// cutOff closes the connections to an address, says how many there were, and
// refuses new ones until restore.
func (c *cutter) cutOff(addr string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[addr] = true
	n := len(c.open[addr])
	for conn := range c.open[addr] {
		conn.Close()
	}
	delete(c.open, addr)
	return n
}

// restore lets an address be reached again.
func (c *cutter) restore(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.cut, addr)
}

// cutConn forgets its connection when it is closed.
type cutConn struct {
	net.Conn
	c    *cutter
	addr string
}

func (c *cutConn) Close() error {
	c.c.mu.Lock()
	delete(c.c.open[c.addr], c.Conn)
	c.c.mu.Unlock()
	return c.Conn.Close()
}

// SetNoDelay passes on, since the embedded interface hides it.
func (c *cutConn) SetNoDelay(on bool) error {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		return t.SetNoDelay(on)
	}
	return nil
}
