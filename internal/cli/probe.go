package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/ottla/ottla/internal/task"
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
	speaks := ""
	if !a.security.tls { // else TLS answered already
		speaks = whatAnswers(a.work, addr)
	}
	switch {
	case speaks == "TLS":
		return addr + ": TLS answers there, and plaintext was spoken to it; --tls (and --ca FILE) fits"
	case speaks == "HTTP":
		return addr + ": an HTTP server answers there, not Kafka; -b HOST:PORT must name a Kafka listener"
	case closed:
		return addr + ": the connection is closed before Kafka's first answer: " +
			"this is no Kafka listener for these clients, or the broker is going down"
	}
	return addr + ": takes the connection and does not answer: this is no Kafka listener, or the broker hangs"
}

// silentAddr is the address whose first request got no answer; closed says
// that the peer closed.
func silentAddr(err error) (addr string, closed bool) {
	var late *kafka.TimeoutError
	// Whichever of the two clocks was first: the one of the connect or the request's.
	inTime := errors.As(err, &late) && (late.Phase == kafka.PhaseHandshake || late.Phase == kafka.PhaseAnswer)
	if inTime && late.Name == "ApiVersions" {
		return late.Addr, false
	}
	var lost *kafka.ConnError
	if errors.As(err, &lost) && lost.First && lost.Read == 0 && lost.Name == "ApiVersions" {
		return lost.Addr, true
	}
	return "", false
}

// whatAnswers finds out whether an address speaks TLS or HTTP, both at once.
func whatAnswers(ctx context.Context, addr string) string {
	web := make(chan bool, 1)
	g := task.New(ctx)
	g.Go(func(ctx context.Context) error {
		web <- answersHTTP(ctx, addr)
		return nil
	})
	switch {
	case answersTLS(ctx, addr):
		return "TLS"
	case <-web:
		return "HTTP"
	}
	return ""
}

// patience is how long a peer may take to show what it speaks.
const patience = 2 * time.Second

func answersTLS(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := (&tls.Dialer{}).DialContext(ctx, "tcp", addr)
	if err == nil {
		c.Close()
		return true
	}
	var refused *tls.CertificateVerificationError
	var alert tls.AlertError
	return errors.As(err, &refused) || errors.As(err, &alert) || strings.Contains(err.Error(), "remote error: tls: ")
}

func answersHTTP(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		return false
	}
	first := make([]byte, 16)
	n, _ := c.Read(first)
	return strings.HasPrefix(string(first[:n]), "HTTP")
}
