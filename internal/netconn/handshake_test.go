package netconn

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/ottla/ottla/kafka"
)

func plainOf(user, pass string) sasl.Mechanism {
	return plain.Auth{User: user, Pass: pass}.AsMechanism()
}

// guarded is a broker that closes on anything but ApiVersions, SaslHandshake
// and SaslAuthenticate until a login was answered, and counts that. life is
// the session lifetime it grants.
type guarded struct {
	offers   []string
	password string // of PLAIN; empty = any
	life     time.Duration
	logins   atomic.Int64
	early    atomic.Int64
	expired  atomic.Int64 // requests after the lifetime
}

func (b *guarded) serve(c *brokerConn) {
	if !c.hello() {
		return
	}
	var until time.Time
	in := false
	for g, ok := c.next(); ok; g, ok = c.next() {
		var resp kmsg.Response
		switch g.Key {
		case 17:
			resp = b.handshake(g)
		case 36:
			r := b.authenticate(g)
			if in = r.ErrorCode == 0; in {
				b.logins.Add(1)
				until = time.Now().Add(b.life)
			}
			resp = r
		default:
			if !in {
				b.early.Add(1)
				return
			}
			if b.life > 0 && time.Now().After(until) {
				b.expired.Add(1)
				return
			}
			resp = reply(g)
		}
		if !c.answer(g, resp) || refused(resp) {
			return
		}
	}
}

func refused(resp kmsg.Response) bool {
	switch r := resp.(type) {
	case *kmsg.SASLHandshakeResponse:
		return r.ErrorCode != 0
	case *kmsg.SASLAuthenticateResponse:
		return r.ErrorCode != 0
	}
	return false
}

func (b *guarded) handshake(g gotRequest) *kmsg.SASLHandshakeResponse {
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.SetVersion(g.Version)
	_ = req.ReadFrom(g.Body)
	resp := kmsg.NewPtrSASLHandshakeResponse()
	resp.SupportedMechanisms = b.offers
	resp.ErrorCode = 33
	for _, m := range b.offers {
		if m == req.Mechanism {
			resp.ErrorCode = 0
		}
	}
	return resp
}

func (b *guarded) authenticate(g gotRequest) *kmsg.SASLAuthenticateResponse {
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.SetVersion(g.Version)
	_ = req.ReadFrom(g.Body)
	resp := kmsg.NewPtrSASLAuthenticateResponse()
	resp.SessionLifetimeMillis = b.life.Milliseconds()
	if b.password != "" && !strings.HasSuffix(string(req.SASLAuthBytes), "\x00"+b.password) {
		resp.ErrorCode, resp.ErrorMessage = 58, kmsg.StringPtr("Authentication failed: Invalid username or password")
	}
	return resp
}

// TestC14SASLComesBeforeAnyOtherRequest also is C22 and B061: every lane, many
// reconnects, concurrent requests.
func TestC14SASLComesBeforeAnyOtherRequest(t *testing.T) {
	b := &guarded{offers: []string{"PLAIN"}, password: "secret"}
	inWorld(t, &Config{SASL: []sasl.Mechanism{plainOf("user", "secret")}}, b.serve, func(t *testing.T, w *world) {
		for range 5 {
			var calls []chan outcome
			for k := range Kind(kinds) {
				for i := range 4 {
					calls = append(calls, start(w.lane(k), metadata(fmt.Sprint(i))))
				}
			}
			for _, ch := range calls {
				if o := await(t, ch); o.err != nil {
					t.Error(o.err)
				}
			}
			w.peer.Disconnect(io.EOF)
		}
		if b.early.Load() != 0 || b.logins.Load() != 5*kinds || w.b.accepted() != 5*kinds {
			t.Errorf("%d early requests, %d logins, %d sockets", b.early.Load(), b.logins.Load(), w.b.accepted())
		}
		for _, c := range w.b.conns {
			if c.got[0].Key != 18 || c.got[1].Key != 17 || c.got[1].Version != 1 || c.got[2].Key != 36 {
				t.Errorf("order %v", c.got)
			}
		}
	})
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		ask(t, w.lane(General), "m")
		if len(w.b.requests(17))+len(w.b.requests(36)) != 0 {
			t.Error("a SASL frame without credentials")
		}
	})
}

