//go:build !linux

package realkafka

import (
	"net"
	"os/exec"
	"strconv"
	"strings"
)

// holdPort sees whether a port of 127.0.0.1 is free. It cannot keep it: a broker
// that finds it taken is started again with others.
func holdPort(port int) (release func(), err error) {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return func() {}, l.Close()
}

// commandLine returns the arguments of a process, split at spaces; none for a
// process that does not exist or has ended.
func commandLine(pid string) []string {
	text, err := exec.Command("ps", "-ww", "-o", "command=", "-p", pid).Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// suspended says whether a process is stopped by a signal.
func suspended(pid string) bool {
	text, err := exec.Command("ps", "-o", "state=", "-p", pid).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(text)), "T")
}

// vanished says whether nothing is left of a process that has lost its command
// line.
func vanished(string) bool { return true }
