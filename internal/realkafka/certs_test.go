package realkafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"testing"
	"time"
)

// TestCertificatesAreWhatTheirNamesSay verifies every certificate as a peer
// would.
func TestCertificatesAreWhatTheirNamesSay(t *testing.T) {
	dir := t.TempDir()
	if err := makeCerts(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	files := certsIn(dir)
	roots := pool(t, files.CA)
	server := x509.ExtKeyUsageServerAuth
	client := x509.ExtKeyUsageClientAuth

	verify := func(cert, key, name string, use x509.ExtKeyUsage, roots *x509.CertPool) error {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, KeyUsages: []x509.ExtKeyUsage{use}})
		return err
	}
	for _, name := range []string{"127.0.0.1", "localhost"} {
		if err := verify(serverPEM(dir, TLS), serverPEM(dir, TLS), name, server, roots); err != nil {
			t.Errorf("the server's certificate for %s: %v", name, err)
		}
	}
	var invalid x509.CertificateInvalidError
	if err := verify(serverPEM(dir, Expired), serverPEM(dir, Expired), "localhost", server, roots); !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		t.Errorf("the expired one: %v", err)
	}
	if err := verify(files.ExpiredCert, files.ExpiredKey, "", client, roots); !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		t.Errorf("the client's expired one: %v", err)
	}
	var name x509.HostnameError
	if err := verify(serverPEM(dir, WrongName), serverPEM(dir, WrongName), "localhost", server, roots); !errors.As(err, &name) {
		t.Errorf("the one of another name: %v", err)
	}
	var unknown x509.UnknownAuthorityError
	if err := verify(serverPEM(dir, Foreign), serverPEM(dir, Foreign), "localhost", server, roots); !errors.As(err, &unknown) {
		t.Errorf("the foreign one: %v", err)
	}
	if err := verify(files.ForeignCert, files.ForeignKey, "", client, roots); !errors.As(err, &unknown) {
		t.Errorf("the client's foreign one: %v", err)
	}
	if err := verify(files.ForeignCert, files.ForeignKey, "", client, pool(t, files.ForeignCA)); err != nil {
		t.Errorf("the client's foreign one at its own CA: %v", err)
	}
	if err := verify(files.Cert, files.Key, "", client, roots); err != nil {
		t.Errorf("the client's: %v", err)
	}
	pair, _ := tls.LoadX509KeyPair(files.Cert, files.Key)
	if got := pair.Leaf.Subject.String(); got != "CN=alice" {
		t.Errorf("the client's subject is %q, and super.users says CN=alice", got)
	}
}

func pool(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(text) {
		t.Fatalf("no certificate in %s", file)
	}
	return p
}
