package leader

import (
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// asleep is how long the machine has slept since it was started: the boot
// clock goes on meanwhile, the monotonic one does not.
func asleep(time.Duration) time.Duration {
	boot, mono := readClock(clockBoottime), readClock(clockMonotonic)
	if boot == 0 || mono == 0 {
		return 0
	}
	return boot - mono
}

func readClock(id uintptr) time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
