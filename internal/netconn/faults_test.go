package netconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/ottla/ottla/kafka"
)

// wrapping puts its own connection between the lanes and the network.
func wrapping(w *world, f func(net.Conn) net.Conn) {
	dial := w.cfg.Dial
	w.cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return f(c), nil
	}
}

// brittle is a connection whose next write fails after so many bytes once part
// is not negative.
type brittle struct {
	net.Conn
	part *atomic.Int64
}

var errBrittle = &net.OpError{Op: "write", Net: "tcp", Err: errors.New("the cable is out")}

func (c brittle) Write(b []byte) (int, error) {
	n := c.part.Swap(-1)
	if n < 0 {
		return c.Conn.Write(b)
	}
	done, _ := c.Conn.Write(b[:n])
	return done, errBrittle
}

// TestC43APartThatReachedTheNetworkLeavesItInDoubt fails the write of a
// mutation before its first byte, and after ten, with and without TLS, and of a
// request that wants no answer (B032): without a byte it goes again, with some
// it is Unknown and does not.
func TestC43APartThatReachedTheNetworkLeavesItInDoubt(t *testing.T) {
	a, today := newAuthority(t, "ca"), time.Now()
	server := &tls.Config{Certificates: []tls.Certificate{a.leaf(t, today.Add(time.Hour), "b1")}}
	client := &tls.Config{RootCAs: a.pool, Time: func() time.Time { return today }}
	oneWay := func() *Call {
		c := NewCall(context.Background(), kmsg.NewPtrProduceRequest())
		c.OneWay, c.Max = true, 12
		return c
	}
	mutation := func() *Call { return NewCall(context.Background(), kmsg.NewPtrCreateTopicsRequest()) }
	for name, c := range map[string]struct {
		tls  *tls.Config
		call func() *Call
	}{"plain": {nil, mutation}, "TLS": {client, mutation}, "one way": {nil, oneWay}} {
		for _, part := range []int64{0, 10} {
			inWorld(t, &Config{TLS: c.tls}, func(bc *brokerConn) {
				if c.tls != nil {
					bc.Conn = tls.Server(bc.Conn, server)
				}
				bc.echo()
			}, func(t *testing.T, w *world) {
				var left atomic.Int64
				left.Store(-1)
				wrapping(w, func(c net.Conn) net.Conn { return brittle{c, &left} })
				ask(t, w.lane(General), "open")
				call := c.call()
				left.Store(part)
				_, err := w.lane(General).Do(within(t, time.Minute), call)
				time.Sleep(time.Second)
				sockets, seen := w.b.accepted(), len(w.b.requests(call.Req.Key()))
				if part == 0 {
					if err != nil || sockets != 2 || seen != 1 {
						t.Errorf("%s, nothing written: %v, %d sockets, seen %d times", name, err, sockets, seen)
					}
					return
				}
				var ce *kafka.ConnError
				if !errors.As(err, &ce) || ce.Written != part || !errors.Is(err, errBrittle) || !kafka.MayHaveHappened(err) || sockets != 1 || seen != 0 {
					t.Errorf("%s, a part written: %v, %d sockets, seen %d times", name, err, sockets, seen)
				}
			})
		}
	}
}

// slowWrites returns from a write a second after the bytes went out.
type slowWrites struct{ net.Conn }

func (c slowWrites) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	time.Sleep(time.Second)
	return n, err
}

