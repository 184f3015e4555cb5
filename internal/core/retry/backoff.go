package retry

import (
	"math/rand/v2"
	"time"
)

// Backoff is an exponential backoff with jitter (retry.backoff.ms,
// retry.backoff.max.ms). The zero value is the default for requests: 5 ms,
// doubling up to 1 s, each ±20 %.
type Backoff struct {
	Base time.Duration // the first delay; 0 = 5 ms
	Cap  time.Duration // the longest delay before jitter; 0 = 1 s
}

// Reconnect is the default for connecting again to one address: 50 ms, doubling
// up to 1 s (reconnect.backoff.ms).
func Reconnect() Backoff { return Backoff{Base: 50 * time.Millisecond} }

// Delay is how long to wait before try number attempt is repeated; attempt
// counts from 1. rng gives the jitter; nil means none.
func (b Backoff) Delay(attempt int, rng *rand.Rand) time.Duration {
	base, limit := b.Base, b.Cap
	if base <= 0 {
		base = 5 * time.Millisecond
	}
	if limit <= 0 {
		limit = time.Second
	}
	d := min(base, limit)
	for i := 1; i < attempt && d < limit; i++ {
		d = min(2*d, limit)
		if d <= 0 { // limit is so high that doubling ran over
			d = limit
		}
	}
	if rng == nil {
		return d
	}
	return time.Duration(float64(d) * (0.8 + 0.4*rng.Float64()))
}
