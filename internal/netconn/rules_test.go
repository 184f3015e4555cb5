package netconn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// TestT1AStuckLaneDelaysNoOther also is K1 and C4: a throttle of 3 s, a dial
// of 2 s, a silent TLS peer, a window of zero and a parked Fetch, each on one
// lane, beside requests on the others.
func TestT1AStuckLaneDelaysNoOther(t *testing.T) {
	others := func(t *testing.T, w *world) {
		for _, k := range []Kind{General, Fetch, Coordinator, Join} {
			ask(t, w.lane(k), "open "+k.String())
		}
	}
	check := func(t *testing.T, w *world) {
		for range 20 {
			for _, k := range []Kind{General, Fetch, Coordinator, Join} {
				mustBeFast(t, w.lane(k), k.String())
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	t.Run("throttle", func(t *testing.T) {
		inWorld(t, nil, func(c *brokerConn) {
			if c.n < 4 {
				c.echo()
				return
			}
			throttling(3 * time.Second)(c)
		}, func(t *testing.T, w *world) {
			others(t, w)
			ask(t, w.lane(Produce), "throttled from here")
			held := start(w.lane(Produce), metadata("held"))
			check(t, w)
			if len(held) != 0 {
				t.Error("K2: a request went out while the lane was throttled")
			}
			await(t, held)
		})
	})
	t.Run("slow dial", func(t *testing.T) {
		var slow atomic.Bool
		cfg := &Config{}
		inWorld(t, cfg, (*brokerConn).echo, func(t *testing.T, w *world) {
			others(t, w)
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if slow.Load() {
					time.Sleep(2 * time.Second)
				}
				return dial(ctx, network, addr)
			}
			slow.Store(true)
			held := start(w.lane(Produce), metadata("held"))
			check(t, w)
			await(t, held)
		})
	})
	t.Run("silent broker", func(t *testing.T) {
		inWorld(t, nil, func(c *brokerConn) {
			if c.n < 4 {
				c.echo()
				return
			}
			c.silence()
		}, func(t *testing.T, w *world) {
			others(t, w)
			start(w.lane(Produce), metadata("held"))
			check(t, w)
		})
	})
	t.Run("zero window", func(t *testing.T) {
		inWorld(t, nil, func(c *brokerConn) {
			if c.n < 4 {
				c.echo()
				return
			}
			if c.hello() {
				c.memConn().SetWindow(0)
				time.Sleep(time.Minute)
			}
		}, func(t *testing.T, w *world) {
			others(t, w)
			start(w.lane(Produce), oneMiB())
			check(t, w)
			w.peer.Close(errTestOver)
			time.Sleep(time.Hour)
		})
	})
	t.Run("C4 parked fetch and join", func(t *testing.T) {
		inWorld(t, nil, func(c *brokerConn) {
			if !c.hello() {
				return
			}
			for g, ok := c.next(); ok; g, ok = c.next() {
				if g.Key == 1 || g.Key == 11 {
					time.Sleep(30 * time.Second)
				}
				c.answer(g, reply(g))
			}
		}, func(t *testing.T, w *world) {
			ask(t, w.lane(Coordinator), "open")
			fetch := kmsg.NewPtrFetchRequest()
			fetch.MaxWaitMillis = 30_000
			join := kmsg.NewPtrJoinGroupRequest()
			join.RebalanceTimeoutMillis = 60_000
			parked := []chan outcome{start(w.lane(Fetch), NewCall(context.Background(), fetch)), start(w.lane(Join), NewCall(context.Background(), join))}
			for range 10 {
				time.Sleep(time.Second)
				d := took(func() {
					if _, err := w.lane(Coordinator).Do(within(t, time.Minute), NewCall(context.Background(), kmsg.NewPtrHeartbeatRequest())); err != nil {
						t.Error(err)
					}
				})
				if d >= fast {
					t.Errorf("a heartbeat took %v", d)
				}
			}
			for _, ch := range parked {
				if o := await30(t, ch); o.err != nil {
					t.Error(o.err)
				}
			}
		})
	})
}

// TestK2AThrottledLaneIsSilentUntilTheLatestDeadline also is B031 but for
// Close, which has its own test: 5 s of throttle, a request timeout of 3 s, 5
// requests pipelined.
func TestK2AThrottledLaneIsSilentUntilTheLatestDeadline(t *testing.T) {
	var told atomic.Int64
	cfg := &Config{RequestTimeout: 3 * time.Second, Hooks: Hooks{Throttled: func(_ string, _ Kind, d time.Duration) { told.Add(int64(d)) }}}
	inWorld(t, cfg, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		for g, ok := c.next(); ok; g, ok = c.next() {
			resp := reply(g)
			resp.(kmsg.SetThrottleResponse).SetThrottle(5000)
			c.answer(g, resp)
			time.Sleep(5 * time.Second) // as a broker that mutes the socket
		}
	}, func(t *testing.T, w *world) {
		l := w.lane(General)
		var calls []chan outcome
		for i := range 5 {
			calls = append(calls, start(l, metadata(fmt.Sprint(i))))
		}
		for i, ch := range calls {
			if o := await30(t, ch); o.err != nil || markOf(o.resp) != fmt.Sprint(i) {
				t.Errorf("B031: request %d expired by the throttle: %v", i, o.err)
			}
		}
		if d := took(func() { ask30(t, l, "after") }); d < 5*time.Second-fast || d > 5*time.Second+fast {
			t.Errorf("sent %v into a throttle of 5 s", d)
		}
		if st := l.Stats(); st.Throttled != 30*time.Second || told.Load() != int64(st.Throttled) {
			t.Errorf("reported %v and %v of throttle", st.Throttled, time.Duration(told.Load()))
		}
		w.peer.Disconnect(io.EOF)
		if d := took(func() { ask30(t, l, "new socket") }); d >= fast {
			t.Errorf("a new socket was still throttled: %v", d)
		}
	})
}

// TestK2AThrottleBeyondTheIdleLimitIsKept has a throttle of five minutes and an
// idle limit of three: the socket that knows of the throttle stays.
func TestK2AThrottleBeyondTheIdleLimitIsKept(t *testing.T) {
	inWorld(t, nil, throttling(5*time.Minute), func(t *testing.T, w *world) {
		l := w.lane(General)
		ask(t, l, "throttled from here")
		began := time.Now()
		if resp, err := l.Do(within(t, 10*time.Minute), metadata("after")); err != nil || markOf(resp) != "after" {
			t.Fatal(err)
		}
		if d := time.Since(began); d < 5*time.Minute-fast || w.b.accepted() != 1 {
			t.Errorf("sent %v into a throttle of 5 min, on %d sockets", d, w.b.accepted())
		}
		time.Sleep(8*time.Minute + fast)
		if w.peer.Open(General) {
			t.Error("C8: idle for 3 min after the end of the throttle, and open")
		}
	})
}

func await30(t *testing.T, ch chan outcome) outcome {
	t.Helper()
	select {
	case o := <-ch:
		return o
	case <-time.After(time.Minute):
		t.Fatal("not over")
		return outcome{}
	}
}

func ask30(t *testing.T, l *Lane, mark string) {
	t.Helper()
	if resp, err := l.Do(within(t, time.Minute), metadata(mark)); err != nil || markOf(resp) != mark {
		t.Errorf("%s: %v", mark, err)
	}
}

// TestC38R27ARequestPastItsClockClosesTheSocket also is B007, R27 and C42: its
// late answer reaches nobody, and it is not sent again.
func TestC38R27ARequestPastItsClockClosesTheSocket(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if c.n > 0 {
			c.echo()
			return
		}
		if c.hello() {
			g, _ := c.next()
			time.Sleep(31 * time.Second)
			c.answer(g, reply(g))
		}
	}, func(t *testing.T, w *world) {
		l := w.lane(General)
		var err error
		d := took(func() { _, err = l.Do(context.Background(), metadata("late")) })
		var te *kafka.TimeoutError
		if !errors.As(err, &te) || te.Name != "Metadata" || te.Addr != address || te.Phase != kafka.PhaseAnswer || te.After < 30*time.Second {
			t.Errorf("%#v", err)
		}
		if d < 30*time.Second || d > 30*time.Second+fast {
			t.Errorf("after %v", d)
		}
		time.Sleep(500 * time.Millisecond)
		ask(t, l, "mine")
		time.Sleep(2 * time.Second)
		ask(t, l, "mine too")
		if n, seen := w.b.accepted(), len(w.b.requests(3)); n != 2 || seen != 3 {
			t.Errorf("%d sockets, %d requests", n, seen)
		}
	})
}