// TestC29AnAnswerThatOvertakesItsWriteIsTaken has the answer there before the
// write returns. The call is used again at once; it waits for the end of the
// throttle when its context ends.
func TestC29AnAnswerThatOvertakesItsWriteIsTaken(t *testing.T) {
	inWorld(t, nil, throttling(10*time.Second), func(t *testing.T, w *world) {
		wrapping(w, func(c net.Conn) net.Conn { return slowWrites{c} })
		l := w.lane(General)
		if _, err := w.peer.Versions(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		c := metadata("first")
		got := start(l, c)
		if o := await(t, got); o.err != nil || markOf(o.resp) != "first" {
			t.Fatal(o.err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		c.Ctx = ctx
		l.Send(c)
		time.Sleep(5 * time.Second)
		cancel()
		if o := await(t, got); !errors.Is(o.err, context.Canceled) || kafka.MayHaveHappened(o.err) {
			t.Error(o.err)
		}
		time.Sleep(time.Minute)
		if len(got) != 0 || len(w.b.requests(3)) != 1 {
			t.Errorf("Done was called %d times more, the broker saw %d requests", len(got), len(w.b.requests(3)))
		}
		c = metadata("not used again")
		got = start(l, c)
		if o := await(t, got); o.err != nil {
			t.Fatal(o.err)
		}
		time.Sleep(2 * time.Second) // the write has returned
		if l.abandon(c, c.gen); len(got) != 0 {
			t.Error("a call that was over before its write was ended again")
		}
	})
}

// TestC32WhoSpeaksBeforeHeIsAskedIsNoBroker sends a banner, as servers of mail
// do, and what looks like an answer.
func TestC32WhoSpeaksBeforeHeIsAskedIsNoBroker(t *testing.T) {
	for _, banner := range []string{"220 mail.example ESMTP\r\n", "\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00", "\x00\x00\x00\x06\xff\xff\xff\xff\x00\x00"} {
		inWorld(t, nil, func(c *brokerConn) {
			c.Write([]byte(banner))
			c.silence()
		}, func(t *testing.T, w *world) {
			wrapping(w, func(c net.Conn) net.Conn {
				time.Sleep(time.Second) // it is there before the first write
				return c
			})
			var pe *kafka.ProtocolError
			d := took(func() {
				_, err := w.lane(General).Do(within(t, time.Minute), metadata("m"))
				if !errors.As(err, &pe) || pe.Addr != address || kafka.MayHaveHappened(err) {
					t.Errorf("%q: %v", banner, err)
				}
			})
			if d > time.Second+fast {
				t.Errorf("%q: after %v", banner, d)
			}
		})
	}
}

// TestB058SocketsThatServeNothingArePaced has brokers that close each socket on
// its first request, right after the handshake with and without a login, or
// send garbage there.
func TestB058SocketsThatServeNothingArePaced(t *testing.T) {
	for name, serve := range map[string]func(c *brokerConn){
		"on the first request": func(c *brokerConn) {
			if c.hello() {
				c.next()
			}
		},
		"after the handshake": func(c *brokerConn) { c.hello() },
		"a moment later": func(c *brokerConn) {
			c.hello()
			time.Sleep(time.Millisecond)
		},
		"garbage": func(c *brokerConn) {
			c.hello()
			c.Write([]byte{0xff, 0xff, 0xff, 0xff})
			c.silence()
		},
		"garbage for an answer": func(c *brokerConn) {
			c.hello()
			c.next()
			c.Write([]byte{0xff, 0xff, 0xff, 0xff})
			c.silence()
		},
		"after the login": func(c *brokerConn) {
			b := guarded{offers: []string{"PLAIN"}}
			c.hello()
			g, _ := c.next()
			c.answer(g, b.handshake(g))
			g, _ = c.next()
			c.answer(g, b.authenticate(g))
		},
	} {
		cfg := &Config{}
		if name == "after the login" {
			cfg = withPlain()
		}
		inWorld(t, cfg, serve, func(t *testing.T, w *world) {
			end := time.Now().Add(10 * time.Second)
			for n := 0; n < 1000 && time.Now().Before(end); n++ {
				w.lane(General).Do(within(t, time.Second), metadata("m"))
			}
			if n := w.b.accepted(); n < 5 || n > 25 {
				t.Errorf("%s: %d sockets in 10 s", name, n)
			}
		})
	}
}

// lateReason is a connection whose write fails at once while the broker's last
// word, why, is still on its way.
type lateReason struct {
	net.Conn
	failed chan struct{}
}

func (c lateReason) Write([]byte) (int, error) {
	close(c.failed)
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
}

func (c lateReason) Read([]byte) (int, error) {
	<-c.failed
	time.Sleep(reasonTime / 2)
	return 0, &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}
}

func TestB059TheReasonThatComesAfterAFailedWriteIsKept(t *testing.T) {
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		wrapping(w, func(c net.Conn) net.Conn { return lateReason{c, make(chan struct{})} })
		_, err := w.lane(General).Do(within(t, time.Minute), metadata("m"))
		var ae *kafka.AuthError
		if !errors.As(err, &ae) || !strings.Contains(err.Error(), "certificate required") {
			t.Errorf("%v", err)
		}
	})
}

