package netconn

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// Peer is everything known about one address: its lanes and what is remembered
// of it between sockets. It is safe for concurrent use.
type Peer struct {
	tasks *task.Group
	cfg   *Config
	addr  string // canonical host:port
	host  string // without port and brackets
	tls   *tls.Config
	lanes [kinds]Lane

	mu        sync.Mutex
	rng       *rand.Rand
	hello     conn.HelloMemory
	versions  conn.Versions // of the last socket
	clusterID string        // expected, empty = nothing
	node      kafka.NodeID  // expected
	mechanism int           // index in Config.SASL that the broker took last
	fails     int           // dials failed in a row
	notBefore time.Time     // of the next dial
	lastErr   error         // of the last dial, nil once one succeeded
	warned    bool          // PLAIN without TLS was logged
	silent    silentAddrs
}

// NewPeer makes the peer of an address, "host:port". Nothing is dialled. Its
// goroutines run in tasks and end with the context of the group or with
// [Peer.Close].
func NewPeer(tasks *task.Group, addr string, cfg *Config) *Peer {
	p := &Peer{tasks: tasks, cfg: cfg, addr: addr, host: hostOf(addr), node: kafka.NoNode}
	if cfg.NewRand != nil {
		p.rng = cfg.NewRand()
	}
	if p.rng == nil {
		p.rng = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if cfg.TLS != nil {
		p.tls = cfg.TLS.Clone()
		if p.tls.ServerName == "" {
			name, _, _ := strings.Cut(p.host, "%")
			p.tls.ServerName = name
		}
		p.tls.MinVersion = max(p.tls.MinVersion, tls.VersionTLS12)
		markRefusals(p.tls)
	}
	for k := range p.lanes {
		p.lanes[k].init(p, Kind(k))
	}
	return p
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return strings.Trim(addr, "[]")
	}
	return host
}

// Addr is the address of the peer.
func (p *Peer) Addr() string { return p.addr }

// Lane is the lane for a kind of traffic.
func (p *Peer) Lane(k Kind) *Lane { return &p.lanes[k] }

// Expect says which node of which cluster should answer here; it goes into the
// ApiVersions request of every new socket, and is checked once on every open
// one, behind what is outstanding (KIP-1242). An empty clusterID or a negative
// node expects nothing. A mismatch is told to [Hooks.Mismatch].
func (p *Peer) Expect(clusterID string, node kafka.NodeID) {
	if clusterID == "" || node < 0 {
		clusterID, node = "", kafka.NoNode
	}
	p.mu.Lock()
	changed := p.clusterID != clusterID || p.node != node
	p.clusterID, p.node = clusterID, node
	p.mu.Unlock()
	if !changed || clusterID == "" {
		return
	}
	for k := range p.lanes {
		p.lanes[k].checkIdentity(clusterID, node)
	}
}

// Expected is what the last Expect said.
func (p *Peer) Expected() (clusterID string, node kafka.NodeID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clusterID, p.node
}

func (p *Peer) identity() conn.Identity {
	clusterID, node := p.Expected()
	return conn.Identity{Software: p.cfg.softwareName(), Version: p.cfg.softwareVersion(), ClusterID: clusterID, Node: node}
}

func (p *Peer) mismatch(clusterID string, node kafka.NodeID) {
	if p.cfg.Hooks.Mismatch != nil {
		p.cfg.Hooks.Mismatch(p.addr, clusterID, node)
	}
}

// Open reports whether the lane of that kind has a socket that is ready for
// requests.
func (p *Peer) Open(k Kind) bool { return p.lanes[k].Stats().State == Open }

// Failing reports the error of the last dial if it failed, with the time
// before which there is no next one. A nil error is a healthy or untried peer.
func (p *Peer) Failing() (until time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.notBefore, p.lastErr
}

// KnownVersions is the table of the last socket, open or not.
func (p *Peer) KnownVersions() (conn.Versions, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.versions, p.versions.Known()
}

// Versions is the broker's table of APIs and features as an open socket has
// it. It dials the general lane if there is none, and ends with ctx.
func (p *Peer) Versions(ctx context.Context) (conn.Versions, error) {
	if err := ctx.Err(); err != nil {
		return conn.Versions{}, context.Cause(ctx)
	}
	for k := range p.lanes {
		if v, ok := p.lanes[k].openVersions(); ok {
			return v, nil
		}
	}
	c := NewCall(ctx, nil)
	c.table = true
	if _, err := p.lanes[General].Do(ctx, c); err != nil {
		return conn.Versions{}, err
	}
	v, _ := p.KnownVersions()
	return v, nil
}

// Drain closes every lane once its queue is written and its outstanding
// answers are there. A later Send opens a lane again.
func (p *Peer) Drain() {
	for k := range p.lanes {
		p.lanes[k].drain()
	}
}

// Disconnect closes every socket of the peer with cause and leaves the peer
// usable: what was not written goes out on a new socket.
func (p *Peer) Disconnect(cause error) {
	for k := range p.lanes {
		p.lanes[k].disconnect(cause)
	}
}

// Close ends every socket and dial of the peer; all calls, present and later
// ones, end with cause. It does not wait: the group of NewPeer does.
func (p *Peer) Close(cause error) {
	for k := range p.lanes {
		p.lanes[k].close(cause)
	}
}

// Stats are the counts of the lanes that were ever used.
func (p *Peer) Stats() []LaneStats {
	var out []LaneStats
	for k := range p.lanes {
		if s := p.lanes[k].Stats(); s.Dials > 0 || s.State != Closed || s.Queued > 0 {
			out = append(out, s)
		}
	}
	return out
}

// dialled takes note of how a dial ended and sets when the next may begin.
func (p *Peer) dialled(now time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastErr = err
	if err == nil {
		p.fails, p.notBefore = 0, time.Time{}
		return
	}
	p.fails++
	p.notBefore = now.Add(p.cfg.backoff().Delay(p.fails, p.rng))
}

// jitter lends the peer's random source to f.
func (p *Peer) jitter(f func(*rand.Rand)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p.rng)
}