// TestC53R27TheAnswerOfAnAbandonedRequestIsDropped also is B007: the bodies parse
// as each other (R27).
func TestC53R27TheAnswerOfAnAbandonedRequestIsDropped(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		for g, ok := c.next(); ok; g, ok = c.next() {
			time.Sleep(300 * time.Millisecond)
			c.answer(g, reply(g))
		}
	}, func(t *testing.T, w *world) {
		l := w.lane(General)
		for i := range 5 {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			if _, err := l.Do(ctx, metadata("given up")); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
			if i == 0 && l.Stats().InFlight == 0 && l.Stats().State == Open {
				t.Error("C30: an abandoned request is not counted as outstanding")
			}
			ask(t, l, fmt.Sprint("mine", i))
		}
		if n := w.b.accepted(); n != 1 {
			t.Errorf("%d sockets", n)
		}
	})
}

// TestC53WithoutAnAnswerTheSocketCloses holds the clock of an abandoned
// request.
func TestC53WithoutAnAnswerTheSocketCloses(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if c.hello() {
			c.silence()
		}
	}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		w.lane(General).Do(ctx, metadata("given up"))
		time.Sleep(28 * time.Second)
		if !w.peer.Open(General) {
			t.Error("closed before the clock ran out")
		}
		time.Sleep(2 * time.Second)
		if w.peer.Open(General) {
			t.Error("open although the answer never came")
		}
	})
}

