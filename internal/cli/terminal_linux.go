package cli

import (
	"io"
	"os"
	"syscall"
	"unsafe"
)

// isTerminal reports whether v is a file that a terminal reads or writes.
func isTerminal(v io.Writer) bool {
	return holds(v, func(fd uintptr) bool {
		var state syscall.Termios
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TCGETS, uintptr(unsafe.Pointer(&state)))
		return errno == 0
	})
}

// hasNoReader reports whether v is a pipe whose reader went away.
func hasNoReader(v io.Writer) bool {
	const pollErr = 8
	return holds(v, func(fd uintptr) bool {
		poll := struct {
			fd              int32
			events, revents int16
		}{fd: int32(fd)}
		var now syscall.Timespec
		n, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
		return errno == 0 && n == 1 && poll.revents&pollErr != 0
	})
}

// holds asks a question about the descriptor of a file; anything else is no.
func holds(v io.Writer, question func(fd uintptr) bool) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	yes := false
	err = conn.Control(func(fd uintptr) { yes = question(fd) })
	return err == nil && yes
}
