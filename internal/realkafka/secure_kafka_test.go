//go:build kafka

package realkafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestSecureListenersServe asks every listener what it is there for.
func TestSecureListenersServe(t *testing.T) {
	v, err := parseVersion("")
	must(t, err)
	o := Options{Secure: true}
	if !v.before(4, 0) {
		o.Features = map[string]int{"transaction.version": 1, "group.version": 0}
	}
	c := Start(t, o)
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(c.Certs().CA)
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatal("no CA:", err)
	}
	pair, err := tls.LoadX509KeyPair(c.Certs().Cert, c.Certs().Key)
	must(t, err)
	trusting := &tls.Config{RootCAs: roots, ServerName: "localhost"}
	known := &tls.Config{RootCAs: roots, ServerName: "localhost", Certificates: []tls.Certificate{pair}}

	t.Run("features", func(t *testing.T) {
		f, err := c.Features(t.Context())
		must(t, err)
		for name, level := range o.Features {
			if f[name] != level {
				t.Errorf("%s is finalized at %d, asked for %d", name, f[name], level)
			}
		}
	})
	for _, l := range []string{Plaintext, TLS, MTLS} {
		t.Run(l, func(t *testing.T) {
			w := dialListener(t, c, l, map[string]*tls.Config{TLS: trusting, MTLS: known}[l])
			must(t, w.ping())
		})
	}
	t.Run("MTLS without certificate", func(t *testing.T) {
		if err := dialListener(t, c, MTLS, trusting).ping(); err == nil {
			t.Error("the listener takes a client without certificate")
		}
	})
	for l, want := range map[string]string{Expired: "expired", WrongName: "not localhost", Foreign: "unknown authority"} {
		t.Run(l, func(t *testing.T) {
			conn, err := tls.Dial("tcp4", c.Listener(l), trusting)
			if err == nil {
				_ = conn.Close()
			}
			if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok || !strings.Contains(err.Error(), want) {
				t.Errorf("want an error with %q, got %v", want, err)
			}
		})
	}
	for _, l := range []string{SASLP, SASLS, Reauth} {
		for _, u := range users() {
			t.Run(l+" "+u.Name, func(t *testing.T) {
				w := dialListener(t, c, l, map[string]*tls.Config{SASLS: trusting}[l])
				life, err := w.plain(u.Name, u.Password)
				must(t, err)
				if want := map[string]int64{Reauth: 4000}[l]; life != want {
					t.Errorf("session lifetime %d ms, want %d", life, want)
				}
				must(t, w.ping())
			})
		}
	}
	t.Run("wrong password", func(t *testing.T) {
		if _, err := dialListener(t, c, SASLP, nil).plain("admin", "wrong"); err == nil {
			t.Error("the listener takes a wrong password")
		}
	})
	t.Run("OAUTHBEARER", func(t *testing.T) { must(t, dialListener(t, c, SASLP, nil).bearer("admin")) })
	t.Run("SCRAM and rights", func(t *testing.T) { scramAndRights(t, c) })
}

// scramAndRights lets Java log in by SCRAM, once as a user with rights and
// once as one without.
func scramAndRights(t *testing.T, c *Cluster) {
	for mechanism, u := range map[string]User{"SCRAM-SHA-256": Alice(), "SCRAM-SHA-512": Carol()} {
		file := t.TempDir() + "/client.properties"
		text := fmt.Sprintf("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=%s\nsasl.jaas.config="+
			"org.apache.kafka.common.security.scram.ScramLoginModule required username=%q password=%q;\n", mechanism, u.Name, u.Password)
		must(t, os.WriteFile(file, []byte(text), 0o600))
		out, err := c.Tool("TopicCommand", "--bootstrap-server", c.Listener(SASLP), "--command-config", file, "--create", "--topic", "by-"+u.Name)
		if u == Alice() {
			must(t, err)
		} else if said := out + fmt.Sprint(err); !strings.Contains(said, "uthorization") {
			t.Errorf("carol may make a topic, or fails otherwise: %s", said)
		}
	}
}

func dialListener(t *testing.T, c *Cluster, name string, config *tls.Config) *wire {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wireTimeout)
	defer cancel()
	var conn net.Conn
	var err error
	if config == nil {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp4", c.Listener(name))
	} else {
		conn, err = (&tls.Dialer{Config: config}).DialContext(ctx, "tcp4", c.Listener(name))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{conn: conn, format: kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))}
}

func (w *wire) ping() error {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 1, []kmsg.MetadataRequestTopic{}
	_, err := w.do(req)
	return err
}

// plain logs in with PLAIN and returns the session lifetime in milliseconds.
func (w *wire) plain(user, password string) (int64, error) {
	return w.login("PLAIN", []byte("\x00"+user+"\x00"+password))
}

// bearer logs in with an unsecured token.
func (w *wire) bearer(subject string) error {
	now := time.Now().Unix()
	claims := fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d,"scope":"kafka"}`, subject, now, now+3600)
	part := base64.RawURLEncoding.EncodeToString
	token := part([]byte(`{"alg":"none"}`)) + "." + part([]byte(claims)) + "."
	life, err := w.login("OAUTHBEARER", []byte("n,,\x01auth=Bearer "+token+"\x01\x01"))
	if err == nil && life <= 0 {
		err = fmt.Errorf("session lifetime %d", life)
	}
	return err
}

func (w *wire) login(mechanism string, first []byte) (int64, error) {
	shake := kmsg.NewPtrSASLHandshakeRequest()
	shake.Version, shake.Mechanism = 1, mechanism
	answer, err := w.do(shake)
	if err != nil {
		return 0, err
	}
	if r := answer.(*kmsg.SASLHandshakeResponse); r.ErrorCode != 0 {
		return 0, fmt.Errorf("handshake: error %d, mechanisms %v", r.ErrorCode, r.SupportedMechanisms)
	}
	auth := kmsg.NewPtrSASLAuthenticateRequest()
	auth.Version, auth.SASLAuthBytes = 1, first
	if answer, err = w.do(auth); err != nil {
		return 0, err
	}
	r := answer.(*kmsg.SASLAuthenticateResponse)
	if r.ErrorCode != 0 || bytes.Contains(r.SASLAuthBytes, []byte("invalid_token")) {
		return 0, fmt.Errorf("authenticate: error %d %s", r.ErrorCode, r.SASLAuthBytes)
	}
	return r.SessionLifetimeMillis, nil
}
