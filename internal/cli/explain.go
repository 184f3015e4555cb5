package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/kafka"
)

// place is what a command was working on, for errors that do not say.
type placeError struct {
	err      error
	action   string // "write to topic orders"
	resource string // "topic orders"
	op       string // the ACL operation it needs: "Write"
}

func (e *placeError) Error() string { return e.err.Error() }
func (e *placeError) Unwrap() error { return e.err }

// on tells explain what a request was about; nil stays nil.
func on(err error, op, resource string) error {
	if err == nil {
		return nil
	}
	return &placeError{err: err, op: op, resource: resource, action: strings.ToLower(op) + " " + resource}
}

// adviceError is an error with a sentence of its own: what to do.
type adviceError struct {
	err    error
	advice string
}

func (e *adviceError) Error() string { return e.err.Error() + "; " + e.advice }
func (e *adviceError) Unwrap() error { return e.err }

// advise adds what to do to an error.
func advise(err error, format string, args ...any) error {
	return &adviceError{err: err, advice: fmt.Sprintf(format, args...)}
}

// explain says in one line what failed, where, why and what to do.
func (a *app) explain(err error) string {
	var usage *usageError
	if errors.As(err, &usage) {
		return usage.text
	}
	text := strings.TrimPrefix(err.Error(), "ottla: ")
	if errors.Is(err, errInterrupted) {
		if before, cut := strings.CutSuffix(text, ": "+errInterrupted.Error()); cut {
			return errInterrupted.Error() + ": " + before + unknownTail(err)
		}
		return errInterrupted.Error() + unknownTail(err)
	}
	for _, explain := range []func(*app, error) string{
		explainCertificate, explainLookAlike, explainLogin, explainAuthorization, explainSize, explainPosition, explainSilence, explainDial, explainTime,
	} {
		if s := explain(a, err); s != "" {
			text = s
			break
		}
	}
	return text + unknownTail(err)
}

// unknownTail says that a change may have happened.
func unknownTail(err error) string {
	if isUnknown(err) {
		return "; it is not known whether the change happened: look before you repeat it"
	}
	return ""
}

// explainCertificate handles certificates that this side or the broker refused.
func explainCertificate(a *app, err error) string {
	if name, addr, ok := find[x509.HostnameError](err); ok {
		return fmt.Sprintf("%s: the certificate is for another name: wanted %s, it offers %s; --tls-name NAME expects one of these",
			addr, name.Host, offeredNames(name.Certificate))
	}
	if invalid, addr, ok := find[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired && invalid.Cert != nil {
			return fmt.Sprintf("%s: the certificate is out of its time: valid from %s to %s, this machine's clock says %s",
				addr, invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339),
				time.Now().UTC().Format(time.RFC3339))
		}
		return fmt.Sprintf("%s: the certificate is not valid: %v", addr, invalid)
	}
	if unknown, addr, ok := find[x509.UnknownAuthorityError](err); ok {
		by := ""
		if unknown.Cert != nil {
			by = fmt.Sprintf(" (%s, signed by %s)", unknown.Cert.Subject, unknown.Cert.Issuer)
		}
		trusted := "the system's certificate authorities"
		if !a.security.ca.unset() {
			trusted = "those in " + a.security.ca.name()
		}
		return fmt.Sprintf("%s: the certificate%s comes from an authority that is not among %s; --ca FILE names the one that signed it", addr, by, trusted)
	}
	if alert, addr := alertIn(err); alert != "" {
		return explainAlert(a, alert, addr)
	}
	return ""
}

// alertIn is the text of the TLS alert that a broker sent, if one did, and the
// broker's address.
func alertIn(err error) (alert, addr string) {
	eachError(err, theBroker, func(err error, at string) bool {
		if text := alertText(err); text != "" && (alert == "" || addr == theBroker) {
			alert, addr = text, at
		}
		return alert != "" && addr != theBroker
	})
	return alert, addr
}

func alertText(err error) string {
	text := err.Error()
	switch e := err.(type) {
	case tls.AlertError:
		return strings.TrimPrefix(text, "tls: ")
	case *kafka.AuthError:
		if e.Mechanism == "TLS" {
			text = e.Message
		}
	}
	for _, before := range []string{"remote error: tls: ", "the broker sent the TLS alert "} {
		if _, alert, ok := strings.Cut(text, before); ok {
			if end := strings.IndexAny(alert, ";("); end >= 0 {
				alert = alert[:end]
			}
			alert, _, _ = strings.Cut(alert, " after ")
			return strings.TrimSpace(alert)
		}
	}
	return ""
}

