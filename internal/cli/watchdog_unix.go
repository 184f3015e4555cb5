//go:build unix

package cli

import "syscall"

// ownGroup keeps a process out of reach of the terminal's signals.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// signalGroup sends a signal to a process group.
func signalGroup(pid int, s syscall.Signal) error { return syscall.Kill(-pid, s) }

// groupLeft reports whether anyone is left in a process group, and reaps those
// of it that were left to this process.
func groupLeft(pid int) bool {
	for {
		got, err := syscall.Wait4(-pid, nil, syscall.WNOHANG, nil)
		if got <= 0 && err != syscall.EINTR {
			break
		}
	}
	return syscall.Kill(-pid, 0) == nil
}

// closeOnExec keeps a descriptor from the commands that this process starts.
func closeOnExec(fd int) { syscall.CloseOnExec(fd) }
