package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/internal/netconn"
	"github.com/ottla/ottla/kafka"
)

// ask is a question of the metadata goroutine that any broker can answer. It
// goes to one address after the other; where an answer takes long, the next is
// asked beside it, and the first good answer counts.
type ask struct {
	walk    *meta.Walk
	make    func() (req kmsg.Request, minVersion int16)
	judge   func(addr string, resp kmsg.Response) error // an error sends it to the next address
	done    func(addr string, resp kmsg.Response, err error)
	last    string             // address that was asked last
	open    int                // requests without an answer
	hedgeAt time.Time          // when the next address is asked beside; zero = not any more
	ctx     context.Context    // of the requests
	cancel  context.CancelFunc // abandons what is still open
}

// hedge is how long an answer may take before another broker is asked too.
const hedge = 2 * time.Second

// ask starts a question.
func (s *state) ask(a *ask) {
	a.ctx, a.cancel = context.WithCancel(s.c.tasks.Context())
	s.asks[a] = struct{}{}
	a.next(s)
}

// next sends the question to the next address, and ends it if none is left
// that may still answer.
func (a *ask) next(s *state) {
	for {
		addr, ok := a.walk.Next()
		if !ok {
			a.hedgeAt = time.Time{}
			if a.open == 0 {
				a.end(s, "", nil, a.walk.Err())
			}
			return
		}
		peer, err := s.c.pool.at(addr)
		if err != nil {
			a.walk.Failed(addr, err)
			continue
		}
		a.send(s, peer)
		return
	}
}

func (a *ask) send(s *state, peer *netconn.Peer) {
	req, minVersion := a.make()
	call := netconn.NewCall(a.ctx, req)
	call.Min = minVersion
	call.Done = func(resp kmsg.Response, err error) {
		s.c.inbox.post(func(s *state) { a.onAnswer(s, peer.Addr(), resp, err) })
	}
	a.open++
	a.last = peer.Addr()
	a.hedgeAt = s.now.Add(hedge)
	peer.Lane(netconn.General).Send(call)
}

// maybeHedge asks one more address if the answer takes long.
func (a *ask) maybeHedge(s *state) {
	if !a.hedgeAt.IsZero() && !s.now.Before(a.hedgeAt) {
		s.c.pool.slow(a.last)
		a.next(s)
	}
}

func (a *ask) onAnswer(s *state, addr string, resp kmsg.Response, err error) {
	if _, live := s.asks[a]; !live {
		return
	}
	a.open--
	s.c.pool.answered(addr, err)
	if err == nil && a.judge != nil {
		err = a.judge(addr, resp)
	}
	if err == nil {
		a.end(s, addr, resp, nil)
		return
	}
	a.walk.Failed(addr, err)
	a.next(s)
}

func (a *ask) end(s *state, addr string, resp kmsg.Response, err error) {
	delete(s.asks, a)
	a.cancel()
	if err == nil && resp == nil {
		err = errNoAddress
	}
	a.done(addr, resp, err)
}

var errNoAddress = errors.New("there is no address to ask")

// candidates are the addresses for a request that any broker can serve.
// Addresses that just failed, or whose socket is stuck, come last in each kind.
func (c *client) candidates(avoid []string) meta.Candidates {
	can := meta.Candidates{Bootstrap: c.cfg.seeds(), Avoid: avoid}
	now := time.Now()
	known := make(map[string]bool)
	for _, p := range c.pool.all() {
		if until, err := p.Failing(); err != nil && until.After(now) {
			can.Avoid = append(can.Avoid, p.Addr())
			continue
		}
		if c.pool.isSlow(p.Addr()) {
			can.Avoid = append(can.Avoid, p.Addr())
			continue
		}
		if p.Open(netconn.General) {
			can.Open = append(can.Open, p.Addr())
		}
	}
	for _, b := range c.snap.Load().Brokers {
		if a := b.Addr(); !known[a] {
			known[a] = true
			can.Known = append(can.Known, a)
		}
	}
	return can
}

// peerOf is the peer at the address of a broker.
func (c *client) peerOf(b kafka.Broker) (*netconn.Peer, error) { return c.pool.of(b) }
