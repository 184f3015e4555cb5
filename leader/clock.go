package leader

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/kafka"
)

// systemClock reads the system's clocks. The local one is Go's monotonic
// clock, which stands still while the machine sleeps, and on top of it the time
// that it slept.
func systemClock() func() lead.Now {
	start, before := time.Now(), asleep(0)
	var slept atomic.Int64
	return func() lead.Now {
		now := time.Now()
		local := now.Sub(start)
		s := int64(asleep(wallSince(start, now)-local) - before)
		for old := slept.Load(); ; old = slept.Load() {
			if s < old+int64(time.Millisecond) { // the two clocks are not read at once
				s = old
				break
			}
			if slept.CompareAndSwap(old, s) {
				break
			}
		}
		return lead.Now{Local: local + time.Duration(s), Wall: kafka.TimestampOf(now)}
	}
}

// wallSince is how much the wall clock says has passed.
func wallSince(start, now time.Time) time.Duration { return now.Round(0).Sub(start.Round(0)) }

// jitter is a random part of n, so that candidates do not act in step.
func jitter(n int64) int64 {
	if n <= 0 {
		return 0
	}
	return rand.Int64N(n)
}
