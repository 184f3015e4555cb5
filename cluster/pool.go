package cluster

import (
	"slices"
	"sync"
	"time"

	"github.com/ottla/ottla/internal/netconn"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// pool holds one netconn.Peer for each canonical address; a node id is only a
// name that leads to an address.
type pool struct {
	tasks *task.Group
	cfg   *netconn.Config

	mu     sync.Mutex
	peers  map[string]*netconn.Peer
	expect map[string]expectation // what known addresses should say of themselves
	barred map[string]bar         // addresses that belong to another cluster
	late   map[string]bool        // addresses whose last answer took long, or has not come
	addrs  map[hostPort]string    // canonical addresses of brokers that were asked for
	closed error
}

// hostPort is where a broker says it is.
type hostPort struct {
	host string
	port int32
}

// mostAddrs bounds the addresses that are remembered: beyond it all are forgotten.
const mostAddrs = 4096

// bar refuses an address that belongs to another cluster.
type bar struct {
	cause error
	until time.Time
}

// barTime is how long an address stays barred that the right cluster goes on
// to name.
const barTime = 5 * time.Minute

// expectation is the node that should answer at an address.
type expectation struct {
	cluster string
	node    kafka.NodeID
}

func newPool(tasks *task.Group, cfg *netconn.Config) *pool {
	return &pool{
		tasks: tasks, cfg: cfg, peers: make(map[string]*netconn.Peer),
		expect: make(map[string]expectation), barred: make(map[string]bar), late: make(map[string]bool), addrs: make(map[hostPort]string),
	}
}

// of is the peer of a broker, made if need be. The address is not put together
// anew for each request.
func (p *pool) of(b kafka.Broker) (*netconn.Peer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := hostPort{b.Host, b.Port}
	addr, ok := p.addrs[at]
	if !ok {
		addr = b.Addr()
		if len(p.addrs) >= mostAddrs {
			clear(p.addrs)
		}
		p.addrs[at] = addr
	}
	return p.atLocked(addr)
}

// at is the peer of an address, made if need be.
func (p *pool) at(addr string) (*netconn.Peer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.atLocked(addr)
}

func (p *pool) atLocked(addr string) (*netconn.Peer, error) {
	if p.closed != nil {
		return nil, p.closed
	}
	if b, ok := p.barred[addr]; ok && time.Now().Before(b.until) {
		return nil, b.cause
	}
	peer := p.peers[addr]
	if peer == nil {
		peer = netconn.NewPeer(p.tasks, addr, p.cfg)
		if e, ok := p.expect[addr]; ok {
			peer.Expect(e.cluster, e.node)
		}
		p.peers[addr] = peer
	}
	return peer, nil
}

// all are the peers in order of their addresses.
func (p *pool) all() []*netconn.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	ps := make([]*netconn.Peer, 0, len(p.peers))
	for _, peer := range p.peers {
		ps = append(ps, peer)
	}
	slices.SortFunc(ps, func(a, b *netconn.Peer) int {
		if a.Addr() < b.Addr() {
			return -1
		}
		return 1
	})
	return ps
}

// want sets what addresses should say of themselves, tells their peers, and
// drains the peers of addresses that keep refuses.
func (p *pool) want(expect map[string]expectation, keep func(addr string) bool) {
	p.mu.Lock()
	p.expect = expect
	var retired, live []*netconn.Peer
	for addr, peer := range p.peers {
		if keep(addr) {
			live = append(live, peer)
			continue
		}
		retired = append(retired, peer)
		delete(p.peers, addr)
	}
	p.mu.Unlock()
	for _, peer := range live {
		e := expect[peer.Addr()]
		peer.Expect(e.cluster, e.node)
	}
	for _, peer := range retired {
		peer.Drain()
	}
}

// bar closes the sockets of an address and refuses it from here on.
func (p *pool) bar(addr string, cause error) {
	p.mu.Lock()
	p.barred[addr] = bar{cause, time.Now().Add(barTime)}
	peer := p.peers[addr]
	delete(p.peers, addr)
	p.mu.Unlock()
	if peer != nil {
		peer.Close(cause)
	}
}

// unbar takes addresses back that the right cluster does not name any more: if
// it names them again, they are its own.
func (p *pool) unbar(named map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr := range p.barred {
		if !named[addr] {
			delete(p.barred, addr)
		}
	}
}

// close ends every socket and dial with cause.
func (p *pool) close(cause error) {
	p.mu.Lock()
	p.closed = cause
	p.mu.Unlock()
	for _, peer := range p.all() {
		peer.Close(cause)
	}
}

// slow notes that an answer of an address takes long: until one comes, other
// addresses are the better choice.
func (p *pool) slow(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late[addr] = true
}

// answered takes note of the end of a request.
func (p *pool) answered(addr string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.late, addr)
	}
}

func (p *pool) isSlow(addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late[addr]
}
