package cluster

import (
	"context"
	"iter"
	"sync"

	"github.com/ottla/ottla/internal/core/meta"

	"github.com/ottla/ottla/kafka"
)

// Event is one change of the cluster: its Kind says which of its fields are set
// (see [kafka.Event]).
type Event = kafka.Event

// EventKind says what changed.
type EventKind = kafka.EventKind

// The kinds of events.
const (
	TopicFound      = kafka.TopicFound      // a topic is described for the first time
	TopicGrew       = kafka.TopicGrew       // a topic has more partitions: Before, After
	TopicRecreated  = kafka.TopicRecreated  // a known name has a new topic id: OldID, NewID
	TopicFailed     = kafka.TopicFailed     // a topic is refused, or missing beyond the patience: Err
	LeaderChanged   = kafka.LeaderChanged   // a partition has a leader again, or another one: Partition, Broker, Epoch
	BrokerAdded     = kafka.BrokerAdded     // a broker joined, or moved to another address
	BrokerGone      = kafka.BrokerGone      // a broker left the cluster's own list
	Rebootstrapped  = kafka.Rebootstrapped  // learned brokers were dropped for the bootstrap ones: Err
	ClusterMismatch = kafka.ClusterMismatch // an address belongs to another cluster: Addr, Want, Found
)

// Watch receives the changes of the cluster from [Cluster.Watch] on. What is
// not taken is merged: at most one event waits for each topic, partition and
// broker, and the newest holds. A Watch is safe for concurrent use.
type Watch struct {
	c     *client
	ready chan struct{} // capacity 1

	mu    sync.Mutex
	queue meta.Queue
}

// Watch subscribes to changes. Close it after use.
func (c *Cluster) Watch() *Watch {
	w := &Watch{c: c.client, ready: make(chan struct{}, 1)}
	c.watches.add(w)
	return w
}

// Ready receives a value when there is something to take, or the client was
// closed.
func (w *Watch) Ready() <-chan struct{} { return w.ready }

// Take hands out what changed since the last call, nil if nothing did. It
// never blocks.
func (w *Watch) Take() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.Take()
}

// Close ends the subscription.
func (w *Watch) Close() {
	w.c.watches.remove(w)
}

func (w *Watch) add(es []Event) {
	w.mu.Lock()
	for _, e := range es {
		w.queue.Add(e)
	}
	w.mu.Unlock()
	w.signal()
}

func (w *Watch) signal() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// Events yields changes of the cluster until ctx or the client ends. A slow
// loop body delays nobody; changes that it misses are merged.
func (c *Cluster) Events(ctx context.Context) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		w := c.Watch()
		defer w.Close()
		for {
			for _, e := range w.Take() {
				if !yield(e) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-c.Done():
				return
			case <-w.Ready():
			}
		}
	}
}

// watches are the subscriptions of a client.
type watches struct {
	mu  sync.Mutex
	set map[*Watch]struct{} // guarded by mu
}

func (ws *watches) add(w *Watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.set == nil {
		ws.set = make(map[*Watch]struct{})
	}
	ws.set[w] = struct{}{}
}

func (ws *watches) remove(w *Watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.set, w)
}

func (ws *watches) all() []*Watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	all := make([]*Watch, 0, len(ws.set))
	for w := range ws.set {
		all = append(all, w)
	}
	return all
}

// deliver adds events to every watch.
func (c *client) deliver(es []Event) {
	for _, e := range es {
		c.counts.events[e.Kind].Add(1)
	}
	for _, w := range c.watches.all() {
		w.add(es)
	}
}
