package netconn

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/ottla/ottla/kafka"
)

// granting is a broker that grants sessions of that length and answers the
// other requests by answer, nil for nothing; sent is how often it answered
// a login on any connection.
func granting(life time.Duration, answer func(c *brokerConn, g gotRequest) kmsg.Response) func(c *brokerConn) {
	b := &guarded{offers: []string{"PLAIN"}, life: life}
	return func(c *brokerConn) {
		if !c.hello() {
			return
		}
		for g, ok := c.next(); ok; g, ok = c.next() {
			var resp kmsg.Response
			switch g.Key {
			case 17:
				resp = b.handshake(g)
			case 36:
				resp = b.authenticate(g)
			default:
				resp = answer(c, g)
			}
			if resp != nil && !c.answer(g, resp) {
				return
			}
		}
	}
}

func withPlain() *Config { return &Config{SASL: []sasl.Mechanism{plainOf("u", "p")}} }

// TestC23AParkedAnswerDelaysAReauthenticationAndNothingElse has a JoinGroup
// that is held for 55 s while a session of 20 s ends: the login is queued
// behind it, and neither is lost.
func TestC23AParkedAnswerDelaysAReauthenticationAndNothingElse(t *testing.T) {
	inWorld(t, withPlain(), granting(20*time.Second, func(_ *brokerConn, g gotRequest) kmsg.Response {
		if g.Key == 11 {
			time.Sleep(55 * time.Second)
		}
		return reply(g)
	}), func(t *testing.T, w *world) {
		l := w.lane(Join)
		ask(t, l, "open")
		req := kmsg.NewPtrJoinGroupRequest() // without a member id: it may not be repeated
		req.RebalanceTimeoutMillis = 60_000
		join := start(l, NewCall(t.Context(), req))
		time.Sleep(30 * time.Second)
		behind := start(l, metadata("behind"))
		if o := await30(t, join); o.err != nil {
			t.Errorf("the parked request: %v", o.err)
		}
		if o := await30(t, behind); o.err != nil || markOf(o.resp) != "behind" {
			t.Errorf("the request behind: %v", o.err)
		}
		if n, logins := w.b.accepted(), len(w.b.requests(36)); n != 1 || logins != 2 {
			t.Errorf("%d sockets, %d logins", n, logins)
		}
	})
}

// TestC23AReauthenticationThatIsNotAnsweredEnds has a broker that is silent in
// the second login of its first socket: what waits goes out on a new one after
// the connect timeout.
func TestC23AReauthenticationThatIsNotAnsweredEnds(t *testing.T) {
	good := granting(20*time.Second, func(_ *brokerConn, g gotRequest) kmsg.Response { return reply(g) })
	b := &guarded{offers: []string{"PLAIN"}, life: 20 * time.Second}
	inWorld(t, withPlain(), func(c *brokerConn) {
		if c.n > 0 {
			good(c)
			return
		}
		c.hello()
		for _, resp := range []func(gotRequest) kmsg.Response{
			func(g gotRequest) kmsg.Response { return b.handshake(g) },
			func(g gotRequest) kmsg.Response { return b.authenticate(g) }, reply,
		} {
			g, _ := c.next()
			c.answer(g, resp(g))
		}
		c.silence()
	}, func(t *testing.T, w *world) {
		l := w.lane(General)
		ask(t, l, "open")
		time.Sleep(19 * time.Second) // the second login began before
		began := time.Now()
		if o := await30(t, start(l, metadata("waits"))); o.err != nil || markOf(o.resp) != "waits" {
			t.Error(o.err)
		}
		if d := time.Since(began); d > 10*time.Second || w.b.accepted() != 2 {
			t.Errorf("after %v, on %d sockets", d, w.b.accepted())
		}
	})
}

