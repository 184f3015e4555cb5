package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/kafka"
)

// Exit status, as docs/cli.md has them.
const (
	statusDone        = 0
	statusFailed      = 1
	statusUsage       = 2
	statusUnknown     = 3
	statusInterrupted = 130
)

var (
	// errClosedPipe is the end of a command whose reader went away.
	errClosedPipe = errors.New("the reader of the output is gone")
	// errInterrupted is the cause of a context that a signal ended.
	errInterrupted = errors.New("interrupted")
	// errStoppedInOrder is the end of a command that a signal stopped and that
	// has nothing left to say.
	errStoppedInOrder = errors.New("stopped by a signal")
	// errNotConfirmed is a deletion that nobody said yes to.
	errNotConfirmed = errors.New("nothing is deleted: no yes came; --yes does not ask")
)

// usageError is a command line that cannot be run as it stands.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// usagef makes a usage error.
func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// asUsage is the usage error for a configuration that a library refused.
func asUsage(err error) error { return usagef("%s", strings.TrimPrefix(err.Error(), "ottla: ")) }

// outcomeError is the end of a command that changes the cluster. Its outcome
// is unknown if the change may have happened all the same.
type outcomeError struct {
	err     error
	unknown bool
}

func (e *outcomeError) Error() string { return e.err.Error() }
func (e *outcomeError) Unwrap() error { return e.err }

// changed wraps the error of a request that changes the cluster; nil stays nil.
func changed(err error) error {
	if err == nil {
		return nil
	}
	return &outcomeError{err: err, unknown: admin.OutcomeOf(err) == admin.Unknown}
}

// notDone says of a change that failed what was not done to what: "topic orders",
// "created". Of one whose outcome is unknown, or that is only not visible yet, it
// says no such thing.
func notDone(err error, what, done string) error {
	switch {
	case err == nil:
		return nil
	case admin.OutcomeOf(err) == admin.Unknown:
		return fmt.Errorf("%s may have been %s: %w", what, done, err)
	case admin.OutcomeOf(err) == admin.NotDone:
		return fmt.Errorf("%s is not %s: %w", what, done, err)
	}
	return err
}

// itemErrors are the failures of several items of one command. Each has a line
// of its own.
type itemErrors []error

func (e itemErrors) Error() string   { return errors.Join(e...).Error() }
func (e itemErrors) Unwrap() []error { return e }

// items is what is left of the errors of several items, nil if nothing is.
func items(errs ...error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return itemErrors(errs)
}

// isUnknown reports whether a change that err is about may have happened: of
// several one is enough.
func isUnknown(err error) bool {
	return eachError(err, "", func(err error, _ string) bool {
		outcome, ok := err.(*outcomeError)
		return ok && outcome.unknown
	})
}

// bare is the error of one item of an admin call, without the words that the
// command has of its own: what was done to what, and what a program may do next.
func bare(err error) error {
	var doubt *admin.InDoubtError
	if errors.As(err, &doubt) {
		err = doubt.Err
	}
	if op, ok := err.(*kafka.OpError); ok {
		err = op.Err
	}
	return err
}

// refusedError is a record that this side refuses: nothing of it is sent.
type refusedError struct{ err error }

func (e *refusedError) Error() string       { return e.err.Error() }
func (e *refusedError) Unwrap() error       { return e.err }
func (*refusedError) MayHaveHappened() bool { return false }

// toldError is an error whose line has been written already: only its status
// is left.
type toldError struct{ status int }

func (e *toldError) Error() string { return fmt.Sprintf("status %d", e.status) }

// statusOf is the exit status of a command that ended with err.
func statusOf(err error) int {
	var usage *usageError
	var told *toldError
	switch {
	case err == nil, errors.Is(err, errClosedPipe):
		return statusDone
	case errors.As(err, &told):
		return told.status
	case errors.As(err, &usage):
		return statusUsage
	case isUnknown(err):
		return statusUnknown
	case errors.Is(err, errInterrupted), errors.Is(err, errStoppedInOrder):
		return statusInterrupted
	default:
		return statusFailed
	}
}

// count is "1 record", "2 records".
func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "y") {
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