// TestTheReconnectBackoffIsResetByAHandshake fails five dials, then connects;
// the next failure is again the first.
func TestTheReconnectBackoffIsResetByAHandshake(t *testing.T) {
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		down := true
		wrapping(w, func(c net.Conn) net.Conn {
			if down {
				c.Close()
			}
			return c
		})
		wait := func() time.Duration {
			w.lane(General).Do(within(t, time.Minute), metadata("m"))
			until, err := w.peer.Failing()
			if err == nil {
				t.Error("the peer is not known to fail")
			}
			return time.Until(until)
		}
		for range 4 {
			wait()
		}
		if d := wait(); d < 500*time.Millisecond {
			t.Errorf("after five failures the next dial is in %v", d)
		}
		down = false
		ask(t, w.lane(General), "m")
		if until, err := w.peer.Failing(); err != nil || !until.IsZero() {
			t.Errorf("connected, and failing until %v: %v", until, err)
		}
		down = true
		w.peer.Disconnect(io.EOF)
		if d := wait(); d > 60*time.Millisecond {
			t.Errorf("after one failure the next dial is in %v", d)
		}
	})
}

// TestHooksTellOfDialsAndOfTheirEnd opens, loses and fails to open a socket.
func TestHooksTellOfDialsAndOfTheirEnd(t *testing.T) {
	var told []string
	why := errors.New("enough")
	cfg := &Config{Hooks: Hooks{
		Dialled: func(addr string, k Kind, took time.Duration, err error) {
			told = append(told, fmt.Sprint("dialled ", addr, " ", k, " ", took > 0, " ", err == nil))
		},
		Closed: func(addr string, k Kind, err error) {
			told = append(told, fmt.Sprint("closed ", addr, " ", k, " ", errors.Is(err, why)))
		},
	}}
	inWorld(t, cfg, (*brokerConn).echo, func(t *testing.T, w *world) {
		w.net.SetLatency(time.Millisecond, time.Millisecond)
		ask(t, w.lane(Fetch), "m")
		w.peer.Disconnect(why)
		w.b.ln.Close()
		w.lane(Join).Do(within(t, time.Minute), metadata("m"))
		want := "[dialled b1:9092 fetch true true closed b1:9092 fetch true dialled b1:9092 join true false]"
		if got := fmt.Sprint(told); got != want {
			t.Errorf("told %s\nwant %s", got, want)
		}
	})
}

// TestC8NothingStartsOnceTheGroupIsOver has a lane that was never used.
func TestC8NothingStartsOnceTheGroupIsOver(t *testing.T) {
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		w.peer.tasks.Cancel(errTestOver)
		w.peer.tasks.Wait()
		if _, err := w.lane(General).Do(within(t, time.Minute), metadata("m")); !errors.Is(err, errTestOver) {
			t.Errorf("Do: %v", err)
		}
		if o := await(t, start(w.lane(Fetch), metadata("m"))); !errors.Is(o.err, errTestOver) {
			t.Errorf("Send: %v", o.err)
		}
	})
}

