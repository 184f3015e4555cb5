package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// isCertificate reports whether err is about a certificate that the other side
// shows, or a TLS record that it does not understand.
func isCertificate(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var header tls.RecordHeaderError
	var alert tls.AlertError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &host) ||
		errors.As(err, &invalid) || errors.As(err, &header) || errors.As(err, &alert)
}