// TestK2AReauthenticationKeepsTheThrottle has a session that ends in the
// middle of a throttle of a minute: not a byte is sent before its end.
func TestK2AReauthenticationKeepsTheThrottle(t *testing.T) {
	for _, waiting := range []bool{true, false} {
		inWorld(t, withPlain(), granting(10*time.Second, func(_ *brokerConn, g gotRequest) kmsg.Response {
			resp := reply(g)
			if markOf(resp) == "throttle" {
				resp.(kmsg.SetThrottleResponse).SetThrottle(60_000)
			}
			return resp
		}), func(t *testing.T, w *world) {
			l := w.lane(General)
			ask(t, l, "throttle")
			began := time.Now()
			if !waiting {
				time.Sleep(30 * time.Second)
			}
			if resp, err := l.Do(within(t, 5*time.Minute), metadata("after")); err != nil || markOf(resp) != "after" {
				t.Errorf("after the throttle: %v", err)
			}
			for _, g := range w.b.requests(-1) {
				if d := g.At.Sub(began); d > 0 && d < time.Minute {
					t.Errorf("waiting %v: API %d was sent %v into a throttle of a minute", waiting, g.Key, d)
				}
			}
			if n, logins := w.b.accepted(), len(w.b.requests(36)); n != 1 || logins != 2 {
				t.Errorf("waiting %v: %d sockets, %d logins", waiting, n, logins)
			}
		})
	}
}

// TestC8CloseDoesNotWaitForATokenSource has one that hangs in the second login
// and ignores its context.
func TestC8CloseDoesNotWaitForATokenSource(t *testing.T) {
	var n atomic.Int64
	mech := plain.Plain(func(context.Context) (plain.Auth, error) {
		if n.Add(1) > 1 {
			time.Sleep(time.Hour)
		}
		return plain.Auth{User: "u", Pass: "p"}, nil
	})
	inWorld(t, &Config{SASL: []sasl.Mechanism{mech}}, granting(10*time.Second, func(_ *brokerConn, g gotRequest) kmsg.Response {
		return reply(g)
	}), func(t *testing.T, w *world) {
		ask(t, w.lane(General), "m")
		time.Sleep(9500 * time.Millisecond)
		if n.Load() != 2 {
			t.Fatalf("%d calls of the token source", n.Load())
		}
		if d := took(func() { w.peer.Close(errTestOver); w.peer.tasks.Wait() }); d >= fast {
			t.Errorf("Close took %v", d)
		}
		time.Sleep(2 * time.Hour)
	})
}

// rights is a broker that answers with an authorization error where denied
// says so of the number of logins and of the time since the last.
func rights(life time.Duration, denied func(logins int, since time.Duration) bool) func(c *brokerConn) {
	return granting(life, func(c *brokerConn, g gotRequest) kmsg.Response {
		logins, last := 0, time.Time{}
		for _, r := range c.b.requests(36) {
			logins, last = logins+1, r.At
		}
		resp := reply(g)
		if !denied(logins, time.Since(last)) {
			return resp
		}
		switch r := resp.(type) {
		case *kmsg.MetadataResponse:
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.ErrorCode = kmsg.StringPtr("t"), 29
			r.Topics = append(r.Topics, topic)
		case *kmsg.CreateTopicsResponse:
			topic := kmsg.NewCreateTopicsResponseTopic()
			topic.Topic, topic.ErrorCode = "t", 31
			r.Topics = append(r.Topics, topic)
		case *kmsg.DeleteGroupsResponse:
		case *kmsg.CreateDelegationTokenResponse:
			r.ErrorCode = 65
		}
		return resp
	})
}

