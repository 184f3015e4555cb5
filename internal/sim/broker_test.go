package sim

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ottla/ottla/internal/memnet"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// rig is one broker with a dialler: on memnet in a bubble, or on loopback.
type rig struct {
	*Broker
	dial func(t *testing.T) net.Conn
}

func everywhere(t *testing.T, f func(t *testing.T, r rig)) {
	t.Run("memnet", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := memnet.New(1)
			l, err := n.Listen("b1:9092")
			if err != nil {
				t.Fatal(err)
			}
			f(t, rig{NewBroker(t, l), dialer(n.Dial, "b1:9092")})
		})
	})
	t.Run("loopback", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f(t, rig{NewBroker(t, l), dialer(new(net.Dialer).DialContext, l.Addr().String())})
	})
}

func dialer(dial func(context.Context, string, string) (net.Conn, error), addr string) func(t *testing.T) net.Conn {
	return func(t *testing.T) net.Conn {
		t.Helper()
		c, err := dial(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
}

func send(t *testing.T, c net.Conn, correlation int32, req kmsg.Request) {
	t.Helper()
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("sim-test"))
	if _, err := c.Write(f.AppendRequest(nil, req, correlation)); err != nil {
		t.Fatal(err)
	}
}

// receive reads the answer to req and returns its correlation id.
func receive(t *testing.T, c net.Conn, resp kmsg.Response) int32 {
	t.Helper()
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:])-4)
	if _, err := io.ReadFull(c, body); err != nil {
		t.Fatal(err)
	}
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	return int32(binary.BigEndian.Uint32(head[4:]))
}

func at[R kmsg.Request](req R, version int16) R {
	req.SetVersion(version)
	return req
}

func TestDefaultsAnswerWhatAClientAsksFirst(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		r.Cluster().SetTopic("orders", 1, 1)
		r.Cluster().SetLeader("orders", 1, 7)
		c := r.dial(t)
		av := at(kmsg.NewPtrApiVersionsRequest(), 3)
		send(t, c, 1, av)
		avr := av.ResponseKind().(*kmsg.ApiVersionsResponse)
		if id := receive(t, c, avr); id != 1 || len(avr.ApiKeys) < 50 {
			t.Fatalf("answer %d with %d keys", id, len(avr.ApiKeys))
		}
		md := at(kmsg.NewPtrMetadataRequest(), 12)
		md.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("orders")}, {Topic: kmsg.StringPtr("none")}}
		send(t, c, 2, md)
		mdr := md.ResponseKind().(*kmsg.MetadataResponse)
		receive(t, c, mdr)
		p := mdr.Topics[0].Partitions
		if *mdr.ClusterID != "sim" || len(p) != 2 || p[1].Leader != 7 || p[1].LeaderEpoch != 1 || mdr.Topics[1].ErrorCode != 3 {
			t.Errorf("%+v", mdr)
		}
		fc := at(kmsg.NewPtrFindCoordinatorRequest(), 4)
		fc.CoordinatorKeys = []string{"g"}
		send(t, c, 3, fc)
		fcr := fc.ResponseKind().(*kmsg.FindCoordinatorResponse)
		receive(t, c, fcr)
		if net.JoinHostPort(fcr.Coordinators[0].Host, "") == ":" || fcr.Coordinators[0].NodeID != 1 {
			t.Errorf("%+v", fcr)
		}
		keys := []int16{}
		for _, f := range r.Frames() {
			keys = append(keys, f.Key)
			if f.Conn != 1 || f.ClientID != "sim-test" || f.Req == nil {
				t.Errorf("%+v", f)
			}
		}
		if !slices.Equal(keys, []int16{18, 3, 10}) || r.Accepted() != 1 {
			t.Errorf("journal %v, %d connections", keys, r.Accepted())
		}
	})
}

func TestApiVersionsAboveTheTable(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		r.SetVersions(18, 0, 3)
		c := r.dial(t)
		send(t, c, 1, at(kmsg.NewPtrApiVersionsRequest(), 4))
		resp := kmsg.NewPtrApiVersionsResponse()
		receive(t, c, resp)
		if resp.ErrorCode != 35 || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].MaxVersion != 3 {
			t.Errorf("%+v", resp)
		}
	})
}