// TestK3ANameWithoutAddressesIsSaid has a resolver that finds nothing, and
// fails at nothing.
func TestK3ANameWithoutAddressesIsSaid(t *testing.T) {
	cfg := &Config{Resolve: func(context.Context, string) ([]string, error) { return nil, nil }}
	inWorld(t, cfg, (*brokerConn).echo, func(t *testing.T, w *world) {
		_, err := w.lane(General).Do(within(t, time.Minute), metadata("m"))
		var de *kafka.DialError
		var dns *net.DNSError
		if !errors.As(err, &de) || !errors.As(err, &dns) || !strings.Contains(err.Error(), "b1: no addresses") {
			t.Errorf("%v", err)
		}
	})
}

// TestC9ADialerThatGivesNothingIsAnError has neither a connection nor an error.
func TestC9ADialerThatGivesNothingIsAnError(t *testing.T) {
	cfg := &Config{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, nil }}
	inWorld(t, cfg, nil, func(t *testing.T, w *world) {
		_, err := w.lane(General).Do(within(t, time.Minute), metadata("m"))
		var de *kafka.DialError
		if !errors.As(err, &de) || de.Addr != address {
			t.Errorf("%v", err)
		}
	})
}

// TestK5ACallIsOverOnceHoweverItEnds ends calls in every way but by an answer,
// and then their contexts.
func TestK5ACallIsOverOnceHoweverItEnds(t *testing.T) {
	mutation := func() *Call { return NewCall(context.Background(), kmsg.NewPtrDeleteGroupsRequest()) }
	for _, end := range []struct {
		name string
		call func() *Call
		f    func(w *world, left *atomic.Int64) // right after Send
	}{
		{"lost", mutation, func(w *world, _ *atomic.Int64) { w.peer.Disconnect(errTestOver) }},
		{"lost in the write", mutation, nil},
		{"lost in the write, one way", func() *Call { c := mutation(); c.OneWay = true; return c }, nil},
		{"expired", func() *Call { c := mutation(); c.Timeout = time.Second; return c }, func(*world, *atomic.Int64) {}},
		{"no version", func() *Call { c := mutation(); c.Min = 99; return c }, func(*world, *atomic.Int64) {}},
		{"closed in flight", mutation, func(w *world, _ *atomic.Int64) { w.peer.Close(errTestOver) }},
		{"closed before", mutation, nil},
		{"not connected", func() *Call { c := mutation(); c.OpenOnly = true; return c }, nil},
	} {
		t.Run(end.name, func(t *testing.T) {
			inWorld(t, nil, func(c *brokerConn) {
				if c.hello() {
					c.silence()
				}
			}, func(t *testing.T, w *world) {
				var left atomic.Int64
				left.Store(-1)
				wrapping(w, func(c net.Conn) net.Conn { return brittle{c, &left} })
				if _, err := w.peer.Versions(t.Context()); err != nil {
					t.Fatal(err)
				}
				switch end.name {
				case "lost in the write", "lost in the write, one way":
					left.Store(10)
				case "closed before":
					w.peer.Close(errTestOver)
				case "not connected":
					w.peer.Disconnect(errTestOver)
				}
				parent, cancel := context.WithCancel(context.Background())
				watched := &watchedContext{Context: parent, done: make(chan struct{})}
				c := end.call()
				c.Ctx = watched
				got := start(w.lane(General), c)
				time.Sleep(fast)
				if end.f != nil {
					end.f(w, &left)
				}
				if o := await(t, got); o.err == nil {
					t.Error("no error")
				}
				if n := watched.held.Load(); n != 0 {
					t.Errorf("the context still holds %d calls", n)
				}
				cancel()
				close(watched.done)
				w.lane(General).abandon(c, c.gen) // as if the context had ended at that instant
				time.Sleep(time.Second)
				if len(got) != 0 {
					t.Errorf("Done was called again: %v", (<-got).err)
				}
			})
		})
	}
}

// TestC8AConnectionThatComesTooLateIsClosed has a dialer that does not obey its
// context, and connects after all.
func TestC8AConnectionThatComesTooLateIsClosed(t *testing.T) {
	inWorld(t, nil, (*brokerConn).silence, func(t *testing.T, w *world) {
		wrapping(w, func(c net.Conn) net.Conn {
			time.Sleep(time.Minute)
			return c
		})
		if _, err := w.lane(General).Do(within(t, time.Second), metadata("m")); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
		if n := w.net.Open(); n != 0 || w.b.accepted() != 1 {
			t.Errorf("%d connections are left, %d were made", n, w.b.accepted())
		}
	})
}

