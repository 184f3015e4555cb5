package cli

import (
	"syscall"
	"time"
	"unsafe"
)

// watchedGroup puts the command into a group of its own, and has the system
// kill it with the watchdog.
func watchedGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes this process the parent of what its descendants leave
// behind, also where process 1 reaps nobody. It is a courtesy: errors do not matter.
func adoptOrphans() {
	const setChildSubreaper = 36
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
}

// bootClock is CLOCK_BOOTTIME: it is the same in every process, and goes on
// while the machine sleeps.
func bootClock() time.Duration {
	const bootTime = 7
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, bootTime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(ts.Nano())
}
