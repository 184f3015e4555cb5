package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// passwords has every broker ask for SASL/PLAIN with the password of user u.
func (r *rig) passwords(password string) {
	for _, b := range r.sim.Brokers() {
		b.SetSASL(sim.SASL{Mechanisms: []string{"PLAIN"}, Users: map[string]string{"u": password}, Refusal: "no such user"})
	}
}

func withPassword(password string) func(*Config) {
	return func(c *Config) { c.SASL = []sasl.Mechanism{plain.Auth{User: "u", Pass: password}.AsMechanism()} }
}

// refusals is how often each broker was asked to authenticate since the last
// Forget.
func (r *rig) refusals() (most, all int) {
	for _, b := range r.sim.Brokers() {
		n := b.Count(36)
		most, all = max(most, n), all+n
	}
	return most, all
}

// TestC21B062ARefusalIsNotRepeatedWithinACall has every way to a broker end in
// a refused password, or in a mechanism that the broker does not have: each
// broker is asked at most once for each call, also where others are down.
func TestC21B062ARefusalIsNotRepeatedWithinACall(t *testing.T) {
	calls := map[string]kmsg.Request{
		"any": kmsg.NewPtrDescribeClusterRequest(), "controller": kmsg.NewPtrCreateTopicsRequest(),
		"leaders": listOffsets(tp("t", 0), tp("t", 1)), "group": &kmsg.HeartbeatRequest{Group: "g"},
		"groups": &kmsg.DescribeGroupsRequest{Groups: []string{"g", "h"}}, "every broker": kmsg.NewPtrListGroupsRequest(),
	}
	for name, req := range calls {
		inBubble(t, 3, func(t *testing.T, r *rig) {
			r.topic("t", 1, 2)
			r.answerOffsets()
			r.passwords("right")
			c := r.connect(withPassword("right"))
			mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
			r.passwords("changed")
			for _, b := range r.sim.Brokers() {
				b.EndAll(sim.Close)
				b.Forget()
			}
			time.Sleep(time.Millisecond)
			r.sim.Broker(3).Close()
			start := time.Now()
			_, err := c.Request(r.within(time.Minute), req)
			var ae *kafka.AuthError
			if !errors.As(err, &ae) || !strings.Contains(err.Error(), "no such user") || kafka.MayHaveHappened(err) {
				t.Errorf("%s: %v", name, err)
			}
			if most, all := r.refusals(); most > 2 || all > 3 || time.Since(start) > time.Second {
				t.Errorf("%s: %d refusals at one broker, %d in all, in %v", name, most, all, time.Since(start))
			}
		})
	}
}

// TestB062AWithdrawnPasswordIsNotTriedInTheBackground has topics that are kept
// fresh, and nobody who waits: within an hour each broker refuses the client a
// few times. A caller logs in at once.
func TestB062AWithdrawnPasswordIsNotTriedInTheBackground(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.topic("t", 1, 2)
		r.passwords("right")
		c := r.connect(withPassword("right"))
		mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
		r.passwords("changed")
		for _, b := range r.sim.Brokers() {
			b.EndAll(sim.Close)
			b.Forget()
		}
		time.Sleep(time.Hour)
		if most, all := r.refusals(); all == 0 || most > 20 {
			t.Errorf("%d refusals at one broker, %d in all", most, all)
		}
		r.passwords("right")
		start := time.Now()
		if _, err := c.PartitionCount(r.within(time.Minute), "t"); err != nil || time.Since(start) > 2*time.Second {
			t.Errorf("the password is right again: %v after %v", err, time.Since(start))
		}
	})
}

// TestB062AMechanismThatNoBrokerOffersEndsConnect also holds that a broker
// which is down beside it does not keep the loop going.
func TestB062AMechanismThatNoBrokerOffersEndsConnect(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		for _, b := range r.sim.Brokers() {
			b.SetSASL(sim.SASL{Mechanisms: []string{"SCRAM-SHA-512", "OAUTHBEARER"}})
		}
		r.sim.Broker(2).Close()
		cfg := r.config()
		withPassword("x")(&cfg)
		start := time.Now()
		_, err := Connect(r.within(time.Minute), cfg)
		var ae *kafka.AuthError
		if !errors.As(err, &ae) || !strings.Contains(err.Error(), "PLAIN") || !strings.Contains(err.Error(), "OAUTHBEARER") {
			t.Errorf("%v", err)
		}
		for _, id := range []int32{1, 3} {
			if n := r.sim.Broker(id).Count(17); n > 1 {
				t.Errorf("broker %d was asked %d times", id, n)
			}
		}
		if time.Since(start) > time.Second {
			t.Errorf("after %v", time.Since(start))
		}
	})
}

