package produce

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/kafka"
)

// ending is the end of a transaction under way.
type ending struct {
	commit bool
	calls  []CallID
	aborts []CallID  // of a commit: who wants to abort when its outcome is known
	asked  bool      // EndTxn was sent
	maybe  bool      // one of them may have been carried out, or may still be
	until  time.Time // it is asked again no longer
	result error     // of a reload, when the identity is there
}

func (e *ending) name() string {
	if e.commit {
		return "commit"
	}
	return "abort"
}

func (e *ending) finish(t *Transactions, err error) {
	for _, c := range e.calls {
		t.finish(c, err)
	}
	e.calls = nil
}

func (e *ending) finishAborts(t *Transactions, err error) {
	for _, c := range e.aborts {
		t.finish(c, err)
	}
	e.aborts = nil
}

// Touched reports whether the coordinator may know of the transaction: one of
// which it does not is ended without a request.
func Touched(t *Transactions) bool { return t.of.touched }

// OnCommit commits the transaction, after everything in it is settled. If a
// commit is under way the call joins it.
func (t *Transactions) OnCommit(now time.Time, call CallID) {
	switch e := t.end; {
	case t.over != nil:
		t.finish(call, opFailed("commit", refusal{t.over}))
	case t.state == txReload && t.of.cause != nil:
		t.finish(call, opFailed("commit", refusal{t.of.cause}))
	case t.state != txOpen && t.state != txDoomed:
		t.finish(call, opFailed("commit", kafka.ErrNoTransaction))
	case e != nil && !e.commit:
		t.finish(call, opFailed("commit", abortable{errAborted}))
	case e != nil:
		e.calls = append(e.calls, call)
	default:
		t.end = &ending{commit: true, calls: []CallID{call}}
		t.m.OnFlush(now)
	}
}

// OnAbort aborts the transaction; what is not under way of it is given up. The
// outcome of a commit that is under way, or was not known, is found out first.
func (t *Transactions) OnAbort(now time.Time, call CallID) {
	e := t.end
	switch {
	case t.over != nil:
		t.finish(call, opFailed("abort", refusal{t.over}))
	case t.state != txOpen && t.state != txDoomed && t.state != txReload:
		t.finish(call, opFailed("abort", kafka.ErrNoTransaction))
	case e != nil && e.commit && e.asked:
		e.aborts = append(e.aborts, call)
	case e != nil && !e.commit:
		e.calls = append(e.calls, call)
	default:
		if e != nil {
			e.finish(t, opFailed("commit", abortable{errAborted}))
		}
		t.end = &ending{calls: []CallID{call}}
		t.doom(now, errAborted)
	}
}

var errAborted error = fixed("the transaction is being aborted")

// leaveEnd takes a caller off the end under way. What was sent goes on without
// him; a commit that nobody waits for and that was not sent does not.
func (t *Transactions) leaveEnd(call CallID, cause error) {
	e := t.end
	if e == nil {
		return
	}
	if i := slices.Index(e.aborts, call); i >= 0 {
		e.aborts = slices.Delete(e.aborts, i, i+1)
		t.finish(call, opFailed("abort", inDoubt(cause)))
		return
	}
	i := slices.Index(e.calls, call)
	if i < 0 {
		return
	}
	e.calls = slices.Delete(e.calls, i, i+1)
	t.finish(call, opFailed(e.name(), maybe(cause, e.asked || !e.commit)))
	if e.commit && !e.asked && len(e.calls) == 0 {
		t.end = nil
	}
}

// askEnd ends what is settled: with a request if the coordinator may know of
// the transaction.
func (t *Transactions) askEnd(now time.Time) {
	e := t.end
	switch {
	case e.commit && t.state == txDoomed:
		t.stay(txDoomed, t.of.cause, abortable{t.of.cause})
	case t.of.gone || !t.of.touched:
		t.ended(now)
	default:
		if e.until.IsZero() {
			e.until = now.Add(t.m.cfg.Delivery)
		}
		e.asked = true
		t.m.refused = kafka.ErrNoTransaction // what comes now comes too late
		t.ask(EndTxn{t.who.id, t.who.epoch, e.commit, t.bumping})
	}
}

func (t *Transactions) onEnd(now time.Time, r Reply) {
	e := t.end
	err := r.err()
	e.maybe = e.maybe || r.lost()
	switch {
	case r.ok():
		if t.bumping && r.ID >= 0 {
			t.who, t.stale = identityOf{r.ID, r.Epoch}, false
			adopt(t.m, now, t.who)
		}
		if !e.commit && t.of.unknown && t.of.copies {
			e.result = opFailed("abort", inDoubt(errReopened))
		}
		t.ended(now)
	case r.fenced():
		t.m.OnClose(&fencedError{err})
	case r.is(kerr.TransactionAbortable) && e.commit:
		t.stay(txDoomed, err, abortable{err})
	case r.is(kerr.InvalidTxnState, kerr.InvalidProducerIDMapping):
		t.onNothingToEnd(now, r)
	case r.repeats() && now.Before(e.until):
		t.again(now)
	case e.commit && e.maybe:
		t.of.unknown = true
		t.stay(txReload, err, inDoubt(err))
	case e.commit:
		t.stay(txDoomed, err, maybe(err, false))
	default:
		t.stay(txReload, err, maybe(err, e.maybe))
	}
}

// onNothingToEnd handles a coordinator that has no open transaction: it has
// ended it before, in one way or the other, or does not know the id any more.
func (t *Transactions) onNothingToEnd(now time.Time, r Reply) {
	e := t.end
	t.stale = true
	forgot := r.is(kerr.InvalidProducerIDMapping)
	if e.commit && e.maybe { // an attempt before may have committed it, and something come between
		t.of.unknown = true
		t.stay(txReload, r.err(), inDoubt(r.err()))
		return
	}
	t.of.gone, t.probe = true, probed
	switch {
	case e.commit:
		err := timedOut{r.err(), now.Sub(t.began)}
		t.stay(txReload, err, err)
	case forgot && t.of.unknown:
		e.result = opFailed("abort", inDoubt(r.err()))
		t.ended(now)
	default:
		if t.of.unknown {
			e.result = opFailed("abort", ErrCommitted)
		}
		t.ended(now)
	}
}

// errReopened is why an abort that went through says nothing about the commit
// before it: a late copy of a request may have opened what it aborted.
var errReopened error = fixed("an earlier commit may have gone through before the coordinator opened for a late copy of a request what is aborted now")

// ended closes the transaction, or goes on with the identity in a reload.
func (t *Transactions) ended(now time.Time) {
	e := t.end
	t.pace = pace{}
	t.of.gone = true
	t.m.refused = kafka.ErrNoTransaction
	if t.state == txReload {
		t.probe = probed
		return // the identity comes next
	}
	t.state, t.end = txReady, nil
	e.finish(t, e.result)
	e.finishAborts(t, opFailed("abort", ErrCommitted))
}

// stay leaves the transaction in a state because its end did not come to pass.
func (t *Transactions) stay(s txState, cause, err error) {
	e := t.end
	t.state, t.of.cause, t.pace = s, cause, pace{}
	t.m.refused = abortable{cause}
	t.end = nil
	e.finish(t, opFailed(e.name(), err))
	if s == txDoomed {
		for _, c := range t.begins {
			t.finish(c, ErrOpen)
		}
		t.begins = nil
	}
	if len(e.aborts) > 0 {
		t.end = &ending{calls: e.aborts}
	}
}
