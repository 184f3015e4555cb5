package memnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func pair(t *testing.T, n *Network) (client, server *Conn) {
	t.Helper()
	l, err := n.Listen("b1:9092")
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, n, "b1:9092")
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close(); l.Close() })
	return c, s.(*Conn)
}

func dial(t *testing.T, n *Network, addr string) *Conn {
	t.Helper()
	c, err := n.Dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*Conn)
}

func bubble(t *testing.T, f func(t *testing.T, n *Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, New(1)) })
}

func write(t *testing.T, c *Conn, s string) {
	t.Helper()
	if n, err := c.Write([]byte(s)); n != len(s) || err != nil {
		t.Fatalf("Write = %d, %v", n, err)
	}
}

func readErr(c *Conn) error {
	_, err := c.Read(make([]byte, 1))
	return err
}

func TestBytesArriveInOrderAfterTheLatencyOfTheLink(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		n.SetLinkLatency("client", "b1", 3*time.Millisecond)
		c, s := pair(t, n)
		start := time.Now()
		write(t, c, "hello ")
		write(t, c, "world")
		got := make([]byte, 11)
		if _, err := io.ReadFull(s, got); err != nil || string(got) != "hello world" {
			t.Fatalf("read %q, %v", got, err)
		}
		if d := time.Since(start); d < 3*time.Millisecond || d > 4*time.Millisecond {
			t.Errorf("one way took %v", d)
		}
	})
}

func TestSameSeedSameLatencies(t *testing.T) {
	run := func(seed uint64) (out []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			n := New(seed)
			for _, h := range []string{"b1:1", "b2:1", "b3:1"} {
				l, err := n.Listen(h)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					start := time.Now()
					c := dial(t, n, h)
					out = append(out, time.Since(start))
					c.Close()
				}
				l.Close()
			}
		})
		return out
	}
	a, b, other := run(7), run(7), run(8)
	seen := map[time.Duration]bool{}
	same := 0
	for i := range a {
		if a[i] != b[i] {
			t.Errorf("dial %d took %v and %v with the same seed", i, a[i], b[i])
		}
		if a[i] == other[i] {
			same++
		}
		seen[a[i]] = true
	}
	if len(seen) != len(a) {
		t.Errorf("dials share latencies: %v", a)
	}
	if same == len(a) {
		t.Error("the seed changes nothing")
	}
}

func TestFullWindowStopsTheWriter(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		n.SetWindow(10)
		c, s := pair(t, n)
		c.SetWriteDeadline(time.Now().Add(time.Second))
		done, err := c.Write(make([]byte, 25))
		if done != 10 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Write = %d, %v", done, err)
		}
		var ne net.Error
		if !errors.As(err, &ne) || !ne.Timeout() {
			t.Errorf("%v is no timeout", err)
		}
		c.SetWriteDeadline(time.Time{})
		go c.Write(make([]byte, 15))
		if _, err := io.ReadFull(s, make([]byte, 25)); err != nil {
			t.Fatal(err)
		}
		s.SetWindow(0)
		c.SetWriteDeadline(time.Now().Add(time.Second))
		if done, err := c.Write([]byte("x")); done != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("zero window: Write = %d, %v", done, err)
		}
	})
}

func TestDeadlineEndsAWaitingRead(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		c, _ := pair(t, n)
		go func() {
			time.Sleep(time.Second)
			c.SetReadDeadline(time.Now().Add(time.Second))
		}()
		start := time.Now()
		if err := readErr(c); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("took %v", d)
		}
		c.SetReadDeadline(time.Unix(1, 0))
		if err := readErr(c); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestCloseIsEOFBehindTheBytesAndLaterWritesAreReset(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		c, s := pair(t, n)
		write(t, s, "bye")
		s.Close()
		if got, err := io.ReadAll(c); string(got) != "bye" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		write(t, c, "into the void")
		time.Sleep(time.Second)
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("first write after the answer: %v", err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("second: %v", err)
		}
		c.Close()
		if err := readErr(c); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if n.Open() != 0 {
			t.Errorf("%d connections open", n.Open())
		}
	})
}

func TestHalfClose(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		c, s := pair(t, n)
		write(t, c, "question")
		c.CloseWrite()
		if got, err := io.ReadAll(s); string(got) != "question" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		write(t, s, "answer")
		got := make([]byte, 6)
		if _, err := io.ReadFull(c, got); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write after CloseWrite: %v", err)
		}
	})
}

func TestResets(t *testing.T) {
	for name, f := range map[string]func(n *Network, c, s *Conn){
		"Reset":        func(_ *Network, _, s *Conn) { s.Reset() },
		"linger":       func(_ *Network, _, s *Conn) { s.SetLinger(0); s.Close() },
		"unread bytes": func(_ *Network, c, s *Conn) { c.Write([]byte("x")); time.Sleep(time.Second); s.Close() },
		"network":      func(n *Network, _, _ *Conn) { n.Reset("b1", "client") },
		"cut":          func(_ *Network, c, _ *Conn) { c.CutAfter(0) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *Network) {
				c, s := pair(t, n)
				write(t, s, "ab")
				f(n, c, s)
				got, err := io.ReadAll(c)
				if string(got) != "ab" || !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%q, %v", got, err)
				}
			})
		})
	}
}

