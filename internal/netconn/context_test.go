package netconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/ottla/ottla/kafka"
)

// oneMiB is a request whose frame does not fit into the network's window.
func oneMiB() *Call {
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "t"
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = make([]byte, 1<<20)
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	c := NewCall(context.Background(), req)
	c.Max = 12
	return c
}

// stuck is a way to get stuck, with the phase that a call is then in.
type stuck struct {
	name  string
	phase kafka.Phase
	cfg   func() *Config
	serve func(c *brokerConn)
	hole  bool // the address swallows packets
	call  func() *Call
	after func(t *testing.T, w *world) // before the call
}

func stucks() []stuck {
	plainMech := []sasl.Mechanism{plain.Auth{User: "u", Pass: "p"}.AsMechanism()}
	silent := func(c *brokerConn) { c.silence() }
	return []stuck{
		{name: "dial", phase: kafka.PhaseDial, hole: true},
		{name: "dialer that ignores its context", phase: kafka.PhaseDial, cfg: func() *Config {
			return &Config{Dial: func(context.Context, string, string) (net.Conn, error) {
				time.Sleep(time.Minute)
				return nil, errors.New("too late")
			}}
		}},
		{name: "TLS", phase: kafka.PhaseDial, serve: silent, cfg: func() *Config { return &Config{TLS: &tls.Config{}} }},
		{name: "ApiVersions", phase: kafka.PhaseHandshake, serve: silent},
		{name: "SASL", phase: kafka.PhaseHandshake, cfg: func() *Config { return &Config{SASL: plainMech} }, serve: func(c *brokerConn) {
			if c.hello() {
				c.silence()
			}
		}},
		{name: "mechanism that ignores its context", phase: kafka.PhaseHandshake, cfg: func() *Config {
			return &Config{SASL: []sasl.Mechanism{plain.Plain(func(context.Context) (plain.Auth, error) {
				time.Sleep(time.Minute)
				return plain.Auth{}, errors.New("too late")
			})}}
		}, serve: func(c *brokerConn) {
			if c.hello() {
				g, _ := c.next()
				c.answer(g, kmsg.NewPtrSASLHandshakeResponse())
				c.silence()
			}
		}},
		{name: "write", phase: kafka.PhaseWrite, call: oneMiB, serve: func(c *brokerConn) {
			if c.hello() {
				time.Sleep(time.Hour) // does not read
			}
		}},
		{name: "queue behind a write", phase: kafka.PhaseQueue, serve: func(c *brokerConn) {
			if c.hello() {
				time.Sleep(time.Hour)
			}
		}, after: func(t *testing.T, w *world) {
			start(w.lane(General), oneMiB())
			time.Sleep(time.Second)
		}},
		{name: "queue behind a throttle", phase: kafka.PhaseQueue, serve: throttling(time.Minute), after: func(t *testing.T, w *world) {
			ask(t, w.lane(General), "throttled from here")
		}},
		{name: "answer", phase: kafka.PhaseAnswer, serve: func(c *brokerConn) {
			if c.hello() {
				c.silence()
			}
		}},
	}
}

// throttling answers every request with a throttle.
func throttling(d time.Duration) func(c *brokerConn) {
	return func(c *brokerConn) {
		if !c.hello() {
			return
		}
		for g, ok := c.next(); ok; g, ok = c.next() {
			resp := reply(g)
			resp.(kmsg.SetThrottleResponse).SetThrottle(int32(d.Milliseconds()))
			if !c.answer(g, resp) {
				return
			}
		}
	}
}

