package lead

import (
	"math"
	"time"
)

// Holder is the schedule of one leadership, on the local clock alone.
type Holder struct {
	t     Timing
	start time.Duration // taken before the last confirmed lease was sent; what stands in it as granted
	next  time.Duration // of the next attempt to renew
	tries int           // failed since

	stopped bool
}

// NewHolder makes the schedule of a leadership whose grant was sent at start.
func NewHolder(t Timing, start time.Duration) *Holder {
	h := &Holder{t: t}
	h.OnWritten(start)
	return h
}

// OnWritten takes note of a confirmed lease; start was taken before it was sent.
func (h *Holder) OnWritten(start time.Duration) {
	h.start, h.next, h.tries = start, start+h.t.Renew, 0
}

// OnFailed takes note of an attempt that ended at now without effect; the next
// one waits for delay.
func (h *Holder) OnFailed(now, delay time.Duration) {
	h.tries++
	h.next = now + delay
}

// Tries is how many attempts failed since the last confirmed lease.
func (h *Holder) Tries() int { return h.tries }

// RenewAt is when the next renewal is due.
func (h *Holder) RenewAt() time.Duration {
	if h.stopped {
		return math.MaxInt64
	}
	return h.next
}

// StepDownAt is when the leadership ends by itself: before the lease does, by
// the stop margin.
func (h *Holder) StepDownAt() time.Duration { return h.LeaseEnd() - h.t.Margin }

// LeaseEnd is when the lease ends, as others see it at the earliest.
func (h *Holder) LeaseEnd() time.Duration { return h.start + h.t.Lease }

// Over reports whether the leadership has ended by its clock.
func (h *Holder) Over(now time.Duration) bool { return now >= h.StepDownAt() }

// AttemptFor is how long an attempt that begins at now may take: half of the
// time that is left.
func (h *Holder) AttemptFor(now time.Duration) time.Duration {
	return max(0, h.StepDownAt()-now) / 2
}

// Stop lets the lease run out: no further renewal is due.
func (h *Holder) Stop() { h.stopped = true }
