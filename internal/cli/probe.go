package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/ottla/ottla/kafka"
)

// explainSilence handles a peer that takes connections and does not speak
// Kafka. It asks the address once more, by TLS and as a browser would.
func explainSilence(a *app, err error) string {
	addr, closed := silentAddr(err)
	var lost *kafka.ConnError
	switch {
	case addr == "" && errors.As(err, &lost) && lost.First && lost.Read == 0 && lost.Name == "Metadata":
		return lost.Addr + ": the connection is closed when the first request comes: the broker may want a login; --sasl MECHANISM --user NAME"
	case addr == "":
		return ""
	}
	switch whatAnswers(a.work, addr) {
	case "TLS":
		return addr + ": TLS answers there, and plaintext was spoken to it; --tls (and --ca FILE) fits"
	case "HTTP":
		return addr + ": an HTTP server answers there, not Kafka; -b HOST:PORT must name a Kafka listener"
	}
	if closed {
		return addr + ": the connection is closed before Kafka's first answer: " +
			"this is no Kafka listener for these clients, or the broker is going down"
	}
	return addr + ": takes the connection and does not answer: this is no Kafka listener, or the broker hangs"
}

// silentAddr is the address whose first request got no answer; closed says
// that the peer closed.
func silentAddr(err error) (addr string, closed bool) {
	var late *kafka.TimeoutError
	if errors.As(err, &late) && late.Phase == kafka.PhaseHandshake && late.Name == "ApiVersions" {
		return late.Addr, false
	}
	var lost *kafka.ConnError
	if errors.As(err, &lost) && lost.First && lost.Read == 0 && lost.Name == "ApiVersions" {
		return lost.Addr, true
	}
	return "", false
}

// whatAnswers finds out whether an address speaks TLS or HTTP.
func whatAnswers(ctx context.Context, addr string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	secure, err := (&tls.Dialer{}).DialContext(ctx, "tcp", addr)
	if err == nil {
		secure.Close()
		return "TLS"
	}
	var refused *tls.CertificateVerificationError
	var alert tls.AlertError
	if errors.As(err, &refused) || errors.As(err, &alert) || strings.Contains(err.Error(), "remote error: tls: ") {
		return "TLS"
	}
	plain, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return ""
	}
	defer plain.Close()
	_ = plain.SetDeadline(time.Now().Add(time.Second))
	if _, err := plain.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		return ""
	}
	first := make([]byte, 16)
	if n, _ := plain.Read(first); strings.HasPrefix(string(first[:n]), "HTTP") {
		return "HTTP"
	}
	return ""
}
