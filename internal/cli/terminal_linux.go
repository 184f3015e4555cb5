package cli

import (
	"io"
	"os"
	"syscall"
	"unsafe"
)

// isTerminal reports whether v is a file that a terminal reads or writes.
func isTerminal(v io.Writer) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	tty := false
	err = conn.Control(func(fd uintptr) {
		var state syscall.Termios
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TCGETS, uintptr(unsafe.Pointer(&state)))
		tty = errno == 0
	})
	return err == nil && tty
}
