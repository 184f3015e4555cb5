//go:build unix && !linux

package realkafka

import "syscall"

// childAttr puts a process into a group of its own, out of reach of the
// terminal's Ctrl-C.
func childAttr(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