func TestScriptedAnswers(t *testing.T) {
	heartbeat := at(kmsg.NewPtrHeartbeatRequest(), 4)
	seven := int32(7)
	everywhere(t, func(t *testing.T, r rig) {
		resp := kmsg.NewPtrHeartbeatResponse()
		resp.ErrorCode = kerr.RebalanceInProgress.Code
		gate := make(chan struct{})
		r.Script(12, Reply(resp), Answer{Response: resp, Correlation: &seven},
			Answer{Response: resp, Until: gate, OutOfOrder: true}, Answer{Response: resp},
			Answer{Raw: []byte("HTTP/1.1 400")}, Answer{Response: resp, Cut: 5, End: Reset})
		c := r.dial(t)
		want := func(correlation, id int32) {
			t.Helper()
			got := heartbeat.ResponseKind().(*kmsg.HeartbeatResponse)
			if n := receive(t, c, got); n != id || got.ErrorCode != 27 {
				t.Errorf("answer %d has id %d, code %d", correlation, n, got.ErrorCode)
			}
		}
		send(t, c, 1, heartbeat)
		want(1, 1)
		send(t, c, 2, heartbeat)
		want(2, 7)
		send(t, c, 3, heartbeat)
		send(t, c, 4, heartbeat)
		want(4, 4)
		close(gate)
		want(3, 3)
		send(t, c, 5, heartbeat)
		raw := make([]byte, 12)
		if _, err := io.ReadFull(c, raw); err != nil || string(raw) != "HTTP/1.1 400" {
			t.Errorf("%q, %v", raw, err)
		}
		send(t, c, 6, heartbeat)
		rest, err := io.ReadAll(c)
		if len(rest) > 5 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%d bytes, %v", len(rest), err)
		}
		if r.Count(12) != 6 {
			t.Errorf("%d requests", r.Count(12))
		}
	})
}

func TestHandlerSilenceDelayAndPush(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		r.Handle(12, func(q *Request) Answer {
			switch q.Nth {
			case 1:
				return Answer{}
			case 2:
				return Answer{Response: q.Response(), Delay: 20 * time.Millisecond}
			default:
				return Answer{End: StopReading}
			}
		})
		c := r.dial(t)
		hb := at(kmsg.NewPtrHeartbeatRequest(), 0)
		for i := range int32(3) {
			send(t, c, i, hb)
		}
		if id := receive(t, c, hb.ResponseKind()); id != 1 {
			t.Errorf("answer to %d", id)
		}
		if err := r.Await(t.Context(), 12, 3); err != nil {
			t.Fatal(err)
		}
		if err := r.Push(1, []byte("!")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if _, err := c.Read(b); err != nil || b[0] != '!' {
			t.Errorf("%q %v", b, err)
		}
		if !r.End(1, Close) || r.End(2, Close) {
			t.Error("End does not tell open connections from others")
		}
		if err := r.AwaitThat(t.Context(), func() bool { return len(r.Open()) == 0 }); err != nil {
			t.Error(err)
		}
	})
}

func TestC27OutOfRangeVersionsAreCountedAndClosed(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		r.AllowOutOfRange()
		r.SetVersions(3, 4, 9)
		r.RemoveVersions(12)
		for i, req := range []kmsg.Request{at(kmsg.NewPtrMetadataRequest(), 10), at(kmsg.NewPtrMetadataRequest(), 3), at(kmsg.NewPtrHeartbeatRequest(), 0)} {
			c := r.dial(t)
			send(t, c, 1, req)
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Error(err)
			}
			if got := r.OutOfRange(); got != i+1 {
				t.Errorf("counted %d", got)
			}
		}
	})
}

func TestHostileFramesEndTheirConnection(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		for _, raw := range []string{
			"\x7f\xff\xff\xff", "\x00\x00\x00\x00", "\x00\x00\x00\x0a\x30\x39\x00\x00\x00\x00\x00\x01\xff\xff",
			"\x00\x00\x00\x0a\x00\x03\x00\x09\x00\x00\x00\x01\x7f\xff", "GET / HTTP/1.1\r\n\r\n",
		} {
			c := r.dial(t)
			c.Write([]byte(raw))
			if _, err := c.Read(make([]byte, 1)); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%q: %v", raw, err)
			}
		}
	})
}

func TestOnAccept(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		r.OnAccept(func(n int, _ net.Conn) End {
			if n == 1 {
				return Close
			}
			return Keep
		})
		if _, err := r.dial(t).Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
		c := r.dial(t)
		hb := at(kmsg.NewPtrHeartbeatRequest(), 0)
		send(t, c, 1, hb)
		receive(t, c, hb.ResponseKind())
	})
}

// login runs a whole exchange with a client's mechanism.
func login(t *testing.T, c net.Conn, m sasl.Mechanism) (lifetime int64, code int16, text *string) {
	t.Helper()
	hs := at(kmsg.NewPtrSASLHandshakeRequest(), 1)
	hs.Mechanism = m.Name()
	send(t, c, 1, hs)
	hsr := hs.ResponseKind().(*kmsg.SASLHandshakeResponse)
	receive(t, c, hsr)
	if hsr.ErrorCode != 0 {
		return 0, hsr.ErrorCode, nil
	}
	session, out, err := m.Authenticate(t.Context(), "b1")
	if err != nil {
		t.Fatal(err)
	}
	for done := false; !done; {
		au := at(kmsg.NewPtrSASLAuthenticateRequest(), 2)
		au.SASLAuthBytes = out
		send(t, c, 2, au)
		aur := au.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		receive(t, c, aur)
		if aur.ErrorCode != 0 {
			return 0, aur.ErrorCode, aur.ErrorMessage
		}
		lifetime = aur.SessionLifetimeMillis
		if done, out, err = session.Challenge(aur.SASLAuthBytes); err != nil {
			t.Fatal(err)
		}
		done = done || m.Name() == "PLAIN"
	}
	return lifetime, 0, nil
}

