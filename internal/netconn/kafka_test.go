//go:build kafka

package netconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// real is the broker of all tests of this file.
var real *realkafka.Cluster

func TestMain(m *testing.M) {
	os.Exit(sim.NoLeaks(func() int {
		return realkafka.Run(m, realkafka.Options{Secure: true}, func(c *realkafka.Cluster) { real = c })
	}))
}

func pool(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	data, err := os.ReadFile(file)
	p := x509.NewCertPool()
	if err != nil || !p.AppendCertsFromPEM(data) {
		t.Fatalf("%s: %v", file, err)
	}
	return p
}

func trusting(t *testing.T) *tls.Config { return &tls.Config{RootCAs: pool(t, real.Certs().CA)} }

func withCert(t *testing.T, cert, key string) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	c := trusting(t)
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return c
}

func mechs(m ...sasl.Mechanism) []sasl.Mechanism { return m }

// bearer is an unsecured token for a user that ends in d.
func bearer(user string, d time.Duration) sasl.Mechanism {
	return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
		enc := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
		now := time.Now()
		body := fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d,"scope":"kafka"}`, user, now.Add(-time.Hour).Unix(), now.Add(d).Unix())
		return oauth.Auth{Token: enc(`{"alg":"none"}`) + "." + enc(body) + "."}, nil
	})
}

// realAsk sends a Metadata without topics.
func realAsk(p *Peer) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	req.AllowAutoTopicCreation = false
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := p.Lane(General).Do(ctx, NewCall(context.Background(), req))
	return err
}

// TestRealEveryWayIn is TLS, mutual TLS and each mechanism, good ones.
func TestRealEveryWayIn(t *testing.T) {
	alice, c := realkafka.Alice(), real.Certs()
	s256 := scram.Auth{User: alice.Name, Pass: alice.Password}.AsSha256Mechanism()
	s512 := scram.Auth{User: alice.Name, Pass: alice.Password}.AsSha512Mechanism()
	plainAlice := plainOf(alice.Name, alice.Password)
	for name, cfg := range map[string]*Config{
		realkafka.Plaintext:       {},
		realkafka.TLS:             {TLS: trusting(t)},
		realkafka.MTLS:            {TLS: withCert(t, c.Cert, c.Key)},
		realkafka.SASLP + " 1":    {SASL: mechs(plainAlice)},
		realkafka.SASLP + " 2":    {SASL: mechs(s256)},
		realkafka.SASLP + " 3":    {SASL: mechs(s512)},
		realkafka.SASLP + " 4":    {SASL: mechs(bearer("admin", time.Hour))},
		realkafka.SASLP + " next": {SASL: mechs(&replayed{name: "GSSAPI"}, s256)},
		realkafka.SASLS + " 1":    {SASL: mechs(plainAlice), TLS: trusting(t)},
		realkafka.SASLS + " 2":    {SASL: mechs(s256), TLS: trusting(t)},
		realkafka.SASLS + " 3":    {SASL: mechs(s512), TLS: trusting(t)},
		realkafka.SASLS + " 4":    {SASL: mechs(bearer("admin", time.Hour)), TLS: trusting(t)},
	} {
		t.Run(name, func(t *testing.T) {
			listener, _, _ := strings.Cut(name, " ")
			p := newPeer(t, real.Listener(listener), cfg)
			for range 3 {
				if err := realAsk(p); err != nil {
					t.Fatal(err)
				}
			}
			if st := p.Lane(General).Stats(); st.Dials != 1 {
				t.Errorf("%d dials", st.Dials)
			}
		})
	}
}

func TestRealDelegationToken(t *testing.T) {
	admin := realkafka.Admin()
	p := newPeer(t, real.Listener(realkafka.SASLP), &Config{SASL: mechs(plainOf(admin.Name, admin.Password))})
	req := kmsg.NewPtrCreateDelegationTokenRequest()
	req.MaxLifetimeMillis = -1
	req.Renewers = []kmsg.CreateDelegationTokenRequestRenewer{}
	resp, err := p.Lane(General).Do(within(t, time.Minute), NewCall(context.Background(), req))
	if err != nil {
		t.Fatal(err)
	}
	tok := resp.(*kmsg.CreateDelegationTokenResponse)
	if tok.ErrorCode != 0 {
		t.Fatal(kafka.CodeError(tok.ErrorCode, nil))
	}
	auth := scram.Auth{User: tok.TokenID, Pass: base64.StdEncoding.EncodeToString(tok.HMAC), IsToken: true}
	for range 100 { // the token reaches the broker's cache through the log
		q := newPeer(t, real.Listener(realkafka.SASLP), &Config{SASL: mechs(auth.AsSha256Mechanism())})
		if err = realAsk(q); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error(err)
}

// TestRealWhatTheClientSees is each row of what a misconfigured client meets.
func TestRealWhatTheClientSees(t *testing.T) {
	alice, c := realkafka.Alice(), real.Certs()
	auth := func(text string) func(error) bool {
		return func(err error) bool {
			var ae *kafka.AuthError
			return errors.As(err, &ae) && strings.Contains(err.Error(), text) && Permanent(err)
		}
	}
	says := func(text string) func(error) bool {
		return func(err error) bool { return err != nil && strings.Contains(err.Error(), text) }
	}
	cert := func(text string) func(error) bool {
		return func(err error) bool {
			var ce *tls.CertificateVerificationError
			return errors.As(err, &ce) && says(text)(err) && Permanent(err)
		}
	}
	const scramText = "invalid credentials with SASL mechanism SCRAM-SHA-"
	for _, c := range []struct {
		name, listener string
		cfg            *Config
		right          func(error) bool
	}{
		{"plaintext to a TLS port", realkafka.TLS, &Config{}, says("a TLS endpoint answered")},
		{"B058 TLS to a plaintext port", realkafka.Plaintext, &Config{TLS: trusting(t)}, says("may not speak TLS")},
		{"no SASL on a SASL port", realkafka.SASLP, &Config{}, func(err error) bool {
			var ce *kafka.ConnError
			return errors.As(err, &ce) && ce.Err == io.EOF && ce.First && ce.Name == "Metadata"
		}},
		{"foreign CA", realkafka.Foreign, &Config{TLS: trusting(t)}, cert("not trusted")},
		{"other name", realkafka.WrongName, &Config{TLS: trusting(t)}, cert("for another name")},
		{"expired", realkafka.Expired, &Config{TLS: trusting(t)}, cert("has expired")},
		{"B059 no client certificate", realkafka.MTLS, &Config{TLS: trusting(t)}, auth("certificate")},
		{"B059 client certificate of another CA", realkafka.MTLS, &Config{TLS: withCert(t, c.ForeignCert, c.ForeignKey)}, auth("certificate")},
		{"B059 without, TLS 1.2", realkafka.MTLS, &Config{TLS: capped(trusting(t))}, auth("certificate")},
		{"mechanism not offered", realkafka.SASLP, &Config{SASL: mechs(&replayed{name: "GSSAPI"})}, func(err error) bool {
			var ae *kafka.AuthError
			return errors.As(err, &ae) && ae.Mechanism == "GSSAPI" && len(ae.Offered) == 4 && errors.Is(err, kerr.UnsupportedSaslMechanism)
		}},
		{"SASL on a plaintext port", realkafka.Plaintext, &Config{SASL: mechs(plainOf("alice", "x"))}, auth("ILLEGAL_SASL_STATE")},
		{"PLAIN wrong password", realkafka.SASLP, &Config{SASL: mechs(plainOf(alice.Name, "x"))}, auth("Authentication failed: Invalid username or password")},
		{"PLAIN unknown user", realkafka.SASLS, &Config{SASL: mechs(plainOf("mallory", "x")), TLS: trusting(t)}, auth("Invalid username or password")},
		{"SCRAM wrong password", realkafka.SASLP, &Config{SASL: mechs(scram.Auth{User: alice.Name, Pass: "x"}.AsSha256Mechanism())}, auth(scramText + "256")},
		{"SCRAM unknown user", realkafka.SASLP, &Config{SASL: mechs(scram.Auth{User: "mallory", Pass: "x"}.AsSha512Mechanism())}, auth(scramText + "512")},
		{"B067 OAUTHBEARER expired", realkafka.SASLP, &Config{SASL: mechs(bearer("admin", -time.Minute))}, auth("invalid_token")},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(t, real.Listener(c.listener), c.cfg)
			if err := realAsk(p); !c.right(err) || strings.Contains(err.Error(), "?") {
				t.Errorf("%v", err)
			} else if addr := real.Listener(c.listener); !strings.Contains(err.Error(), addr) {
				t.Errorf("the address %s is missing: %v", addr, err)
			}
		})
	}
}

func capped(c *tls.Config) *tls.Config {
	c.MaxVersion = tls.VersionTLS12
	return c
}

func TestRealASecondLoginIsAnsweredAndTheSocketStays(t *testing.T) {
	alice := realkafka.Alice()
	p := newPeer(t, real.Listener(realkafka.SASLP), &Config{SASL: mechs(plainOf(alice.Name, alice.Password))})
	if err := realAsk(p); err != nil {
		t.Fatal(err)
	}
	resp, err := p.Lane(General).Do(within(t, time.Minute), NewCall(context.Background(), conn.NewSASLAuthenticate([]byte("x"))))
	if err != nil || resp.(*kmsg.SASLAuthenticateResponse).ErrorCode != kerr.IllegalSaslState.Code {
		t.Errorf("%+v %v", resp, err)
	}
	if err := realAsk(p); err != nil || p.Lane(General).Stats().Dials != 1 {
		t.Errorf("%v, %d dials", err, p.Lane(General).Stats().Dials)
	}
}

// TestC23RealReauthentication runs for more than three lifetimes of 4 s; B068:
// the tokens themselves live 6 s.
func TestC23RealReauthentication(t *testing.T) {
	alice := realkafka.Alice()
	for name, m := range map[string]sasl.Mechanism{
		"PLAIN": plainOf(alice.Name, alice.Password), "OAUTHBEARER": bearer("admin", 6*time.Second),
		"SCRAM": scram.Auth{User: alice.Name, Pass: alice.Password}.AsSha256Mechanism(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := NewJournal(10_000)
			p := newPeer(t, real.Listener(realkafka.Reauth), &Config{SASL: mechs(m), Journal: j})
			var stall time.Duration // the longest that this test or the broker stood still
			last := time.Now()
			for end := last.Add(13 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if err := realAsk(p); err != nil {
					t.Fatal(err)
				}
				stall, last = max(stall, time.Since(last)), time.Now()
			}
			logins := 0
			for _, e := range j.Entries() {
				if e.API == 17 && !e.Answer {
					logins++
				}
			}
			// A machine that stands still for longer than the margin lets the
			// session run out, and the broker closes the socket: no fault of ours.
			st := p.Lane(General).Stats()
			if logins < 2 || stall < 300*time.Millisecond && (st.Dials != 1 || st.Retries != 0 || logins < 4 || logins > 5) {
				t.Errorf("%d logins, %+v, longest stall %v", logins, st, stall)
			}
		})
	}
}

// TestC2RealNodeCheck asks for the right node, then for another one.
func TestC2RealNodeCheck(t *testing.T) {
	var mismatches atomic.Int64
	cfg := &Config{Hooks: Hooks{Mismatch: func(string, string, kafka.NodeID) { mismatches.Add(1) }}}
	p := newPeer(t, real.Listener(realkafka.Plaintext), cfg)
	v, err := p.Versions(within(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := p.Lane(General).Do(within(t, time.Minute), NewCall(context.Background(), req))
	if err != nil {
		t.Fatal(err)
	}
	m := resp.(*kmsg.MetadataResponse)
	node := kafka.NodeID(m.Brokers[0].NodeID)
	check := func() {
		t.Helper()
		if err := realAsk(p); err != nil { // behind the check on this socket
			t.Error(err)
		}
	}
	p.Expect(*m.ClusterID, node)
	check()
	if mismatches.Load() != 0 {
		t.Error("the right node is told to be another one")
	}
	p.Expect(*m.ClusterID, node+1)
	check()
	want := int64(0)
	if r, _ := v.Range(conn.APIVersionsKey); r.Max >= 5 {
		want = 1
	}
	if got := mismatches.Load(); got != want {
		t.Errorf("%d mismatches were told, want %d", got, want)
	}
}
