package netconn

import "time"

// State is what a lane is doing.
type State uint8

const (
	Closed   State = iota // no socket
	Dialling              // TCP, TLS, ApiVersions or SASL is under way, or the backoff before
	Open                  // ready for requests
	Draining              // closes once the outstanding answers are there
)

// String is the state in one lower-case word.
func (s State) String() string {
	if s <= Draining {
		return [...]string{"closed", "dialling", "open", "draining"}[s]
	}
	return "unknown"
}

// LaneStats are the counts of one lane since it was made.
type LaneStats struct {
	Addr      string
	Kind      Kind
	State     State
	Queued    int           // requests not yet written
	InFlight  int           // requests without an answer, abandoned ones included
	Dials     int64         // sockets opened, or tried
	Requests  int64         // requests written
	Retries   int64         // requests sent a second time after their socket was lost
	BytesOut  int64         // frames written
	BytesIn   int64         // bytes read
	Throttled time.Duration // silence that the broker asked for
}
