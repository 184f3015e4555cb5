package netconn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// onDemand is a broker that answers the requests of its first connection when
// the test says so.
type onDemand struct{ turn chan struct{} }

func inDemand(t *testing.T, f func(t *testing.T, w *world, o *onDemand)) {
	o := &onDemand{}
	inWorld(t, nil, o.serve, func(t *testing.T, w *world) {
		o.turn = make(chan struct{}, 100) // of the bubble
		if _, err := w.peer.Versions(t.Context()); err != nil {
			t.Fatal(err)
		}
		f(t, w, o)
	})
}

func (o *onDemand) serve(c *brokerConn) {
	if c.n > 0 || !c.hello() {
		c.echo()
		return
	}
	b := c.b.tasks
	asked := make(chan gotRequest, 100)
	b.Go(func(context.Context) error {
		for g := range asked {
			<-o.turn
			c.answer(g, reply(g))
		}
		return nil
	})
	defer func() { close(asked); close(o.turn) }()
	for g, ok := c.next(); ok; g, ok = c.next() {
		asked <- g
	}
}

// TestC30TheOutstandingCountIsExactAfterEveryStep writes without reading, and
// counts what was abandoned until its answer is there.
func TestC30TheOutstandingCountIsExactAfterEveryStep(t *testing.T) {
	inDemand(t, func(t *testing.T, w *world, o *onDemand) {
		l := w.lane(General)
		step := func(name string, queued, inFlight int) {
			t.Helper()
			time.Sleep(fast)
			if st := l.Stats(); st.Queued != queued || st.InFlight != inFlight {
				t.Errorf("%s: %d queued, %d in flight; want %d, %d", name, st.Queued, st.InFlight, queued, inFlight)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var calls []chan outcome
		for i := range 4 {
			c := metadata(fmt.Sprint(i))
			if i == 1 {
				c.Ctx = ctx
			}
			calls = append(calls, start(l, c))
			step(fmt.Sprint("written ", i), 0, i+1)
		}
		cancel()
		step("the second is abandoned", 0, 4)
		if o := await(t, calls[1]); !errors.Is(o.err, context.Canceled) {
			t.Errorf("the abandoned one: %v", o.err)
		}
		for i := range 4 {
			o.turn <- struct{}{}
			step(fmt.Sprint("answered ", i), 0, 3-i)
			if i == 1 {
				continue
			}
			if o := await(t, calls[i]); markOf(o.resp) != fmt.Sprint(i) {
				t.Errorf("%d got %q, %v", i, markOf(o.resp), o.err)
			}
		}
		start(l, metadata("last"))
		step("written", 0, 1)
		w.peer.Disconnect(errTestOver)
		step("lost", 0, 0)
	})
}

// TestC31AnswersCompleteInTheOrderOfTheWrites records the order of Done.
func TestC31AnswersCompleteInTheOrderOfTheWrites(t *testing.T) {
	inDemand(t, func(t *testing.T, w *world, o *onDemand) {
		order := make(chan int, 20)
		var want []int
		for i := range 20 {
			c := metadata(fmt.Sprint(i))
			c.Done = func(resp kmsg.Response, _ error) {
				if markOf(resp) == fmt.Sprint(i) {
					order <- i
				}
			}
			w.lane(General).Send(c)
			want = append(want, i)
		}
		for range 20 {
			o.turn <- struct{}{}
		}
		time.Sleep(fast)
		var got []int
		for len(order) > 0 {
			got = append(got, <-order)
		}
		if !slices.Equal(got, want) {
			t.Errorf("order %v", got)
		}
		var written []int
		for _, g := range w.b.requests(3) {
			written = append(written, int(g.ID))
		}
		if !slices.IsSorted(written) {
			t.Errorf("correlation ids %v", written)
		}
	})
}

// TestC42WhatIsNoIOErrorIsReturnedWithoutARedial has an answer that cannot be
// decoded, a refused login and a version that nobody has.
func TestC42WhatIsNoIOErrorIsReturnedWithoutARedial(t *testing.T) {
	check := func(t *testing.T, w *world, c *Call, target any, seen int) {
		t.Helper()
		var err error
		d := took(func() { _, err = w.lane(General).Do(within(t, time.Minute), c) })
		if !errors.As(err, target) || d >= fast {
			t.Errorf("after %v: %v", d, err)
		}
		time.Sleep(time.Hour)
		if n, reqs := w.b.accepted(), len(w.b.requests(c.Req.Key())); n != 1 || reqs != seen {
			t.Errorf("%d sockets, seen %d times", n, reqs)
		}
	}
	t.Run("decode error", func(t *testing.T) {
		inWorld(t, nil, func(c *brokerConn) {
			if c.hello() {
				g, _ := c.next()
				c.Write([]byte{0, 0, 0, 6, 0, 0, 0, byte(g.ID), 0, 9})
				c.silence()
			}
		}, func(t *testing.T, w *world) { check(t, w, metadata("m"), new(*kafka.ProtocolError), 1) })
	})
	t.Run("auth error", func(t *testing.T) {
		b := &guarded{offers: []string{"PLAIN"}, password: "other"}
		inWorld(t, withPlain(), b.serve, func(t *testing.T, w *world) { check(t, w, metadata("m"), new(*kafka.AuthError), 0) })
	})
	t.Run("version error", func(t *testing.T) {
		inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
			c := metadata("m")
			c.Min, c.Max = 99, 99
			check(t, w, c, new(*kafka.VersionError), 0)
		})
	})
}

