package produce

import (
	"slices"
	"time"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

type batchState uint8

const (
	closed  batchState = iota // waits for the identity
	sealing                   // being compressed
	ready                     // can be sent
	flying                    // outstanding
)

type batch struct {
	Batch
	part     *partition
	deadline time.Time
	state    batchState
	size     int          // on the wire, once sealed
	stamp    record.Stamp // once stamped
	stamped  bool         // its sequences are taken and its bytes may have left: they change no more
	maybe    bool         // possibly appended: stays until it is known to be appended
	lost     bool         // a request with it ended without an answer
	damaged  bool         // the broker once found its bytes damaged
	told     bool         // its caller has the result
	cause    error        // the last failure
}

// open is what the machine knows of the batch that records are added to.
type open struct {
	is   bool
	now  bool      // close it without waiting for linger
	due  time.Time // end of linger
	last time.Time // its delivery deadline
}

// partition holds the batches of one partition in order. One of them at most
// is outstanding.
type partition struct {
	m       *Machine
	tp      kafka.TopicPartition
	open    open
	queue   []*batch     // oldest first; flight is the first of it unless its caller was told already
	flight  *batch       // outstanding
	ident   record.Stamp // the identity its sequences belong to; BaseSequence is that of the next new batch
	begun   bool         // ident was taken
	acked   kafka.Offset
	leader  kafka.NodeID
	asking  bool      // a Resolve is not answered
	invalid bool      // what the cluster map knows proved wrong
	tries   int       // failures in a row
	retryAt time.Time // neither sent nor asked before
	unknown time.Time // first "unknown topic" since the last success
	line    *broker   // the leader in whose line it stands, or nil
	index   int       // in the timers; -1 if not there
	wake    time.Time
}

func (p *partition) waitingArea() bool { return p.tp.Partition == WaitingArea }

// unsent is how many batches wait, the outstanding one not counted.
func (p *partition) unsent() int {
	if p.flight != nil && !p.flight.told {
		return len(p.queue) - 1
	}
	return len(p.queue)
}

// sendable is the batch to send at this time, or nil.
func (p *partition) sendable(now time.Time) *batch {
	if p.flight != nil || len(p.queue) == 0 || p.leader == kafka.NoNode || now.Before(p.retryAt) {
		return nil
	}
	if b := p.queue[0]; b.state == ready {
		return b
	}
	return nil
}

func (m *Machine) partition(tp kafka.TopicPartition) *partition {
	p := m.parts[tp]
	if p == nil {
		p = &partition{m: m, tp: tp, leader: kafka.NoNode, acked: -1, index: -1}
		m.parts[tp] = p
		m.order = append(m.order, p)
	}
	return p
}

// evaluate looks at a partition after something about it changed, or at a time
// it had asked for.
func (p *partition) evaluate(now time.Time) {
	if p.m.over != nil {
		return
	}
	p.expire(now)
	p.maybeClose(now)
	p.sealAll()
	p.maybeResolve(now)
	p.maybeOffer(now)
	p.schedule(now)
}

func (p *partition) expire(now time.Time) {
	for i := 0; i < len(p.queue); {
		b := p.queue[i]
		switch {
		case !b.deadline.After(now):
			b.giveUp(b.timeUp(now)) // takes it out of the queue
		case b.state != flying:
			return // the rest came later
		default:
			i++
		}
	}
}

// maybeClose ends the linger of the open batch. As long as another batch waits
// unsent, closing would only make smaller batches.
func (p *partition) maybeClose(now time.Time) {
	if p.open.is && (p.open.now || !now.Before(p.closeAt())) {
		p.open = open{}
		p.m.emit(CloseOpen{p.tp})
	}
}

func (p *partition) closeAt() time.Time {
	room := p.unsent() == 0
	if p.m.cfg.Linger == 0 {
		room = room && p.flight == nil
	}
	if room {
		return p.open.due
	}
	return p.open.last
}

// sealAll has the closed batches sealed with the sequences they will have if
// nothing fails before them.
func (p *partition) sealAll() {
	m := p.m
	if p.waitingArea() || len(p.queue) == 0 || p.queue[len(p.queue)-1].state != closed {
		return
	}
	if m.ident.state != identKnown {
		m.ident.wanted = true
		return
	}
	next := p.nextStamp()
	for _, b := range p.queue {
		switch {
		case b.stamped:
			continue
		case b.state == closed:
			b.state = sealing
			m.emit(Seal{b.ID, next})
		}
		next.BaseSequence = record.AddSequence(next.BaseSequence, b.Count)
	}
}

func (p *partition) maybeResolve(now time.Time) {
	if len(p.queue) == 0 || p.leader != kafka.NoNode || p.asking || now.Before(p.retryAt) {
		return
	}
	p.resolve()
}

func (p *partition) resolve() {
	p.asking = true
	p.m.emit(Resolve{Partition: p.tp, Invalid: p.invalid})
	p.invalid = false
}

func (p *partition) maybeOffer(now time.Time) {
	if p.line != nil || p.waitingArea() || p.sendable(now) == nil {
		return
	}
	p.line = p.m.broker(p.leader)
	p.line.ready = append(p.line.ready, p)
}

// lead moves p to another leader, or to none.
func (p *partition) lead(leader kafka.NodeID) {
	p.leader = leader
	if p.line != nil && p.line.id != leader {
		p.line.ready = slices.DeleteFunc(p.line.ready, func(q *partition) bool { return q == p })
		p.line = nil
	}
}

// schedule sets the timer of p to the next time at which evaluate would do
// something.
func (p *partition) schedule(now time.Time) {
	var at time.Time
	for _, b := range p.queue {
		at = earlier(at, b.deadline)
		if b.state != flying {
			break // the rest came later
		}
	}
	if p.open.is {
		at = earlier(at, p.closeAt())
	}
	if len(p.queue) > 0 && p.flight == nil && p.retryAt.After(now) {
		at = earlier(at, p.retryAt)
	}
	p.m.timers.set(p, at)
}

// backOff delays the next try of p.
func (p *partition) backOff(now time.Time) {
	m := p.m
	p.tries++
	p.retryAt = now.Add(m.cfg.Backoff.Delay(p.tries, m.rng))
}

// outOfPatience reports whether a topic that was there has been unknown for
// too long.
func (p *partition) outOfPatience(now time.Time) bool {
	if p.unknown.IsZero() {
		p.unknown = now
	}
	if now.Sub(p.unknown) < p.m.cfg.TopicPatience {
		return false
	}
	p.unknown = time.Time{}
	return true
}