// explainAlert handles what the broker said against this side's certificate.
func explainAlert(a *app, alert, addr string) string {
	var advice string
	switch {
	case !strings.Contains(alert, "certificate") && alert != "handshake failure":
		advice = "the two sides agree on no way to speak TLS"
	case !a.security.cert.unset():
		advice = "the broker refuses this client's certificate: it must be signed by an authority that the broker trusts"
	default:
		advice = "the broker wants a certificate of the client: --cert FILE --key FILE"
	}
	return fmt.Sprintf("%s: TLS alert from the broker: %s; %s", addr, alert, advice)
}

// offeredNames lists what a certificate is for.
func offeredNames(c *x509.Certificate) string {
	if c == nil {
		return "none"
	}
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return "no name (subject " + c.Subject.String() + ")"
	}
	return strings.Join(names, ", ")
}

// explainLookAlike handles a peer that speaks something else.
func explainLookAlike(a *app, err error) string {
	if header, addr, ok := find[tls.RecordHeaderError](err); ok {
		if first := string(header.RecordHeader[:]); strings.HasPrefix(first, "HTTP") || strings.HasPrefix(first, "<") {
			return addr + ": an HTTP server answers there, not Kafka; -b HOST:PORT must name a Kafka listener"
		}
		return fmt.Sprintf("%s: the answer to TLS is not TLS (first bytes %x): this port speaks plaintext; leave --tls and --ca out, or name the TLS port", addr, header.RecordHeader)
	}
	if protocol, addr, ok := find[*kafka.ProtocolError](err); ok {
		first := protocol.First
		switch {
		case len(first) >= 2 && (first[0] == 0x15 || first[0] == 0x16) && first[1] == 3:
			return addr + ": TLS answers there, and plaintext was spoken to it; --tls (and --ca FILE) fits"
		case strings.HasPrefix(string(first), "HTTP") || strings.HasPrefix(string(first), "<"):
			return addr + ": an HTTP server answers there, not Kafka; -b HOST:PORT must name a Kafka listener"
		}
		return ""
	}
	var dials []*kafka.DialError
	collectErrors(err, &dials)
	for _, dial := range dials {
		if a.security.tls && closedEarly(dial) {
			return dial.Addr + ": the connection was closed during the TLS handshake: the port may speak plaintext; leave --tls and --ca out, or name the TLS port"
		}
	}
	return ""
}

// closedEarly reports whether the peer went away.
func closedEarly(err error) bool {
	return strings.HasSuffix(err.Error(), "EOF") || errors.Is(err, syscall.ECONNRESET)
}

// explainLogin handles a refused login.
func explainLogin(a *app, err error) string {
	var auth *kafka.AuthError
	if !errors.As(err, &auth) || auth.Mechanism == "TLS" {
		return ""
	}
	as := ""
	if user := a.security.user; user != "" && auth.Mechanism != "OAUTHBEARER" {
		as = " as " + user
	}
	offered := strings.Join(auth.Offered, ", ")
	if auth.Offered != nil && offered == "" {
		offered = "nothing"
	}
	if auth.Offered != nil && !slices.Contains(auth.Offered, auth.Mechanism) {
		return fmt.Sprintf("%s: the broker does not offer %s, wanted to log in%s; it offers %s: --sasl %s",
			auth.Addr, auth.Mechanism, as, offered, strings.ToLower(firstOf(append(slices.Clone(auth.Offered), "MECHANISM")...)))
	}
	why := auth.Message
	if why == "" && auth.Err != nil {
		why = auth.Err.Error()
	}
	text := fmt.Sprintf("%s: login%s with %s refused: %s", auth.Addr, as, auth.Mechanism, strings.TrimPrefix(why, "ottla: "))
	if auth.Offered != nil {
		text += " (the broker offers " + offered + ")"
	}
	return text + "; check --user and the password in OTTLA_PASSWORD or --password-file"
}