// TestB071AnAuthorizationErrorLateInTheSessionIsFollowedByOneLogin has a broker
// that withdraws rights earlier than it said.
func TestB071AnAuthorizationErrorLateInTheSessionIsFollowedByOneLogin(t *testing.T) {
	const life = 100 * time.Second
	refusedIn := func(resp kmsg.Response) bool { return refusedBy(resp) != notRefused }
	never := func(int, time.Duration) bool { return false }
	early := func(_ int, since time.Duration) bool { return since > 55*time.Second }
	always := func(int, time.Duration) bool { return true }
	for _, c := range []struct {
		name   string
		denied func(int, time.Duration) bool
		at     time.Duration // since the login
		req    kmsg.Request
		wrong  bool // the answer that is reported holds the error
		seen   int  // how often the broker sees the request
		logins int
	}{
		{"rights are back after the login", early, 60 * time.Second, metadata("m").Req, false, 2, 2},
		{"they are not", always, 60 * time.Second, metadata("m").Req, true, 2, 2},
		{"early in the session it is reported at once", always, 40 * time.Second, metadata("m").Req, true, 1, 1},
		{"nothing is wrong", never, 60 * time.Second, metadata("m").Req, false, 1, 1},
		{"a mutation that may have been done in part is not sent again", always, 60 * time.Second, kmsg.NewPtrCreateTopicsRequest(), true, 1, 1},
		{"a mutation that was refused as a whole is", early, 60 * time.Second, kmsg.NewPtrCreateDelegationTokenRequest(), false, 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, withPlain(), rights(life, c.denied), func(t *testing.T, w *world) {
				l := w.lane(General)
				if _, err := l.Do(t.Context(), NewCall(t.Context(), kmsg.NewPtrDeleteGroupsRequest())); err != nil {
					t.Fatal(err)
				}
				time.Sleep(c.at)
				resp, err := l.Do(within(t, time.Minute), NewCall(t.Context(), c.req))
				if err != nil || refusedIn(resp) != c.wrong {
					t.Errorf("%+v %v", resp, err)
				}
				if seen, logins := len(w.b.requests(c.req.Key())), len(w.b.requests(36)); seen != c.seen || logins != c.logins || w.b.accepted() != 1 {
					t.Errorf("seen %d times, %d logins, %d sockets", seen, logins, w.b.accepted())
				}
			})
		})
	}
	t.Run("a mutation renews the session for the next", func(t *testing.T) {
		inWorld(t, withPlain(), rights(life, early), func(t *testing.T, w *world) {
			l := w.lane(General)
			ask(t, l, "m")
			time.Sleep(60 * time.Second)
			l.Do(t.Context(), NewCall(t.Context(), kmsg.NewPtrCreateTopicsRequest()))
			resp, err := l.Do(t.Context(), NewCall(t.Context(), kmsg.NewPtrCreateTopicsRequest()))
			if err != nil || refusedIn(resp) || len(w.b.requests(36)) != 2 {
				t.Errorf("%v %v, %d logins", resp, err, len(w.b.requests(36)))
			}
		})
	})
	t.Run("what is never to be sent twice is not", func(t *testing.T) {
		inWorld(t, withPlain(), rights(life, always), func(t *testing.T, w *world) {
			l := w.lane(General)
			if _, err := l.Do(t.Context(), NewCall(t.Context(), kmsg.NewPtrDeleteGroupsRequest())); err != nil {
				t.Fatal(err)
			}
			time.Sleep(60 * time.Second)
			for _, limit := range []func(c *Call){func(c *Call) { c.NoRedial = true }, func(c *Call) { c.OpenOnly = true }} {
				before := len(w.b.requests(3))
				c := metadata("m")
				limit(c)
				if resp, err := l.Do(t.Context(), c); err != nil || !refusedIn(resp) {
					t.Errorf("%+v %v", resp, err)
				}
				if n := len(w.b.requests(3)) - before; n != 1 {
					t.Errorf("sent %d times", n)
				}
			}
		})
	})
	t.Run("a lifetime shorter than an answer takes", func(t *testing.T) {
		inWorld(t, withPlain(), granting(10*time.Millisecond, func(_ *brokerConn, g gotRequest) kmsg.Response {
			time.Sleep(20 * time.Millisecond)
			r := kmsg.NewPtrMetadataResponse()
			r.ErrorCode = 31
			return r
		}), func(t *testing.T, w *world) {
			_, err := w.lane(General).Do(within(t, time.Minute), metadata("m"))
			if n := len(w.b.requests(3)); err != nil || n != 2 {
				t.Errorf("seen %d times: %v", n, err)
			}
		})
	})
}

// slow is a Metadata whose answer takes as long to decode as the test likes.
type slow struct {
	*kmsg.MetadataRequest
	reading, release chan struct{}
}

func (s slow) ResponseKind() kmsg.Response {
	return &slowResponse{MetadataResponse: *s.MetadataRequest.ResponseKind().(*kmsg.MetadataResponse), slow: s}
}

type slowResponse struct {
	kmsg.MetadataResponse
	slow slow
}

