// Package serve puts a model of a Kafka cluster behind listeners, so that real
// clients run against it, also in memory and in virtual time.
//
//	nw := memnet.New(1)
//	l, _ := nw.Listen("b1:9092")
//	s := serve.Start(t, model.New(model.Config{TransactionVersion: 2}), l)
//	c, err := cluster.Connect(ctx, cluster.Config{Bootstrap: s.Seeds(), Dial: nw.Dial})
//	…
//	s.Model(func(m *model.Cluster) { got = m.Records(tp) })
package serve

import (
	"net"
	"sort"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// Server is brokers in front of one model.
type Server struct {
	*sim.Cluster

	mu      sync.Mutex
	model   *model.Cluster
	changed chan struct{} // closed with the next change
	late    []copied      // by time
	faults  func(*sim.Request) Fault
	down    map[int32]bool
}

// Fault is what happens to one request. The zero value is none.
type Fault struct {
	Lost  bool          // it does not reach the broker, and the connection ends
	Mute  bool          // it does, and the connection ends without an answer
	Delay time.Duration // before it is answered
	Again time.Duration // a copy reaches the broker after this; with Lost it is the first to
}

type copied struct {
	at   time.Time
	node kafka.NodeID
	req  kmsg.Request
}

// Start serves m, one broker for each listener: as many as m has.
func Start(tb testing.TB, m *model.Cluster, listeners ...net.Listener) *Server {
	tb.Helper()
	s := &Server{Cluster: sim.New(tb, listeners...), model: m, changed: make(chan struct{}), down: map[int32]bool{}}
	for _, b := range s.Brokers() {
		host, port, _ := net.SplitHostPort(b.Addr())
		p, _ := strconv.Atoi(port)
		m.SetAddr(kafka.Broker{ID: kafka.NodeID(b.ID), Host: host, Port: int32(p)})
	}
	resp := m.Handle(time.Now(), model.AnyBroker, kmsg.NewPtrApiVersionsRequest()).(*kmsg.ApiVersionsResponse)
	table := map[int16]sim.Versions{}
	for _, k := range resp.ApiKeys {
		table[k.ApiKey] = sim.Versions{Min: k.MinVersion, Max: k.MaxVersion}
	}
	for _, b := range s.Brokers() {
		b.SetTable(table)
		b.OnAccept(s.accept(b.ID))
		for key := range table {
			b.Handle(key, s.Answer)
		}
	}
	return s
}

// Model gives f the model, which nobody else uses meanwhile, at the present
// time.
func (s *Server) Model(f func(*model.Cluster)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advanceLocked(time.Now())
	f(s.model)
	s.wakeLocked()
}

// SetFaults asks f about every request; it runs on the goroutine of the
// request's connection. nil is no faults.
func (s *Server) SetFaults(f func(*sim.Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Kill ends the connections of a broker and refuses new ones until Revive. What
// it leads stays with it unless the test moves it.
func (s *Server) Kill(node int32) {
	s.mu.Lock()
	s.down[node] = true
	s.mu.Unlock()
	s.Broker(node).EndAll(sim.Reset)
}

// Revive ends Kill.
func (s *Server) Revive(node int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.down, node)
}

func (s *Server) accept(node int32) func(int, net.Conn) sim.End {
	return func(int, net.Conn) sim.End {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.down[node] {
			return sim.Reset
		}
		return sim.Keep
	}
}

// Answer answers a request by the model, with the faults that are set. Tests
// that put a handler of their own before it call it for the rest.
func (s *Server) Answer(r *sim.Request) sim.Answer {
	if _, ok := r.Req.(*kmsg.ApiVersionsRequest); ok {
		return sim.Reply(s.apiVersions(r))
	}
	s.mu.Lock()
	var fault Fault
	if s.faults != nil {
		fault = s.faults(r)
	}
	s.mu.Unlock()
	if !pause(r, fault.Delay) {
		return sim.Answer{End: sim.Reset}
	}
	if fault.Again > 0 {
		s.copyLater(r, fault.Again)
	}
	if fault.Lost {
		return sim.Answer{End: sim.Reset}
	}
	resp := s.handle(r)
	switch {
	case fault.Mute:
		return sim.Answer{End: sim.Reset}
	case resp == nil:
		return sim.Answer{}
	}
	return sim.Reply(resp)
}

// pause waits for d, and reports whether the connection is still there.
func pause(r *sim.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Done():
		return false
	}
}

func (s *Server) copyLater(r *sim.Request, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = append(s.late, copied{time.Now().Add(after), kafka.NodeID(r.Broker.ID), r.Req})
	sort.SliceStable(s.late, func(i, j int) bool { return s.late[i].at.Before(s.late[j].at) })
}

// advanceLocked lets the copies arrive that are due.
func (s *Server) advanceLocked(now time.Time) {
	for len(s.late) > 0 && !s.late[0].at.After(now) {
		c := s.late[0]
		s.late = s.late[1:]
		s.model.Handle(c.at, c.node, c.req)
	}
	s.model.Advance(now)
}

func (s *Server) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) handle(r *sim.Request) kmsg.Response {
	f, ok := r.Req.(*kmsg.FetchRequest)
	if !ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		s.advanceLocked(now)
		resp := s.model.Handle(now, kafka.NodeID(r.Broker.ID), r.Req)
		s.wakeLocked()
		return resp
	}
	end := time.Now().Add(time.Duration(f.MaxWaitMillis) * time.Millisecond)
	for {
		resp, changed, next := s.fetch(r)
		left := time.Until(end)
		if left <= 0 || !empty(resp) {
			return resp
		}
		if !next.IsZero() {
			left = min(left, max(time.Until(next), time.Microsecond))
		}
		select {
		case <-changed:
		case <-time.After(left):
		case <-r.Done():
			return resp
		}
	}
}

// fetch answers at once, and says when to ask again.
func (s *Server) fetch(r *sim.Request) (*kmsg.FetchResponse, <-chan struct{}, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.advanceLocked(now)
	resp := s.model.Handle(now, kafka.NodeID(r.Broker.ID), r.Req).(*kmsg.FetchResponse)
	next := s.model.Deadline()
	if len(s.late) > 0 && (next.IsZero() || s.late[0].at.Before(next)) {
		next = s.late[0].at
	}
	return resp, s.changed, next
}

func empty(resp *kmsg.FetchResponse) bool {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 || len(p.RecordBatches) > 0 {
				return false
			}
		}
	}
	return true
}

// apiVersions is the broker's own table with the features of the model.
func (s *Server) apiVersions(r *sim.Request) *kmsg.ApiVersionsResponse {
	resp := r.Broker.ApiVersions(r)
	if resp.ErrorCode != 0 || resp.Version < 3 {
		return resp
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.advanceLocked(now)
	of := s.model.Handle(now, model.AnyBroker, kmsg.NewPtrApiVersionsRequest()).(*kmsg.ApiVersionsResponse)
	resp.SupportedFeatures, resp.FinalizedFeatures = of.SupportedFeatures, of.FinalizedFeatures
	resp.FinalizedFeaturesEpoch = of.FinalizedFeaturesEpoch
	return resp
}
