package cli

import (
	"os"
	"syscall"
)

// Windows has no process groups of this kind: `lead` does not start there.
func ownGroup() *syscall.SysProcAttr     { return nil }
func watchedGroup() *syscall.SysProcAttr { return nil }

func groupLeft(int) bool { return false }
func adoptOrphans()      {}
func closeOnExec(fd int) { syscall.CloseOnExec(syscall.Handle(fd)) }

func signalGroup(pid int, _ syscall.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
