//go:build !linux

package leader

import "time"

// asleep takes the wall clock's lead over the monotonic one for sleep.
func asleep(ahead time.Duration) time.Duration { return max(ahead, 0) }