func TestC40ALongPollOutlivesTheRequestTimeout(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		for g, ok := c.next(); ok; g, ok = c.next() {
			time.Sleep(55 * time.Second)
			c.answer(g, reply(g))
		}
	}, func(t *testing.T, w *world) {
		join := kmsg.NewPtrJoinGroupRequest()
		join.RebalanceTimeoutMillis = 60_000
		fetch := kmsg.NewPtrFetchRequest()
		fetch.MaxWaitMillis = 30_000
		topics := kmsg.NewPtrCreateTopicsRequest()
		topics.TimeoutMillis = 40_000
		for k, req := range map[Kind]kmsg.Request{Join: join, Fetch: fetch, General: topics, Coordinator: kmsg.NewPtrSyncGroupRequest()} {
			if _, err := w.lane(k).Do(context.Background(), NewCall(context.Background(), req)); err != nil {
				t.Errorf("%s: %v", k, err)
			}
		}
		if n := w.b.accepted(); n != 4 {
			t.Errorf("%d sockets", n)
		}
		old := kmsg.NewPtrJoinGroupRequest() // as in version 0, which has no rebalance timeout
		old.RebalanceTimeoutMillis, old.SessionTimeoutMillis = -1, 45_000
		if _, err := w.lane(Join).Do(context.Background(), NewCall(context.Background(), old)); err != nil {
			t.Errorf("a join without rebalance timeout: %v", err)
		}
		c := metadata("own wait")
		c.Wait = 30 * time.Second
		if _, err := w.lane(Produce).Do(context.Background(), c); err != nil {
			t.Errorf("a call's own wait: %v", err)
		}
		c = metadata("own timeout")
		c.Timeout = 5 * time.Second
		if d := took(func() { w.lane(Produce).Do(context.Background(), c) }); d > 5*time.Second+fast {
			t.Errorf("C37: a call's own timeout of 5 s took %v", d)
		}
	})
}