func (r *slowResponse) ReadFrom(b []byte) error {
	r.slow.reading <- struct{}{}
	<-r.slow.release
	return r.MetadataResponse.ReadFrom(b)
}

// TestB071WhileAnAnswerIsDecoded gives the call up, also to use it again, or loses
// the socket and the goroutines of the lane with it.
func TestB071WhileAnAnswerIsDecoded(t *testing.T) {
	late := func(t *testing.T, w *world) (slow, *Call, context.CancelFunc) {
		ask(t, w.lane(General), "open")
		time.Sleep(60 * time.Second)
		s := slow{metadata("m").Req.(*kmsg.MetadataRequest), make(chan struct{}, 5), make(chan struct{}, 5)}
		ctx, cancel := context.WithCancel(t.Context())
		return s, NewCall(ctx, s), cancel
	}
	early := func(_ int, since time.Duration) bool { return since > 55*time.Second }
	t.Run("given up", func(t *testing.T) {
		inWorld(t, withPlain(), rights(100*time.Second, early), func(t *testing.T, w *world) {
			s, c, cancel := late(t, w)
			got := start(w.lane(General), c)
			<-s.reading
			cancel()
			if o := await(t, got); !errors.Is(o.err, context.Canceled) {
				t.Error(o.err)
			}
			s.release <- struct{}{}
			time.Sleep(time.Second)
			if len(got) != 0 || len(w.b.requests(3)) != 2 {
				t.Errorf("Done was called %d times more, %d requests", len(got), len(w.b.requests(3)))
			}
		})
	})
	t.Run("given up and used again", func(t *testing.T) {
		never := func(int, time.Duration) bool { return false }
		inWorld(t, withPlain(), rights(100*time.Second, never), func(t *testing.T, w *world) {
			s, c, cancel := late(t, w)
			got := start(w.lane(General), c)
			<-s.reading
			cancel()
			await(t, got)
			c.Ctx, c.Req = t.Context(), metadata("again").Req
			again := start(w.lane(General), c)
			synctest.Wait() // it is written and waits for its answer
			s.release <- struct{}{}
			if o := await(t, again); o.err != nil || markOf(o.resp) != "again" || len(again) != 0 {
				t.Errorf("the answer is for %q: %v; Done was called %d times more", markOf(o.resp), o.err, len(again))
			}
		})
	})
	t.Run("given up after the next socket has given out its id", func(t *testing.T) {
		inWorld(t, withPlain(), rights(100*time.Second, early), func(t *testing.T, w *world) {
			s, c, cancel := late(t, w)
			l := w.lane(General)
			got := start(l, c)
			<-s.reading
			l.mu.Lock()
			id := c.id
			l.mu.Unlock()
			w.peer.Disconnect(errTestOver)
			ask(t, l, "open")
			w.net.SetLatency(time.Second, time.Second)
			other := metadata("other")
			answer := start(l, other)
			synctest.Wait() // it is written and waits for its answer
			if other.id != id {
				t.Fatalf("the ids %d and %d are to be the same", other.id, id)
			}
			cancel()
			await(t, got)
			s.release <- struct{}{}
			if o := await(t, answer); o.err != nil || markOf(o.resp) != "other" {
				t.Errorf("the other call got %q, %v", markOf(o.resp), o.err)
			}
		})
	})
	t.Run("lost", func(t *testing.T) {
		inWorld(t, withPlain(), rights(100*time.Second, early), func(t *testing.T, w *world) {
			s, c, cancel := late(t, w)
			defer cancel()
			got := start(w.lane(General), c)
			<-s.reading
			w.peer.Disconnect(errTestOver)
			synctest.Wait() // the lane has nothing to do, and no goroutine but the reader's
			s.release <- struct{}{}
			s.release <- struct{}{}
			if o := await(t, got); o.err != nil || w.b.accepted() != 2 || len(w.b.requests(3)) != 3 {
				t.Errorf("%v, %d sockets, %d requests", o.err, w.b.accepted(), len(w.b.requests(3)))
			}
		})
	})
}

