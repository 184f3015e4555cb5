//go:build !linux

package cli

import "time"

// bootClock is the wall clock, the one that all processes share here.
func bootClock() time.Duration { return time.Duration(time.Now().UnixNano()) }