// TestC51ACollectedRequestIsSentOnce is lost with and without its socket: the
// caller decides what comes next.
func TestC51ACollectedRequestIsSentOnce(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if c.hello() {
			for range 3 {
				c.next()
			}
		}
	}, func(t *testing.T, w *world) {
		var calls []chan outcome
		for i := range 3 {
			c := metadata(fmt.Sprint(i))
			c.NoRedial = true
			calls = append(calls, start(w.lane(General), c))
		}
		for i, ch := range calls {
			o := await(t, ch)
			var ce *kafka.ConnError
			if !errors.As(o.err, &ce) || ce.Written == 0 {
				t.Errorf("%d: %v", i, o.err)
			}
		}
		time.Sleep(time.Hour)
		if n, seen := w.b.accepted(), len(w.b.requests(3)); n != 1 || seen != 3 {
			t.Errorf("%d sockets, %d requests", n, seen)
		}
	})
}

// TestC52TwoRequestsOnOneLaneHaveTheirOwnAnswers asks one address twice at
// once, on the lane, with requests of different APIs among them.
func TestC52TwoRequestsOnOneLaneHaveTheirOwnAnswers(t *testing.T) {
	inDemand(t, func(t *testing.T, w *world, o *onDemand) {
		a, b := metadata("a"), metadata("b")
		a.NoRedial, b.NoRedial = true, true
		first, second := start(w.lane(General), a), start(w.lane(General), b)
		time.Sleep(fast)
		o.turn <- struct{}{}
		if got := await(t, first); markOf(got.resp) != "a" {
			t.Errorf("the first got %q, %v", markOf(got.resp), got.err)
		}
		time.Sleep(fast)
		if len(second) != 0 {
			t.Error("the second was answered by the first answer")
		}
		o.turn <- struct{}{}
		if got := await(t, second); markOf(got.resp) != "b" {
			t.Errorf("the second got %q, %v", markOf(got.resp), got.err)
		}
		if reqs := w.b.requests(3); len(reqs) != 2 || markOf(reply(reqs[0])) != "a" || w.b.accepted() != 1 {
			t.Errorf("%d requests on %d sockets", len(reqs), w.b.accepted())
		}
	})
}

