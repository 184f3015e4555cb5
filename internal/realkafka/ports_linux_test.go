package realkafka

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// TestReservedPortsAreHeld: nobody gets a reserved port by chance or by
// asking, nothing answers on it, and a program that reuses addresses can listen.
func TestReservedPortsAreHeld(t *testing.T) {
	p, err := reservePorts(20)
	must(t, err)
	numbers := slices.Clone(p.numbers)
	if n := len(slices.Compact(slices.Sorted(slices.Values(numbers)))); n != 20 {
		t.Fatalf("%d different ports of 20", n)
	}
	for _, n := range numbers {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(n))
		if conn, err := net.Dial("tcp4", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dialling the reserved port gives %v, %v", conn, err)
		}
		if _, err := holdPort(n); !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("port %d is held twice: %v", n, err)
		}
	}
	if err := bindPlain(numbers[0]); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("another program gets the port: %v", err)
	}
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(numbers[0]))) // reuses addresses, as a JVM does
	must(t, err)
	_ = l.Close()
	p.release()
	must(t, bindPlain(numbers[1]))
}

// bindPlain binds a port as a program does that does not reuse addresses.
func bindPlain(port int) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	return syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
}