// TestC45OutstandingRequestsEndAtOnce has five mutations and five repeatable
// requests outstanding on a socket that closes: the first end Unknown, the
// others go once more, in their order.
func TestC45OutstandingRequestsEndAtOnce(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if c.n > 0 {
			c.echo()
			return
		}
		if c.hello() {
			for range 10 {
				c.next()
			}
		}
	}, func(t *testing.T, w *world) {
		l := w.lane(General)
		var mutations, safe []chan outcome
		for i := range 5 {
			mutations = append(mutations, start(l, NewCall(context.Background(), kmsg.NewPtrDeleteTopicsRequest())))
			safe = append(safe, start(l, metadata(fmt.Sprint(i))))
		}
		for i := range 5 {
			o := await(t, mutations[i])
			var ce *kafka.ConnError
			if !errors.As(o.err, &ce) || ce.Lane != "general" || ce.Written == 0 || !errors.Is(o.err, io.EOF) || !kafka.MayHaveHappened(o.err) {
				t.Errorf("mutation %d: %v", i, o.err)
			} else if ce.First != (i == 0) {
				t.Errorf("C35: mutation %d is the first: %v", i, ce.First)
			}
			if o := await(t, safe[i]); o.err != nil || markOf(o.resp) != fmt.Sprint(i) {
				t.Errorf("metadata %d: %q %v", i, markOf(o.resp), o.err)
			}
		}
		if n := len(w.b.requests(20)); n != 5 {
			t.Errorf("C43: DeleteTopics was seen %d times", n)
		}
		again := w.b.requests(3)[5:]
		for i, g := range again {
			if m := markOf(reply(g)); m != fmt.Sprint(i) {
				t.Errorf("sent again in the order %d: %s", i, m)
			}
		}
		if st := l.Stats(); st.Retries != 5 {
			t.Errorf("%d retries", st.Retries)
		}
	})
}

// TestC41ASecondLossIsReturned has a broker that closes on every Metadata.
func TestC41ASecondLossIsReturned(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if c.hello() {
			c.next()
		}
	}, func(t *testing.T, w *world) {
		_, err := w.lane(General).Do(context.Background(), metadata("m"))
		var ce *kafka.ConnError
		if !errors.As(err, &ce) || !errors.Is(err, io.EOF) {
			t.Errorf("%v", err)
		}
		if n, seen := w.b.accepted(), len(w.b.requests(3)); n != 2 || seen != 2 {
			t.Errorf("%d sockets, seen %d times", n, seen)
		}
		c := metadata("collect")
		c.NoRedial = true
		w.lane(General).Do(context.Background(), c)
		if n := len(w.b.requests(3)); n != 3 {
			t.Errorf("C51: a call without redial was seen %d times", n-2)
		}
	})
}

// TestC35TheEndOfAStreamSaysHowFarItGot has three positions: before the first
// answer, inside of one, and between two.
func TestC35TheEndOfAStreamSaysHowFarItGot(t *testing.T) {
	for name, c := range map[string]struct {
		read  int64
		first bool
		serve func(c *brokerConn)
	}{
		"first answer": {0, true, func(c *brokerConn) { c.next() }},
		"inside of an answer": {7, true, func(c *brokerConn) {
			g, _ := c.next()
			c.Write(frameOf(g, reply(g))[:7])
		}},
		"second answer": {0, false, func(c *brokerConn) {
			g, _ := c.next()
			c.answer(g, reply(g))
			c.next()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(bc *brokerConn) {
				if bc.hello() {
					c.serve(bc)
				}
			}, func(t *testing.T, w *world) {
				if !c.first {
					ask(t, w.lane(General), "one")
				}
				call := metadata("m")
				call.NoRedial = true
				_, err := w.lane(General).Do(context.Background(), call)
				var ce *kafka.ConnError
				if !errors.As(err, &ce) || ce.Err != io.EOF || ce.Read != c.read || ce.First != c.first || ce.Written < 20 || ce.Name != "Metadata" {
					t.Errorf("%+v", err)
				}
			})
		})
	}
}

// TestC35TheBytesReadAreThoseOfTheAnswerThatWasCut has two requests behind it.
func TestC35TheBytesReadAreThoseOfTheAnswerThatWasCut(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		g, _ := c.next()
		c.next()
		c.next()
		c.Write(frameOf(g, reply(g))[:9])
	}, func(t *testing.T, w *world) {
		var calls []chan outcome
		for range 3 {
			calls = append(calls, start(w.lane(General), NewCall(context.Background(), kmsg.NewPtrDeleteTopicsRequest())))
		}
		for i, ch := range calls {
			o := await(t, ch)
			var ce *kafka.ConnError
			if !errors.As(o.err, &ce) || ce.Read != []int64{9, 0, 0}[i] || ce.Written == 0 {
				t.Errorf("%d: %v", i, o.err)
			}
		}
	})
}