// TestB007ALateAnswerIsForNobodyElse has request A given up after 100 ms, by
// its context and by its own timeout, and request B of another API behind it;
// then A's answer comes, then B's.
func TestB007ALateAnswerIsForNobodyElse(t *testing.T) {
	for _, closes := range []bool{false, true} {
		inWorld(t, nil, func(c *brokerConn) {
			if !c.hello() {
				return
			}
			if c.n > 0 {
				c.n = 0
				for g, ok := c.next(); ok && c.answer(g, reply(g)); g, ok = c.next() {
				}
				return
			}
			a, _ := c.next()
			time.Sleep(150 * time.Millisecond)
			if !closes {
				b, _ := c.next()
				c.answer(a, reply(a))
				c.answer(b, reply(b))
				c.silence()
				return
			}
			c.answer(a, reply(a))
			c.silence()
		}, func(t *testing.T, w *world) {
			l := w.lane(General)
			a := metadata("A")
			ctx := t.Context()
			if closes {
				a.Timeout = 100 * time.Millisecond
			} else {
				ctx = within(t, 100*time.Millisecond)
			}
			ch := make(chan outcome, 2)
			go func() {
				resp, err := l.Do(ctx, a)
				ch <- outcome{resp, err}
			}()
			if o := await(t, ch); o.err == nil || o.resp != nil {
				t.Errorf("closes %v: A: %v %v", closes, o.resp, o.err)
			}
			resp, err := l.Do(within(t, time.Minute), NewCall(ctx, kmsg.NewPtrListGroupsRequest()))
			if _, ok := resp.(*kmsg.ListGroupsResponse); err != nil || !ok {
				t.Errorf("closes %v: B: %T %v", closes, resp, err)
			}
			time.Sleep(time.Second)
			want := 1
			if closes {
				want = 2
			}
			if n := w.b.accepted(); n != want || len(ch) != 0 {
				t.Errorf("closes %v: %d sockets", closes, n)
			}
		})
	}
}

// TestB008SwappedOrUnknownIdsEndTheSocket has ten requests pipelined: the
// answers of two are swapped, or one is for id 999. All in flight fail, and the
// next request has a new socket and its own answer.
func TestB008SwappedOrUnknownIdsEndTheSocket(t *testing.T) {
	for name, bad := range map[string]func(c *brokerConn, gs []gotRequest){
		"swapped": func(c *brokerConn, gs []gotRequest) { c.answer(gs[1], reply(gs[1])); c.answer(gs[0], reply(gs[0])) },
		"unknown": func(c *brokerConn, gs []gotRequest) { g := gs[0]; g.ID = 999; c.answer(g, reply(gs[0])) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(c *brokerConn) {
				if c.n > 0 {
					c.echo()
					return
				}
				if !c.hello() {
					return
				}
				var gs []gotRequest
				for range 10 {
					g, _ := c.next()
					gs = append(gs, g)
				}
				bad(c, gs)
				c.silence()
			}, func(t *testing.T, w *world) {
				l := w.lane(General)
				var calls []chan outcome
				for i := range 10 {
					calls = append(calls, start(l, metadata(fmt.Sprint(i))))
				}
				for i, ch := range calls {
					o := await(t, ch)
					var pe *kafka.ProtocolError
					var ce *kafka.ConnError // what a caller may take for a loss of the socket
					if !errors.As(o.err, &pe) || !errors.As(o.err, &ce) || !strings.Contains(pe.What, "correlation id") || o.resp != nil || !kafka.MayHaveHappened(o.err) {
						t.Errorf("%d: %q %v", i, markOf(o.resp), o.err)
					}
				}
				mustBeFast(t, l, "afresh")
				if n := w.b.accepted(); n != 2 {
					t.Errorf("%d sockets", n)
				}
			})
		})
	}
}

