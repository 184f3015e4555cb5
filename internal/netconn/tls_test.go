package netconn

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ottla/ottla/kafka"
)

func tlsConfig() *tls.Config { return &tls.Config{} }

// authority signs certificates for the tests of TLS.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	a := &authority{cert: cert, key: key, pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a
}

// leaf is a certificate for 127.0.0.1, or for another name, valid until then.
func (a *authority) leaf(t *testing.T, until time.Time, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"}, NotBefore: until.Add(-2 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, DNSNames: names,
	}
	if names == nil {
		tmpl.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// tlsBroker is a broker that speaks TLS on loopback.
func tlsBroker(t *testing.T, cfg *tls.Config) *broker {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return newBrokerOn(t, ln, (*brokerConn).echo)
}

// TestK16TheUsersTLSConfigIsLeftAlone has two addresses share one: a name that the
// first left in it would be wanted of the second.
func TestK16TheUsersTLSConfigIsLeftAlone(t *testing.T) {
	cfg := &Config{TLS: &tls.Config{}}
	first, second := newPeer(t, "a:9093", cfg), newPeer(t, "b:9093", cfg)
	if cfg.TLS.ServerName != "" || cfg.TLS.MinVersion != 0 || first.tls.ServerName != "a" || second.tls.ServerName != "b" {
		t.Errorf("the user's has %q, the peers want %q and %q", cfg.TLS.ServerName, first.tls.ServerName, second.tls.ServerName)
	}
}

func TestK17PlainInsideTLSIsNotWarnedOf(t *testing.T) {
	var log bytes.Buffer
	p := newPeer(t, "a:9093", &Config{TLS: &tls.Config{}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	p.warnPlain("PLAIN")
	if log.Len() > 0 {
		t.Errorf("%s", log.String())
	}
}

func TestK16TLSWorksOnEveryLaneAndStartsAt12(t *testing.T) {
	a := newAuthority(t, "ca")
	b := tlsBroker(t, &tls.Config{Certificates: []tls.Certificate{a.leaf(t, time.Now().Add(time.Hour))}})
	p := newPeer(t, b.addr(), &Config{TLS: &tls.Config{RootCAs: a.pool, MinVersion: tls.VersionTLS10}})
	for k := range Kind(kinds) {
		ask(t, p.Lane(k), k.String())
	}
	if resp, err := p.Lane(Produce).Do(within(t, time.Minute), vectored()); err != nil || resp == nil {
		t.Errorf("parts joined for TLS: %v", err)
	}
	if p.tls.MinVersion != tls.VersionTLS12 || p.tls.InsecureSkipVerify {
		t.Errorf("minimum version %x", p.tls.MinVersion)
	}
	old := tlsBroker(t, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, Certificates: []tls.Certificate{a.leaf(t, time.Now().Add(time.Hour))}})
	if _, err := newPeer(t, old.addr(), &Config{TLS: &tls.Config{RootCAs: a.pool, MinVersion: tls.VersionTLS10}}).Lane(General).Do(within(t, time.Minute), metadata("m")); err == nil {
		t.Error("TLS 1.1 was spoken")
	}
}

// TestTheCertificateProblemIsNamed holds which, the name wanted and the names
// offered.
func TestTheCertificateProblemIsNamed(t *testing.T) {
	a, other := newAuthority(t, "the ca"), newAuthority(t, "another ca")
	good := time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		cert tls.Certificate
		want string
	}{
		"expired":    {a.leaf(t, time.Now().Add(-time.Minute)), "has expired or is not yet valid"},
		"other name": {a.leaf(t, good, "kafka.example"), "is for another name (wanted \"127.0.0.1\""},
		"foreign":    {other.leaf(t, good), "signed by an authority that is not trusted"},
	} {
		b := tlsBroker(t, &tls.Config{Certificates: []tls.Certificate{c.cert}})
		_, err := newPeer(t, b.addr(), &Config{TLS: &tls.Config{RootCAs: a.pool}}).Lane(General).Do(within(t, time.Minute), metadata("m"))
		var de *kafka.DialError
		var cv *tls.CertificateVerificationError
		if !errors.As(err, &de) || !errors.As(err, &cv) || de.Addr != b.addr() || !strings.Contains(err.Error(), c.want) || !Permanent(err) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "other name" && !strings.Contains(err.Error(), "names kafka.example") {
			t.Errorf("the names of the certificate are missing: %v", err)
		}
	}
}

// TestTheUsersOwnCheckOfACertificateIsFinal has a tls.Config whose callbacks
// refuse the broker: dialling again cannot help.
func TestTheUsersOwnCheckOfACertificateIsFinal(t *testing.T) {
	a, pinned := newAuthority(t, "ca"), errors.New("not the pinned key")
	b := tlsBroker(t, &tls.Config{Certificates: []tls.Certificate{a.leaf(t, time.Now().Add(time.Hour))}})
	for name, cfg := range map[string]*tls.Config{
		"VerifyConnection":      {VerifyConnection: func(tls.ConnectionState) error { return pinned }},
		"VerifyPeerCertificate": {VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error { return pinned }},
	} {
		cfg.RootCAs = a.pool
		_, err := newPeer(t, b.addr(), &Config{TLS: cfg}).Lane(General).Do(within(t, time.Minute), metadata("m"))
		if !errors.Is(err, pinned) || !Permanent(err) || !strings.Contains(err.Error(), "certificate was refused: not the pinned key") {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := &tls.Config{RootCAs: a.pool, VerifyConnection: func(tls.ConnectionState) error { return nil }}
	ask(t, newPeer(t, b.addr(), &Config{TLS: good}).Lane(General), "m")
}

// TestB059TheTextOfTheAlertIsKept has a broker that wants a certificate: with
// TLS 1.3 the client's handshake looks complete.
func TestB059TheTextOfTheAlertIsKept(t *testing.T) {
	a, other := newAuthority(t, "ca"), newAuthority(t, "other")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for name, certs := range map[string][]tls.Certificate{"none": nil, "foreign": {other.leaf(t, time.Now().Add(time.Hour))}} {
			b := tlsBroker(t, &tls.Config{
				Certificates: []tls.Certificate{a.leaf(t, time.Now().Add(time.Hour))}, MaxVersion: version,
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool,
			})
			cfg := &tls.Config{RootCAs: a.pool}
			if certs != nil {
				cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certs[0], nil }
			}
			_, err := newPeer(t, b.addr(), &Config{TLS: cfg}).Lane(General).Do(within(t, time.Minute), metadata("m"))
			var ae *kafka.AuthError
			auth := errors.As(err, &ae) && ae.Mechanism == "TLS" && ae.Addr == b.addr() && strings.Contains(err.Error(), "certificate")
			// RFC 5246 has "handshake failure" for a client without any.
			old := version == tls.VersionTLS12 && certs == nil && strings.Contains(err.Error(), "tls: handshake failure")
			if said := strings.Contains(err.Error(), "has no certificate configured"); auth && said != (certs == nil) {
				t.Errorf("version %x, certificate %s: it is said to be missing: %v", version, name, said)
			}
			if !auth && !old || !Permanent(err) || kafka.MayHaveHappened(err) {
				t.Errorf("version %x, certificate %s: %v", version, name, err)
			}
			if n := b.accepted(); n != 1 {
				t.Errorf("version %x, certificate %s: %d sockets", version, name, n)
			}
		}
	}
}

// TestB058ATLSClientOnAPlaintextPort has brokers that close without a byte,
// as Kafka does, and that answer in clear.
func TestB058ATLSClientOnAPlaintextPort(t *testing.T) {
	for name, serve := range map[string]func(c *brokerConn){
		"closes": func(c *brokerConn) { c.Read(make([]byte, 10)) },
		"answers": func(c *brokerConn) {
			c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			c.silence()
		},
	} {
		b := newBroker(t, serve)
		_, err := newPeer(t, b.addr(), &Config{TLS: tlsConfig()}).Lane(General).Do(within(t, time.Minute), metadata("m"))
		var de *kafka.DialError
		if !errors.As(err, &de) || de.Addr != b.addr() || !strings.Contains(err.Error(), "may not speak TLS") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestB001AWebServerOnTheBrokerPort closes, or keeps the socket open.
func TestB001AWebServerOnTheBrokerPort(t *testing.T) {
	for _, closes := range []bool{true, false} {
		b := newBroker(t, func(c *brokerConn) {
			c.Read(make([]byte, 100))
			fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
			if !closes {
				c.silence()
			}
		})
		_, err := newPeer(t, b.addr(), &Config{}).Lane(General).Do(within(t, time.Minute), metadata("m"))
		var pe *kafka.ProtocolError
		if !errors.As(err, &pe) || !strings.Contains(err.Error(), "HTTP endpoint answered") || !strings.Contains(err.Error(), b.addr()) {
			t.Errorf("closes %v: %v", closes, err)
		}
	}
}

// TestC34APlaintextClientOnATLSPort is Kafka's alert, 15 03 03 00 02 02 50.
func TestC34APlaintextClientOnATLSPort(t *testing.T) {
	b := newBroker(t, func(c *brokerConn) {
		c.Read(make([]byte, 100))
		c.Write([]byte{0x15, 3, 3, 0, 2, 2, 0x50})
	})
	_, err := newPeer(t, b.addr(), &Config{}).Lane(General).Do(context.Background(), metadata("m"))
	var pe *kafka.ProtocolError
	if !errors.As(err, &pe) || !strings.Contains(err.Error(), "a TLS endpoint answered") || len(pe.First) != 7 {
		t.Errorf("%v", err)
	}
}

// TestB004ATLSHandshakeHasTheDialsDeadline has a listener that never sends a
// ServerHello, and one that sends half of it; beside it another lane is open
// (T1).
func TestB004ATLSHandshakeHasTheDialsDeadline(t *testing.T) {
	for name, hello := range map[string][]byte{"nothing": nil, "half": {0x16, 3, 3, 0, 0x7a, 2, 0, 0, 0x76, 3, 3, 1, 2, 3}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, &Config{TLS: tlsConfig()}, func(c *brokerConn) {
				c.Write(hello)
				c.silence()
			}, func(t *testing.T, w *world) {
				var err error
				d := took(func() { _, err = w.lane(General).Do(context.Background(), metadata("m")) })
				var te *kafka.TimeoutError
				if d < 10*time.Second || d > 10*time.Second+fast || !errors.As(err, &te) || te.Phase != kafka.PhaseHandshake || te.Name != "TLS handshake" {
					t.Errorf("after %v: %v", d, err)
				}
				time.Sleep(time.Second)
				if n := w.net.Open(); n != 0 {
					t.Errorf("%d connections are left", n)
				}
			})
		})
	}
}
