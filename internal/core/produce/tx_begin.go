package produce

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/kafka"
)

// OnBegin opens a transaction. The first one fetches the identity, which fences
// and aborts what an earlier instance left open; later ones settle first what
// is left of the one before.
func (t *Transactions) OnBegin(call CallID) {
	switch {
	case t.over != nil:
		t.finish(call, opFailed("begin", refusal{t.over}))
	case (t.state == txOpen || t.state == txDoomed) && (t.end == nil || t.end.commit && !t.end.asked):
		t.finish(call, ErrOpen)
	default:
		t.begins = append(t.begins, call)
	}
}

// open begins the transaction of the caller who has waited longest.
func (t *Transactions) open(now time.Time) {
	if len(t.begins) == 0 || t.end != nil {
		return
	}
	for _, c := range t.begins[1:] {
		t.finish(c, ErrOpen)
	}
	call := t.begins[0]
	t.begins = nil
	t.of = transaction{}
	t.enrols.parts = map[kafka.TopicPartition]*enrolment{}
	t.offsets.groups, t.offsets.stales = map[string]bool{}, 0
	t.state, t.began, t.pace = txOpen, now, pace{}
	t.m.refused = nil
	t.finish(call, nil)
}

// probe is whether the coordinator was asked, with an abort, if the identity
// still is ours.
type probe uint8

const (
	unprobed probe = iota
	probing
	probed
)

// renew asks for the next epoch. Where another instance has a transaction open
// that request would abort it, and only then be refused: so an abort under the
// own identity goes first, which does no harm to another one.
func (t *Transactions) renew() {
	if t.probe != probed {
		t.probe = probing
		t.ask(EndTxn{t.who.id, t.who.epoch, false, t.bumping})
		return
	}
	t.ask(InitProducer{t.who.id, t.who.epoch})
}

func (t *Transactions) onProbe(now time.Time, r Reply) {
	t.probe = unprobed
	switch {
	case r.fenced():
		t.m.OnClose(&fencedError{r.err()})
	case r.repeats():
		t.again(now)
	case r.Err != nil, r.is(kerr.TransactionalIDAuthorizationFailed):
		t.refuseInit(now, r.err())
	default: // aborted, or there was nothing to abort
		t.probe, t.pace = probed, pace{}
		if r.ok() && t.bumping && r.ID >= 0 {
			t.who = identityOf{r.ID, r.Epoch}
		}
	}
}

// onInit takes the identity.
func (t *Transactions) onInit(now time.Time, a InitProducer, r Reply) {
	switch {
	case r.ok():
		t.adopt(now, r)
	case r.fenced() && a.ID >= 0:
		t.m.OnClose(&fencedError{r.err()})
	case a.ID >= 0 && tooOld(r.Err): // the broker knows no new epoch for who has one
		t.m.OnClose(refusal{r.Err})
	case r.repeats():
		t.again(now)
	default:
		t.refuseInit(now, r.err())
	}
}

// adopt takes an identity under which nothing is open.
func (t *Transactions) adopt(now time.Time, r Reply) {
	t.who, t.bumping = identityOf{r.ID, r.Epoch}, r.Bumping
	t.stale, t.suspect, t.probe, t.pace = false, false, unprobed, pace{}
	adopt(t.m, now, t.who)
	if t.state == txOpen || t.state == txDoomed {
		t.of.gone = true // the coordinator has aborted it
		return
	}
	t.state = txReady
	if e := t.end; e != nil { // the end of a reload
		t.end = nil
		e.finish(t, e.result)
	}
}

// refuseInit tells those who wait for an identity that there is none. The next
// call asks again.
func (t *Transactions) refuseInit(now time.Time, err error) {
	for _, c := range t.begins {
		t.finish(c, opFailed("begin", refusal{err}))
	}
	t.begins, t.pace = nil, pace{}
	if e := t.end; e != nil && t.state == txReload {
		t.end = nil
		e.finish(t, opFailed(e.name(), maybe(err, e.maybe)))
	}
	if t.suspect {
		t.suspect, t.of.gone = false, true
		t.doom(now, err)
	}
}

// OnFailed says that a record of the transaction is not done; of batches the
// machine knows it. That dooms the transaction at the next look, when all of an
// answer has been read.
func (t *Transactions) OnFailed(err error) {
	late := t.end != nil && t.end.asked // it came when everything was settled, and is no part of it
	if t.state == txOpen && t.of.failed == nil && !late {
		t.of.failed = err
	}
}

// onSequence handles the codes that are about sequence numbers: no batch of a
// transaction gets others. If the broker does not know the identity, or knows a
// newer one, the coordinator has to say what that means.
func (t *Transactions) onSequence(now time.Time, b *batch, a *Answer, err error) {
	p := b.part
	switch a.Code {
	case kerr.InvalidProducerEpoch.Code, kerr.InvalidProducerIDMapping.Code:
		t.suspect = true
	case kerr.UnknownProducerID.Code:
		if a.LogStart < 0 {
			b.onFailed(now, err)
			return
		}
	default:
		if p.queue.first() != b { // it follows from what happened to those before it
			return
		}
	}
	p.leave()
	b.giveUp(err)
}