// TestC33AnAnswerIsHeldOnce has answers of 900 KiB: beside the buffer that it
// was read into nothing of that size is made.
func TestC33AnAnswerIsHeldOnce(t *testing.T) {
	const size = 900 << 10
	b := newBroker(t, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		g, ok := c.next()
		r := kmsg.NewPtrSyncGroupResponse()
		r.MemberAssignment = make([]byte, size)
		out := frameOf(g, r)
		in := make([]byte, 1<<10)
		for ok {
			if _, err := c.Write(out); err != nil {
				return
			}
			n, err := c.Read(in)
			ok = err == nil && n > 12
			copy(out[4:8], in[8:12])
		}
	})
	l := newPeer(t, b.addr(), &Config{}).Lane(Join)
	do := func() {
		resp, err := l.Do(context.Background(), NewCall(context.Background(), kmsg.NewPtrSyncGroupRequest()))
		if err != nil || len(resp.(*kmsg.SyncGroupResponse).MemberAssignment) != size {
			t.Fatal(err)
		}
	}
	do()
	if got := allocated(20, do); got > size*5/4 {
		t.Errorf("%d bytes are allocated for an answer of %d", got, size)
	}
}

// TestC27NoRequestIsOutOfRange sends every API that kmsg knows to brokers of
// random tables. A request that the lane refuses is one that the broker does
// not have; the broker of every test of this package counts the others.
func TestC27NoRequestIsOutOfRange(t *testing.T) {
	rng := rand.New(rand.NewPCG(27, 27))
	for range 20 {
		ranges := table()
		kept := ranges.ApiKeys[:0]
		for _, k := range ranges.ApiKeys {
			if k.ApiKey != 18 && rng.IntN(4) == 0 {
				continue
			}
			if k.ApiKey != 18 {
				k.MinVersion = int16(rng.IntN(int(k.MaxVersion) + 3))
				k.MaxVersion = k.MinVersion + int16(rng.IntN(3))
			}
			kept = append(kept, k)
		}
		ranges.ApiKeys = kept
		inWorld(t, nil, func(c *brokerConn) {
			for g, ok := c.next(); ok; g, ok = c.next() {
				if g.Key == 18 {
					c.answer(g, ranges)
				} else {
					c.answer(g, kmsg.ResponseForKey(g.Key))
				}
			}
		}, func(t *testing.T, w *world) {
			sent := 0
			for key := int16(0); key <= kmsg.MaxKey; key++ {
				req := kmsg.RequestForKey(key)
				if req == nil || key == 18 {
					continue
				}
				c := NewCall(t.Context(), req)
				_, err := w.lane(General).Do(within(t, time.Minute), c)
				var ve *kafka.VersionError
				if err != nil && !errors.As(err, &ve) {
					t.Errorf("%s: %v", kmsg.NameForKey(key), err)
				}
				if i := slices.IndexFunc(kept, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == key }); err == nil {
					sent++
				} else if i >= 0 && kept[i].MinVersion <= req.MaxVersion() && ve.Constraint == "" {
					t.Errorf("%s is refused: %v", kmsg.NameForKey(key), err)
				}
			}
			if got := len(w.b.requests(-1)) - 1; got != sent || sent < 10 {
				t.Errorf("%d sent, the broker saw %d", sent, got)
			}
		})
	}
}

// TestC27TheCheckCanFail writes by hand what no lane writes.
func TestC27TheCheckCanFail(t *testing.T) {
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		raw, err := w.net.Dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("by hand"))
		hello, late := kmsg.NewPtrApiVersionsRequest(), kmsg.NewPtrHeartbeatRequest()
		late.SetVersion(late.MaxVersion() + 1)
		raw.Write(f.AppendRequest(nil, hello, 0))
		raw.Read(make([]byte, 1<<16))
		raw.Write(f.AppendRequest(nil, late, 1))
		time.Sleep(time.Second)
		if n := w.b.outOfRange.Swap(0); n != 1 {
			t.Errorf("%d requests out of range were counted", n)
		}
	})
}
