package realkafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certs are files in PEM.
type Certs struct {
	CA, Cert, Key string // what a client wants: its CA, and its certificate with CN=alice

	ForeignCA, ForeignCert, ForeignKey string // a CA that no broker trusts, and a client certificate of it
	ExpiredCert, ExpiredKey            string // an expired client certificate of CA
}

func certsIn(dir string) Certs {
	f := func(name string) string { return filepath.Join(dir, name) }
	return Certs{
		CA: f("ca.crt"), Cert: f("client.crt"), Key: f("client.key"),
		ForeignCA: f("foreign-ca.crt"), ForeignCert: f("foreign-client.crt"), ForeignKey: f("foreign-client.key"),
		ExpiredCert: f("expired-client.crt"), ExpiredKey: f("expired-client.key"),
	}
}

// serverPEM is the file with key and certificates of a listener.
func serverPEM(dir, listener string) string {
	switch listener {
	case Expired:
		return filepath.Join(dir, "server-expired.pem")
	case WrongName:
		return filepath.Join(dir, "server-wrong-name.pem")
	case Foreign:
		return filepath.Join(dir, "server-foreign.pem")
	}
	return filepath.Join(dir, "server.pem")
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// span is a time of validity.
type span struct{ from, until time.Time }

// makeCerts writes the certificates of a cluster into dir, valid from a day
// before now to ten years after it, or expired an hour before now.
func makeCerts(dir string, now time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	valid := span{now.Add(-24 * time.Hour), now.AddDate(10, 0, 0)}
	expired := span{now.Add(-48 * time.Hour), now.Add(-time.Hour)}
	ca, err := newAuthority("ottla test CA", valid)
	if err != nil {
		return err
	}
	foreign, err := newAuthority("ottla foreign CA", valid)
	if err != nil {
		return err
	}
	files := certsIn(dir)
	leaves := []struct {
		by        *authority
		name      string
		when      span
		sans      []string
		cert, key string // cert empty: everything goes into key
	}{
		{ca, "localhost", valid, []string{"127.0.0.1", "localhost"}, "", serverPEM(dir, TLS)},
		{ca, "localhost", expired, []string{"127.0.0.1", "localhost"}, "", serverPEM(dir, Expired)},
		{ca, "elsewhere.example", valid, []string{"elsewhere.example"}, "", serverPEM(dir, WrongName)},
		{foreign, "localhost", valid, []string{"127.0.0.1", "localhost"}, "", serverPEM(dir, Foreign)},
		{ca, "alice", valid, nil, files.Cert, files.Key},
		{ca, "alice", expired, nil, files.ExpiredCert, files.ExpiredKey},
		{foreign, "alice", valid, nil, files.ForeignCert, files.ForeignKey},
	}
	for _, l := range leaves {
		cert, key, err := l.by.issue(l.name, l.when, l.sans)
		if err != nil {
			return err
		}
		if l.cert == "" {
			err = os.WriteFile(l.key, append(append(key, cert...), l.by.pem...), 0o600)
		} else {
			err = writeAll(map[string][]byte{l.cert: cert, l.key: key})
		}
		if err != nil {
			return err
		}
	}
	return writeAll(map[string][]byte{files.CA: ca.pem, files.ForeignCA: foreign.pem})
}

func writeAll(files map[string][]byte) error {
	for name, data := range files {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func newAuthority(name string, when span) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := certificate(name, when)
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

func certificate(name string, when span) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 62))
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    when.from,
		NotAfter:     when.until,
	}
}

// issue makes a certificate with key, both in PEM. The key is PKCS#8, the only
// form that Kafka reads.
func (a *authority) issue(name string, when span, sans []string) (cert, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	t := certificate(name, when)
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, s := range sans {
		if ip := net.ParseIP(s); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, s)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, k.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("make the certificate of %s: %w", name, err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
