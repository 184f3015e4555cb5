package admin

import (
	"context"
	"time"
)

// InDoubtError is a creation or deletion of which it is not known whether it
// happened: the request was sent, and its answer was lost or says so. It is
// never sent again by itself; Resolve looks what became of it.
type InDoubtError struct {
	Topic string
	Err   error

	a     *Admin
	want  wanted
	shown showing
	over  time.Time // when the broker has given the request up
}

// showing says which brokers have to show a change for it to have happened.
type showing uint8

const (
	anyBroker   showing = iota // one that shows a new topic proves it
	everyBroker                // one that still shows a deleted topic may be behind
)

func (e *InDoubtError) Error() string {
	return e.Err.Error() + "; it may have happened: Resolve tells"
}

func (e *InDoubtError) Unwrap() error { return e.Err }

// MayHaveHappened is true.
func (*InDoubtError) MayHaveHappened() bool { return true }

// inDoubt is err, as an InDoubtError where it leaves the outcome open.
func (a *Admin) inDoubt(err error, mode Mode, w wanted, s showing) error {
	if OutcomeOf(err) != Unknown {
		return err
	}
	if mode == ValidateOnly {
		return &harmless{err}
	}
	return &InDoubtError{Topic: w.topic.String(), Err: err, a: a, want: w, shown: s, over: time.Now().Add(longestChange)}
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
func (e *InDoubtError) Resolve(ctx context.Context) (Outcome, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for attempt := 1; ; attempt++ {
		if o, known := e.look(ctx); known {
			return o, nil
		}
		if err := e.a.pause(ctx, look, attempt); err != nil {
			return Unknown, opError("resolve", e.Topic, err)
		}
	}
}

// look asks the brokers once.
func (e *InDoubtError) look(ctx context.Context) (o Outcome, known bool) {
	views, all, err := e.a.views(ctx, []wanted{e.want})
	without := len(lacking(views, e.want))
	switch {
	case err != nil || len(views) == 0:
		return Unknown, false
	case e.shown == anyBroker && without < len(views), e.shown == everyBroker && without == 0:
		return Done, true
	case len(views) < all || time.Now().Before(e.over):
		return Unknown, false
	}
	return NotDone, true
}
