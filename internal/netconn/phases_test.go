package netconn

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/ottla/ottla/kafka"
)

// TestK1ALaneStuckInAnyPhaseDelaysNoOther has one lane in each phase that a
// socket goes through, beside four that are used; T1 has more of the same.
func TestK1ALaneStuckInAnyPhaseDelaysNoOther(t *testing.T) {
	b := func() *guarded { return &guarded{offers: []string{"PLAIN"}} }
	a := newAuthority(t, "ca")
	today := time.Now() // the certificates are of today, not of the bubble's year
	server := &tls.Config{Certificates: []tls.Certificate{a.leaf(t, today.Add(time.Hour), "b1")}}
	secure := func(c *brokerConn) { // a broker behind TLS
		s := tls.Server(c.Conn, server)
		c.Conn = s
		c.echo()
	}
	sleepy := func() *Config { // a token source that hangs in the fifth login
		var n atomic.Int64
		return &Config{SASL: []sasl.Mechanism{plain.Plain(func(ctx context.Context) (plain.Auth, error) {
			if n.Add(1) >= 5 {
				<-ctx.Done()
			}
			return plain.Auth{User: "u", Pass: "p"}, nil
		})}}
	}
	for _, c := range []struct {
		name         string
		cfg          *Config
		serve, stuck func(c *brokerConn) // of the first four connections, and of the fifth
		call         func() *Call
	}{
		{"dialling", nil, (*brokerConn).echo, nil, nil},
		{"in TLS", &Config{TLS: &tls.Config{RootCAs: a.pool, Time: func() time.Time { return today }}}, secure, (*brokerConn).silence, nil},
		{"in ApiVersions", nil, (*brokerConn).echo, (*brokerConn).silence, nil},
		{"authenticating", withPlain(), b().serve, func(c *brokerConn) { c.hello(); c.silence() }, nil},
		{"waiting for a token", sleepy(), b().serve, b().serve, nil},
		{"throttled", nil, (*brokerConn).echo, throttling(time.Minute), nil},
		{"blocked in a write", nil, (*brokerConn).echo, func(c *brokerConn) {
			c.hello()
			c.memConn().SetWindow(0)
			time.Sleep(time.Minute)
		}, oneMiB},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, c.cfg, func(bc *brokerConn) {
				if bc.n < 4 {
					c.serve(bc)
				} else {
					c.stuck(bc)
				}
			}, func(t *testing.T, w *world) {
				others := []Kind{General, Fetch, Coordinator, Join}
				for _, k := range others {
					ask(t, w.lane(k), "open")
				}
				if c.stuck == nil {
					w.net.BlackHole(address, true)
				}
				if c.name == "throttled" {
					ask(t, w.lane(Produce), "throttled from here")
				}
				call := metadata("held")
				if c.call != nil {
					call = c.call()
				}
				held := start(w.lane(Produce), call)
				for range 8 {
					time.Sleep(time.Second)
					for _, k := range others {
						mustBeFast(t, w.lane(k), k.String())
					}
				}
				if len(held) != 0 {
					t.Errorf("the lane is not stuck: %v", (<-held).err)
				}
				w.peer.Close(errTestOver)
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

// TestK3NamesAreResolvedInEveryDialRound counts the look-ups, and has a name of
// four addresses of which three swallow packets: each costs a quarter of the
// connect time at most.
func TestK3NamesAreResolvedInEveryDialRound(t *testing.T) {
	var asked []string
	cfg := &Config{Resolve: func(_ context.Context, host string) ([]string, error) {
		asked = append(asked, host)
		return []string{"10.9.0.1", "10.9.0.2", "10.9.0.3", "10.9.0.4"}, nil
	}}
	inWorld(t, cfg, nil, func(t *testing.T, w *world) {
		for i := range 3 {
			w.net.SetAddrs(fmt.Sprint("hole", i), fmt.Sprint("10.9.0.", i+1))
			w.net.BlackHole(fmt.Sprint("hole", i, ":9092"), true)
		}
		w.net.SetAddrs("good", "10.9.0.4")
		ln, err := w.net.Listen("good:9092")
		if err != nil {
			t.Fatal(err)
		}
		newBrokerOn(t, ln, (*brokerConn).echo)
		p := newPeer(t, "kafka.example:9092", cfg)
		if d := took(func() { ask(t, p.Lane(General), "m") }); d > 7500*time.Millisecond+fast || d < 7500*time.Millisecond-fast {
			t.Errorf("three silent addresses of four cost %v of 10 s", d)
		}
		for i := range 3 {
			p.Disconnect(io.EOF)
			ask(t, p.Lane(General), "m")
			if len(asked) != i+2 || asked[i+1] != "kafka.example" {
				t.Errorf("looked up %q in %d dial rounds", asked, i+2)
			}
		}
		var names []string
		q := newPeer(t, "kafka.example:9092", &Config{Resolve: cfg.Resolve, Dial: cfg.Dial, TLS: &tls.Config{}})
		names = append(names, q.tls.ServerName)
		own := newPeer(t, "kafka.example:9092", &Config{TLS: &tls.Config{ServerName: "other.example"}})
		if names[0] != "kafka.example" || own.tls.ServerName != "other.example" {
			t.Errorf("TLS server names %q, %q", names[0], own.tls.ServerName)
		}
	})
}

// TestC22EveryLaneLogsInBeforeItIsUsed opens every lane at once against a
// SASL-only listener: nothing comes before the login, and no lane dials twice.
func TestC22EveryLaneLogsInBeforeItIsUsed(t *testing.T) {
	b := &guarded{offers: []string{"PLAIN"}, password: "secret"}
	inWorld(t, &Config{SASL: []sasl.Mechanism{plainOf("user", "secret")}}, b.serve, func(t *testing.T, w *world) {
		var calls []chan outcome
		for k := range Kind(kinds) {
			calls = append(calls, start(w.lane(k), metadata("m")))
		}
		for _, ch := range calls {
			if o := await(t, ch); o.err != nil {
				t.Error(o.err)
			}
		}
		if b.early.Load() != 0 || b.logins.Load() != kinds || w.b.accepted() != kinds {
			t.Errorf("%d early requests, %d logins, %d sockets", b.early.Load(), b.logins.Load(), w.b.accepted())
		}
	})
	// A socket whose login was refused is not in the pool.
	inWorld(t, &Config{SASL: []sasl.Mechanism{plainOf("user", "wrong")}}, b.serve, func(t *testing.T, w *world) {
		w.lane(General).Do(t.Context(), metadata("m"))
		time.Sleep(fast)
		if w.peer.Open(General) || w.net.Open() != 0 || b.early.Load() != 0 {
			t.Errorf("open %v, %d connections, %d early requests", w.peer.Open(General), w.net.Open(), b.early.Load())
		}
	})
}

// TestB061WaitingRequestsAreLetGoAfterTheLogin has many reconnects, each in the
// middle of requests of every lane.
func TestB061WaitingRequestsAreLetGoAfterTheLogin(t *testing.T) {
	b := &guarded{offers: []string{"PLAIN"}, password: "secret"}
	inWorld(t, &Config{SASL: []sasl.Mechanism{plainOf("user", "secret")}}, b.serve, func(t *testing.T, w *world) {
		w.net.SetLatency(time.Millisecond, 5*time.Millisecond)
		var calls []chan outcome
		for round := range 40 {
			for i := range 10 {
				calls = append(calls, start(w.lane(Kind(i%kinds)), metadata(fmt.Sprint(round, "-", i))))
			}
			time.Sleep(time.Duration(30+2*round) * time.Millisecond)
			w.b.mu.Lock()
			for _, c := range w.b.conns {
				c.Close()
			}
			w.b.mu.Unlock()
		}
		lost := 0
		for i, ch := range calls {
			if o := await30(t, ch); o.err != nil {
				lost++ // twice on its way when the broker closed
			} else if want := fmt.Sprint(i/10, "-", i%10); markOf(o.resp) != want {
				t.Errorf("%s got the answer of %q", want, markOf(o.resp))
			}
		}
		if b.early.Load() != 0 {
			t.Errorf("%d requests before a login", b.early.Load())
		}
		for _, c := range w.b.conns {
			for i, g := range c.got {
				if want := []int16{18, 17, 36, 3}[min(i, 3)]; g.Key != want {
					t.Errorf("number %d on a connection is API %d", i, g.Key)
				}
			}
		}
		if lost > len(calls)/2 || w.b.accepted() < 20 {
			t.Errorf("%d of %d lost, %d sockets: the test does not do its work", lost, len(calls), w.b.accepted())
		}
	})
}

// TestB031AThrottledBrokerIsLeftInPeace has a throttle of 5 s in every answer,
// that of ApiVersions too, of a broker that does not read meanwhile, and
// requests with a timeout of 3 s; another broker goes on, and Close is
// immediate.
func TestB031AThrottledBrokerIsLeftInPeace(t *testing.T) {
	cfg := &Config{RequestTimeout: 3 * time.Second}
	inWorld(t, cfg, func(c *brokerConn) {
		for g, ok := c.next(); ok; g, ok = c.next() {
			resp := reply(g)
			resp.(kmsg.SetThrottleResponse).SetThrottle(5000)
			c.answer(g, resp)
			time.Sleep(5 * time.Second)
		}
	}, func(t *testing.T, w *world) {
		ln, err := w.net.Listen("b2:9092")
		if err != nil {
			t.Fatal(err)
		}
		newBrokerOn(t, ln, (*brokerConn).echo)
		other := newPeer(t, "b2:9092", cfg)
		l := w.lane(General)
		var calls []chan outcome
		for i := range 5 {
			calls = append(calls, start(l, metadata(fmt.Sprint(i))))
		}
		for i, ch := range calls {
			if o := await30(t, ch); o.err != nil || markOf(o.resp) != fmt.Sprint(i) {
				t.Errorf("%d: %v", i, o.err)
			}
			mustBeFast(t, other.Lane(General), "the other broker")
		}
		last := time.Time{}
		for i, g := range w.b.requests(-1) {
			if i == 1 && g.At.Sub(last) < 5*time.Second {
				t.Errorf("the first request came %v after ApiVersions, whose answer has a throttle of 5 s", g.At.Sub(last))
			}
			last = g.At
		}
		held := start(l, metadata("held"))
		time.Sleep(time.Second)
		if d := took(func() { w.peer.Close(errTestOver); w.peer.tasks.Wait() }); d >= fast || len(held) != 1 {
			t.Errorf("Close took %v", d)
		}
		if n := w.b.accepted(); n != 1 || len(w.b.requests(3)) != 5 {
			t.Errorf("%d sockets, %d requests", n, len(w.b.requests(3)))
		}
	})
}

// TestC17PlainIsOneExchange has bytes in the answer, which are ignored.
func TestC17PlainIsOneExchange(t *testing.T) {
	b := &guarded{offers: []string{"PLAIN"}, password: "secret"}
	inWorld(t, &Config{SASL: []sasl.Mechanism{plainOf("user", "secret")}}, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		g, _ := c.next()
		c.answer(g, b.handshake(g))
		g, _ = c.next()
		r := b.authenticate(g)
		r.SASLAuthBytes = []byte("bytes that nobody asked for")
		c.answer(g, r)
		for g, ok := c.next(); ok && c.answer(g, reply(g)); g, ok = c.next() {
		}
	}, func(t *testing.T, w *world) {
		ask(t, w.lane(General), "m")
		logins := w.b.requests(36)
		if len(logins) != 1 || !strings.HasSuffix(string(logins[0].Body), "\x00user\x00secret\x00") || w.b.accepted() != 1 {
			t.Errorf("%d exchanges: %q", len(logins), logins[0].Body)
		}
	})
}

// TestC18TheServerHasToProveItself has a SCRAM server with a wrong signature,
// and iteration counts that would cost or reveal too much: none becomes a
// connection, and with those counts no proof is sent.
func TestC18TheServerHasToProveItself(t *testing.T) {
	for _, c := range []struct {
		name, iterations, final string
		messages                int // of the client
	}{
		{"a wrong signature", "4096", "v=" + base64.StdEncoding.EncodeToString(make([]byte, 32)), 2},
		{"no signature", "4096", "x=1", 2},
		{"one iteration", "1", "", 1},
		{"2^31-1 iterations", "2147483647", "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			mech := scram.Auth{User: "alice", Pass: "secret"}.AsSha256Mechanism()
			inWorld(t, &Config{SASL: []sasl.Mechanism{mech}}, func(bc *brokerConn) {
				if !bc.hello() {
					return
				}
				g, _ := bc.next()
				bc.answer(g, kmsg.NewPtrSASLHandshakeResponse())
				for i := 0; ; i++ {
					g, ok := bc.next()
					if !ok || g.Key != 36 {
						if ok {
							t.Errorf("API %d on a connection that nobody vouches for", g.Key)
						}
						return
					}
					req := kmsg.NewPtrSASLAuthenticateRequest()
					req.SetVersion(g.Version)
					_ = req.ReadFrom(g.Body)
					r := kmsg.NewPtrSASLAuthenticateResponse()
					r.SASLAuthBytes = []byte(c.final)
					if i == 0 {
						_, nonce, _ := strings.Cut(string(req.SASLAuthBytes), "r=")
						r.SASLAuthBytes = []byte("r=" + nonce + "srv,s=c2FsdA==,i=" + c.iterations)
					}
					bc.answer(g, r)
				}
			}, func(t *testing.T, w *world) {
				_, err := w.lane(General).Do(t.Context(), metadata("m"))
				var ae *kafka.AuthError
				if !errors.As(err, &ae) || ae.Mechanism != "SCRAM-SHA-256" || ae.Addr != address || w.peer.Open(General) {
					t.Errorf("%v", err)
				}
				if n := len(w.b.requests(36)); n != c.messages || w.b.accepted() != 1 {
					t.Errorf("%d messages on %d sockets, want %d", n, w.b.accepted(), c.messages)
				}
			})
		})
	}
}
