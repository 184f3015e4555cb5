package cluster

import (
	"time"
)

// Trace holds functions that are told what the client does. Nil functions are
// not called. They run one after the other on a goroutine of their own, so a
// slow one delays no request; while too many wait, further calls are left out
// and counted in [Stats].
type Trace struct {
	// Dialled tells of every finished attempt to open a socket. purpose is the
	// kind of traffic: general, produce, fetch, coordinator or join.
	Dialled func(addr, purpose string, took time.Duration, err error)
	// Closed tells why an open socket was closed.
	Closed func(addr, purpose string, err error)
	// Throttled tells that a broker asked for silence on one socket.
	Throttled func(addr, purpose string, d time.Duration)
	// Refreshed tells how a metadata refresh ended. No topics is a refresh of
	// brokers and controller only.
	Refreshed func(topics []string, addr string, took time.Duration, err error)
	// Retried tells that a request is about to be made again, and why.
	Retried func(api string, attempt int, after time.Duration, why error)
}