// TestC9WhyANameIsNotFoundIsKept has a resolver that fails.
func TestC9WhyANameIsNotFoundIsKept(t *testing.T) {
	why := &net.DNSError{Err: "server misbehaving", Name: "b1"}
	cfg := &Config{Resolve: func(context.Context, string) ([]string, error) { return nil, why }}
	inWorld(t, cfg, nil, func(t *testing.T, w *world) {
		_, err := w.lane(General).Do(within(t, time.Minute), metadata("m"))
		var de *kafka.DialError
		if !errors.As(err, &de) || de.Addr != address || !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
	})
}

// TestB028BytesBeforeTheEndAreNoReset has brokers that begin an answer, and
// brokers that answer something else, before they close: neither says anything
// about versions.
func TestB028BytesBeforeTheEndAreNoReset(t *testing.T) {
	for _, said := range []string{"\x00", "\x00\x00\x00\x40\x00\x00\x00\x00", "\x00\x00\x00\x06\x00\x00\x00\x00\x00\x3a"} {
		inWorld(t, nil, func(c *brokerConn) {
			c.next()
			c.Write([]byte(said))
		}, func(t *testing.T, w *world) {
			w.lane(General).Do(within(t, time.Minute), metadata("m"))
			w.lane(General).Do(within(t, time.Minute), metadata("m"))
			if got := helloVersions(w.b); got != "5 5" {
				t.Errorf("%q: asked at %s", said, got)
			}
		})
	}
}

// TestB058ASocketThatServesEndsThePacing has four that serve nothing, then ones
// that serve one request each.
func TestB058ASocketThatServesEndsThePacing(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		if g, ok := c.next(); ok && c.n >= 4 {
			c.answer(g, reply(g))
		}
	}, func(t *testing.T, w *world) {
		for range 2 { // each is sent twice
			w.lane(General).Do(within(t, time.Minute), metadata("in vain"))
		}
		ask(t, w.lane(General), "served")
		for range 5 {
			time.Sleep(time.Second)
			mustBeFast(t, w.lane(General), "again")
		}
	})
}