func TestResetEndsABlockedWriter(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		c, s := pair(t, n)
		s.SetWindow(0)
		go func() { time.Sleep(time.Second); s.Reset() }()
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	})
}

func TestCutAfterLetsExactlySoManyBytesThrough(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		c, s := pair(t, n)
		c.CutAfter(5)
		write(t, c, "abc")
		write(t, c, "defgh")
		got, err := io.ReadAll(s)
		if string(got) != "abcde" || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q, %v", got, err)
		}
		if err := readErr(c); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	})
}

func TestHangHoldsBackUntilLifted(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		c, s := pair(t, n)
		s.Hang(true)
		write(t, c, "late")
		s.SetReadDeadline(time.Now().Add(time.Hour))
		if err := readErr(s); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		s.SetReadDeadline(time.Time{})
		c.Hang(false)
		got := make([]byte, 4)
		if _, err := io.ReadFull(s, got); err != nil || string(got) != "late" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestSlowLink(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		n.SetRate("client", "b1", 1000)
		c, s := pair(t, n)
		start := time.Now()
		write(t, c, string(make([]byte, 5000)))
		if _, err := io.ReadFull(s, make([]byte, 5000)); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d < 5*time.Second || d > 5*time.Second+2*time.Millisecond {
			t.Errorf("5000 bytes took %v", d)
		}
	})
}

func TestPartitionHoldsDataAndDials(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		c, s := pair(t, n)
		n.Partition("b1", "")
		write(t, c, "x")
		s.SetReadDeadline(time.Now().Add(time.Minute))
		if err := readErr(s); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := n.Dial(ctx, "tcp", "b1:9092")
		var ne net.Error
		if !errors.As(err, &ne) || !ne.Timeout() || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("dial into a partition: %v after %v", err, time.Since(start))
		}
		n.Heal("b1", "")
		s.SetReadDeadline(time.Time{})
		if _, err := s.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		dial(t, n, "b1:9092").Close()
	})
}

func TestDialOutcomes(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		l, err := n.Listen("b1:9092")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var oe *net.OpError
		_, err = n.Dial(t.Context(), "tcp", "b1:9093")
		if !errors.As(err, &oe) || !errors.Is(err, syscall.ECONNREFUSED) || oe.Op != "dial" {
			t.Errorf("no listener: %v", err)
		}
		var dns *net.DNSError
		if _, err = n.Dial(t.Context(), "tcp", "nobody:1"); !errors.As(err, &dns) || !dns.IsNotFound {
			t.Errorf("no name: %v", err)
		}
		n.BlackHole("b1:9092", true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err = n.Dial(ctx, "tcp", "b1:9092"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("black hole: %v", err)
		}
		if _, err := n.Listen("b1:9092"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("second listener: %v", err)
		}
	})
}

func TestClosedListenerResetsWhatNobodyAccepted(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		l, _ := n.Listen("b1:9092")
		c := dial(t, n, "b1:9092")
		l.Close()
		if err := readErr(c); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if _, err := n.Dial(t.Context(), "tcp", "b1:9092"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
	})
}

func TestNamesWithSeveralAddresses(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		n.SetAddrs("seed", "10.9.0.1", "2001:db8::1")
		l, err := n.Listen("[2001:db8::1]:9092")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		got, err := n.Resolve(t.Context(), "seed")
		if err != nil || len(got) != 2 || got[1] != "2001:db8::1" {
			t.Fatalf("%v, %v", got, err)
		}
		c := dial(t, n, "seed:9092")
		if a := c.RemoteAddr().String(); a != "[2001:db8::1]:9092" {
			t.Errorf("reached %s", a)
		}
		if c.RemoteAddr().Network() != "tcp" || c.LocalAddr().(*net.TCPAddr).Port == 0 {
			t.Errorf("addresses %v %v", c.LocalAddr(), c.RemoteAddr())
		}
		c.Close()
	})
}

func TestLargeTransferOutsideABubble(t *testing.T) {
	n := New(3)
	c, s := pair(t, n)
	data := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	go func() { c.Write(data); c.CloseWrite() }()
	got, err := io.ReadAll(s)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(data), err)
	}
}

func TestTheEndTakesItsTimeToArrive(t *testing.T) {
	for name, end := range map[string]func(*Conn){"close": func(c *Conn) { c.Close() }, "reset": (*Conn).Reset} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *Network) {
				n.SetLinkLatency("client", "b1", 5*time.Millisecond)
				c, s := pair(t, n)
				start := time.Now()
				end(s)
				readErr(c)
				if d := time.Since(start); d < 5*time.Millisecond || d > 6*time.Millisecond {
					t.Errorf("the end arrived after %v", d)
				}
			})
		})
	}
}