// TestC35TheBytesOfAnAbandonedAnswerAreNobodys has the oldest request given up.
func TestC35TheBytesOfAnAbandonedAnswerAreNobodys(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		g, _ := c.next()
		c.next()
		time.Sleep(2 * time.Second)
		c.Write(frameOf(g, reply(g))[:9])
	}, func(t *testing.T, w *world) {
		l := w.lane(General)
		given := NewCall(within(t, time.Second), kmsg.NewPtrDeleteTopicsRequest())
		start(l, given)
		o := await(t, start(l, NewCall(context.Background(), kmsg.NewPtrDeleteTopicsRequest())))
		var ce *kafka.ConnError
		if !errors.As(o.err, &ce) || ce.Read != 0 {
			t.Errorf("%v", o.err)
		}
	})
}

func TestC46LosingOneLaneTouchesNoOther(t *testing.T) {
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		for k := range Kind(kinds) {
			ask(t, w.lane(k), "open")
		}
		for k := range Kind(kinds) {
			w.b.mu.Lock()
			w.b.conns[k].Close() // lane k was dialled as number k
			w.b.mu.Unlock()
			time.Sleep(time.Second)
			for o := range Kind(kinds) {
				if w.peer.Open(o) != (o > k) && o >= k {
					t.Errorf("lane %s lost: %s is open: %v", k, o, w.peer.Open(o))
				}
			}
		}
	})
}

// TestC8IdleSocketsAreReaped dials anew at the idle limit + 1 ms, and closes
// at the limit by itself.
func TestC8IdleSocketsAreReaped(t *testing.T) {
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		l := w.lane(General)
		ask(t, l, "one")
		time.Sleep(3*time.Minute - 20*time.Millisecond)
		ask(t, l, "two")
		if n := w.b.accepted(); n != 1 {
			t.Fatalf("%d sockets before the limit", n)
		}
		time.Sleep(3*time.Minute + time.Millisecond)
		if w.peer.Open(General) {
			t.Error("open beyond the limit")
		}
		ask(t, l, "three")
		if n := w.b.accepted(); n != 2 {
			t.Errorf("%d sockets after the limit", n)
		}
	})
}

// TestB010ABrokerClosesIdleSockets has a broker that closes after 1 s.
func TestB010ABrokerClosesIdleSockets(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		for {
			c.SetReadDeadline(time.Now().Add(time.Second))
			g, ok := c.next()
			if !ok || !c.answer(g, reply(g)) {
				return
			}
		}
	}, func(t *testing.T, w *world) {
		l := w.lane(General)
		for i, pause := range []time.Duration{0, 1100 * time.Millisecond, time.Second, 1000500 * time.Microsecond} {
			time.Sleep(pause)
			ask(t, l, fmt.Sprint(i))
		}
		time.Sleep(2 * time.Second)
		if w.peer.Open(General) {
			t.Error("a dead socket stayed in the pool")
		}
		if _, err := l.Do(context.Background(), NewCall(context.Background(), kmsg.NewPtrCreateTopicsRequest())); err != nil {
			t.Errorf("a mutation after the broker closed: %v", err)
		}
	})
}

// TestB011ALossBeforeTheFirstByteIsNoAttempt resets the socket right after the
// handshake, five times; the request is one that may not be repeated.
func TestB011ALossBeforeTheFirstByteIsNoAttempt(t *testing.T) {
	cfg := &Config{}
	inWorld(t, cfg, (*brokerConn).echo, func(t *testing.T, w *world) {
		dial, n := cfg.Dial, 0
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if n++; err == nil && n <= 5 {
				return &failingConn{Conn: c, writes: 1}, nil
			}
			return c, err
		}
		_, err := w.lane(General).Do(within(t, time.Minute), NewCall(context.Background(), kmsg.NewPtrCreateTopicsRequest()))
		if err != nil {
			t.Errorf("%v", err)
		}
		if seen := len(w.b.requests(19)); seen != 1 || w.b.accepted() != 6 {
			t.Errorf("seen %d times on %d sockets", seen, w.b.accepted())
		}
		if st := w.lane(General).Stats(); st.Retries != 0 {
			t.Errorf("%d retries were counted", st.Retries)
		}
	})
}

// failingConn fails every write after the first few, before a byte is out.
type failingConn struct {
	net.Conn
	writes int
}

