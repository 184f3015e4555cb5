package lead

import (
	"fmt"
	"math"
	"time"

	"github.com/ottla/ottla/kafka"
)

// Now is one instant on two clocks.
type Now struct {
	Local time.Duration   // since some fixed instant: never goes back, and goes on while the machine sleeps
	Wall  kafka.Timestamp // what people call the time; it may jump
}

// localOf is when the local clock will show what the wall clock shows at w.
func (n Now) localOf(w kafka.Timestamp) time.Duration {
	return addLocal(n.Local, millis(subWall(w, n.Wall)))
}

// Timing is the arithmetic of a lease.
type Timing struct {
	Lease   time.Duration // how long a lease lasts without a renewal
	Renew   time.Duration // from one renewal to the next
	Stagger time.Duration // between the challenges of two standbys
	Margin  time.Duration // the holder stops so long before the deadline
	Skew    time.Duration // how far two wall clocks may be apart
}

// Check reports which relation of the extents is broken.
func (t Timing) Check() error {
	switch {
	case t.Lease <= 0 || t.Renew <= 0 || t.Stagger <= 0:
		return fmt.Errorf("lease %v, renew %v and stagger %v must all be above zero", t.Lease, t.Renew, t.Stagger)
	case t.Lease < time.Millisecond || t.Lease > math.MaxInt32*time.Millisecond:
		return fmt.Errorf("lease %v is not between 1ms and %v", t.Lease, math.MaxInt32*time.Millisecond)
	case t.Margin < 0 || t.Skew < 0:
		return fmt.Errorf("stop margin %v and clock skew %v must not be negative", t.Margin, t.Skew)
	case t.Renew >= t.Lease-t.Margin:
		return fmt.Errorf("renew %v must be below lease %v less stop margin %v, or the lease ends before it is renewed", t.Renew, t.Lease, t.Margin)
	}
	return nil
}

// Comfortable reports whether a lease survives two renewals that fail.
func (t Timing) Comfortable() bool { return t.Renew <= t.Lease/3 }

// Grant is the lease of a member from now on.
func Grant(member string, tok Token, now kafka.Timestamp, d time.Duration) Lease {
	return Lease{Member: member, Token: tok, Granted: now, Deadline: addWall(now, d.Milliseconds())}
}

// Live reports whether the lease is in force: until its deadline, not at it.
func (l Lease) Live(now kafka.Timestamp) bool { return now < l.Deadline }

// RenewAt is when the holder renews: never after the deadline.
func (l Lease) RenewAt(renew time.Duration) kafka.Timestamp {
	return min(addWall(l.Granted, renew.Milliseconds()), l.Deadline)
}

// ChallengeAt is when the contract lets a rank challenge by the wall clock.
func (l Lease) ChallengeAt(rank int, stagger time.Duration) kafka.Timestamp {
	return addWall(l.Deadline, delay(rank, stagger).Milliseconds())
}

// Duration is the lease's own length, whatever the reader's settings.
func (l Lease) Duration() time.Duration { return max(0, millis(subWall(l.Deadline, l.Granted))) }

// delay is rank × stagger; a negative rank counts as 0.
func delay(rank int, stagger time.Duration) time.Duration {
	if rank <= 0 || stagger <= 0 {
		return 0
	}
	if int64(rank) > math.MaxInt64/int64(stagger) {
		return math.MaxInt64
	}
	return time.Duration(rank) * stagger
}

func millis(ms int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(ms, -most), most)) * time.Millisecond
}

// addWall and the like saturate: a deadline at the end of time stays there.
func addWall(t kafka.Timestamp, ms int64) kafka.Timestamp {
	return kafka.Timestamp(saturate(int64(t), ms))
}

func subWall(a, b kafka.Timestamp) int64 {
	if b == math.MinInt64 {
		return saturate(saturate(int64(a), math.MaxInt64), 1)
	}
	return saturate(int64(a), -int64(b))
}

func addLocal(a, b time.Duration) time.Duration {
	return time.Duration(saturate(int64(a), int64(b)))
}

func saturate(a, b int64) int64 {
	switch c := a + b; {
	case a > 0 && b > 0 && c < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && c >= 0:
		return math.MinInt64
	default:
		return c
	}
}
