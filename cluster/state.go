package cluster

import (
	"context"
	"time"

	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// state belongs to the metadata goroutine: the machines, who waits for them,
// and the questions that are under way. Others reach it through the inbox.
type state struct {
	c      *client
	now    time.Time
	topics *meta.Map
	coords *meta.Coordinators

	published  *meta.Snapshot
	flights    uint64                            // number of refreshes started
	waits      []*refreshWait                    // for refreshes
	coordWaits map[meta.CoordinatorKey][]*answer // for coordinators
	asks       map[*ask]struct{}                 // questions under way
	unchecked  map[string]kafka.NodeID           // addresses whose node is not checked any more
	probing    map[string]bool                   // addresses that are asked for their cluster
}

func newState(c *client, now time.Time) *state {
	cfg := &c.cfg
	m := meta.NewMap(meta.Config{
		MaxAge: cfg.MetadataMaxAge, Patience: cfg.TopicPatience, Rebootstrap: cfg.RebootstrapAfter,
		Create: !cfg.NoTopicCreation, Retry: cfg.backoff(),
	}, c.rand.derive(), now)
	return &state{
		c: c, now: now, topics: m, coords: meta.NewCoordinators(cfg.backoff(), c.rand.derive()),
		coordWaits: make(map[meta.CoordinatorKey][]*answer), asks: make(map[*ask]struct{}),
		unchecked: make(map[string]kafka.NodeID), probing: make(map[string]bool),
	}
}

// run is the metadata goroutine.
func (s *state) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.now = time.Now()
		for _, f := range s.c.inbox.take() {
			f(s)
		}
		s.step()
		s.c.inbox.done()
		if at := s.deadline(); at.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(at))
		}
		select {
		case <-ctx.Done():
			s.end(context.Cause(ctx))
			return nil
		case <-s.c.inbox.wake:
		case <-timer.C:
		}
	}
}

// step carries out what the machines ask for.
func (s *state) step() {
	s.publish()
	for {
		r, ok := s.topics.Next(s.now)
		if !ok {
			break
		}
		s.sendRefresh(r)
	}
	for {
		l, ok := s.coords.Next(s.now)
		if !ok {
			break
		}
		s.sendLookup(l)
	}
	for a := range s.asks {
		a.maybeHedge(s)
	}
	s.publish()
}

// deadline is when step has something to do without a message, zero for
// never. Without a topic in use and before the first request there is none.
func (s *state) deadline() time.Time {
	var at time.Time
	for _, d := range []time.Time{s.refreshDeadline(), s.coords.Deadline()} {
		at = retry.Earlier(at, d)
	}
	for a := range s.asks {
		at = retry.Earlier(at, a.hedgeAt)
	}
	return at
}

func (s *state) refreshDeadline() time.Time { return s.topics.Deadline() }

// publish makes changes of the map visible: the snapshot first, then the
// connections, then the events.
func (s *state) publish() {
	snap := s.topics.Snapshot()
	if snap != s.published {
		s.published = snap
		s.c.snap.Store(snap)
	}
	events := s.topics.TakeEvents()
	brokers := false
	for _, e := range events {
		switch e.Kind {
		case kafka.BrokerGone:
			s.coords.ForgetNode(e.Broker.ID)
			brokers = true
		case kafka.BrokerAdded:
			s.coords.Moved(e.Broker)
			brokers = true
		case kafka.Rebootstrapped:
			brokers = true
		}
		s.log(e)
	}
	if brokers {
		s.connections(snap)
	}
	if len(events) > 0 {
		s.c.deliver(events)
	}
}

// connections tells the pool which node should answer at which address, and
// lets go of addresses that nothing points at any more. An address that
// several nodes share expects none of them.
func (s *state) connections(snap *meta.Snapshot) {
	keep := s.coords.Addrs()
	expect := make(map[string]expectation, len(snap.Brokers))
	shared := make(map[string]bool)
	for _, a := range s.c.cfg.seeds() {
		keep[a] = true
	}
	for _, b := range snap.Brokers {
		addr := b.Addr()
		keep[addr] = true
		if _, twice := expect[addr]; twice {
			shared[addr] = true
		}
		expect[addr] = expectation{cluster: snap.ClusterID, node: b.ID}
	}
	for addr := range shared {
		delete(expect, addr)
	}
	for addr := range s.probing {
		delete(expect, addr)
	}
	for addr, node := range s.unchecked {
		if expect[addr].node == node {
			delete(expect, addr)
		} else {
			delete(s.unchecked, addr)
		}
	}
	s.c.pool.want(expect, func(addr string) bool { return keep[addr] })
}

// end tells everybody who waits that the client is closed.
func (s *state) end(cause error) {
	late := s.c.inbox.close()
	s.now = time.Now()
	for _, f := range late {
		f(s)
	}
	for a := range s.asks {
		a.cancel()
	}
	for _, w := range s.waits {
		w.answer.give(cause)
	}
	for _, ws := range s.coordWaits {
		for _, w := range ws {
			w.give(cause)
		}
	}
	for _, w := range s.c.watches.all() {
		w.signal()
	}
}
