package memnet

import (
	"context"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Host is one machine of the network, as dialler.
type Host struct {
	n    *Network
	name string
}

// Host is the host of that name, made if it is new.
func (n *Network) Host(name string) Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addrLocked(name)
	return Host{n: n, name: name}
}

// Dial connects from the host named "client". See Host.Dial.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return n.Host("client").Dial(ctx, network, addr)
}

// Dial connects to addr ("host:port") and returns a *Conn after one round
// trip. A name with several addresses is tried address by address in order.
// No listener: syscall.ECONNREFUSED after a round trip. A partition or black
// hole answers nothing until ctx ends. Errors are *net.OpError.
func (h Host) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return fail(net.UnknownNetworkError(network))
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	name, port, err := splitHostPort(addr)
	if err != nil {
		return fail(err)
	}
	h.n.mu.Lock()
	ips, err := h.n.lookupLocked(name)
	h.n.mu.Unlock()
	if err != nil {
		return fail(err)
	}
	var first error
	for _, ip := range ips {
		c, err := h.dialIP(ctx, netip.AddrPortFrom(ip, port))
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = &net.OpError{Op: "dial", Net: network, Addr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, port)), Err: err}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

// route is what one dial needs to know of the link to its target.
type route struct {
	l              *Listener
	local          netip.AddrPort
	host           string
	latency        time.Duration
	rate, window   int
	cut, blackHole bool
}

func (h Host) route(to netip.AddrPort) route {
	n := h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	peer := n.hostLocked(to.Addr())
	k := linkOf(h.name, peer)
	ls := n.linkLocked(h.name, peer)
	own := n.addrLocked(h.name)
	r := route{
		l: n.listeners[to], host: peer,
		local:   netip.AddrPortFrom(own, n.freePortLocked(own)),
		latency: n.latencyLocked(k, ls, ls.dials),
		rate:    ls.rate, window: n.window,
		cut: n.cutLocked(h.name, peer), blackHole: n.silent[to],
	}
	ls.dials++
	return r
}

func (h Host) dialIP(ctx context.Context, to netip.AddrPort) (*Conn, error) {
	r := h.route(to)
	if r.cut || r.blackHole {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := sleep(ctx, r.latency); err != nil {
		return nil, err
	}
	refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
	if r.l == nil {
		if err := sleep(ctx, r.latency); err != nil {
			return nil, err
		}
		return nil, refused
	}
	client, server := newPair(h, r, to)
	for {
		ok, full := r.l.offer(server)
		if ok {
			break
		}
		if full == nil {
			client.drop()
			return nil, refused
		}
		select {
		case <-full:
		case <-ctx.Done():
			client.drop()
			return nil, ctx.Err()
		}
	}
	if err := sleep(ctx, r.latency); err != nil {
		client.Reset()
		return nil, err
	}
	return client, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