func TestC16TheNextMechanismThatIsOfferedIsTried(t *testing.T) {
	b := &guarded{offers: []string{"OAUTHBEARER", "PLAIN"}}
	mechs := []sasl.Mechanism{scram.Auth{User: "u", Pass: "p"}.AsSha256Mechanism(), scram.Auth{User: "u", Pass: "p"}.AsSha512Mechanism(), plainOf("u", "p")}
	inWorld(t, &Config{SASL: mechs}, b.serve, func(t *testing.T, w *world) {
		ask(t, w.lane(General), "m")
		if n := w.b.accepted(); n != 2 {
			t.Errorf("%d sockets", n)
		}
		ask(t, w.lane(Fetch), "m")
		if n := w.b.accepted(); n != 3 {
			t.Errorf("the second lane began with a refused mechanism: %d sockets", n)
		}
	})
	none := &guarded{offers: []string{"SCRAM-SHA-512", "OAUTHBEARER"}}
	inWorld(t, &Config{SASL: []sasl.Mechanism{plainOf("u", "p")}}, none.serve, func(t *testing.T, w *world) {
		_, err := w.lane(General).Do(context.Background(), metadata("m"))
		var ae *kafka.AuthError
		if !errors.As(err, &ae) || ae.Mechanism != "PLAIN" || fmt.Sprint(ae.Offered) != "[SCRAM-SHA-512 OAUTHBEARER]" || ae.Addr != address || !Permanent(err) {
			t.Errorf("B062: %v", err)
		}
		time.Sleep(time.Hour)
		if n := w.b.accepted(); n != 1 {
			t.Errorf("B062: a retry loop: %d sockets", n)
		}
	})
}

// TestC21ARefusedLoginIsNotRetried also is C20 with the broker's text.
func TestC21ARefusedLoginIsNotRetried(t *testing.T) {
	b := &guarded{offers: []string{"PLAIN"}, password: "right"}
	inWorld(t, &Config{SASL: []sasl.Mechanism{plainOf("user", "wrong")}}, b.serve, func(t *testing.T, w *world) {
		calls := []chan outcome{start(w.lane(General), metadata("a")), start(w.lane(General), metadata("b"))}
		for _, ch := range calls {
			o := await(t, ch)
			var ae *kafka.AuthError
			if !errors.As(o.err, &ae) || ae.Message != "Authentication failed: Invalid username or password" || !errors.Is(o.err, kerr.SaslAuthenticationFailed) {
				t.Errorf("%v", o.err)
			}
			if kafka.MayHaveHappened(o.err) || !Permanent(o.err) || strings.Contains(fmt.Sprintf("%v %+v", o.err, o.err), "wrong") {
				t.Errorf("%+v", o.err)
			}
		}
		if n := len(w.b.requests(36)); n != 1 {
			t.Errorf("%d logins", n)
		}
	})
}

// TestC15ABrokerWithHandshake0OnlyIsRefused holds that no raw token is written.
func TestC15ABrokerWithHandshake0OnlyIsRefused(t *testing.T) {
	inWorld(t, &Config{SASL: []sasl.Mechanism{plainOf("u", "p")}}, func(c *brokerConn) {
		g, ok := c.next()
		if !ok {
			return
		}
		resp := table()
		for i := range resp.ApiKeys {
			if resp.ApiKeys[i].ApiKey == 17 {
				resp.ApiKeys[i].MaxVersion = 0
			}
		}
		c.answer(g, resp)
		if _, ok := c.next(); ok {
			t.Error("something was written after ApiVersions")
		}
	}, func(t *testing.T, w *world) {
		_, err := w.lane(General).Do(context.Background(), metadata("m"))
		var ve *kafka.VersionError
		if !errors.As(err, &ve) || ve.Name != "SaslHandshake" || ve.BrokerMax != 0 || ve.ClientMin != 1 || ve.Addr != address || !Permanent(err) {
			t.Errorf("%v", err)
		}
	})
}

// TestB028ResetsOfApiVersionsGoDownAndAreRemembered also is C12's last part,
// C10's memory and R6.
func TestB028ResetsOfApiVersionsGoDownAndAreRemembered(t *testing.T) {
	for _, way := range []struct {
		works int16
		reset bool // else the broker closes
	}{{3, true}, {0, true}, {3, false}} {
		works := way.works
		inWorld(t, nil, func(c *brokerConn) {
			g, ok := c.next()
			if !ok || g.Version > works {
				if way.reset {
					c.memConn().Reset()
				}
				return
			}
			c.answer(g, table())
			for g, ok := c.next(); ok && c.answer(g, reply(g)); g, ok = c.next() {
			}
		}, func(t *testing.T, w *world) {
			ask(t, w.lane(General), "m")
			want := map[int16]string{3: "5 5 3", 0: "5 5 3 0"}[works]
			if got := helloVersions(w.b); got != want {
				t.Errorf("asked at %s, want %s", got, want)
			}
			ask(t, w.lane(Fetch), "m")
			if got, again := helloVersions(w.b), fmt.Sprintf("%s %d", want, works); got != again {
				t.Errorf("the second lane: asked at %s, want %s", got, again)
			}
			time.Sleep(time.Hour)
			ask(t, w.lane(General), "m")
			if got := helloVersions(w.b); !strings.HasPrefix(got, fmt.Sprintf("%s %d 5 5", want, works)) {
				t.Errorf("after an hour: asked at %s", got)
			}
			time.Sleep(time.Second)
			if n := w.net.Open(); n != 1 {
				t.Errorf("%d connections are open", n)
			}
		})
	}
}