// run plays the case and calls f with a call that is about to get stuck.
func (s stuck) run(t *testing.T, f func(t *testing.T, w *world, c *Call)) {
	t.Run(s.name, func(t *testing.T) {
		cfg := &Config{}
		if s.cfg != nil {
			cfg = s.cfg()
		}
		serve := s.serve
		if serve == nil {
			serve = (*brokerConn).echo
		}
		inWorld(t, cfg, serve, func(t *testing.T, w *world) {
			if s.hole {
				w.net.BlackHole(address, true)
			}
			if s.after != nil {
				s.after(t, w)
			}
			c := metadata("m")
			if s.call != nil {
				c = s.call()
			}
			f(t, w, c)
			w.peer.Close(errTestOver)
			time.Sleep(2 * time.Hour) // dialers, mechanisms and brokers that sleep end
		})
	})
}

// TestT12EveryCallReturnsWhenItsContextEnds holds K5 and C53's first half too:
// in every phase, by Do and by Send, by a cancel and by a deadline.
func TestT12EveryCallReturnsWhenItsContextEnds(t *testing.T) {
	for _, s := range stucks() {
		s.run(t, func(t *testing.T, w *world, c *Call) {
			cause := errors.New("the user pressed a key")
			ctx, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(2*time.Second, func() { cancel(cause) })
			var err error
			if d := took(func() { _, err = w.lane(General).Do(ctx, c) }); d < 2*time.Second || d >= 2*time.Second+fast {
				t.Errorf("Do returned after %v", d)
			}
			checkEnded(t, "Do", err, cause, s.phase)

			sent := metadata("sent")
			sent.Ctx, cancel = context.WithCancelCause(context.Background())
			got := start(w.lane(General), sent)
			time.Sleep(time.Second)
			if len(got) > 0 {
				t.Fatal("Done before the context ended")
			}
			cancel(cause)
			time.Sleep(fast)
			synctest.Wait()
			if len(got) != 1 {
				t.Fatalf("Done was called %d times within 10 ms", len(got))
			}
			if o := <-got; !errors.Is(o.err, cause) {
				t.Errorf("Send: %v", o.err)
			}
		})
	}
}

// TestK5NothingIsWrittenOnceTheContextEnded sends on an open socket with
// contexts that are over: at once, and at the very instant at which a throttle
// lets the lane speak again.
func TestK5NothingIsWrittenOnceTheContextEnded(t *testing.T) {
	notSent := func(t *testing.T, what string, err error) {
		t.Helper()
		var te *kafka.TimeoutError
		if !errors.As(err, &te) || te.Phase != kafka.PhaseQueue || kafka.MayHaveHappened(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		l := w.lane(General)
		ask(t, l, "open")
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for range 200 {
			c := NewCall(ctx, kmsg.NewPtrCreateTopicsRequest())
			notSent(t, "Send", await(t, start(l, c)).err)
			_, err := l.Do(ctx, c)
			notSent(t, "Do", err)
		}
		if n := len(w.b.requests(19)); n != 0 {
			t.Errorf("%d requests were written for callers that had given up", n)
		}
	})
	inWorld(t, nil, throttling(5*time.Second), func(t *testing.T, w *world) {
		l := w.lane(General)
		ask(t, l, "throttled from here")
		c := NewCall(ended{context.Background()}, kmsg.NewPtrCreateTopicsRequest())
		notSent(t, "over when it is its turn", await(t, start(l, c)).err)
		if n := len(w.b.requests(19)); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// ended is over without having told anybody yet.
type ended struct{ context.Context }

func (ended) Err() error { return context.Canceled }

// TestK5ACallIsOverOnce has contexts that end after the answer, and one that
// never does: Done is called once, and the context keeps nothing of a call that
// is over.
func TestK5ACallIsOverOnce(t *testing.T) {
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		l := w.lane(General)
		parent, cancel := context.WithCancel(context.Background())
		watched := &watchedContext{Context: parent, done: make(chan struct{})}
		var over []chan outcome
		for i := range 10 {
			c := metadata(fmt.Sprint(i))
			c.Ctx = watched
			over = append(over, start(l, c))
			if o := await(t, over[i]); o.err != nil || markOf(o.resp) != fmt.Sprint(i) {
				t.Errorf("%d: %v", i, o.err)
			}
		}
		time.Sleep(fast)
		if n, all := watched.held.Load(), watched.all.Load(); n != 0 || all != 10 {
			t.Errorf("the context still holds %d of %d calls, and all are over", n, all)
		}
		cancel()
		close(watched.done)
		time.Sleep(time.Second)
		c := metadata("by Do, then by Send")
		for range 2 {
			if _, err := l.Do(t.Context(), c); err != nil {
				t.Error(err)
			}
			l.abandon(c, c.gen) // its context ended at the very instant of its answer
		}
		c.Ctx = nil
		again := start(l, c)
		l.abandon(c, c.gen-1) // the context of the use before ends only now
		if o := await(t, again); o.err != nil {
			t.Error(o.err)
		}
		for i, ch := range over {
			if len(ch) != 0 {
				t.Errorf("Done of call %d was called again: %v", i, (<-ch).err)
			}
		}
	})
}

// watchedContext counts the functions that wait for its end, now and in all. It
// has a channel of its own, or package context would look through it.
type watchedContext struct {
	context.Context
	done      chan struct{}
	held, all atomic.Int64
}

func (c *watchedContext) Done() <-chan struct{} { return c.done }

func (c *watchedContext) AfterFunc(f func()) func() bool {
	c.held.Add(1)
	c.all.Add(1)
	stop := context.AfterFunc(c.Context, f)
	return func() bool {
		c.held.Add(-1)
		return stop()
	}
}

// TestC37ACallsOwnTimeoutIsKeptOnAFreshSocket has no clock of an earlier
// request to be woken by.
func TestC37ACallsOwnTimeoutIsKeptOnAFreshSocket(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if c.hello() {
			c.silence()
		}
	}, func(t *testing.T, w *world) {
		if _, err := w.peer.Versions(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // whatever clock the handshake has set has struck
		c := metadata("m")
		c.Timeout = 2 * time.Second
		var err error
		d := took(func() { _, err = w.lane(General).Do(context.Background(), c) })
		var te *kafka.TimeoutError
		if !errors.As(err, &te) || te.Phase != kafka.PhaseAnswer || d < c.Timeout || d > c.Timeout+fast {
			t.Errorf("after %v: %v", d, err)
		}
	})
}

