package group

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// Action is something for the driver to do.
type Action interface{ action() }

// Send is a request for the coordinator; its answer goes to OnAnswer.
type Send struct {
	ID   uint64
	Req  kmsg.Request
	Wait time.Duration // how long to wait for the answer, 0 = as usual
}

// Forget asks to look the coordinator up again before the next Send.
type Forget struct{}

// Given are partitions that the member owns from now on.
type Given struct {
	Partitions []kafka.TopicPartition
	IDs        map[string]kafka.TopicID // of their topics, where the broker told them
}

// Taken are partitions to give up. Unless Lost, the member still owns them until
// OnRevoked is called with the ID; if Lost, it owns them no longer, and Why says
// so.
type Taken struct {
	ID         uint64
	Partitions []kafka.TopicPartition
	Lost       bool
	Why        error
}

// WatchCounts asks for OnCounts with the partition counts of these topics, now
// and whenever they change.
type WatchCounts struct{ Topics []string }

// ResolveIDs asks for OnNames with the names of these topic ids.
type ResolveIDs struct{ IDs []kafka.TopicID }

// Event is something to be told.
type Event struct {
	Kind  EventKind
	Cause string
	Err   error
}

// EventKind says what happened.
type EventKind uint8

const (
	Joined    EventKind = iota // the member is stable
	Rebalance                  // a round began: Cause
	Doubtful                   // no heartbeat was confirmed for a whole session timeout
	Confirmed                  // the membership is in no doubt any more
	Trouble                    // something failed and is tried again: Err
	Over                       // the member is over: Err
	Outside                    // a member in doubt is none any more, and owns nothing
)

func (*Send) action()        {}
func (*Forget) action()      {}
func (*Given) action()       {}
func (*Taken) action()       {}
func (*WatchCounts) action() {}
func (*ResolveIDs) action()  {}
func (*Event) action()       {}

// outbox holds what is to be done, and what is out.
type outbox struct {
	queue   []Action
	flights map[uint64]*flight
	lastID  uint64
}

// flight is a request that is out.
type flight struct {
	kind  flightKind
	epoch int32 // generation or member epoch that it was sent with
	op    *commitOp
	load  *loadOp
}

type flightKind uint8

const (
	flightJoin flightKind = iota
	flightSync
	flightHeartbeat
	flightLeave
	flightCommit
	flightLoad
)

func (o *outbox) take() (Action, bool) {
	if len(o.queue) == 0 {
		return nil, false
	}
	a := o.queue[0]
	o.queue = o.queue[1:]
	return a, true
}

func (o *outbox) tell(e Event) { o.queue = append(o.queue, &e) }

// flying reports whether a request of a kind is out.
func (o *outbox) flying(kind flightKind) bool {
	for _, f := range o.flights {
		if f.kind == kind {
			return true
		}
	}
	return false
}

// forget drops flights of a kind: their answers mean nothing any more.
func (o *outbox) forget(kinds ...flightKind) {
	for id, f := range o.flights {
		if slices.Contains(kinds, f.kind) {
			delete(o.flights, id)
		}
	}
}

// coordinatorMoved reports whether a code asks for patience with the
// coordinator, and has it looked up again where it may be another one.
func (o *outbox) coordinatorMoved(code int16) bool {
	switch retry.Of(code) {
	case retry.FindCoordinator:
		o.queue = append(o.queue, &Forget{})
		return true
	case retry.Retry:
		return true
	}
	return false
}
