package streams

import (
	"time"

	"github.com/ottla/ottla/internal/task"
)

// Trace holds functions that are told what a member does. Nil functions are not
// called. They run one after the other on a goroutine of their own, so a slow one
// delays no heartbeat; while too many wait, further calls are left out. Close
// does not wait for one that is running.
type Trace struct {
	// LookedUp tells how a look-up of the coordinator and its versions ended.
	LookedUp func(group string, took time.Duration, err error)
	// Heartbeat tells how a heartbeat ended: epoch is the one that it carried,
	// code the broker's, err that there was no answer.
	Heartbeat func(group string, epoch int32, took time.Duration, code int16, err error)
	// Retried tells that a join, heartbeat or leave failed and is sent again.
	Retried func(what string, attempt int, after time.Duration, why error)
	// Changed tells that the member is in another state.
	Changed func(from, to State)
}

// traceBacklog is how many calls may wait for a slow Trace.
const traceBacklog = 256

// tracer tells a Trace what happens. A nil tracer does nothing.
type tracer struct {
	trace Trace
	calls *task.Calls
}

func newTracer(t *Trace) *tracer {
	if t == nil {
		return nil
	}
	return &tracer{trace: *t, calls: task.NewCalls(traceBacklog)}
}

func (t *tracer) close() {
	if t != nil {
		t.calls.Close(ErrClosed)
	}
}

func (t *tracer) lookedUp(group string, took time.Duration, err error) {
	if t != nil && t.trace.LookedUp != nil {
		t.calls.Add(func() { t.trace.LookedUp(group, took, err) })
	}
}

func (t *tracer) heartbeat(group string, epoch int32, took time.Duration, code int16, err error) {
	if t != nil && t.trace.Heartbeat != nil {
		t.calls.Add(func() { t.trace.Heartbeat(group, epoch, took, code, err) })
	}
}

func (t *tracer) retried(what string, attempt int, after time.Duration, why error) {
	if t != nil && t.trace.Retried != nil {
		t.calls.Add(func() { t.trace.Retried(what, attempt, after, why) })
	}
}

func (t *tracer) changed(from, to State) {
	if t != nil && t.trace.Changed != nil && from != to {
		t.calls.Add(func() { t.trace.Changed(from, to) })
	}
}