// TestT12TheTableIsWaitedForNoLongerThanItsContext asks for no request's sake.
func TestT12TheTableIsWaitedForNoLongerThanItsContext(t *testing.T) {
	inWorld(t, nil, nil, func(t *testing.T, w *world) {
		w.net.BlackHole(address, true)
		var err error
		d := took(func() { _, err = w.peer.Versions(within(t, time.Second)) })
		var te *kafka.TimeoutError
		if !errors.As(err, &te) || te.Name != "ApiVersions" || te.Phase != kafka.PhaseDial || d >= time.Second+fast {
			t.Errorf("after %v: %v", d, err)
		}
	})
}

func checkEnded(t *testing.T, what string, err, cause error, phase kafka.Phase) {
	t.Helper()
	var te *kafka.TimeoutError
	if !errors.As(err, &te) || !errors.Is(err, cause) || te.Addr != address {
		t.Errorf("%s: %v", what, err)
		return
	}
	if s := err.Error(); !strings.Contains(s, address) || !strings.Contains(s, cause.Error()) {
		t.Errorf("%s: the text lacks the address or the cause: %s", what, s)
	}
	if te.Phase != phase {
		t.Errorf("%s: phase %s, want %s", what, te.Phase, phase)
	}
	if kafka.MayHaveHappened(err) != (phase >= kafka.PhaseWrite) {
		t.Errorf("%s: phase %s may have happened: %v", what, phase, kafka.MayHaveHappened(err))
	}
}

