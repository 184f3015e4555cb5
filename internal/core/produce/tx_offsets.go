package produce

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// offsetsCall is a call that adds offsets of a group to the transaction.
type offsetsCall struct {
	call  CallID
	group string
	kind  kafka.GroupKind
	count int       // of partitions
	asked Action    // the last request for it
	maybe bool      // one of them may have been carried out
	until time.Time // it is asked again no longer
}

const opOffsets = "commit offsets in the transaction"

// offsetsQueue is the calls that are not over, oldest first.
type offsetsQueue struct {
	t      *Transactions
	calls  []*offsetsCall
	groups map[string]bool // the coordinator of the transaction knows of them
	stales int             // refusals for a stale token in this transaction
}

// OnOffsets adds offsets of count partitions to the transaction, on behalf of a
// group's member.
func (t *Transactions) OnOffsets(now time.Time, call CallID, group kafka.GroupMetadata, count int) {
	switch {
	case t.over != nil:
		t.finish(call, opFailed(opOffsets, refusal{t.over}))
	case t.state == txDoomed:
		t.finish(call, opFailed(opOffsets, abortable{t.of.cause}))
	case t.state != txOpen || t.end != nil:
		t.finish(call, opFailed(opOffsets, kafka.ErrNoTransaction))
	default:
		t.offsets.calls = append(t.offsets.calls, &offsetsCall{
			call: call, group: group.Group, kind: group.Kind, count: count, until: now.Add(t.m.cfg.Delivery),
		})
	}
}

// ask carries on with the oldest call. Below part 2 the transaction's
// coordinator has to know of the group first.
func (q *offsetsQueue) ask() bool {
	if len(q.calls) == 0 {
		return false
	}
	o := q.calls[0]
	q.t.of.touched = true
	if q.t.bumping || q.groups[o.group] {
		o.asked = CommitOffsets{o.call, q.t.who.id, q.t.who.epoch, q.t.bumping}
	} else {
		o.asked = EnrolGroup{q.t.who.id, q.t.who.epoch, o.group}
	}
	q.t.ask(o.asked)
	return true
}

func (q *offsetsQueue) onEnrolled(now time.Time, a EnrolGroup, r Reply) {
	switch {
	case r.ok():
		q.groups[a.Group] = true
		q.t.pace = pace{}
	case r.fenced():
		q.t.m.OnClose(&fencedError{r.err()})
	case len(q.calls) == 0 || q.t.state != txOpen: // the caller has left
	case r.repeats() && now.Before(q.calls[0].until):
		q.t.again(now)
	default:
		q.t.suspect = q.t.suspect || r.is(kerr.InvalidProducerIDMapping)
		q.fail(now, r.err())
	}
}

func (q *offsetsQueue) onReply(now time.Time, a CommitOffsets, r Reply) {
	if len(q.calls) == 0 || q.calls[0].call != a.Call {
		return // the caller has left, and the transaction is doomed
	}
	o := q.calls[0]
	r = r.worst(o.count)
	o.maybe = o.maybe || r.lost()
	err := r.err()
	refreshed := r.Err == nil && retry.Of(r.Code) == retry.RefreshMetadata
	switch {
	case err == nil:
		q.drop(nil)
	case r.is(kerr.ProducerFenced):
		q.t.m.OnClose(&fencedError{err})
	case (r.repeats() || refreshed) && now.Before(o.until):
		q.t.again(now)
	case o.staleToken(r) && q.stales == 0: // once more with a fresh token, which only the member has
		q.stales++
		q.drop(opFailed(opOffsets, err))
	default:
		q.t.suspect = q.t.suspect || r.is(kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping)
		q.fail(now, err)
	}
}

// staleToken reports whether the group has moved on since the token was made. A
// group of the streams kind says so with the code of another generation.
func (o *offsetsCall) staleToken(r Reply) bool {
	return r.is(kerr.StaleMemberEpoch) || o.kind == kafka.StreamsGroup && r.is(kerr.IllegalGeneration)
}

// fail ends the oldest call, and with it all but the abort.
func (q *offsetsQueue) fail(now time.Time, err error) {
	o := q.calls[0]
	if o.maybe {
		err = inDoubt(err)
	} else {
		err = abortable{err}
	}
	q.drop(opFailed(opOffsets, err))
	q.t.doom(now, err)
}

func (q *offsetsQueue) drop(err error) {
	o := q.calls[0]
	q.calls = q.calls[1:]
	q.t.pace = pace{}
	q.t.finish(o.call, err)
}

// refuse ends the calls of a doomed transaction. What is under way has
// no effect once it is aborted.
func (q *offsetsQueue) refuse(cause error) {
	for _, o := range q.calls {
		q.t.finish(o.call, opFailed(opOffsets, abortable{cause}))
	}
	q.calls = nil
}

// leave takes a caller off. If something was sent for him nobody knows
// what the transaction holds: it can only be aborted.
func (q *offsetsQueue) leave(call CallID, cause error) bool {
	for i, o := range q.calls {
		if o.call != call {
			continue
		}
		q.calls = append(q.calls[:i:i], q.calls[i+1:]...)
		err := maybe(cause, o.asked != nil)
		q.t.finish(call, opFailed(opOffsets, err))
		if o.asked != nil {
			q.t.of.failed = err
		}
		return true
	}
	return false
}
