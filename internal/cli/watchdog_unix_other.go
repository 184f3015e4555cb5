//go:build unix && !linux

package cli

import "syscall"

// watchedGroup puts the command into a group of its own. Here the system does
// not kill it with the watchdog; `lead` does.
func watchedGroup() *syscall.SysProcAttr { return ownGroup() }

// adoptOrphans does nothing: process 1 reaps them.
func adoptOrphans() {}