func helloVersions(b *broker) string {
	var out []string
	for _, g := range b.requests(18) {
		out = append(out, fmt.Sprint(g.Version))
	}
	return strings.Join(out, " ")
}

// TestB026TheVersionIsLoweredOnTheSameConnection is code 35 in the form of
// version 0.
func TestB026TheVersionIsLoweredOnTheSameConnection(t *testing.T) {
	for _, hint := range []bool{true, false} {
		inWorld(t, nil, func(c *brokerConn) {
			for g, ok := c.next(); ok; g, ok = c.next() {
				if g.Key == 18 && g.Version > 3 {
					g.Version = 0
					resp := kmsg.NewPtrApiVersionsResponse()
					resp.ErrorCode = 35
					if hint {
						resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MaxVersion: 3}}
					}
					c.answer(g, resp)
					continue
				}
				c.answer(g, reply(g))
			}
		}, func(t *testing.T, w *world) {
			ask(t, w.lane(General), "m")
			if got, want := helloVersions(w.b), map[bool]string{true: "5 3", false: "5 0"}[hint]; got != want || w.b.accepted() != 1 {
				t.Errorf("asked at %s on %d sockets, want %s", got, w.b.accepted(), want)
			}
		})
	}
}

// TestB029TheBrokersErrorIsSeen has a null array and a close behind it.
func TestB029TheBrokersErrorIsSeen(t *testing.T) {
	for code, want := range map[byte]error{58: kerr.SaslAuthenticationFailed, 31: kerr.ClusterAuthorizationFailed} {
		cfg := &Config{Hooks: Hooks{Mismatch: func(string, string, kafka.NodeID) { t.Error("told of another node") }}}
		inWorld(t, cfg, func(c *brokerConn) {
			g, _ := c.next()
			c.Write([]byte{0, 0, 0, 10, 0, 0, 0, byte(g.ID), 0, code, 0xff, 0xff, 0xff, 0xff})
		}, func(t *testing.T, w *world) {
			_, err := w.lane(General).Do(context.Background(), metadata("m"))
			var de *kafka.DialError
			if !errors.As(err, &de) || de.Addr != address || !errors.Is(err, want) || !Permanent(err) || w.b.accepted() != 1 {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestR40AnEndOfStreamIsAFact holds that a broker that closes at once is named
// as such, without a guess.
func TestR40AnEndOfStreamIsAFact(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) { c.next() }, func(t *testing.T, w *world) {
		_, err := w.lane(General).Do(context.Background(), metadata("m"))
		var ce *kafka.ConnError
		if !errors.As(err, &ce) || ce.Name != "ApiVersions" || !ce.First || !errors.Is(err, io.EOF) || Permanent(err) || kafka.MayHaveHappened(err) {
			t.Errorf("%v", err)
		}
		if s := strings.ToLower(err.Error()); strings.Contains(s, "sasl") || strings.Contains(s, "tls") || strings.Contains(s, "?") {
			t.Errorf("a guess: %v", err)
		}
	})
}

// TestC23R5NothingIsLostAcrossReauthentications runs 1,000 requests across more
// than 50 re-authentications, five at a time; R5.
func TestC23R5NothingIsLostAcrossReauthentications(t *testing.T) {
	b := &guarded{offers: []string{"PLAIN"}, life: time.Second}
	inWorld(t, &Config{SASL: []sasl.Mechanism{plainOf("u", "p")}}, b.serve, func(t *testing.T, w *world) {
		l := w.lane(General)
		done := make(chan bool)
		for g := range 5 {
			go func() {
				for i := range 200 {
					mark := fmt.Sprintf("%d-%d", g, i)
					if resp, err := l.Do(context.Background(), metadata(mark)); err != nil || markOf(resp) != mark {
						t.Errorf("%s: %q %v", mark, markOf(resp), err)
					}
					time.Sleep(250 * time.Millisecond)
				}
				done <- true
			}()
		}
		for range 5 {
			<-done
		}
		if n := b.logins.Load(); n < 50 || b.expired.Load() != 0 || w.b.accepted() != 1 {
			t.Errorf("%d logins, %d requests after expiry, %d sockets", n, b.expired.Load(), w.b.accepted())
		}
	})
}

// TestB070OtherWritesWaitBehindAReauthentication sends ten requests when the
// session is due.
func TestB070OtherWritesWaitBehindAReauthentication(t *testing.T) {
	b := &guarded{offers: []string{"PLAIN"}, life: 2 * time.Second}
	inWorld(t, &Config{SASL: []sasl.Mechanism{plainOf("u", "p")}}, b.serve, func(t *testing.T, w *world) {
		l := w.lane(General)
		ask(t, l, "first")
		time.Sleep(1850 * time.Millisecond) // past 90 % of the lifetime
		var calls []chan outcome
		for i := range 10 {
			calls = append(calls, start(l, metadata(fmt.Sprint(i))))
		}
		for i, ch := range calls {
			if o := await(t, ch); o.err != nil || markOf(o.resp) != fmt.Sprint(i) {
				t.Errorf("%d: %v", i, o.err)
			}
		}
		var order []int16
		for _, g := range w.b.requests(-1) {
			order = append(order, g.Key)
		}
		if got := fmt.Sprint(order[:7]); got != "[18 17 36 3 17 36 3]" || b.expired.Load() != 0 {
			t.Errorf("order %v", order)
		}
	})
}

// TestB070OutstandingAnswersAreReadAroundTheHandshake has five requests in
// flight when re-authentication begins; the broker answers them 300 ms late.
func TestB070OutstandingAnswersAreReadAroundTheHandshake(t *testing.T) {
	b := &guarded{offers: []string{"PLAIN"}}
	inWorld(t, &Config{SASL: []sasl.Mechanism{plainOf("u", "p")}}, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		for g, ok := c.next(); ok; g, ok = c.next() {
			switch g.Key {
			case 17:
				c.answer(g, b.handshake(g))
			case 36:
				r := b.authenticate(g)
				r.SessionLifetimeMillis = 2000
				c.answer(g, r)
			default:
				time.Sleep(300 * time.Millisecond)
				c.answer(g, reply(g))
			}
		}
	}, func(t *testing.T, w *world) {
		l := w.lane(General)
		ask(t, l, "opens")
		time.Sleep(1200 * time.Millisecond) // 1.5 s after the login
		var calls []chan outcome
		for i := range 5 {
			calls = append(calls, start(l, metadata(fmt.Sprint(i))))
		}
		time.Sleep(400 * time.Millisecond) // 1.9 s: re-authentication is queued behind them
		late := start(l, metadata("late"))
		for i, ch := range calls {
			if o := await(t, ch); o.err != nil || markOf(o.resp) != fmt.Sprint(i) {
				t.Errorf("%d: %q %v", i, markOf(o.resp), o.err)
			}
		}
		if o := await(t, late); o.err != nil || markOf(o.resp) != "late" {
			t.Errorf("late: %v", o.err)
		}
		var order []int16
		for _, g := range w.b.requests(-1) {
			order = append(order, g.Key)
		}
		if got := fmt.Sprint(order); got != "[18 17 36 3 3 3 3 3 3 17 36 3]" || w.b.accepted() != 1 {
			t.Errorf("order %v on %d sockets", order, w.b.accepted())
		}
	})
}

// TestB071ShortLifetimesDoNotSpin has lifetimes of 0, 1 ms, 1 s, 5 s and 60 s
// (R5), and one request a second for ten minutes.
func TestB071ShortLifetimesDoNotSpin(t *testing.T) {
	for life, most := range map[time.Duration]int64{0: 1, time.Millisecond: 610, time.Second: 800, 5 * time.Second: 160, time.Minute: 14} {
		b := &guarded{offers: []string{"PLAIN"}, life: life}
		if life == time.Millisecond {
			b.life = 0 // the broker's clock is not what is tested here
		}
		inWorld(t, &Config{SASL: []sasl.Mechanism{plainOf("u", "p")}}, func(c *brokerConn) {
			if life == time.Millisecond {
				tiny(b, c)
				return
			}
			b.serve(c)
		}, func(t *testing.T, w *world) {
			for range 600 {
				ask(t, w.lane(General), "m")
				time.Sleep(time.Second)
			}
			n := b.logins.Load()
			if n > most || n < most/3 || w.b.accepted() != 1 || b.expired.Load() != 0 {
				t.Errorf("lifetime %v: %d logins, %d sockets, %d expired", life, n, w.b.accepted(), b.expired.Load())
			}
		})
	}
}

// tiny grants lifetimes of 1 ms.
func tiny(b *guarded, c *brokerConn) {
	if !c.hello() {
		return
	}
	for g, ok := c.next(); ok; g, ok = c.next() {
		resp := reply(g)
		switch g.Key {
		case 17:
			resp = b.handshake(g)
		case 36:
			b.logins.Add(1)
			r := b.authenticate(g)
			r.SessionLifetimeMillis = 1
			resp = r
		}
		c.answer(g, resp)
	}
}

// TestC21AFailedReauthenticationGetsOneNewSocket is a token that is refused
// the second time only, then for good.
func TestC21AFailedReauthenticationGetsOneNewSocket(t *testing.T) {
	var n atomic.Int64
	b := &guarded{offers: []string{"PLAIN"}, password: "right", life: 10 * time.Second}
	mech := plain.Plain(func(context.Context) (plain.Auth, error) {
		if k := n.Add(1); k == 2 || k > 3 {
			return plain.Auth{User: "u", Pass: "wrong"}, nil
		}
		return plain.Auth{User: "u", Pass: "right"}, nil
	})
	inWorld(t, &Config{SASL: []sasl.Mechanism{mech}}, b.serve, func(t *testing.T, w *world) {
		l := w.lane(General)
		ask(t, l, "one")
		time.Sleep(9100 * time.Millisecond)
		ask(t, l, "two")
		if n := w.b.accepted(); n != 2 {
			t.Errorf("%d sockets after a failed re-authentication", n)
		}
		time.Sleep(9100 * time.Millisecond)
		_, err := l.Do(context.Background(), metadata("three"))
		var ae *kafka.AuthError
		if !errors.As(err, &ae) {
			t.Errorf("%v", err)
		}
		if got := len(w.b.requests(36)); got != 5 {
			t.Errorf("%d logins", got)
		}
	})
}

// TestB068TheTokenSourceRunsForEveryLogin has one that fails once, and a broker
// that restarts every minute.
func TestB068TheTokenSourceRunsForEveryLogin(t *testing.T) {
	var calls, failed atomic.Int64
	b := &guarded{offers: []string{"OAUTHBEARER"}, life: 30 * time.Second}
	mech := oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the token source has no deadline")
		}
		if n := calls.Add(1); n == 2 || n == 9 {
			failed.Add(1)
			return oauth.Auth{}, errors.New("the token service is away")
		}
		return oauth.Auth{Token: "t"}, nil
	})
	inWorld(t, &Config{SASL: []sasl.Mechanism{mech}}, b.serve, func(t *testing.T, w *world) {
		for i := range 300 {
			ask(t, w.lane(General), "m")
			time.Sleep(time.Second)
			if i%60 == 59 {
				w.b.mu.Lock()
				w.b.conns[len(w.b.conns)-1].Close()
				w.b.mu.Unlock()
			}
		}
		if n := b.logins.Load(); n < 10 || calls.Load() != n+2 || failed.Load() != 2 || b.expired.Load() != 0 || b.early.Load() != 0 || w.b.accepted() != 5 {
			t.Errorf("%d logins, %d tokens, %d expired, %d sockets", n, calls.Load(), b.expired.Load(), w.b.accepted())
		}
	})
}

