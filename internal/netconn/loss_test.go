package netconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// TestC45WhatWasSentGoesAgainBeforeWhatWaits loses a socket with one request
// outstanding and two in the queue behind a throttle.
func TestC45WhatWasSentGoesAgainBeforeWhatWaits(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if c.n > 0 {
			c.echo()
			return
		}
		if !c.hello() {
			return
		}
		first, _ := c.next()
		c.next()
		resp := reply(first)
		resp.(kmsg.SetThrottleResponse).SetThrottle(10_000)
		c.answer(first, resp)
		time.Sleep(2 * time.Second)
	}, func(t *testing.T, w *world) {
		l := w.lane(General)
		calls := []chan outcome{start(l, metadata("0")), start(l, metadata("1"))}
		await(t, calls[0])
		calls = append(calls, start(l, metadata("2")), start(l, metadata("3")))
		for i, ch := range calls[1:] {
			if o := await(t, ch); o.err != nil || markOf(o.resp) != fmt.Sprint(i+1) {
				t.Errorf("%d: %v", i+1, o.err)
			}
		}
		for i, g := range w.b.requests(3)[2:] {
			if m := markOf(reply(g)); m != fmt.Sprint(i+1) {
				t.Errorf("on the new socket number %d is %s", i+1, m)
			}
		}
	})
}

// TestC53ACallThatIsUsedAgainGetsItsOwnAnswer gives a call up and sends it
// again while the first answer is still to come.
func TestC53ACallThatIsUsedAgainGetsItsOwnAnswer(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		for g, ok := c.next(); ok; g, ok = c.next() {
			time.Sleep(time.Second)
			c.answer(g, reply(g))
		}
	}, func(t *testing.T, w *world) {
		l := w.lane(General)
		ask(t, l, "open")
		c := metadata("first use")
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		c.Ctx = ctx
		if o := await(t, start(l, c)); !errors.Is(o.err, context.DeadlineExceeded) {
			t.Fatal(o.err)
		}
		c.Ctx, c.Req = nil, metadata("second use").Req
		o := await(t, start(l, c))
		if o.err != nil || markOf(o.resp) != "second use" {
			t.Errorf("the second use got %q, %v", markOf(o.resp), o.err)
		}
	})
}

// TestC8NoUseBeyondTheIdleLimit has a timer that is late, as after the machine
// slept: the limit holds without it.
func TestC8NoUseBeyondTheIdleLimit(t *testing.T) {
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		l := w.lane(General)
		ask(t, l, "one")
		l.mu.Lock()
		l.sock.alarm.timer.Stop()
		l.mu.Unlock()
		time.Sleep(3*time.Minute + time.Millisecond)
		ask(t, l, "two")
		if n := w.b.accepted(); n != 2 {
			t.Errorf("%d sockets: an idle one was used beyond its limit", n)
		}
	})
}

// TestB010ALossSeenByTheReaderWaitsForTheWriter has a broker that closes while
// a mutation is about to be written: not a byte of it left, so it is sent on a
// new socket. If a byte had left it would be Unknown.
func TestB010ALossSeenByTheReaderWaitsForTheWriter(t *testing.T) {
	for _, written := range []int{0, 10} {
		cfg := &Config{}
		inWorld(t, cfg, func(c *brokerConn) {
			if c.n > 0 {
				c.echo()
				return
			}
			c.hello()
			time.Sleep(time.Second)
		}, func(t *testing.T, w *world) {
			dial, n := cfg.Dial, 0
			cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dial(ctx, network, addr)
				if n++; n == 1 {
					return &stuckConn{Conn: c, writes: 1, written: written, closed: make(chan struct{})}, err
				}
				return c, err
			}
			_, err := w.lane(General).Do(within(t, time.Minute), NewCall(context.Background(), kmsg.NewPtrCreateTopicsRequest()))
			if (err == nil) != (written == 0) || err != nil && !kafka.MayHaveHappened(err) {
				t.Errorf("%d bytes written: %v", written, err)
			}
			var ce *kafka.ConnError
			if errors.As(err, &ce) && ce.Written != int64(written) {
				t.Errorf("%d bytes are said to be written, want %d", ce.Written, written)
			}
		})
	}
}

// stuckConn blocks in every write after the first few until it is closed, and
// then has written so many bytes.
type stuckConn struct {
	net.Conn
	writes, written int
	once            sync.Once
	closed          chan struct{}
}

func (c *stuckConn) Write(b []byte) (int, error) {
	if c.writes > 0 {
		c.writes--
		return c.Conn.Write(b)
	}
	<-c.closed
	return c.written, net.ErrClosed
}

func (c *stuckConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestC43CloseLeavesWhatWasWrittenInDoubt closes a lane with one request
// written and one still behind a dial. The mutation that it finds: the cause of
// Close, which says that nothing happened, as the outcome of both.
func TestC43CloseLeavesWhatWasWrittenInDoubt(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if c.n == 0 && c.hello() {
			c.silence()
		}
		c.silence()
	}, func(t *testing.T, w *world) {
		written := start(w.lane(General), NewCall(context.Background(), kmsg.NewPtrCreateTopicsRequest()))
		time.Sleep(time.Second)
		queued := start(w.lane(Produce), NewCall(context.Background(), kmsg.NewPtrProduceRequest()))
		time.Sleep(time.Second)
		why := &kafka.DialError{Addr: address, Err: net.ErrClosed} // any error that says that nothing happened
		w.peer.Close(why)
		if o := await(t, written); !errors.Is(o.err, net.ErrClosed) || !kafka.MayHaveHappened(o.err) {
			t.Errorf("written: %v, may have happened %v", o.err, kafka.MayHaveHappened(o.err))
		}
		if o := await(t, queued); !errors.Is(o.err, net.ErrClosed) || kafka.MayHaveHappened(o.err) {
			t.Errorf("not written: %v, may have happened %v", o.err, kafka.MayHaveHappened(o.err))
		}
	})
}

// TestC41AnAttemptThatWasWrittenIsNotForgotten loses a socket after a request
// was written to it; what ends the second attempt proves nothing about the
// first, which the broker may have carried out.
func TestC41AnAttemptThatWasWrittenIsNotForgotten(t *testing.T) {
	for name, end := range map[string]func(w *world, cancel func()){
		"the second dial is refused":       func(w *world, _ func()) { w.b.ln.Close() },
		"its context ends while it dials":  func(_ *world, cancel func()) { time.AfterFunc(time.Second, cancel) },
		"the client closes while it dials": func(w *world, _ func()) { time.AfterFunc(time.Second, func() { w.peer.Close(errTest) }) },
	} {
		t.Run(name, func(t *testing.T) {
			var w *world
			var cancel context.CancelFunc
			inWorld(t, nil, func(c *brokerConn) {
				if c.n == 0 && c.hello() {
					c.next()
					end(w, cancel)
					return
				}
				c.silence()
			}, func(t *testing.T, in *world) {
				var ctx context.Context
				ctx, cancel = context.WithCancel(context.Background())
				defer cancel()
				w = in
				_, err := w.lane(General).Do(ctx, metadata("m"))
				if err == nil || !kafka.MayHaveHappened(err) {
					t.Errorf("it was written once, and the error denies it: %v", err)
				}
				if n := len(w.b.requests(3)); n != 1 {
					t.Errorf("seen %d times", n)
				}
			})
		})
	}
}

var errTest error = notDoneError{}

type notDoneError struct{}

func (notDoneError) Error() string         { return "closed by the test" }
func (notDoneError) MayHaveHappened() bool { return false }