// TestC8CloseEndsEveryPhase holds that Close is immediate, idempotent, and
// leaves no goroutine: the bubble would not end otherwise.
func TestC8CloseEndsEveryPhase(t *testing.T) {
	for _, s := range stucks() {
		s.run(t, func(t *testing.T, w *world, c *Call) {
			got := start(w.lane(General), c)
			time.Sleep(time.Second)
			if d := took(func() {
				w.peer.Close(errTestOver)
				w.peer.Close(errors.New("a second time"))
				if o := await(t, got); !errors.Is(o.err, errTestOver) {
					t.Errorf("the call ended with %v", o.err)
				}
			}); d >= fast {
				t.Errorf("took %v", d)
			}
			if d := took(func() { w.peer.tasks.Wait() }); d >= fast {
				t.Errorf("the goroutines took %v to end", d)
			}
			if o := await(t, start(w.lane(General), metadata("late"))); !errors.Is(o.err, errTestOver) {
				t.Errorf("after Close: %v", o.err)
			}
			if _, err := w.lane(General).Do(context.Background(), metadata("late")); !errors.Is(err, errTestOver) {
				t.Errorf("after Close: %v", err)
			}
		})
	}
}

// TestC44OneDeadlineForAllOfConnecting is a peer that stalls in TCP, TLS,
// ApiVersions and SASL.
func TestC44OneDeadlineForAllOfConnecting(t *testing.T) {
	for _, s := range stucks() {
		if s.phase != kafka.PhaseDial && s.phase != kafka.PhaseHandshake {
			continue
		}
		s.run(t, func(t *testing.T, w *world, c *Call) {
			var err error
			d := took(func() { _, err = w.lane(General).Do(context.Background(), c) })
			var de *kafka.DialError
			if d < 10*time.Second || d > 10*time.Second+fast || !errors.As(err, &de) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %v: %v", d, err)
			}
			if kafka.MayHaveHappened(err) {
				t.Error("it may have happened")
			}
			time.Sleep(time.Second)
			if n := w.net.Open(); n != 0 && w.cfg.SASL == nil {
				t.Errorf("%d connections are left", n)
			}
		})
	}
}

// TestB005ACancelInAWriteTearsNoFrame cancels a request of 1 MiB of which the
// window took only a part.
func TestB005ACancelInAWriteTearsNoFrame(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		c.memConn().SetWindow(100 << 10)
		time.Sleep(3 * time.Second)
		for g, ok := c.next(); ok && c.answer(g, reply(g)); g, ok = c.next() {
		}
	}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := w.lane(General).Do(ctx, oneMiB()); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		second := start(w.lane(General), metadata("second"))
		if o := await(t, second); o.err != nil || markOf(o.resp) != "second" {
			t.Errorf("the second request: %q %v", markOf(o.resp), o.err)
		}
		if got := w.b.requests(-1); len(got) != 3 || got[1].Key != 0 || got[2].Key != 3 {
			t.Errorf("the broker saw %d frames", len(got))
		}
		if n := w.b.accepted(); n != 1 {
			t.Errorf("%d sockets", n)
		}
	})
}

// TestC36AWriteThatTimesOutClosesTheSocket also holds that nothing follows the
// partial frame on it.
func TestC36AWriteThatTimesOutClosesTheSocket(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if c.n > 0 {
			c.echo()
			return
		}
		if c.hello() {
			c.memConn().SetWindow(100 << 10)
			time.Sleep(2 * time.Minute)
			c.next()
		}
	}, func(t *testing.T, w *world) {
		if _, err := w.peer.Versions(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // whatever clock the handshake has set has struck
		var err error
		d := took(func() { _, err = w.lane(General).Do(context.Background(), oneMiB()) })
		var te *kafka.TimeoutError
		if !errors.As(err, &te) || te.Phase != kafka.PhaseWrite || d < 30*time.Second || d > 30*time.Second+fast || !kafka.MayHaveHappened(err) {
			t.Errorf("after %v: %v", d, err)
		}
		ask(t, w.lane(General), "next")
		time.Sleep(2 * time.Minute)
		if n := len(w.b.requests(0)); n != 0 {
			t.Errorf("the broker parsed %d torn frames", n)
		}
	})
}
