package netconn

import (
	"context"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/kafka"
)

// NoBound in [Call] is no bound of the caller's own on the version.
const NoBound = conn.NoBound

// Call is one request on its way. Make it with [NewCall]; it belongs to the
// lane from Send until Done was called, and may be used again then.
type Call struct {
	// Ctx ends the call: one not yet written is withdrawn, one that waits for
	// its answer is abandoned, and Done is called at once in either case. nil
	// is a context that never ends. [Lane.Do] sets it.
	Ctx context.Context
	// Req is read, and its version set, until the call is over.
	Req      kmsg.Request
	Min, Max int16         // bounds of the version, NoBound = none; both the same = pinned
	Timeout  time.Duration // request.timeout.ms of this call; 0 = the client's
	Wait     time.Duration // long poll beyond the timeout; 0 = what the request's own fields say
	OneWay   bool          // no answer comes (Produce with acks 0): done once written, with a nil response
	NoRedial bool          // never sent a second time, also if the API allows it
	OpenOnly bool          // fails at once if the lane has no open socket, or loses it
	// Buffer, if set, gives n bytes or more for the answer to a Fetch of n bytes,
	// within its MaxBytes; the response aliases them. It must not block. From then
	// on a lost socket ends the call. Where Done gets no response they may still be
	// written to, and are left to the collector.
	Buffer func(n int) []byte
	// Done is called exactly once, on a goroutine that is not the one of Send
	// and holds no lock. It must not block. The response is decoded; errors
	// are those of package kafka, or the cause that Close was given.
	Done func(resp kmsg.Response, err error)

	progress
	answer func(body []byte) error // internal: takes the body undecoded
	table  bool                    // internal: asks for a ready socket only
}

// progress is where a call stands; the lane's mutex guards it while the call
// is on its way.
type progress struct {
	state   callState
	gen     uint64           // counts the uses of the call
	id      int32            // correlation id while in flight
	size    int              // bytes of its frame that were written
	lost    *kafka.ConnError // it was sent once already, and lost so
	renewed bool             // it was refused once already late in a session
	filling bool             // its socket reads an answer into the caller's buffer
	first   bool             // it was the first request on its socket
	began   time.Time        // of its write
	stop    func() bool
	w       *waiter
}

type callState uint8

const (
	callIdle callState = iota
	callQueued
	callWriting
	callWaiting
)

// NewCall makes a call without bounds on its version.
func NewCall(ctx context.Context, req kmsg.Request) *Call {
	return &Call{Ctx: ctx, Req: req, Min: NoBound, Max: NoBound}
}

// BufferAppender is implemented by requests that hold large parts of their
// body in buffers of their own. The body is what AppendBuffers appends; on
// plain TCP it is written without a copy, in one vectored write. The memory
// must stay as it is until Done; where Done gets no response it may still be
// read by a write that is under way, so it is then left to the collector.
type BufferAppender interface {
	AppendBuffers(net.Buffers) net.Buffers
}

// waiter is what a goroutine in Do waits on; it is used again.
type waiter struct {
	ch   chan struct{} // capacity 1
	resp kmsg.Response
	err  error
}

// wait is how long an answer may take beyond the request's timeout.
func (c *Call) wait() time.Duration {
	if c.Wait > 0 {
		return c.Wait
	}
	ms := int32(0)
	switch r := c.Req.(type) {
	case *kmsg.FetchRequest:
		ms = r.MaxWaitMillis
	case *kmsg.JoinGroupRequest:
		ms = r.RebalanceTimeoutMillis
		if ms <= 0 {
			ms = r.SessionTimeoutMillis
		}
	case *kmsg.SyncGroupRequest:
		ms = defaultRebalance
	case kmsg.TimeoutRequest:
		ms = r.Timeout()
	}
	return time.Duration(max(ms, 0)) * time.Millisecond
}

// defaultRebalance stands in for the rebalance timeout in SyncGroup, which
// does not carry it, in milliseconds.
const defaultRebalance = 60_000
