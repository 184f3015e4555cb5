package ottlatest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ottla/ottla/kafka"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Direction says which bytes a fault counts.
type Direction uint8

// The directions of a connection.
const (
	Requests Direction = iota // from client to broker
	Answers                   // from broker to client
)

// CloseAfter lets n further bytes in one direction pass through the broker's
// connections, all of them together, and then closes the connection that
// carries the next one, in the middle of a frame or not. A request that was
// cut is not accepted; one whose answer was cut is. It strikes once; a
// negative n calls it off. With TLS the bytes are those on the wire.
//
// Like every fault it panics on an id that is no broker.
func (c *Cluster) CloseAfter(id kafka.NodeID, d Direction, n int64) {
	b := c.nodes.must(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left[d] = max(n, -1)
}

// CloseConnections closes every open connection of a broker and says how many
// there were.
func (c *Cluster) CloseConnections(id kafka.NodeID) int {
	return c.nodes.must(id).closeConns()
}

// Hang stops a broker from reading and answering, on open and new connections,
// until Resume. Nothing is lost: connections stay open, and what was sent
// meanwhile is handled then.
func (c *Cluster) Hang(id kafka.NodeID) {
	b := c.nodes.must(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hung == nil {
		b.hung = make(chan struct{})
	}
}

// Resume ends a Hang.
func (c *Cluster) Resume(id kafka.NodeID) {
	b := c.nodes.must(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hung != nil {
		close(b.hung)
		b.hung = nil
	}
}

// Partition cuts a broker off from its clients until Heal: nothing sent
// arrives in either direction, and dials get no answer. On loopback, where the
// system itself answers dials, new connections open and stay silent.
func (c *Cluster) Partition(id kafka.NodeID) {
	if c.net == nil {
		c.Hang(id)
		return
	}
	c.net.Partition(c.nodes.must(id).host, "client")
}

// Heal ends a Partition; what was held back arrives.
func (c *Cluster) Heal(id kafka.NodeID) {
	if c.net == nil {
		c.Resume(id)
		return
	}
	c.net.Heal(c.nodes.must(id).host, "client")
}

// SlowLink limits each direction of each of a broker's connections to so many
// bytes per second; 0 lifts the limit.
func (c *Cluster) SlowLink(id kafka.NodeID, bytesPerSecond int) {
	b := c.nodes.must(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rate = bytesPerSecond
}

// Throttle puts throttle_time_ms = d, cut to milliseconds, into every answer
// of these API keys, or of all without a setting of their own if there are
// none; 0 stops it. The brokers do not enforce it: see in Journal whether a
// client keeps to it (KIP-219).
func (c *Cluster) Throttle(d time.Duration, keys ...int16) {
	if len(keys) == 0 {
		keys = []int16{-1}
	}
	t := &c.throttle
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.millis == nil {
		t.millis = map[int16]int32{}
	}
	for _, k := range keys {
		t.millis[k] = int32(d.Milliseconds())
	}
}

// Fault is an installed Fail.
type Fault struct {
	h       *kfake.FaultHandle
	streams *streamsFault // instead, of an API that kfake does not have
}

// Hits is how many requests were answered with the error so far.
func (f *Fault) Hits() int {
	if f.streams == nil {
		return f.h.Hits()
	}
	f.streams.mu.Lock()
	defer f.streams.mu.Unlock()
	return f.streams.hits
}

// Remove ends the fault.
func (f *Fault) Remove() {
	if f.streams == nil {
		f.h.Remove()
		return
	}
	f.streams.mu.Lock()
	defer f.streams.mu.Unlock()
	f.streams.times = 0
}

// Fail answers requests of an API key with a broker error code, in every place
// of the answer where the broker may put one: the first `after` requests are
// answered as usual, the following `times` ones fail, or all with a negative
// number. A failed request has no effect, but for REQUEST_TIMED_OUT and
// NOT_ENOUGH_REPLICAS_AFTER_APPEND on requests that a broker can answer so
// after it acted: there it has. Codes of fetch sessions (70, 71, 106) and
// REBOOTSTRAP_REQUIRED are put at the top of the answer.
func (c *Cluster) Fail(key, code int16, times, after int) *Fault {
	if isStreamsKey(key) {
		return &Fault{streams: c.streams.fail(key, code, times, after)}
	}
	f := kfake.Fault{Keys: []kmsg.Key{kmsg.Key(key)}, Err: codeOf(code), Count: times}
	if times == 0 {
		f.Count = 1
	}
	switch code {
	case kerr.FetchSessionIDNotFound.Code, kerr.InvalidFetchSessionEpoch.Code, kerr.FetchSessionTopicIDError.Code, kerr.RebootstrapRequired.Code:
		f.TopLevel = true
	}
	s := skipper{left: after}
	f.When = s.strikes
	return &Fault{h: c.kfake.Fault(f)}
}

func codeOf(code int16) *kerr.Error {
	var known *kerr.Error
	if errors.As(kerr.ErrorForCode(code), &known) && known.Code == code {
		return known
	}
	return &kerr.Error{Message: fmt.Sprintf("CODE_%d", code), Code: code, Description: "a code that no broker has"}
}

// skipper lets the first requests pass, and the cluster's own; a request is asked about once for
// each of its entities.
type skipper struct {
	mu   sync.Mutex
	left int
	last kmsg.Request
}

func (s *skipper) strikes(req kmsg.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == req || isOwn(req) {
		return false
	}
	if s.left > 0 {
		s.left--
		s.last = req
		return false
	}
	return true
}

// Connections is how many connections of a broker are open and how many it
// ever accepted.
func (c *Cluster) Connections(id kafka.NodeID) (open, accepted int) {
	b := c.nodes.must(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.conns), b.accepted
}

// StopBroker stops a broker: its connections close, dials are refused, the
// partitions that it led move to the next running broker, with a higher
// leader epoch, and metadata no longer lists it. Coordinators on it are not
// available until it is started again or MoveCoordinators takes them elsewhere.
// Topics cannot be made while the controller, the broker with the highest id,
// is stopped.
func (c *Cluster) StopBroker(id kafka.NodeID) error {
	b, err := c.nodes.get(id)
	if err != nil {
		return err
	}
	b.stop()
	topics, err := own{c}.topics()
	if err != nil {
		return err
	}
	for name, leaders := range topics {
		for p, leader := range leaders {
			to := c.nodes.nextRunning(int(id) + 1)
			if leader != id || to == kafka.NoNode {
				continue
			}
			if err := c.MoveLeader(name, int32(p), to); err != nil {
				return err
			}
		}
	}
	return nil
}

// StartBroker starts a stopped broker again, at its address. Leaders stay
// where they are. It fails where another program took the port.
func (c *Cluster) StartBroker(id kafka.NodeID) error {
	b, err := c.nodes.get(id)
	if err != nil {
		return err
	}
	if !c.begin() {
		return ErrClosed
	}
	defer c.ops.Done()
	if b.running() {
		return nil
	}
	if err := b.listen(); err != nil {
		return fmt.Errorf("ottlatest: start broker %d: %w", id, err)
	}
	b.serve()
	return nil
}
