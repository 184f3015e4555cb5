package produce

import (
	"math"
	"slices"
	"time"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

type identState uint8

const (
	identNone identState = iota
	identAsked
	identKnown
)

// identity is the producer id and epoch that new sequences are given under.
type identity struct {
	state   identState
	wanted  bool // a closed batch waits for it
	id      kafka.ProducerID
	epoch   kafka.ProducerEpoch
	tries   int
	retryAt time.Time
	inTx    bool // it is that of a transactional id
}

func (m *Machine) identify(now time.Time) {
	if m.over != nil || m.tx != nil || m.ident.state != identNone || !m.ident.wanted || now.Before(m.ident.retryAt) {
		return
	}
	m.ident.state = identAsked
	m.emit(Identify{})
}

// OnIdentity is the answer to Identify. An error that cannot heal ends the
// batches that wait for the identity; the next batch asks again.
func (m *Machine) OnIdentity(now time.Time, id kafka.ProducerID, epoch kafka.ProducerEpoch, err error) {
	if m.ident.state != identAsked {
		return
	}
	if err == nil {
		m.ident = identity{state: identKnown, id: id, epoch: epoch}
		m.evaluateAll(now)
		return
	}
	m.ident.state = identNone
	if final(err) {
		m.ident = identity{}
		giveUpUnsealed(m, err)
		m.evaluateAll(now)
		return
	}
	for _, p := range m.order {
		for _, b := range p.queue {
			b.cause = err
		}
	}
	m.ident.tries++
	m.ident.retryAt = now.Add(m.cfg.Backoff.Delay(m.ident.tries, m.rng))
}

// giveUpUnsealed ends the batches for which there is no identity: nothing of
// them was written.
func giveUpUnsealed(m *Machine, err error) {
	for _, p := range m.order {
		if p.waitingArea() {
			continue
		}
		for _, b := range slices.Clone(p.queue) {
			if !b.stamped && !b.away() {
				b.giveUp(err)
			}
		}
	}
}

func (m *Machine) evaluateAll(now time.Time) {
	for _, p := range m.order {
		p.evaluate(now)
	}
}

// identified reports whether batches can be sealed.
func (m *Machine) identified() bool { return m.cfg.Plain || m.ident.state == identKnown }

// stamp is that of the first batch of a partition under the identity.
func (i *identity) stamp() record.Stamp {
	return record.Stamp{ProducerID: i.id, ProducerEpoch: i.epoch, Transactional: i.inTx}
}

// leave makes sure that no new batch of p gets a sequence of its present
// identity: a range that may have been appended is never used again. Without a
// transaction the next epoch needs no request.
func (p *partition) leave() {
	m := p.m
	current := p.current()
	p.burnt, p.torn, p.proven = true, true, false
	switch {
	case m.tx != nil:
		m.tx.stale = true
	case !current:
	case m.ident.epoch == math.MaxInt16:
		m.renew()
	default:
		m.ident.epoch++
	}
}

// renew drops the identity; the next batch asks for a new one.
func (m *Machine) renew() {
	m.ident = identity{wanted: true}
}
