package produce

import (
	"time"

	"github.com/ottla/ottla/kafka"
)

// What Transactions need of the machine below them.

// adopt gives new sequences under an identity from here on.
func adopt(m *Machine, now time.Time, who identityOf) {
	m.ident = identity{state: identKnown, id: who.id, epoch: who.epoch, inTx: true}
	m.evaluateAll(now)
}

// refuse gives up what is not under way, and all that comes, with err.
func refuse(m *Machine, now time.Time, err error) {
	m.refused = err
	for _, p := range m.order {
		if p.open.is {
			closeOpen(p)
		}
		if p.queue.unsent() > 0 {
			p.queue.giveUpWaiting(err)
			p.evaluate(now)
		}
	}
}

// quiet reports whether no request is outstanding.
func quiet(m *Machine) bool { return len(m.requests) == 0 }

// settled reports whether every batch has its result, and none is still to come.
func settled(m *Machine) bool {
	if len(m.requests) > 0 || len(m.batches) > 0 {
		return false
	}
	for _, p := range m.order {
		if p.open.is || p.owed {
			return false
		}
	}
	return true
}

// identityOf is a producer id with its epoch; ID -1 is none.
type identityOf struct {
	id    kafka.ProducerID
	epoch kafka.ProducerEpoch
}
