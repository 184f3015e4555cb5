package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/internal/netconn"
	"github.com/ottla/ottla/kafka"
)

// ErrClosed is what every call returns after [Cluster.Close], and what it ends
// with if Close comes while it waits. It unwraps to [net.ErrClosed].
var ErrClosed error = closedError{}

type closedError struct{}

func (closedError) Error() string         { return "ottla: the client is closed" }
func (closedError) Unwrap() error         { return net.ErrClosed }
func (closedError) MayHaveHappened() bool { return false }

// ErrNoController is a cluster that names no controller at the moment, as
// during an election. It is worth another try.
var ErrNoController error = unsent("ottla: the cluster names no controller")

// ErrUnknownBroker is a broker id that the cluster does not name.
var ErrUnknownBroker error = unsent("ottla: the cluster does not name this broker")

// ErrNotRouted is a request that no rule leads to a broker, such as those
// between brokers. Send it to one with [Cluster.Broker].
var ErrNotRouted error = unsent("ottla: no rule leads this request to a broker; send it to one with Broker")

// unsent is an error of a request that was never sent.
type unsent string

func (e unsent) Error() string       { return string(e) }
func (unsent) MayHaveHappened() bool { return false }

// MismatchError is an address that belongs to another cluster: nothing that it
// says is used.
type MismatchError = kafka.MismatchError

// UnreachableError is a request that no broker could be asked: every address
// with its reason. errors.Is and errors.As look at each.
type UnreachableError = kafka.UnreachableError

// PartialError comes together with a response that lacks the answers of some
// brokers.
type PartialError struct {
	Op     string
	Failed []Failure // in order of their items
}

// Failure is one item, or one broker, without an answer.
type Failure struct {
	Item   string       // "topic-partition", group, transactional id, or empty
	Broker kafka.NodeID // kafka.NoNode if it did not come to that
	Err    error
}

func (e *PartialError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ottla: %s: no answer for %d of the items", e.Op, len(e.Failed))
	for i, f := range e.Failed {
		if i == 3 {
			b.WriteString("; …")
			break
		}
		b.WriteString("; ")
		if f.Item != "" {
			b.WriteString(f.Item + ": ")
		}
		if f.Broker >= 0 {
			fmt.Fprintf(&b, "broker %d: ", f.Broker)
		}
		b.WriteString(strings.TrimPrefix(f.Err.Error(), "ottla: "))
	}
	return b.String()
}

// Unwrap gives every reason to errors.Is and errors.As.
func (e *PartialError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		errs[i] = f.Err
	}
	return errs
}

// MayHaveHappened is false only if it is false for every item.
func (e *PartialError) MayHaveHappened() bool {
	for _, f := range e.Failed {
		if kafka.MayHaveHappened(f.Err) {
			return true
		}
	}
	return false
}

// gaveUp is the end of a repetition: what ended it, and why the last attempt
// failed.
type gaveUp struct {
	cause error // the cause of the context, or errRetryTimeout
	last  error
}

var errRetryTimeout = errors.New("RetryTimeout is over")

func (e *gaveUp) Error() string {
	return e.cause.Error() + "; before: " + strings.TrimPrefix(e.last.Error(), "ottla: ")
}

func (e *gaveUp) Unwrap() []error       { return []error{e.cause, e.last} }
func (e *gaveUp) MayHaveHappened() bool { return kafka.MayHaveHappened(e.last) }

// inDoubt is the end of a request of which an earlier attempt may have
// happened.
type inDoubt struct{ err error }

func (e *inDoubt) Error() string {
	return e.err.Error() + "; an earlier attempt was sent and lost, so it may have happened"
}

func (e *inDoubt) Unwrap() error       { return e.err }
func (*inDoubt) MayHaveHappened() bool { return true }

// unasked is a request that was not sent because the look-up before it failed.
type unasked struct{ error }

func (u *unasked) Unwrap() error       { return u.error }
func (*unasked) MayHaveHappened() bool { return false }

// notAsked is the error of a look-up as that of the request that was to follow:
// what became of the look-up says nothing about it.
func notAsked(err error) error {
	if err == nil || !kafka.MayHaveHappened(err) {
		return err
	}
	return &unasked{err}
}

// opError frames an error with the operation, once.
func opError(op string, broker kafka.NodeID, err error) error {
	if err == nil { // before oe, which would be allocated
		return nil
	}
	var oe *kafka.OpError
	if errors.As(err, &oe) || errors.Is(err, ErrClosed) {
		return err
	}
	return &kafka.OpError{Op: op, Broker: broker, Partition: -1, Err: err}
}

// permanent reports whether trying again within a call cannot help, whatever
// the request: refused credentials, certificates and versions, codes without a
// remedy, an address that is no broker.
func permanent(err error) bool {
	var ue *UnreachableError
	if errors.As(err, &ue) {
		return permanentRound(ue.Errs)
	}
	var be *kafka.BrokerError
	if errors.As(err, &be) && !isRefusal(err) {
		return !remediable(be.Code)
	}
	if isBroken(err) {
		return false
	}
	var protocol *kafka.ProtocolError
	var plaintext tls.RecordHeaderError
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrNotRouted) || errors.Is(err, kafka.ErrUnsupportedEndpointType) ||
		netconn.Permanent(err) || errors.As(err, &protocol) || errors.As(err, &plaintext)
}

// isBroken reports whether a socket that worked was lost: a new one may do, also
// where the broker's bytes made no sense any more.
func isBroken(err error) bool {
	var lost *kafka.ConnError
	var dial *kafka.DialError
	return errors.As(err, &lost) && !errors.As(err, &dial) && !errors.Is(err, ErrClosed)
}

// permanentRound is permanent for a round over several addresses. Credentials
// are the cluster's: one broker that refuses them speaks for all, and is not
// asked again because others are down.
func permanentRound(errs []error) bool {
	all := len(errs) > 0
	for _, err := range errs {
		if isRefusal(err) {
			return true
		}
		all = all && permanent(err)
	}
	return all
}

// isRefusal reports whether a broker, of a round over several any one, refused to
// authenticate this client.
func isRefusal(err error) bool {
	var auth *kafka.AuthError
	return errors.As(err, &auth)
}

// remediable reports whether an attempt after a code may end better.
func remediable(code int16) bool {
	switch retry.Of(code) {
	case retry.Retry, retry.RefreshMetadata, retry.FindCoordinator, retry.FindController, retry.Rebootstrap:
		return true
	}
	return false
}

// ended is the error of a call whose context ended before anything was sent.
func ended(ctx context.Context) error {
	return &stopped{context.Cause(ctx)}
}

// stopped is a call that its context ended before a request was sent.
type stopped struct{ cause error }

func (e *stopped) Error() string       { return e.cause.Error() }
func (e *stopped) Unwrap() error       { return e.cause }
func (*stopped) MayHaveHappened() bool { return false }