func (c *failingConn) Write(b []byte) (int, error) {
	if c.writes == 0 {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: errors.New("broken pipe")}
	}
	c.writes--
	return c.Conn.Write(b)
}

// TestB032OneWayRequestsWaitForNothing is acks 0: silence, an answer all the
// same, and a broker that is not there.
func TestB032OneWayRequestsWaitForNothing(t *testing.T) {
	produce := func() *Call {
		c := oneMiB()
		c.Req.(*kmsg.ProduceRequest).Acks = 0
		c.Req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records = []byte("x")
		c.OneWay = true
		return c
	}
	for _, answers := range []bool{false, true} {
		inWorld(t, nil, func(c *brokerConn) {
			if !c.hello() {
				return
			}
			for g, ok := c.next(); ok; g, ok = c.next() {
				if g.Key != 0 || answers {
					c.answer(g, reply(g))
				}
			}
		}, func(t *testing.T, w *world) {
			l := w.lane(Produce)
			for i := range 10 {
				if resp, err := l.Do(context.Background(), produce()); resp != nil || err != nil {
					t.Errorf("answers %v: %v %v", answers, resp, err)
				}
				if i%3 == 0 {
					ask(t, l, fmt.Sprint(i))
				}
			}
			if n := w.b.accepted(); n != 1 || len(w.b.requests(0)) != 10 {
				t.Errorf("answers %v: %d sockets", answers, n)
			}
		})
	}
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		w.b.ln.Close()
		o := await(t, start(w.lane(Produce), produce()))
		if o.err == nil || kafka.MayHaveHappened(o.err) {
			t.Errorf("broker gone: %v", o.err)
		}
	})
}

// TestK4AMissingLaneIsDialledOnce has ten callers at once, one of which gives
// up, and then callers that all give up.
func TestK4AMissingLaneIsDialledOnce(t *testing.T) {
	cfg := &Config{}
	inWorld(t, cfg, (*brokerConn).echo, func(t *testing.T, w *world) {
		dial := cfg.Dial
		var ended atomic.Int64
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			select {
			case <-time.After(2 * time.Second):
				return dial(ctx, network, addr)
			case <-ctx.Done():
				ended.Add(1)
				return nil, context.Cause(ctx)
			}
		}
		l := w.lane(General)
		first := metadata("first")
		ctx, cancel := context.WithCancel(context.Background())
		first.Ctx = ctx
		gone := start(l, first)
		var rest []chan outcome
		for i := range 9 {
			rest = append(rest, start(l, metadata(fmt.Sprint(i))))
		}
		time.Sleep(time.Second)
		cancel()
		if o := await(t, gone); !errors.Is(o.err, context.Canceled) {
			t.Errorf("the one that gave up: %v", o.err)
		}
		for _, ch := range rest {
			if o := await(t, ch); o.err != nil {
				t.Errorf("one of the others: %v", o.err)
			}
		}
		if n := w.b.accepted(); n != 1 || ended.Load() != 0 {
			t.Errorf("%d sockets, %d dials ended", n, ended.Load())
		}
		only := metadata("only")
		only.Ctx, cancel = context.WithCancel(context.Background())
		start(w.lane(Fetch), only)
		time.Sleep(time.Second)
		cancel()
		time.Sleep(fast)
		synctest.Wait()
		if ended.Load() != 1 || w.lane(Fetch).Stats().State != Closed {
			t.Errorf("a dial that nobody waits for goes on: %+v", w.lane(Fetch).Stats())
		}
	})
}