// TestK17SecretsAreNotPrintedAndPlainIsWarnedOfOnce also holds that the log
// has no password.
// openMechanism hides nothing: every verb and encoder would print its password.
type openMechanism struct{ Password string }

func (openMechanism) Name() string { return "OPEN" }

func (openMechanism) Authenticate(context.Context, string) (sasl.Session, []byte, error) {
	return nil, nil, errors.ErrUnsupported
}

func TestK17SecretsAreNotPrintedAndPlainIsWarnedOfOnce(t *testing.T) {
	var log bytes.Buffer
	cfg := &Config{SASL: []sasl.Mechanism{plainOf("user", "hunter2")}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	b := &guarded{offers: []string{"PLAIN"}}
	inWorld(t, cfg, b.serve, func(t *testing.T, w *world) {
		for k := range Kind(kinds) {
			ask(t, w.lane(k), "m")
		}
		w.peer.Disconnect(io.EOF)
		ask(t, w.lane(General), "m")
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), address) {
			t.Errorf("%d warnings: %s", n, log.String())
		}
	})
	var out bytes.Buffer
	cfg.SASL = append(cfg.SASL, openMechanism{"hunter2"})
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "cfg", *cfg)
	if !strings.Contains(out.String(), `"cfg":"netconn.Config{`) {
		t.Errorf("logged as JSON: %s", out.String())
	}
	fmt.Fprintf(&out, "%v %+v %#v %s", *cfg, *cfg, *cfg, cfg)
	if s := out.String() + log.String(); strings.Contains(s, "hunter2") || !strings.Contains(s, "PLAIN") {
		t.Errorf("%s", s)
	}
}

