//go:build unix

package netconn

import (
	"net"
	"syscall"
	"testing"
)

func noDelay(c *net.TCPConn) (bool, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false, err
	}
	var on int
	var oerr error
	err = raw.Control(func(fd uintptr) { on, oerr = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_NODELAY) })
	if err == nil {
		err = oerr
	}
	return on != 0, err
}

// TestC7NagleIsOffOnTCP reads the option back from the socket.
func TestC7NagleIsOffOnTCP(t *testing.T) {
	b := newBroker(t, (*brokerConn).echo)
	p := newPeer(t, b.addr(), &Config{})
	ask(t, p.Lane(General), "m")
	l := p.Lane(General)
	l.mu.Lock()
	tcp := l.sock.tcp
	l.mu.Unlock()
	if on, err := noDelay(tcp); err != nil || !on {
		t.Errorf("TCP_NODELAY is %v (%v)", on, err)
	}
}
