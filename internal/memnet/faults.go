package memnet

import (
	"net/netip"
)

// Partition cuts two hosts off from each other: what is under way stays under
// way, nothing arrives, dials get no answer. An empty name means every host.
// Heal delivers what was held back.
func (n *Network) Partition(a, b string) { n.setCut(a, b, true) }

// Heal ends a Partition of the same two names.
func (n *Network) Heal(a, b string) { n.setCut(a, b, false) }

func (n *Network) setCut(a, b string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.linkLocked(a, b).cut = cut
	for c := range n.conns {
		c.hold(n.cutLocked(c.host, c.peerHost))
	}
}

func (n *Network) cutLocked(a, b string) bool {
	for _, k := range []link{linkOf(a, b), linkOf("", a), linkOf("", b), linkOf("", "")} {
		if l := n.links[k]; l != nil && l.cut {
			return true
		}
	}
	return false
}

// BlackHole makes dials to addr ("ip:port" or "name:port") get no answer at
// all, or lifts that again. Open connections are not touched. An address that
// cannot be parsed or resolved panics.
func (n *Network) BlackHole(addr string, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	host, port, err := splitHostPort(addr)
	if err != nil {
		panic(err)
	}
	n.silent[netip.AddrPortFrom(n.addrLocked(host), port)] = on
}

// Reset resets every open connection between two hosts and says how many
// there were. An empty name means every host.
func (n *Network) Reset(a, b string) int {
	n.mu.Lock()
	var hit []*Conn
	for c := range n.conns {
		if c.dialled && between(c, a, b) {
			hit = append(hit, c)
		}
	}
	n.mu.Unlock()
	for _, c := range hit {
		c.w.mu.Lock()
		c.w.resetLocked()
		c.w.mu.Unlock()
	}
	return len(hit)
}

func between(c *Conn, a, b string) bool {
	is := func(pattern, host string) bool { return pattern == "" || pattern == host }
	return is(a, c.host) && is(b, c.peerHost) || is(b, c.host) && is(a, c.peerHost)
}

// SetRate limits each direction of every connection between two hosts, open
// or new, to so many bytes per second; 0 lifts the limit.
func (n *Network) SetRate(a, b string, bytesPerSecond int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.linkLocked(a, b).rate = bytesPerSecond
	for c := range n.conns {
		if linkOf(c.host, c.peerHost) == linkOf(a, b) {
			c.SetRate(bytesPerSecond)
		}
	}
}

// Open is the number of connections with at least one open end.
func (n *Network) Open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	wires := map[*wire]bool{}
	for c := range n.conns {
		wires[c.w] = true
	}
	return len(wires)
}