// TestC2TheNodeIsCheckedOnDialAndOnLiveSockets is 2.1 points 4 and 5 at the
// socket: cluster and node id in ApiVersions 5, code 129 told, and one check
// on each live socket behind what is outstanding.
func TestC2TheNodeIsCheckedOnDialAndOnLiveSockets(t *testing.T) {
	var mu sync.Mutex
	var told []string
	cfg := &Config{Hooks: Hooks{Mismatch: func(addr, cluster string, node kafka.NodeID) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprintf("%s %s %d", addr, cluster, node))
	}}}
	inWorld(t, cfg, func(c *brokerConn) {
		for g, ok := c.next(); ok; g, ok = c.next() {
			resp := reply(g)
			if v, ok := resp.(*kmsg.ApiVersionsResponse); ok {
				req := kmsg.NewPtrApiVersionsRequest()
				req.SetVersion(g.Version)
				_ = req.ReadFrom(g.Body)
				if req.NodeID >= 0 && (req.NodeID != 1 || *req.ClusterID != "mine") {
					v.ErrorCode = 129
				}
			}
			c.answer(g, resp)
		}
	}, func(t *testing.T, w *world) {
		ask(t, w.lane(General), "m")
		ask(t, w.lane(Fetch), "m")
		w.peer.Expect("mine", 1)
		w.peer.Expect("mine", 1)
		time.Sleep(time.Second)
		if got := len(w.b.requests(18)); got != 4 || len(told) != 0 {
			t.Errorf("%d ApiVersions, told %v", got, told)
		}
		ask(t, w.lane(Produce), "with expectation")
		w.peer.Expect("mine", 2)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := fmt.Sprint(told); len(told) != 3 || !strings.Contains(got, address+" mine 2") {
			t.Errorf("told %v", told)
		}
		ask(t, w.lane(General), "the socket stays")
		_, err := w.lane(Join).Do(context.Background(), metadata("m"))
		var be *kafka.BrokerError
		if !errors.As(err, &be) || be.Code != 129 || len(told) != 4 || kafka.MayHaveHappened(err) {
			t.Errorf("a dial to another node: %v, told %v", err, told)
		}
		w.peer.Expect("", -1)
		ask(t, w.lane(Join), "without expectation")
		if n := w.b.accepted(); n != 5 {
			t.Errorf("%d sockets", n)
		}
	})
}