// TestB071ACloseWhileAnAnswerIsDecodedEndsTheCall has the refused call ready to
// be sent again when there is no lane any more.
func TestB071ACloseWhileAnAnswerIsDecodedEndsTheCall(t *testing.T) {
	inWorld(t, withPlain(), rights(100*time.Second, func(logins int, since time.Duration) bool { return since > 55*time.Second }), func(t *testing.T, w *world) {
		ask(t, w.lane(General), "open")
		time.Sleep(60 * time.Second)
		s := slow{metadata("m").Req.(*kmsg.MetadataRequest), make(chan struct{}, 5), make(chan struct{}, 5)}
		got := start(w.lane(General), NewCall(t.Context(), s))
		<-s.reading
		w.peer.Close(errTestOver)
		s.release <- struct{}{}
		if o := await(t, got); o.err != nil || refusedBy(o.resp) == notRefused {
			t.Errorf("%v %v: the answer that was there is not given", o.resp, o.err)
		}
	})
}

// TestC23ARenewalIsNotForgottenWhenAnotherClockStrikes has a session of 100 s
// that was used once: it is renewed though nobody asks for anything.
func TestC23ARenewalIsNotForgottenWhenAnotherClockStrikes(t *testing.T) {
	inWorld(t, withPlain(), granting(100*time.Second, func(_ *brokerConn, g gotRequest) kmsg.Response { return reply(g) }), func(t *testing.T, w *world) {
		ask(t, w.lane(General), "open")
		time.Sleep(79 * time.Second)
		if n := len(w.b.requests(36)); n != 1 {
			t.Errorf("%d logins before 80 %% of the lifetime", n)
		}
		time.Sleep(12 * time.Second)
		if n := len(w.b.requests(36)); n != 2 {
			t.Errorf("%d logins after 90 %% of the lifetime", n)
		}
	})
}

// TestB071EveryAuthorizationCodeIsFoundAtAnyDepth is each of the codes in
// answers that hold them on the top, in a topic, in a partition.
// TestC23AClockThatStruckDoesNotSpinWhileAMechanismThinks has a mechanism take 5 s
// over a login, and so past the idle limit: both clocks have struck, and the writer
// comes to neither. A timer that is set to the past again and again would
// never let the time of a bubble go on.
func TestC23AClockThatStruckDoesNotSpinWhileAMechanismThinks(t *testing.T) {
	var thinks atomic.Bool
	mech := sasl.Mechanism(thoughtful{plainOf("u", "p"), &thinks})
	cfg := &Config{SASL: []sasl.Mechanism{mech}, IdleTimeout: 3 * time.Second}
	inWorld(t, cfg, granting(2*time.Second, func(_ *brokerConn, g gotRequest) kmsg.Response { return reply(g) }), func(t *testing.T, w *world) {
		l := w.lane(General)
		ask(t, l, "m")
		thinks.Store(true)
		time.Sleep(3300 * time.Millisecond) // the login began at 1.6 to 1.8 s; the idle limit is 3 s later
		l.mu.Lock()
		at, now := l.sock.alarm.at, time.Now()
		l.mu.Unlock()
		if !at.IsZero() && at.Before(now.Add(time.Second)) {
			t.Errorf("the clock of the session that the writer was told of strikes again in %v", at.Sub(now))
		}
		time.Sleep(time.Minute)
		thinks.Store(false)
		ask(t, l, "goes on")
	})
}

// thoughtful takes 5 s for each login while it thinks.
type thoughtful struct {
	sasl.Mechanism
	thinks *atomic.Bool
}

func (m thoughtful) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	if m.thinks.Load() {
		time.Sleep(5 * time.Second)
	}
	return m.Mechanism.Authenticate(ctx, host)
}

