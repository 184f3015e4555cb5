package realkafka

import (
	"os"
	"syscall"
)

const supported = false

const (
	signalStop   = syscall.SIGKILL
	signalResume = syscall.SIGKILL
	signalEnd    = syscall.SIGKILL
	signalKill   = syscall.SIGKILL
)

func tryLock(*os.File) (bool, error) { return false, errUnsupported }

func childAttr(bool) *syscall.SysProcAttr { return nil }