// TestK2TheLaneSpeaksAgainAtTheEndOfTheThrottle has no other clock near.
func TestK2TheLaneSpeaksAgainAtTheEndOfTheThrottle(t *testing.T) {
	inWorld(t, nil, throttling(5*time.Second), func(t *testing.T, w *world) {
		if _, err := w.peer.Versions(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		ask(t, w.lane(General), "throttled from here")
		if d := took(func() { ask(t, w.lane(General), "after") }); d < 5*time.Second-fast || d > 5*time.Second+fast {
			t.Errorf("a throttle of 5 s took %v", d)
		}
	})
}

// TestK2OldBrokersHaveKeptTheThrottleThemselves answers Metadata below the
// version of KIP-219, and at it.
func TestK2OldBrokersHaveKeptTheThrottleThemselves(t *testing.T) {
	for version, want := range map[int16]time.Duration{5: 0, 6: 5 * time.Second} {
		inWorld(t, nil, throttling(5*time.Second), func(t *testing.T, w *world) {
			c := metadata("throttled")
			c.Min, c.Max = version, version
			if _, err := w.lane(General).Do(within(t, time.Minute), c); err != nil {
				t.Fatal(err)
			}
			if d := took(func() { ask(t, w.lane(General), "after") }); d < want-fast || d > want+fast {
				t.Errorf("version %d: the next request came after %v, want %v", version, d, want)
			}
			if st := w.lane(General).Stats(); st.Throttled != 10*time.Second {
				t.Errorf("version %d: %v of throttle are reported", version, st.Throttled)
			}
		})
	}
}

// TestC23ATokenSourceThatFailsInARenewalCostsTheSocket fails both times it is
// asked; the broker never hears of it.
func TestC23ATokenSourceThatFailsInARenewalCostsTheSocket(t *testing.T) {
	var calls atomic.Int64
	mech := plain.Plain(func(context.Context) (plain.Auth, error) {
		if n := calls.Add(1); n == 2 || n == 3 {
			return plain.Auth{}, errors.New("the token service is away")
		}
		return plain.Auth{User: "u", Pass: "p"}, nil
	})
	b := &guarded{offers: []string{"PLAIN"}, life: 10 * time.Second}
	inWorld(t, &Config{SASL: []sasl.Mechanism{mech}}, b.serve, func(t *testing.T, w *world) {
		ask(t, w.lane(General), "one")
		time.Sleep(9500 * time.Millisecond)
		ask(t, w.lane(General), "two")
		if w.b.accepted() != 2 || calls.Load() != 4 || b.logins.Load() != 2 {
			t.Errorf("%d sockets, %d tokens, %d logins", w.b.accepted(), calls.Load(), b.logins.Load())
		}
	})
}

// TestB067TheReasonOfAServerThatClosesHasItsAddress closes right behind the
// JSON that says why.
func TestB067TheReasonOfAServerThatClosesHasItsAddress(t *testing.T) {
	inWorld(t, &Config{SASL: []sasl.Mechanism{&replayed{name: "OAUTHBEARER", send: [][]byte{[]byte("x")}}}}, func(c *brokerConn) {
		c.hello()
		g, _ := c.next()
		c.answer(g, kmsg.NewPtrSASLHandshakeResponse())
		g, _ = c.next()
		r := kmsg.NewPtrSASLAuthenticateResponse()
		r.SASLAuthBytes = []byte(`{"status":"invalid_token"}`)
		c.answer(g, r)
	}, func(t *testing.T, w *world) {
		_, err := w.lane(General).Do(within(t, time.Minute), metadata("m"))
		var ae *kafka.AuthError
		if !errors.As(err, &ae) || ae.Addr != address || !strings.Contains(ae.Message, "invalid_token") {
			t.Errorf("%v", err)
		}
	})
}

// TestC8TheEndOfTheGroupEndsEveryLane has one with a request on its way and one
// that dials.
func TestC8TheEndOfTheGroupEndsEveryLane(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if c.n == 0 {
			c.hello()
		}
		c.silence()
	}, func(t *testing.T, w *world) {
		calls := []chan outcome{start(w.lane(General), metadata("m"))}
		time.Sleep(time.Second)
		calls = append(calls, start(w.lane(Fetch), metadata("m")))
		time.Sleep(time.Second)
		w.peer.tasks.Cancel(errTestOver)
		for i, ch := range calls {
			if o := await(t, ch); !errors.Is(o.err, errTestOver) {
				t.Errorf("%d: %v", i, o.err)
			}
		}
		if d := took(func() { w.peer.tasks.Wait() }); d >= fast {
			t.Errorf("the goroutines took %v to end", d)
		}
	})
}

// TestDoneIsNotCalledWithinSend sends with a lock held that Done takes.
func TestDoneIsNotCalledWithinSend(t *testing.T) {
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		for _, closed := range []bool{false, true} {
			if closed {
				w.peer.Close(errTestOver)
			}
			var mu sync.Mutex
			over := make(chan struct{})
			c := metadata("m")
			c.Done = func(kmsg.Response, error) {
				mu.Lock()
				close(over)
				mu.Unlock()
			}
			mu.Lock()
			w.lane(General).Send(c)
			mu.Unlock()
			<-over
		}
	})
}