// TestC2ACheckThatIsNotAnsweredSaysNothing has brokers that close instead, and
// that are too old to be asked.
func TestC2ACheckThatIsNotAnsweredSaysNothing(t *testing.T) {
	for name, serve := range map[string]func(c *brokerConn){
		"closes": func(c *brokerConn) {
			c.hello()
			g, _ := c.next()
			c.answer(g, reply(g))
			c.next()
		},
		"too old": func(c *brokerConn) {
			for g, ok := c.next(); ok; g, ok = c.next() {
				resp := reply(g)
				if v, old := resp.(*kmsg.ApiVersionsResponse); old && g.Version > 4 {
					g.Version, v.ErrorCode, v.ApiKeys = 0, 35, []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MaxVersion: 4}}
				}
				c.answer(g, resp)
			}
		},
	} {
		told := 0
		cfg := &Config{Hooks: Hooks{Mismatch: func(string, string, kafka.NodeID) { told++ }}}
		inWorld(t, cfg, serve, func(t *testing.T, w *world) {
			ask(t, w.lane(General), "m")
			before := len(w.b.requests(18))
			w.peer.Expect("mine", 2)
			time.Sleep(time.Second)
			asked := len(w.b.requests(18)) - before
			if want := map[string]int{"closes": 1}[name]; asked != want || told != 0 || w.b.accepted() != 1 {
				t.Errorf("%s: %d checks, %d sockets, told %d times", name, asked, w.b.accepted(), told)
			}
		})
	}
}

