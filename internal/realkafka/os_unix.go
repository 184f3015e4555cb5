//go:build unix

package realkafka

import (
	"errors"
	"os"
	"syscall"
)

const supported = true

const (
	signalStop   = syscall.SIGSTOP
	signalResume = syscall.SIGCONT
	signalEnd    = syscall.SIGTERM
	signalKill   = syscall.SIGKILL
)

// tryLock takes an exclusive lock on an open file and reports whether it got it.
// The lock ends with the file or with the process.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