func TestB071EveryAuthorizationCodeIsFoundAtAnyDepth(t *testing.T) {
	for code := int16(-1); code < 140; code++ {
		want := code == 29 || code == 30 || code == 31 || code == 53 || code == 65
		top := kmsg.NewPtrInitProducerIDResponse()
		top.ErrorCode = code
		part := kmsg.NewPtrProduceResponse()
		part.Topics = []kmsg.ProduceResponseTopic{{}, {Partitions: []kmsg.ProduceResponseTopicPartition{{}, {ErrorCode: code}}}}
		if got := refusedBy(top) == topRefused; got != want {
			t.Errorf("code %d on top: %v", code, got)
		}
		if got := refusedBy(part) == itemRefused; got != want {
			t.Errorf("code %d in a partition: %v", code, got)
		}
	}
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		if resp := kmsg.ResponseForKey(key); resp != nil && refusedBy(resp) != notRefused {
			t.Errorf("an empty answer of API %d is refused", key)
		}
	}
	if refusedBy(nil) != notRefused {
		t.Error("no answer is refused")
	}
}

// doubts are ways in which the repetition of a call can end whose first answer
// was lost.
func doubts() map[string]func(t *testing.T, w *world, c *Call) error {
	return map[string]func(t *testing.T, w *world, c *Call) error{
		"the broker is gone": func(t *testing.T, w *world, c *Call) error {
			w.b.ln.Close()
			_, err := w.lane(General).Do(within(t, time.Minute), c)
			var de *kafka.DialError
			if !errors.As(err, &de) {
				t.Errorf("no dial error: %v", err)
			}
			return err
		},
		"its context ends": func(t *testing.T, w *world, c *Call) error {
			w.net.BlackHole(address, true)
			_, err := w.lane(General).Do(within(t, 5*time.Second), c)
			var te *kafka.TimeoutError
			if !errors.As(err, &te) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("no timeout: %v", err)
			}
			return err
		},
		"the client closes": func(t *testing.T, w *world, c *Call) error {
			w.net.BlackHole(address, true)
			got := start(w.lane(General), c)
			time.Sleep(2 * time.Second)
			closed := unsent{errTestOver}
			w.peer.Close(closed)
			o := await(t, got)
			if !errors.Is(o.err, closed) {
				t.Errorf("not the cause of Close: %v", o.err)
			}
			return o.err
		},
	}
}

// unsent is a cause of Close that says of itself that nothing happened.
type unsent struct{ error }

func (unsent) MayHaveHappened() bool { return false }

// TestC43ALostAnswerStaysInDoubt has a broker that reads a request that may be
// repeated, and closes: whatever the repetition ends in, it may have happened.
func TestC43ALostAnswerStaysInDoubt(t *testing.T) {
	for name, f := range doubts() {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(c *brokerConn) {
				if c.hello() {
					g, _ := c.next() // opens
					c.answer(g, reply(g))
					c.next()
					time.Sleep(time.Second)
				}
			}, func(t *testing.T, w *world) {
				ask(t, w.lane(General), "open")
				err := f(t, w, metadata("lost"))
				if !kafka.MayHaveHappened(err) {
					t.Errorf("%v: it may have happened", err)
				}
				var ce *kafka.ConnError
				if !errors.As(err, &ce) || ce.Written == 0 {
					t.Errorf("%v", err)
				}
				if n := len(w.b.requests(3)); n != 2 {
					t.Errorf("the broker saw %d requests", n)
				}
			})
		})
	}
	t.Run("closed while in flight", func(t *testing.T) {
		inWorld(t, nil, func(c *brokerConn) {
			if c.hello() {
				c.silence()
			}
		}, func(t *testing.T, w *world) {
			got := start(w.lane(General), NewCall(t.Context(), kmsg.NewPtrCreateTopicsRequest()))
			time.Sleep(time.Second)
			closed := unsent{errTestOver}
			w.peer.Close(closed)
			if o := await(t, got); !errors.Is(o.err, closed) || !kafka.MayHaveHappened(o.err) {
				t.Errorf("%v", o.err)
			}
		})
	})
	t.Run("withdrawn before it was written", func(t *testing.T) {
		inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
			w.b.ln.Close()
			if _, err := w.lane(General).Do(within(t, time.Minute), metadata("m")); err == nil || kafka.MayHaveHappened(err) {
				t.Errorf("%v", err)
			}
		})
	})
}

