package leader

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// The kinds of errors, for errors.Is. What a broker said, if it said anything,
// is behind them: errors.Is also finds the value of package kerr.
var (
	ErrInvalidConfig   = errors.New("invalid configuration")
	ErrAuthorization   = errors.New("not authorised")
	ErrAdmin           = errors.New("coordination topic or coordinator not usable")
	ErrClient          = errors.New("reading the coordination topic failed")
	ErrProducer        = errors.New("writing to the coordination topic failed")
	ErrNotHeld         = errors.New("this process does not hold that token for that role")
	ErrAcquireTimeout  = errors.New("the role was not won in time")
	ErrDuplicateMember = errors.New("another live process has the same member id")

	// The ends of a leadership.
	ErrFenced   = kafka.ErrFenced
	ErrExpired  = errors.New("the lease was not renewed in time")
	ErrResigned = errors.New("resigned")
	ErrClosed   = error(closedError{})
)

type closedError struct{}

func (closedError) Error() string         { return "ottla: the elector is closed" }
func (closedError) Unwrap() error         { return net.ErrClosed }
func (closedError) MayHaveHappened() bool { return false }

// Error is what went wrong, by its kind. Err has the cause, and may be nil.
type Error struct {
	Kind error  // one of the kinds above
	Role string // empty if it is about no one role
	Op   string // what was tried, empty if the kind says it
	Err  error
}

func (e *Error) Error() string {
	s := "ottla: "
	if e.Role != "" {
		s += fmt.Sprintf("role %q: ", e.Role)
	}
	if e.Op != "" {
		s += e.Op + ": "
	}
	if e.Kind == ErrFenced {
		s += "fenced: its epoch is not accepted any more" // by whom is not known here
	} else {
		s += e.Kind.Error()
	}
	if e.Err != nil {
		s += ": " + strings.TrimPrefix(e.Err.Error(), "ottla: ")
	}
	return s
}

// Unwrap gives the kind and the cause to errors.Is.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// MayHaveHappened reports whether what failed may have been done all the same.
func (e *Error) MayHaveHappened() bool {
	switch e.Kind {
	case ErrInvalidConfig, ErrNotHeld, ErrClient, ErrClosed, ErrDuplicateMember:
		return false
	}
	return e.Err != nil && kafka.MayHaveHappened(e.Err)
}

// failed is the error of an operation: what the user has to change is told
// apart from what a kind of operation runs into.
func failed(kind error, role, op string, err error) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) || errors.Is(err, ErrClosed) {
		return err
	}
	switch code := kafka.CodeOf(err); {
	case retry.Unauthorized(code):
		kind = ErrAuthorization
	case code == 50:
		kind = ErrInvalidConfig
	}
	return &Error{Kind: kind, Role: role, Op: op, Err: err}
}

// unauthorized names the right that is missing.
func unauthorized(code int16, op, resource string) error {
	return fmt.Errorf("%s needs %s: %w", op, resource, kafka.CodeError(code, nil))
}

// hopeless reports whether err stays as it is, however often one tries.
func hopeless(err error) bool {
	return errors.Is(err, cluster.ErrClosed) || errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalidConfig) || errors.Is(err, ErrAuthorization)
}

// IsFence reports whether err says that a later leader, or the coordinator,
// has fenced the pair that was used. It knows errors of package kerr too, as
// other clients give them.
func IsFence(err error) bool {
	var other *kerr.Error
	return errors.Is(err, ErrFenced) || lead.Fenced(kafka.CodeOf(err)) || errors.As(err, &other) && lead.Fenced(other.Code)
}
