package admin

import (
	"context"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

// InDoubtError is a creation or deletion of which it is not known whether it
// happened: the request was sent, and its answer was lost or says so. It is
// never sent again by itself; Resolve looks what became of it.
type InDoubtError struct {
	What string // such as "topic orders"
	Err  error

	a    *client
	read func(ctx context.Context) reading
	over time.Time // when the broker has given the request up
}

// reading is what brokers show of a change at the moment.
type reading uint8

const (
	unreadable reading = iota // not enough of them answer
	shown                     // it has happened
	notShown                  // all of them answer, and none shows it
)

func (e *InDoubtError) Error() string {
	return e.Err.Error() + "; it may have happened: Resolve tells"
}

func (e *InDoubtError) Unwrap() error { return e.Err }

// MayHaveHappened is true.
func (*InDoubtError) MayHaveHappened() bool { return true }

// inDoubt is err, as an InDoubtError where it leaves the outcome open.
func (a *client) inDoubt(err error, mode Mode, what string, read func(context.Context) reading) error {
	if OutcomeOf(err) != Unknown {
		return err
	}
	if mode == ValidateOnly {
		return &harmless{err}
	}
	return &InDoubtError{What: what, Err: err, a: a, read: read, over: time.Now().Add(longestChange)}
}

// harmless is the error of a request that changes nothing.
type harmless struct{ err error }

func (e *harmless) Error() string       { return e.err.Error() }
func (e *harmless) Unwrap() error       { return e.err }
func (*harmless) MayHaveHappened() bool { return false }

// Resolve reads from the brokers whether the change happened, and changes
// nothing. It is Done if they show it, whoever made it; NotDone if the time
// that the request gave the broker has passed (30 s at most), every broker
// answers, and none shows it. It waits for the one or the other until ctx ends,
// without a deadline for a minute; then it is Unknown, and
// the error says why.
//
// A broker that stood still all that time with the request unread, and that
// the cluster does not name any more, can still carry it out when it goes on.
// Controllers show nothing of it: through them it stays Unknown, with
// kafka.ErrUnsupportedEndpointType.
func (e *InDoubtError) Resolve(ctx context.Context) (Outcome, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if cluster.AtControllers(e.a.c) {
		return Unknown, opError("resolve "+e.What, "", kafka.ErrUnsupportedEndpointType)
	}
	for attempt := 1; ; attempt++ {
		switch e.read(ctx) {
		case shown:
			return Done, nil
		case notShown:
			if time.Now().After(e.over) {
				return NotDone, nil
			}
		}
		if err := e.a.pause(ctx, look, attempt); err != nil {
			return Unknown, opError("resolve "+e.What, "", err)
		}
	}
}
