//go:build !unix

package benchmark

import "time"

// CPUTime is 0: it is not known on this system.
func CPUTime() time.Duration { return 0 }

// PeakRSS is 0: it is not known on this system.
func PeakRSS() int64 { return 0 }