func TestSASL(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		r.SetSASL(SASL{
			Mechanisms: []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"},
			Users:      map[string]string{"ann": "pw", "a,b=c": "pw"}, Lifetime: time.Minute, Refusal: "go away",
		})
		for _, m := range []sasl.Mechanism{
			plain.Auth{User: "ann", Pass: "pw"}.AsMechanism(),
			scram.Auth{User: "ann", Pass: "pw"}.AsSha256Mechanism(),
			scram.Auth{User: "a,b=c", Pass: "pw"}.AsSha512Mechanism(),
		} {
			c := r.dial(t)
			for range 2 { // the second is a re-authentication
				if life, code, _ := login(t, c, m); code != 0 || life != 60_000 {
					t.Fatalf("%s: code %d, lifetime %d", m.Name(), code, life)
				}
			}
			hb := at(kmsg.NewPtrHeartbeatRequest(), 0)
			send(t, c, 1, hb)
			receive(t, c, hb.ResponseKind())
		}
		r.SetSASL(SASL{Mechanisms: []string{"PLAIN"}, Users: map[string]string{"ann": "pw"}, Lifetime: time.Millisecond, Refusal: "go away"})
		over := r.dial(t)
		login(t, over, plain.Auth{User: "ann", Pass: "pw"}.AsMechanism())
		time.Sleep(2 * time.Millisecond)
		send(t, over, 1, at(kmsg.NewPtrHeartbeatRequest(), 0))
		if _, err := over.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a request after the session's end: %v", err)
		}
		r.SetSASL(SASL{Mechanisms: []string{"PLAIN", "SCRAM-SHA-256"}, Users: map[string]string{"ann": "pw"}, Refusal: "go away"})
		for _, m := range []sasl.Mechanism{plain.Auth{User: "ann", Pass: "no"}.AsMechanism(), scram.Auth{User: "ann", Pass: "no"}.AsSha256Mechanism()} {
			if _, code, text := login(t, r.dial(t), m); code != kerr.SaslAuthenticationFailed.Code || text == nil || *text != "go away" {
				t.Errorf("%s: code %d, text %v", m.Name(), code, text)
			}
		}
		c := r.dial(t)
		send(t, c, 1, at(kmsg.NewPtrMetadataRequest(), 12))
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("an unauthenticated request: %v", err)
		}
	})
}

func TestOneTopologyManyBrokers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(1)
		var ls []net.Listener
		for _, a := range []string{"b1:9092", "b2:9092", "b3:9092"} {
			l, err := n.Listen(a)
			if err != nil {
				t.Fatal(err)
			}
			ls = append(ls, l)
		}
		c := New(t, ls...)
		if got := c.Seeds(); !slices.Equal(got, []string{"b1:9092", "b2:9092", "b3:9092"}) {
			t.Fatal(got)
		}
		c.Update(func(tp *Topology) { tp.Coordinators = map[string]int32{"g": 2} })
		for _, b := range c.Brokers() {
			nc := dialer(n.Dial, b.Addr())(t)
			fc := at(kmsg.NewPtrFindCoordinatorRequest(), 3)
			fc.CoordinatorKey = "g"
			send(t, nc, 1, fc)
			resp := fc.ResponseKind().(*kmsg.FindCoordinatorResponse)
			receive(t, nc, resp)
			if resp.Host != "b2" || resp.Port != 9092 {
				t.Errorf("%+v", resp)
			}
			time.Sleep(time.Second)
		}
		if fs := c.Frames(); len(fs) != 3 || fs[0].At.After(fs[2].At) || c.Count(10) != 3 {
			t.Errorf("%d frames", len(fs))
		}
	})
}

func TestResetReachesThroughTLS(t *testing.T) {
	cert := testCert(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := NewBroker(t, tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}}))
	b.Script(12, Answer{End: Reset})
	raw := dialer(new(net.Dialer).DialContext, l.Addr().String())(t)
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	send(t, c, 1, at(kmsg.NewPtrHeartbeatRequest(), 0))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

func TestRaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(1)
		l, err := n.Listen("b1:9092")
		if err != nil {
			t.Fatal(err)
		}
		Raw(t, l, func(n int, c net.Conn) {
			c.Write(bytes.Repeat([]byte{'0' + byte(n)}, 3))
		})
		for _, want := range []string{"111", "222"} {
			if got, err := io.ReadAll(dialer(n.Dial, "b1:9092")(t)); string(got) != want || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		}
	})
}