// TestC49ACallForTheOpenSocketDialsNoOther loses the socket while the call
// waits behind a throttle.
func TestC49ACallForTheOpenSocketDialsNoOther(t *testing.T) {
	inWorld(t, nil, throttling(time.Minute), func(t *testing.T, w *world) {
		l := w.lane(General)
		ask(t, l, "throttled from here")
		c := metadata("m")
		c.OpenOnly = true
		got := start(l, c)
		time.Sleep(time.Second)
		w.b.mu.Lock()
		w.b.conns[0].Close()
		w.b.mu.Unlock()
		if o := await(t, got); !errors.Is(o.err, errNotConnected) || kafka.MayHaveHappened(o.err) {
			t.Errorf("%v", o.err)
		}
		time.Sleep(time.Minute)
		if n := w.b.accepted(); n != 1 {
			t.Errorf("%d sockets", n)
		}
	})
	inWorld(t, nil, func(c *brokerConn) {
		if c.hello() {
			g, _ := c.next()
			c.answer(g, reply(g))
			c.next()
		}
	}, func(t *testing.T, w *world) {
		ask(t, w.lane(General), "open")
		c := metadata("lost")
		c.OpenOnly = true
		_, err := w.lane(General).Do(t.Context(), c)
		var ce *kafka.ConnError
		if !errors.As(err, &ce) || len(w.b.requests(3)) != 2 || w.b.accepted() != 1 {
			t.Errorf("%v, %d sockets", err, w.b.accepted())
		}
	})
}

// TestC16TheBrokersChangeOfMindIsFollowed has a broker that offers another
// mechanism after a restart, the first in the list; and one that contradicts
// itself.
func TestC16TheBrokersChangeOfMindIsFollowed(t *testing.T) {
	b := &guarded{offers: []string{"B"}}
	mechs := []sasl.Mechanism{&replayed{name: "A", send: [][]byte{[]byte("x")}}, &replayed{name: "B", send: [][]byte{[]byte("x")}}}
	inWorld(t, &Config{SASL: mechs}, b.serve, func(t *testing.T, w *world) {
		ask(t, w.lane(General), "with B")
		b.offers = []string{"A"}
		w.peer.Disconnect(errors.New("a restart"))
		ask(t, w.lane(General), "with A")
		if n := w.b.accepted(); n != 4 {
			t.Errorf("%d sockets", n)
		}
	})
	inWorld(t, &Config{SASL: mechs}, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		g, _ := c.next()
		resp := kmsg.NewPtrSASLHandshakeResponse()
		resp.ErrorCode, resp.SupportedMechanisms = 33, []string{"A", "B"}
		c.answer(g, resp)
	}, func(t *testing.T, w *world) {
		_, err := w.lane(General).Do(t.Context(), metadata("m"))
		if n := w.b.accepted(); err == nil || n > 8 {
			t.Errorf("%d sockets: %v", n, err)
		}
	})
}

// TestC6ADrainThatMeetsADialIsKept closes the socket once the queue is written.
func TestC6ADrainThatMeetsADialIsKept(t *testing.T) {
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		w.net.SetLatency(time.Second, time.Second)
		l := w.lane(General)
		got := start(l, metadata("m"))
		time.Sleep(500 * time.Millisecond)
		w.peer.Drain()
		if o := await30(t, got); o.err != nil {
			t.Error(o.err)
		}
		time.Sleep(time.Second)
		if st := l.Stats(); st.State != Closed {
			t.Errorf("%+v", st)
		}
		if o := await30(t, start(l, metadata("again"))); o.err != nil {
			t.Error(o.err)
		}
		time.Sleep(time.Second)
		if st := l.Stats(); st.State != Open {
			t.Errorf("after the drain: %+v", st)
		}
		w.peer.Disconnect(errTestOver)
		w.net.BlackHole(address, true)
		got = start(l, metadata("in vain"))
		time.Sleep(5 * time.Second)
		w.peer.Drain()
		if o := await30(t, got); o.err == nil {
			t.Error("an answer out of a black hole")
		}
		w.net.BlackHole(address, false)
		if o := await30(t, start(l, metadata("at last"))); o.err != nil {
			t.Error(o.err)
		}
		time.Sleep(time.Second)
		if st := l.Stats(); st.State != Open {
			t.Errorf("the drain outlived its dial: %+v", st)
		}
	})
}