// TestB029AHandshakeCodeWithoutRemedyEndsConnect has ApiVersions answered with
// a code that no repetition mends, and with one that it does.
func TestB029AHandshakeCodeWithoutRemedyEndsConnect(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		b := r.sim.Broker(1)
		code := kerr.ClusterAuthorizationFailed.Code
		b.Handle(18, func(q *sim.Request) sim.Answer {
			resp := b.ApiVersions(q)
			resp.ErrorCode = code
			return sim.Answer{Response: resp, End: sim.Close}
		})
		start := time.Now()
		_, err := Connect(r.within(time.Minute), r.config())
		if !errors.Is(err, kerr.ClusterAuthorizationFailed) || !strings.Contains(err.Error(), "b1:9092") || time.Since(start) > time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		code = kerr.CoordinatorLoadInProgress.Code
		time.AfterFunc(2*time.Second, func() { b.Handle(18, nil) })
		c, err := Connect(r.within(time.Minute), r.config())
		mustDo(t, err)
		mustDo(t, c.Close())
	})
}

// selfSigned is a certificate for a name, and its key.
func selfSigned(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	mustDo(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	mustDo(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestC57B059AWrongCertificateFailsAtOnceInConnect has the broker's certificate
// refused by the client, the client's by the broker, and TLS asked for where
// there is none.
func TestC57B059AWrongCertificateFailsAtOnceInConnect(t *testing.T) {
	good, other := selfSigned(t, "b1"), selfSigned(t, "elsewhere")
	trust := func(certs ...tls.Certificate) *x509.CertPool {
		pool := x509.NewCertPool()
		for _, c := range certs {
			leaf, err := x509.ParseCertificate(c.Certificate[0])
			mustDo(t, err)
			pool.AddCert(leaf)
		}
		return pool
	}
	for name, c := range map[string]struct {
		server, client *tls.Config
		want           string
	}{
		"not trusted":    {&tls.Config{Certificates: []tls.Certificate{good}}, &tls.Config{RootCAs: trust(other)}, "not trusted"},
		"another name":   {&tls.Config{Certificates: []tls.Certificate{other}}, &tls.Config{RootCAs: trust(other)}, "another name"},
		"no certificate": {&tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAnyClientCert}, &tls.Config{RootCAs: trust(good)}, "certificate required"},
		"refused":        {&tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trust(good)}, &tls.Config{RootCAs: trust(good), Certificates: []tls.Certificate{other}}, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 0, func(t *testing.T, r *rig) {
				b := sim.NewBroker(t, tls.NewListener(r.listen("b1:9093"), c.server))
				cfg := r.config()
				cfg.Bootstrap, cfg.TLS = []string{"b1:9093"}, c.client
				start := time.Now()
				_, err := Connect(r.within(time.Minute), cfg)
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "b1:9093") || kafka.MayHaveHappened(err) {
					t.Errorf("%v", err)
				}
				if n := b.Accepted(); n != 1 || time.Since(start) > time.Second {
					t.Errorf("%d sockets in %v", n, time.Since(start))
				}
			})
		})
	}
	t.Run("the right one", func(t *testing.T) {
		inBubble(t, 0, func(t *testing.T, r *rig) {
			sim.NewBroker(t, tls.NewListener(r.listen("b1:9093"), &tls.Config{Certificates: []tls.Certificate{good}}))
			cfg := r.config()
			cfg.Bootstrap, cfg.TLS = []string{"b1:9093"}, &tls.Config{RootCAs: trust(good)}
			c, err := Connect(r.within(time.Minute), cfg)
			mustDo(t, err)
			mustDo(t, c.Close())
		})
	})
}
