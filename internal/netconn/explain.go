package netconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/ottla/ottla/kafka"
)

// lossError marks an I/O error that ended a socket, after which a request that
// may be repeated goes out on a new one.
type lossError struct{ err error }

func (e *lossError) Error() string { return e.err.Error() }
func (e *lossError) Unwrap() error { return e.err }

// isLoss reports whether err ended a socket in a way that a new socket may
// mend: an I/O error, or another request that ran out of its time.
func isLoss(err error) bool {
	var loss *lossError
	var timeout *kafka.TimeoutError
	return errors.As(err, &loss) || errors.As(err, &timeout)
}

// lossCause is the I/O error inside of a loss.
func lossCause(err error) error {
	if loss := (*lossError)(nil); errors.As(err, &loss) {
		return loss.err
	}
	return err
}

// Permanent reports whether a failed call will fail again until somebody
// changes a setting, here or at the broker: refused credentials or
// certificates, by the system's rules or by those of the user's tls.Config, a TLS
// alert, versions, error codes of the handshake; or that a request is too long
// for Kafka's encoding. Such failures are not passing faults of the network.
func Permanent(err error) bool {
	var auth *kafka.AuthError
	var version *kafka.VersionError
	var cert *tls.CertificateVerificationError
	var broker *kafka.BrokerError
	if _, alert := remoteAlert(err); alert {
		return true
	}
	var refusal *refusedCert
	var long *kafka.EncodeError
	return errors.As(err, &auth) || errors.As(err, &version) || errors.As(err, &cert) || errors.As(err, &broker) ||
		errors.As(err, &refusal) || errors.As(err, &long)
}

// refusedCert is the error of a callback of the user's tls.Config.
type refusedCert struct{ err error }

func (e *refusedCert) Error() string { return "the broker's certificate was refused: " + e.err.Error() }
func (e *refusedCert) Unwrap() error { return e.err }

// markRefusals makes what the callbacks of cfg return tell from I/O errors.
func markRefusals(cfg *tls.Config) {
	refuse := func(err error) error {
		if err == nil {
			return nil
		}
		return &refusedCert{err}
	}
	if verify := cfg.VerifyConnection; verify != nil {
		cfg.VerifyConnection = func(cs tls.ConnectionState) error { return refuse(verify(cs)) }
	}
	if verify := cfg.VerifyPeerCertificate; verify != nil {
		cfg.VerifyPeerCertificate = func(raw [][]byte, chains [][]*x509.Certificate) error {
			return refuse(verify(raw, chains))
		}
	}
}

// explainRead names why reading ended.
func (p *Peer) explainRead(err error) error {
	if alert, ok := remoteAlert(err); ok {
		return p.alertError(alert, err)
	}
	return &lossError{err}
}

func (p *Peer) explainWrite(err error) error { return p.explainRead(err) }

// remoteAlert is the text of a TLS alert that the broker sent.
func remoteAlert(err error) (string, bool) {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" && op.Err != nil {
		return op.Err.Error(), true
	}
	return "", false
}

// alertError keeps the text of a TLS alert. One about certificates is a
// refused authentication; with TLS 1.3 it comes only after the handshake.
func (p *Peer) alertError(alert string, err error) error {
	for _, part := range []string{"certificate", "access denied", "unknown authority", "unknown CA"} {
		if strings.Contains(alert, part) {
			what := "the broker sent the TLS alert " + strings.TrimPrefix(alert, "tls: ")
			if cfg := p.tls; cfg != nil && len(cfg.Certificates) == 0 && cfg.GetClientCertificate == nil {
				what += "; this client has no certificate configured"
			}
			return &kafka.AuthError{Addr: p.addr, Mechanism: "TLS", Message: what, Err: err}
		}
	}
	return &lossError{err}
}

// explainTLS says what went wrong in a TLS handshake.
func (p *Peer) explainTLS(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &kafka.TimeoutError{Name: "TLS handshake", Addr: p.addr, Phase: kafka.PhaseHandshake, Err: context.Cause(ctx)}
	}
	if alert, ok := remoteAlert(err); ok {
		if e := (*kafka.AuthError)(nil); errors.As(p.alertError(alert, err), &e) {
			return e
		}
		return fmt.Errorf("TLS handshake: the broker sent the alert %w", err)
	}
	var cert *tls.CertificateVerificationError
	if errors.As(err, &cert) {
		return certError(cert, p.tls.ServerName)
	}
	var head tls.RecordHeaderError
	if errors.As(err, &head) {
		return fmt.Errorf("TLS handshake: the port may not speak TLS, it answered with the bytes %x %q: %w",
			head.RecordHeader, head.RecordHeader[:], err)
	}
	if errors.Is(err, io.EOF) || isReset(err) {
		return fmt.Errorf("TLS handshake: the broker closed the connection without an answer, the port may not speak TLS: %w", err)
	}
	return fmt.Errorf("TLS handshake: %w", err)
}

// certError says which certificate was refused by this client, for what name,
// and which names it holds.
func certError(err *tls.CertificateVerificationError, wanted string) error {
	what := "the broker's certificate was refused"
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &host):
		what = "the broker's certificate is for another name"
	case errors.As(err, &unknown):
		what = "the broker's certificate is signed by an authority that is not trusted"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		what = "the broker's certificate has expired or is not yet valid"
	}
	if len(err.UnverifiedCertificates) > 0 {
		leaf := err.UnverifiedCertificates[0]
		names := append([]string(nil), leaf.DNSNames...)
		for _, ip := range leaf.IPAddresses {
			names = append(names, ip.String())
		}
		what += fmt.Sprintf(" (wanted %q; subject %q, issuer %q, names %s, valid %s to %s)", wanted, leaf.Subject, leaf.Issuer,
			orNone(strings.Join(names, ", ")), leaf.NotBefore.UTC().Format("2006-01-02"), leaf.NotAfter.UTC().Format("2006-01-02"))
	}
	return fmt.Errorf("TLS handshake: %s: %w", what, err)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