func TestC6StatesAndCountsAreExact(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		time.Sleep(time.Second)
		if !c.hello() {
			return
		}
		for g, ok := c.next(); ok; g, ok = c.next() {
			time.Sleep(time.Second)
			c.answer(g, reply(g))
		}
	}, func(t *testing.T, w *world) {
		check := func(step string, state State, queued, inFlight int) {
			t.Helper()
			synctest.Wait()
			for _, k := range []Kind{Produce, Coordinator} {
				st := w.lane(k).Stats()
				if st.State != state || st.Queued != queued || st.InFlight != inFlight || st.Kind != k || st.Addr != address {
					t.Errorf("%s: %+v", step, st)
				}
			}
		}
		both := func(f func(l *Lane)) { f(w.lane(Produce)); f(w.lane(Coordinator)) }
		check("at first", Closed, 0, 0)
		both(func(l *Lane) { start(l, metadata("1")); start(l, metadata("2")) })
		check("dialling", Dialling, 2, 0)
		time.Sleep(1500 * time.Millisecond)
		check("written", Open, 0, 2)
		time.Sleep(time.Second)
		check("one answered", Open, 0, 1)
		w.peer.Drain()
		check("draining", Draining, 0, 1)
		time.Sleep(time.Second)
		check("drained", Closed, 0, 0)
		if n := len(w.peer.Stats()); n != 2 {
			t.Errorf("stats of %d lanes", n)
		}
		st := w.lane(Produce).Stats()
		if st.Dials != 1 || st.Requests != 2 || st.BytesOut == 0 || st.BytesIn == 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestC26NothingIsWrittenWithoutAVersion also is C25 and C42 at the socket.
func TestC26NothingIsWrittenWithoutAVersion(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		g, ok := c.next()
		if !ok {
			return
		}
		resp := table()
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MaxVersion: 5}, {ApiKey: 3, MinVersion: 4, MaxVersion: 9}}
		c.answer(g, resp)
		for g, ok := c.next(); ok; g, ok = c.next() {
			c.answer(g, reply(g))
		}
	}, func(t *testing.T, w *world) {
		l := w.lane(General)
		_, err := l.Do(context.Background(), NewCall(context.Background(), kmsg.NewPtrCreateTopicsRequest()))
		var ve *kafka.VersionError
		if !errors.As(err, &ve) || ve.Addr != address || ve.BrokerMax != -1 || ve.Name != "CreateTopics" {
			t.Errorf("%v", err)
		}
		c := metadata("m")
		c.Min, c.Max = 10, 12
		if _, err = l.Do(context.Background(), c); !errors.As(err, &ve) || ve.BrokerMin != 4 || ve.BrokerMax != 9 {
			t.Errorf("%v", err)
		}
		if n := len(w.b.requests(-1)); n != 1 {
			t.Errorf("the broker saw %d requests", n)
		}
		ask(t, l, "the socket is still good")
		if n := w.b.accepted(); n != 1 || w.b.requests(3)[0].Version != 9 {
			t.Errorf("%d sockets, version %d", n, w.b.requests(3)[0].Version)
		}
		if v, err := w.peer.Versions(context.Background()); err != nil || !v.Known() {
			t.Errorf("versions: %v", err)
		}
	})
}

// TestC49OpenOnlyNeverDials is a collect on existing sockets.
func TestC49OpenOnlyNeverDials(t *testing.T) {
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		c := metadata("m")
		c.OpenOnly = true
		if _, err := w.lane(General).Do(context.Background(), c); !errors.Is(err, errNotConnected) || kafka.MayHaveHappened(err) {
			t.Errorf("%v", err)
		}
		ask(t, w.lane(Fetch), "open")
		if _, err := w.lane(Fetch).Do(context.Background(), c); err != nil {
			t.Errorf("%v", err)
		}
		if n := w.b.accepted(); n != 1 {
			t.Errorf("%d sockets", n)
		}
	})
}