// TestC2AnExpectationThatChangesDuringTheHandshakeIsChecked has the map learn
// who should be at an address while a lane is being greeted there.
func TestC2AnExpectationThatChangesDuringTheHandshakeIsChecked(t *testing.T) {
	told := make(chan string, 4)
	cfg := &Config{Hooks: Hooks{Mismatch: func(_, cluster string, node kafka.NodeID) { told <- fmt.Sprint(cluster, node) }}}
	inWorld(t, cfg, func(c *brokerConn) {
		for g, ok := c.next(); ok; g, ok = c.next() {
			resp := reply(g)
			if v, ok := resp.(*kmsg.ApiVersionsResponse); ok {
				req := kmsg.NewPtrApiVersionsRequest()
				req.SetVersion(g.Version)
				_ = req.ReadFrom(g.Body)
				if req.NodeID == 2 {
					v.ErrorCode = 129
				}
				time.Sleep(time.Second)
			}
			c.answer(g, resp)
		}
	}, func(t *testing.T, w *world) {
		time.AfterFunc(time.Second/2, func() { w.peer.Expect("mine", 2) })
		ask(t, w.lane(General), "m")
		time.Sleep(5 * time.Second)
		if len(told) != 1 || <-told != "mine2" {
			t.Errorf("the wrong node was told %d times", len(told))
		}
	})
}

// TestB016AllAddressesOfANameAreTried has one that refuses, one that swallows
// packets, and a good one; the name changes later. K3.
func TestB016AllAddressesOfANameAreTried(t *testing.T) {
	names := map[string][]string{"kafka.example": {"10.9.0.1", "10.9.0.2", "10.9.0.3"}}
	cfg := &Config{Resolve: func(_ context.Context, host string) ([]string, error) { return names[host], nil }}
	inWorld(t, cfg, nil, func(t *testing.T, w *world) {
		w.net.SetAddrs("dead", "10.9.0.1")
		w.net.SetAddrs("hole", "10.9.0.2")
		w.net.SetAddrs("good", "10.9.0.3")
		w.net.BlackHole("hole:9092", true)
		ln, err := w.net.Listen("good:9092")
		if err != nil {
			t.Fatal(err)
		}
		b := newBrokerOn(t, ln, (*brokerConn).echo)
		p := newPeer(t, "kafka.example:9092", cfg)
		d := took(func() { ask(t, p.Lane(General), "m") })
		if d > 5*time.Second+fast {
			t.Errorf("the silent address cost %v of 10 s", d)
		}
		names["kafka.example"] = []string{"10.9.0.2", "10.9.0.3"}
		if d := took(func() { ask(t, p.Lane(Fetch), "m") }); d >= fast {
			t.Errorf("a second lane waited %v for the silent address", d)
		}
		time.Sleep(silentFor)
		if d := took(func() { ask(t, p.Lane(Produce), "m") }); d < time.Second {
			t.Errorf("the silent address is never tried again: %v", d)
		}
		names["kafka.example"] = []string{"10.9.0.1"}
		p.Disconnect(io.EOF)
		_, err = p.Lane(General).Do(context.Background(), metadata("m"))
		var de *kafka.DialError
		if !errors.As(err, &de) || len(de.Tried) != 1 || b.accepted() != 3 {
			t.Errorf("the name was not resolved again: %v", err)
		}
		names["kafka.example"] = []string{"10.9.0.1", "10.9.0.2"}
		_, err = p.Lane(Join).Do(context.Background(), metadata("m"))
		if s := fmt.Sprint(err); !errors.As(err, &de) || len(de.Tried) != 2 || !strings.Contains(s, "10.9.0.1:9092: connect: connection refused; 10.9.0.2:9092: the connect timeout passed") || !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("each address with its reason: %v", err)
		}
	})
}

// TestB017IPv6HostAndPortStaySeparate has literals, one with a zone.
func TestB017IPv6HostAndPortStaySeparate(t *testing.T) {
	for addr, want := range map[string][2]string{
		"[::1]:9092": {"::1", "::1"}, "[2001:db8::1]:9093": {"2001:db8::1", "2001:db8::1"}, "[fe80::1%eth0]:9092": {"fe80::1%eth0", "fe80::1"}, "b1:9092": {"b1", "b1"},
	} {
		var dialled string
		cfg := &Config{TLS: tlsConfig(), Resolve: func(context.Context, string) ([]string, error) { return []string{"2001:db8::2"}, nil },
			Dial: func(_ context.Context, _, a string) (net.Conn, error) { dialled = a; return nil, errors.New("no") }}
		p := newPeer(t, addr, cfg)
		_, err := p.Lane(General).Do(context.Background(), metadata("m"))
		if addr == "b1:9092" {
			addr = "[2001:db8::2]:9092"
		}
		if p.host != want[0] || p.tls.ServerName != want[1] || dialled != addr || err == nil {
			t.Errorf("%s: host %q, TLS name %q, dialled %q", addr, p.host, p.tls.ServerName, dialled)
		}
	}
}

