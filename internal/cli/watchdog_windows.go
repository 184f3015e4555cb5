package cli

import (
	"os"
	"syscall"
)

// Windows has no process groups of this kind: `lead` does not start there.
func ownGroup() *syscall.SysProcAttr     { return nil }
func watchedGroup() *syscall.SysProcAttr { return nil }

func signalGroup(pid int, _ syscall.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