// explainAuthorization handles what the broker's ACLs refuse.
func explainAuthorization(a *app, err error) string {
	var broker *kafka.BrokerError
	if !errors.As(err, &broker) {
		return ""
	}
	resource := map[int16]string{
		kerr.TopicAuthorizationFailed.Code:           "topic",
		kerr.ClusterAuthorizationFailed.Code:         "the cluster",
		kerr.GroupAuthorizationFailed.Code:           "group",
		kerr.TransactionalIDAuthorizationFailed.Code: "transactional id",
	}[broker.Code]
	if resource == "" {
		return ""
	}
	op := ""
	var place *placeError
	if errors.As(err, &place) {
		resource, op = place.resource, place.op
	}
	principal := a.security.principal()
	said := ""
	if broker.Message != "" {
		said = " (" + broker.Message + ")"
	}
	if op == "" {
		return fmt.Sprintf("%s is not authorised on %s%s; an administrator can add an ACL", principal, resource, said)
	}
	return fmt.Sprintf("%s is not authorised to %s %s%s; an administrator can add an ACL for operation %s", principal, strings.ToLower(op), resource, said, op)
}

// explainSize handles a record that does not fit.
func explainSize(_ *app, err error) string {
	var large *kafka.TooLargeError
	if !errors.As(err, &large) {
		return ""
	}
	size := fmt.Sprintf("a record of %d bytes", large.Size)
	if large.Wire > 0 {
		size += fmt.Sprintf(" (%d compressed)", large.Wire)
	}
	if large.Refused == nil {
		return fmt.Sprintf("%s for %s is too large: the limit of this client is %d bytes (-X batch.size=N)", size, large.Topic, large.Limit)
	}
	limit := "the topic's max.message.bytes"
	if large.Limit > 0 {
		limit += fmt.Sprintf(" of %d", large.Limit)
	}
	return fmt.Sprintf("%s for %s is too large for the broker: the limit is %s; `ottla topics config %s` shows it", size, large.TopicPartition, limit, large.Topic)
}

// explainPosition handles positions that the log no longer has.
func explainPosition(_ *app, err error) string {
	var gone *kafka.OutOfRangeError
	if errors.As(err, &gone) {
		return fmt.Sprintf("%s: offset %d is not there: the log holds %d to %d; -o %d goes on at the nearest, -o start at the first, -o end at the next record",
			gone.TopicPartition, gone.Position, gone.Start, gone.End, min(max(gone.Position, gone.Start), gone.End))
	}
	var loss *kafka.DataLossError
	if errors.As(err, &loss) {
		if loss.Remaining < 0 {
			return fmt.Sprintf("%s: records before offset %d were lost by the cluster; -o start reads what exists now", loss.TopicPartition, loss.Position)
		}
		return fmt.Sprintf("%s: records were lost by the cluster: this client was at offset %d, the log agrees up to %d; -o %d goes on there",
			loss.TopicPartition, loss.Position, loss.Remaining, loss.Remaining)
	}
	var again *kafka.RecreatedError
	if errors.As(err, &again) {
		return fmt.Sprintf("topic %s was deleted and created again; -o start reads the new one", again.Topic)
	}
	return ""
}

// explainDial handles addresses that nothing listens on.
func explainDial(a *app, err error) string {
	var dials []*kafka.DialError
	collectErrors(err, &dials)
	if len(dials) == 0 {
		return ""
	}
	var told []string
	for _, d := range dials {
		reason := dialReason(d.Err)
		at := d.Addr
		if len(d.Tried) > 1 || len(d.Tried) == 1 && d.Tried[0] != d.Addr {
			at += " (" + strings.Join(d.Tried, ", ") + ")"
		}
		if line := at + ": " + reason; !slices.Contains(told, line) {
			told = append(told, line)
		}
	}
	return "no broker answers: " + strings.Join(told, "; ") + "; -b HOST:PORT or OTTLA_BOOTSTRAP says where the cluster is"
}

// dialReason is the system's reason without Go's words around it.
func dialReason(err error) string {
	var errno syscall.Errno
	var dns *net.DNSError
	switch {
	case err == nil:
		return "unknown"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &dns):
		if dns.IsNotFound {
			return "no such host"
		}
		return dns.Err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer within the time"
	}
	return strings.TrimPrefix(err.Error(), "ottla: ")
}

// collectErrors gathers every error of type T in the tree below err.
func collectErrors[T error](err error, into *[]T) {
	if err == nil {
		return
	}
	if t, ok := err.(T); ok {
		*into = append(*into, t)
		return
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		collectErrors(e.Unwrap(), into)
	case interface{ Unwrap() []error }:
		for _, sub := range e.Unwrap() {
			collectErrors(sub, into)
		}
	}
}

// explainTime handles time that ran out.
func explainTime(a *app, err error) string {
	if !errors.Is(err, context.DeadlineExceeded) {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "ottla: ") + "; --timeout gives it longer than " + a.shared.timeout.String()
}