// TestC38WhatWaitsBehindAnExpiredRequestGoesAgain has a request that may be
// repeated behind one whose answer never comes; and a write that takes too
// long, which is not begun again.
func TestC38WhatWaitsBehindAnExpiredRequestGoesAgain(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if c.n > 0 {
			c.echo()
			return
		}
		c.hello()
		c.silence()
	}, func(t *testing.T, w *world) {
		first, second := start(w.lane(General), metadata("first")), start(w.lane(General), metadata("second"))
		var te *kafka.TimeoutError
		if o := await30(t, first); !errors.As(o.err, &te) {
			t.Errorf("%v", o.err)
		}
		if o := await30(t, second); o.err != nil || markOf(o.resp) != "second" {
			t.Errorf("the one behind: %v", o.err)
		}
	})
	inWorld(t, nil, func(c *brokerConn) {
		if c.n > 0 {
			c.echo()
			return
		}
		c.hello()
		c.memConn().SetWindow(1 << 10)
		time.Sleep(time.Minute)
	}, func(t *testing.T, w *world) {
		_, err := w.lane(General).Do(within(t, 5*time.Minute), metadata(strings.Repeat("x", 30_000)))
		var te *kafka.TimeoutError
		time.Sleep(time.Minute)
		if !errors.As(err, &te) || te.Phase != kafka.PhaseWrite || w.b.accepted() != 1 {
			t.Errorf("%.200v, %d sockets", err, w.b.accepted())
		}
	})
}

// TestC8AnAnswerSetsTheIdleClock has clocks of an hour for the request, which
// are not needed any more.
func TestC8AnAnswerSetsTheIdleClock(t *testing.T) {
	inWorld(t, &Config{RequestTimeout: time.Hour}, (*brokerConn).echo, func(t *testing.T, w *world) {
		w.net.SetLatency(time.Second, time.Second)
		if _, err := w.peer.Versions(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := w.lane(General).Do(t.Context(), metadata("m")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3*time.Minute + fast)
		if w.peer.Open(General) {
			t.Error("open beyond the idle limit")
		}
	})
}

// TestC13TheTableIsKeptBeyondTheSocket asks for it on a new peer, on an open
// one, and without any socket.
func TestC13TheTableIsKeptBeyondTheSocket(t *testing.T) {
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		if _, ok := w.peer.KnownVersions(); ok {
			t.Error("a table out of nothing")
		}
		for range 2 {
			if v, err := w.peer.Versions(t.Context()); err != nil || !v.Known() {
				t.Errorf("%v", err)
			}
		}
		w.peer.Disconnect(errTestOver)
		if v, ok := w.peer.KnownVersions(); !ok || !v.Known() || w.b.accepted() != 1 {
			t.Errorf("known %v, %d sockets", ok, w.b.accepted())
		}
	})
}

// TestC61AnIdleLaneThatIsDrainedClosesAtOnce has nothing to wait for.
func TestC61AnIdleLaneThatIsDrainedClosesAtOnce(t *testing.T) {
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		ask(t, w.lane(General), "m")
		if st := w.lane(General).Stats(); st.State != Open || st.BytesIn == 0 {
			t.Errorf("%+v", st)
		}
		w.peer.Drain()
		time.Sleep(fast)
		if st := w.lane(General).Stats(); st.State != Closed || w.net.Open() != 0 {
			t.Errorf("%+v, %d connections", st, w.net.Open())
		}
	})
}

// TestC9EveryAddressTriedIsNamedWithItsReason has a name that the system
// resolves, and nobody there.
func TestC9EveryAddressTriedIsNamedWithItsReason(t *testing.T) {
	b := newBroker(t, (*brokerConn).echo)
	b.stop()
	_, port, _ := net.SplitHostPort(b.addr())
	_, err := newPeer(t, "localhost:"+port, &Config{}).Lane(General).Do(within(t, 10*time.Second), metadata("m"))
	var de *kafka.DialError
	if !errors.As(err, &de) || len(de.Tried) == 0 || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("%v", err)
	}
	for _, addr := range de.Tried {
		if host, _, _ := net.SplitHostPort(addr); net.ParseIP(host) == nil || !strings.Contains(err.Error(), addr) {
			t.Errorf("tried %q: %v", addr, err)
		}
	}
}
