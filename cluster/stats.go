package cluster

import (
	"sync/atomic"
	"time"
)

// counts are what the client has done so far.
type counts struct {
	refreshes       atomic.Int64
	refreshFailures atomic.Int64
	lookups         atomic.Int64
	retries         atomic.Int64
	rebootstraps    atomic.Int64
	mismatches      atomic.Int64
	dialFailures    atomic.Int64
	events          [int(ClusterMismatch) + 1]atomic.Int64
}

// Stats is what a client has done and holds, at one moment.
type Stats struct {
	Connections       []Connection        // in order of address and purpose
	Brokers           int                 // of the cluster map
	Topics            int                 // of the cluster map
	OldestTopic       time.Duration       // age of the topic that was described longest ago
	Refreshes         int64               // Metadata refreshes that were begun
	RefreshFailures   int64               // those that no broker answered well
	CoordinatorLooks  int64               // FindCoordinator requests
	Retries           int64               // attempts of requests after the first
	Rebootstraps      int64               // fresh starts from the bootstrap addresses
	ClusterMismatches int64               // addresses of another cluster
	DialFailures      int64               // sockets that did not come to be
	Events            map[EventKind]int64 // delivered to whoever watches
	TraceDropped      int64               // calls of Trace left out
}

// Connection is one socket, or the place for one: a purpose at an address.
type Connection struct {
	Addr      string
	Purpose   string // general, produce, fetch, coordinator, join, follow
	State     string // closed, dialling, open, draining
	Queued    int    // requests not yet written
	InFlight  int    // requests without an answer, abandoned ones included
	Dials     int64  // sockets opened, or tried
	Requests  int64  // requests written
	Resent    int64  // requests sent again after their socket was lost
	BytesOut  int64
	BytesIn   int64
	Throttled time.Duration // silence that the broker asked for
}

// Stats reads the counts. It costs no request and blocks nobody.
func (c *Cluster) Stats() Stats {
	snap := c.snap.Load()
	st := Stats{
		Brokers: len(snap.Brokers), Topics: len(snap.Topics),
		Refreshes: c.counts.refreshes.Load(), RefreshFailures: c.counts.refreshFailures.Load(),
		CoordinatorLooks: c.counts.lookups.Load(), Retries: c.counts.retries.Load(),
		Rebootstraps: c.counts.rebootstraps.Load(), ClusterMismatches: c.counts.mismatches.Load(),
		DialFailures: c.counts.dialFailures.Load(), Events: make(map[EventKind]int64), TraceDropped: c.tracer.lost(),
	}
	for k := range c.counts.events {
		if n := c.counts.events[k].Load(); n > 0 {
			st.Events[EventKind(k)] = n
		}
	}
	now := time.Now()
	for _, e := range snap.Topics {
		if e.Topic != nil {
			st.OldestTopic = max(st.OldestTopic, now.Sub(e.Topic.Updated))
		}
	}
	for _, p := range c.pool.all() {
		for _, l := range p.Stats() {
			st.Connections = append(st.Connections, Connection{
				Addr: l.Addr, Purpose: l.Kind.String(), State: l.State.String(), Queued: l.Queued, InFlight: l.InFlight,
				Dials: l.Dials, Requests: l.Requests, Resent: l.Retries, BytesOut: l.BytesOut, BytesIn: l.BytesIn, Throttled: l.Throttled,
			})
		}
	}
	return st
}
