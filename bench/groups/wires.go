package main

import (
	"context"
	"errors"
	"net"
	"sync"
)

// wires are the connections of one member, which a crash cuts.
type wires struct {
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

var errDead = errors.New("the member was killed")

func (w *wires) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && w.dead {
		_ = c.Close()
		err = errDead
	}
	if err != nil {
		return nil, err
	}
	w.conns = append(w.conns, c)
	return c, nil
}

// Dial makes them a proxy.Dialer.
func (w *wires) Dial(network, addr string) (net.Conn, error) {
	return w.dial(context.Background(), network, addr)
}

func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	for _, c := range w.conns {
		_ = c.Close()
	}
}
