package cli

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// With several addresses the line names the one that failed in the way it tells
// of, and not the first one.
func TestTheLineNamesTheAddressThatItIsAbout(t *testing.T) {
	refused := &kafka.DialError{Addr: "one:9092", Err: syscall.ECONNREFUSED}
	two := func(err error) error { return &kafka.DialError{Addr: "two:9093", Err: err} }
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}
	for name, c := range map[string]struct {
		err  error
		tls  bool
		want string
	}{
		"authority":  {err: two(x509.UnknownAuthorityError{}), want: "two:9093: the certificate comes from an authority"},
		"name":       {err: two(&tls.CertificateVerificationError{Err: x509.HostnameError{Host: "two", Certificate: &x509.Certificate{}}}), want: "two:9093: the certificate is for another name"},
		"time":       {err: two(x509.CertificateInvalidError{Reason: x509.Expired, Cert: &x509.Certificate{}}), want: "two:9093: the certificate is out of its time"},
		"alert":      {err: two(alert), want: "two:9093: TLS alert from the broker: bad certificate"},
		"alert told": {err: &kafka.AuthError{Addr: "two:9093", Mechanism: "TLS", Message: "the broker sent the TLS alert bad certificate; x"}, want: "two:9093: TLS alert"},
		"plaintext":  {err: two(tls.RecordHeaderError{}), want: "two:9093: the answer to TLS is not TLS"},
		"web":        {err: two(&kafka.ProtocolError{First: []byte("HTTP/1.1 400"), Addr: "two:9093"}), want: "two:9093: an HTTP server answers"},
		"closed":     {err: two(syscall.ECONNRESET), tls: true, want: "two:9093: the connection was closed during the TLS handshake"},
	} {
		a := &app{security: security{tls: c.tls}}
		for _, err := range []error{
			errors.Join(refused, c.err), &kafka.OpError{Op: "connect", Err: errors.Join(refused, c.err)},
			&kafka.UnreachableError{Addrs: []string{"one:9092", "two:9093"}, Errs: []error{refused, c.err}},
		} {
			if got := a.explain(err); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
}

// Who is logged in comes from where the login comes from: flags, environment,
// properties, or a certificate.
func TestTheLineNamesWhoWasLoggedIn(t *testing.T) {
	denied := on(&kafka.BrokerError{Code: kerr.TopicAuthorizationFailed.Code}, "Write", "topic t")
	jaas := `sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="bob" password="pw";`
	for want, flags := range map[string]sharedFlags{
		"User:bob is not authorised":              {properties: []string{"security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", jaas}},
		"User:carol is not authorised":            {sasl: "plain", user: "carol"},
		"(no login was sent) is not authorised":   {},
		"(that of the token) is not authorised":   {sasl: "oauthbearer"},
		"User:environment is not authorised":      {sasl: "plain"},
		"(that of the certificate in my.pem) is ": {properties: []string{"security.protocol=SSL", "ssl.keystore.location=my.pem"}},
	} {
		t.Setenv("OTTLA_USER", "environment")
		t.Setenv("OTTLA_PASSWORD", "secret")
		a := &app{shared: flags}
		s, err := a.settings()
		if err != nil {
			t.Fatal(err)
		}
		a.security = s.security
		if got := a.explain(denied); !strings.Contains(got, want) {
			t.Errorf("%s: %s", want, got)
		}
		refused := a.explain(&kafka.AuthError{Addr: "b:1", Mechanism: "PLAIN", Message: "no"})
		if who, ok := strings.CutPrefix(strings.Fields(want)[0], "User:"); ok && !strings.Contains(refused, "login as "+who+" with PLAIN") {
			t.Errorf("%s: %s", want, refused)
		}
	}
}

// Several items have a line each, and the status of the worst of them.
func TestSeveralItemsAreToldEachForItself(t *testing.T) {
	notDone, unknown := changed(notDone(&kafka.BrokerError{Code: kerr.TopicAlreadyExists.Code}, "topic a", "created")),
		changed(notDone(&kafka.BrokerError{Code: kerr.RequestTimedOut.Code}, "topic b", "created"))
	for _, err := range []error{items(notDone, unknown), items(unknown, notDone), fmt.Errorf("x: %w", items(nil, notDone, unknown))} {
		if got := statusOf(err); got != statusUnknown {
			t.Errorf("status %d of %v", got, err)
		}
	}
	if statusOf(items(notDone, notDone)) != statusFailed || items(nil, nil) != nil {
		t.Error("the status of failures alone, or of none")
	}
	var out bytes.Buffer
	a := &app{notes: newNotes(&out)}
	a.report(items(notDone, unknown))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "topic a is not created") || strings.Contains(lines[0], "not known") ||
		!strings.Contains(lines[1], "topic b may have been created") || !strings.Contains(lines[1], "not known whether") {
		t.Errorf("%q", lines)
	}
}

func TestWhatWasDoneOfSeveralTopicsIsTold(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"b": 1, "d": 1}})
	res := e.ottla("topics", "create", "a", "b", "c", "d", "-p", "1")
	if res.status != 1 || res.stdout != "created a: 1 partition, 1 replica\ncreated c: 1 partition, 1 replica\n" ||
		strings.Count(res.stderr, "\n") != 2 || !strings.Contains(res.stderr, "topic b exists already") || !strings.Contains(res.stderr, "topic d exists already") {
		t.Errorf("%+v", res)
	}
	f := e.Fail(int16(kmsg.DeleteTopics), kerr.TopicDeletionDisabled.Code, -1, 0)
	res = e.ottla("topics", "delete", "a", "b", "--yes")
	if res.status != 1 || res.stdout != "" || !strings.Contains(res.stderr, "topic a is not deleted") || !strings.Contains(res.stderr, "topic b is not deleted") {
		t.Errorf("%+v", res)
	}
	f.Remove()
	e.ottla("topics", "delete", "a", "b", "--yes").want(t, "deleted a, b\n")
}