// TestB058RetriesArePaced dials a closed port again and again: the address is
// not flooded.
func TestB058RetriesArePaced(t *testing.T) {
	cfg := &Config{}
	inWorld(t, cfg, nil, func(t *testing.T, w *world) {
		w.b.ln.Close()
		dial, n := cfg.Dial, 0
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			n++
			return dial(ctx, network, addr)
		}
		end := time.Now().Add(10 * time.Second)
		for time.Now().Before(end) {
			w.lane(General).Do(context.Background(), metadata("m"))
		}
		if n < 8 || n > 20 {
			t.Errorf("%d dials in 10 s", n)
		}
		if until, err := w.peer.Failing(); err == nil || until.IsZero() {
			t.Error("the peer is not known to fail")
		}
	})
}

// TestB058ThePaceBehindLostSocketsCountsFromTheLastLoss has sockets that are lost
// before any answer, then nothing for a minute: the next request waits for no
// backoff. Mutation: a wait that begins with the dial.
func TestB058ThePaceBehindLostSocketsCountsFromTheLastLoss(t *testing.T) {
	inWorld(t, nil, func(c *brokerConn) {
		if c.n < 8 {
			c.hello()
			c.next()
			return
		}
		c.echo()
	}, func(t *testing.T, w *world) {
		l := w.lane(General)
		began := time.Now()
		for w.b.accepted() < 8 {
			l.Do(t.Context(), metadata("lost"))
		}
		if took := time.Since(began); took < time.Second {
			t.Errorf("8 sockets were lost within %v", took)
		}
		time.Sleep(time.Minute)
		began = time.Now()
		if o := await(t, start(l, metadata("late"))); o.err != nil || time.Since(began) > 20*time.Millisecond {
			t.Errorf("after a minute a request takes %v: %v", time.Since(began), o.err)
		}
	})
}

// TestTheReconnectBackoffHasJitter is 50 ms ±20 % after the first failure, by
// default, and not the same for every peer.
func TestTheReconnectBackoffHasJitter(t *testing.T) {
	inWorld(t, nil, nil, func(t *testing.T, w *world) {
		w.b.ln.Close()
		seen := map[time.Duration]bool{}
		for range 20 {
			p := newPeer(t, address, w.cfg)
			p.Lane(General).Do(t.Context(), metadata("m"))
			until, _ := p.Failing()
			d := time.Until(until)
			if seen[d] = true; d < 39*time.Millisecond || d > 60*time.Millisecond {
				t.Errorf("the next dial is in %v", d)
			}
		}
		if len(seen) < 10 {
			t.Errorf("20 peers wait for %d different times", len(seen))
		}
		cfg := &Config{Dial: w.cfg.Dial, NewRand: func() *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }}
		var with [2]time.Duration
		for i := range with {
			p := newPeer(t, address, cfg)
			p.Lane(General).Do(t.Context(), metadata("m"))
			until, _ := p.Failing()
			with[i] = time.Until(until)
		}
		if with[0] != with[1] {
			t.Errorf("K18: one seed, and %v", with)
		}
	})
}

// TestC19EveryExchangeHasItsOwnNonce draws 10^6 from the mechanism that users
// get; 10^4 with the race detector. Of a counter, a clock or an address the
// bits would not be even.
func TestC19EveryExchangeHasItsOwnNonce(t *testing.T) {
	m := scram.Auth{User: "u", Pass: "p"}.AsSha256Mechanism()
	draws := 1_000_000
	if raced {
		draws = 10_000
	}
	seen := make(map[[18]byte]bool, draws)
	var ones [8 * 18]int
	for range draws {
		_, first, err := m.Authenticate(context.Background(), address)
		if err != nil {
			t.Fatal(err)
		}
		_, nonce, _ := strings.Cut(string(first), ",r=")
		raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(nonce, "="))
		if err != nil || len(raw) < 18 {
			t.Fatalf("nonce %q: %v", nonce, err)
		}
		first18 := [18]byte(raw)
		if seen[first18] {
			t.Fatalf("nonce %q came twice", nonce)
		}
		seen[first18] = true
		for i := range ones {
			ones[i] += int(first18[i/8]>>(i%8)) & 1
		}
	}
	for i, n := range ones {
		if slack := 5 * int(math.Sqrt(float64(draws))/2+1); n < draws/2-slack || n > draws/2+slack { // five sigma
			t.Errorf("bit %d is set in %d of %d nonces", i, n, draws)
		}
	}
}