// TestC32ABadFrameEndsTheSocketABadBodyDoesNot also is B008 and B002 at the
// socket: everything in flight fails at once, and the next request dials.
func TestC32ABadFrameEndsTheSocketABadBodyDoesNot(t *testing.T) {
	frame := func(prefix uint32, rest ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, prefix), rest...)
	}
	for name, raw := range map[string]func(g gotRequest) []byte{
		"other id":      func(g gotRequest) []byte { g.ID++; return frameOf(g, reply(g)) },
		"unknown id":    func(g gotRequest) []byte { g.ID = 999; return frameOf(g, reply(g)) },
		"oversized":     func(gotRequest) []byte { return frame(0x7fffffff, 0, 0, 0, 1) },
		"negative":      func(gotRequest) []byte { return frame(0xffffffff) },
		"too short":     func(gotRequest) []byte { return frame(3, 0, 0, 0) },
		"empty":         func(gotRequest) []byte { return frame(0) },
		"limit and one": func(gotRequest) []byte { return frame(100<<20 + 1) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(c *brokerConn) {
				if c.n > 0 {
					c.echo()
					return
				}
				if c.hello() {
					g, _ := c.next()
					c.next()
					c.Write(raw(g))
					c.silence()
				}
			}, func(t *testing.T, w *world) {
				l := w.lane(General)
				a, b := start(l, metadata("a")), start(l, metadata("b"))
				for _, ch := range []chan outcome{a, b} {
					o := await(t, ch)
					var pe *kafka.ProtocolError
					if !errors.As(o.err, &pe) || pe.Addr != address || len(pe.First) == 0 || !kafka.MayHaveHappened(o.err) {
						t.Errorf("%v", o.err)
					}
				}
				mustBeFast(t, l, "afresh")
			})
		})
	}
	t.Run("undecodable body", func(t *testing.T) {
		inWorld(t, nil, func(c *brokerConn) {
			if !c.hello() {
				return
			}
			for g, ok := c.next(); ok; g, ok = c.next() {
				raw := frameOf(g, reply(g))
				if markOf(reply(g)) == "bad" {
					raw = raw[:12]
					binary.BigEndian.PutUint32(raw, 8)
				}
				c.Write(raw)
			}
		}, func(t *testing.T, w *world) {
			l := w.lane(General)
			bad, good := start(l, metadata("bad")), start(l, metadata("good"))
			var pe *kafka.ProtocolError
			if o := await(t, bad); !errors.As(o.err, &pe) || pe.Addr != address || o.resp != nil {
				t.Errorf("%v", o.err)
			}
			if o := await(t, good); o.err != nil || markOf(o.resp) != "good" {
				t.Errorf("%v", o.err)
			}
			if n := w.b.accepted(); n != 1 {
				t.Errorf("%d sockets", n)
			}
		})
	})
}

// TestC29MixedTrafficEachAnswerIsTheCallersOwn has 10^5 requests of 200
// goroutines with random delays, cancels and decode failures; C5 under the race
// detector.
func TestC29MixedTrafficEachAnswerIsTheCallersOwn(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		rng := rand.New(rand.NewPCG(3, uint64(c.n)))
		for g, ok := c.next(); ok; g, ok = c.next() {
			if rng.IntN(50) == 0 {
				time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
			}
			raw := frameOf(g, reply(g))
			if g.Key == 3 && rng.IntN(40) == 0 {
				raw = append(binary.BigEndian.AppendUint32(nil, 6), raw[4:10]...)
			}
			if _, err := c.Write(raw); err != nil {
				return
			}
		}
	}, func(t *testing.T, w *world) {
		done := make(chan [2]int)
		workers, each := 200, 500
		if raced {
			each = 50 // 10^4 requests in all, so that the race detector takes seconds
		}
		for g := range workers {
			go func() {
				rng := rand.New(rand.NewPCG(9, uint64(g)))
				var good, bad int
				for i := range each {
					mark := fmt.Sprintf("%d-%d", g, i)
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(200))*time.Millisecond)
					resp, err := w.lane(Kind(rng.IntN(kinds))).Do(ctx, metadata(mark))
					cancel()
					if err == nil && markOf(resp) != mark {
						t.Errorf("%s got the answer of %q", mark, markOf(resp))
					}
					if err == nil {
						good++
					} else {
						bad++
					}
				}
				done <- [2]int{good, bad}
			}()
		}
		var good, bad int
		for range workers {
			n := <-done
			good, bad = good+n[0], bad+n[1]
		}
		if good < workers*each/2 || bad == 0 {
			t.Errorf("%d good, %d bad: the test does not mix", good, bad)
		}
		if n := w.b.accepted(); n != kinds {
			t.Errorf("%d sockets", n)
		}
	})
}

func TestC7NagleIsOffOnACustomDialersConnection(t *testing.T) {
	cfg := &Config{}
	inWorld(t, cfg, (*brokerConn).echo, func(t *testing.T, w *world) {
		var asked atomic.Bool
		dial := cfg.Dial
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			return &delayConn{Conn: c, asked: &asked}, err
		}
		ask(t, w.lane(General), "m")
		if !asked.Load() {
			t.Error("SetNoDelay(true) of the wrapper was not called")
		}
	})
}

type delayConn struct {
	net.Conn
	asked *atomic.Bool
}

func (c *delayConn) SetNoDelay(on bool) error {
	c.asked.Store(on)
	return nil
}
