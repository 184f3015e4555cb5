//go:build unix

package cli

import "syscall"

// ownGroup keeps a process out of reach of the terminal's signals.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// signalGroup sends a signal to a process group.
func signalGroup(pid int, s syscall.Signal) error { return syscall.Kill(-pid, s) }
