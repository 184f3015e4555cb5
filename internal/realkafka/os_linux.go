package realkafka

import (
	"os"
	"strings"
	"syscall"
)

// childAttr puts a process into a group of its own, out of reach of the
// terminal's Ctrl-C. A process that is not detached dies with the thread that
// started it.
func childAttr(detached bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if !detached {
		a.Pdeathsig = syscall.SIGKILL
	}
	return a
}

// holdPort binds a free port of 127.0.0.1 without listening on it and keeps it
// until release is called. The kernel gives a bound port to nobody else, and a
// JVM, which sets SO_REUSEADDR too, can listen on it all the same. It is set
// after the bind: before, the kernel would let a second holder have the port.
func holdPort(port int) (release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	release = func() { _ = syscall.Close(fd) }
	err = os.NewSyscallError("bind", syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}))
	if err == nil {
		err = os.NewSyscallError("setsockopt", syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// longestCommand is more than the command line of a broker takes.
const longestCommand = 256 << 10

// commandLine returns the arguments of a process; none for a process that does
// not exist or has ended. It reads them in one call: read in parts, those of a
// process that ends meanwhile are cut short and look like another program's.
func commandLine(pid string) []string {
	f, err := os.Open("/proc/" + pid + "/cmdline")
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	text := make([]byte, longestCommand)
	n, err := f.Read(text)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text[:n]), "\x00"), "\x00")
}

// processState is the letter that the system gives a process: T for one that
// is stopped by a signal, Z for one that has ended, empty for none.
func processState(pid string) string {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// suspended says whether a process is stopped by a signal.
func suspended(pid string) bool { return processState(pid) == "T" }

// vanished says whether nothing is left of a process that has lost its command
// line: that happens before its last thread has closed its sockets.
func vanished(pid string) bool {
	threads, err := os.ReadDir("/proc/" + pid + "/task")
	return err != nil || len(threads) <= 1 && processState(pid) == "Z"
}
