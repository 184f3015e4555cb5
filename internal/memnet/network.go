package memnet

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	defaultWindow     = 64 << 10
	defaultMinLatency = 50 * time.Microsecond
	defaultMaxLatency = 1 * time.Millisecond
	backlog           = 128
	firstEphemeral    = 40000
)

// Network is a set of hosts that can reach each other. It is safe for
// concurrent use. Make one with New.
type Network struct {
	seed uint64

	mu        sync.Mutex
	min, max  time.Duration           // latency range of links without their own
	window    int                     // of new connections, per direction
	names     map[string][]netip.Addr // name → addresses
	owner     map[netip.Addr]string   // address → host it belongs to
	listeners map[netip.AddrPort]*Listener
	silent    map[netip.AddrPort]bool // black holes
	links     map[link]*linkState     // only links that were set or used
	conns     map[*Conn]struct{}      // open ends
	nextHost  uint32                  // last byte pair of the next 10.0.x.y
	nextPort  uint16
}

// link names two hosts in sorted order.
type link struct{ a, b string }

func linkOf(a, b string) link {
	if b < a {
		a, b = b, a
	}
	return link{a, b}
}

type linkState struct {
	latency time.Duration // 0 = derived from the seed
	rate    int           // bytes per second and direction, 0 = unlimited
	cut     bool          // partitioned
	dials   uint64        // connections made so far
}

// New makes an empty network whose link latencies (50 µs to 1 ms unless
// SetLatency says otherwise) follow from seed.
func New(seed uint64) *Network {
	return &Network{
		seed: seed, min: defaultMinLatency, max: defaultMaxLatency, window: defaultWindow,
		names: map[string][]netip.Addr{}, owner: map[netip.Addr]string{},
		listeners: map[netip.AddrPort]*Listener{}, silent: map[netip.AddrPort]bool{},
		links: map[link]*linkState{}, conns: map[*Conn]struct{}{},
		nextPort: firstEphemeral,
	}
}

// SetLatency sets the range of one-way latencies of links that are first used
// afterwards. Zero for both delivers at once.
func (n *Network) SetLatency(low, high time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.min, n.max = low, max(low, high)
}

// SetLinkLatency sets the one-way latency between two hosts for connections
// dialled afterwards.
func (n *Network) SetLinkLatency(a, b string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.linkLocked(a, b).latency = d
}

// SetWindow sets how many unread bytes each direction of new connections
// holds before the writer blocks. The default is 64 KiB.
func (n *Network) SetWindow(bytes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.window = bytes
}

// SetAddrs gives a name its addresses, in the order Resolve returns them.
// No address removes the name. It panics if one is not an IP address.
func (n *Network) SetAddrs(name string, ips ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.names, name)
	for _, s := range ips {
		n.names[name] = append(n.names[name], netip.MustParseAddr(s))
	}
}

// Resolve answers the addresses of a host name, an IP address with itself and
// an unknown name with a *net.DNSError whose IsNotFound is true.
func (n *Network) Resolve(ctx context.Context, host string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	ips, err := n.lookupLocked(host)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(ips))
	for i, ip := range ips {
		out[i] = ip.String()
	}
	return out, nil
}

func (n *Network) lookupLocked(host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	if ips := n.names[host]; len(ips) > 0 {
		return ips, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// addrLocked is the first address of host; an unknown name becomes a new host.
func (n *Network) addrLocked(host string) netip.Addr {
	if ips, err := n.lookupLocked(host); err == nil {
		return ips[0]
	}
	n.nextHost++
	ip := netip.AddrFrom4([4]byte{10, 0, byte(n.nextHost >> 8), byte(n.nextHost)})
	n.names[host] = []netip.Addr{ip}
	n.owner[ip] = host
	return ip
}

// hostLocked names the host an address belongs to; an address that was never
// given to a name is a host of its own.
func (n *Network) hostLocked(ip netip.Addr) string {
	if h, ok := n.owner[ip]; ok {
		return h
	}
	return ip.String()
}

func (n *Network) linkLocked(a, b string) *linkState {
	k := linkOf(a, b)
	l := n.links[k]
	if l == nil {
		l = &linkState{}
		n.links[k] = l
	}
	return l
}

// latencyLocked is the one-way delay of the nth connection on a link. Every
// connection adds a little of its own to the link's delay.
func (n *Network) latencyLocked(k link, l *linkState, nth uint64) time.Duration {
	h := fnv.New64a()
	h.Write([]byte(k.a + "\x00" + k.b))
	rng := rand.New(rand.NewPCG(n.seed, h.Sum64()))
	d := l.latency
	if d == 0 {
		if n.max == 0 {
			return 0
		}
		d = n.min + time.Duration(rng.Int64N(int64(n.max-n.min)+1))
	}
	own := rand.New(rand.NewPCG(n.seed^h.Sum64(), nth))
	return d + time.Duration(own.Int64N(int64(d)/16+2))
}
