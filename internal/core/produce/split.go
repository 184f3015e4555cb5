package produce

import (
	"slices"
	"time"

	"github.com/ottla/ottla/record"
)

// OnSplit hands over the batches that take the place of one, none if nothing of
// it is left. They have its sequences, if it had any.
func (m *Machine) OnSplit(now time.Time, id BatchID, parts ...Batch) {
	b := m.batches[id]
	if b == nil || b.state != splitting {
		return
	}
	p := b.part
	delete(m.batches, id)
	if left := b.Count; b.stamped {
		for _, in := range parts {
			left -= in.Count
		}
		if left != 0 { // records were taken out: the sequences leave a gap
			b.stamped, p.torn = false, true
		}
	}
	i := slices.Index(p.queue, b)
	stamp, list := b.stamp, make([]*batch, len(parts))
	for k, in := range parts {
		h := &batch{
			Batch: in, part: p, deadline: b.deadline, state: sealing, codec: b.codec,
			stamp: stamp, stamped: b.stamped, cause: b.cause, doomed: b.doomed,
		}
		if !m.cfg.Plain {
			stamp.BaseSequence = record.AddSequence(stamp.BaseSequence, in.Count)
		}
		m.batches[h.ID], list[k] = h, h
	}
	p.queue = slices.Replace(p.queue, i, i+1, list...)
	p.calm()
	if m.identified() {
		p.foresee(i)
	}
	for _, h := range list {
		m.emit(Seal{h.ID, h.stamp, h.codec})
	}
	p.evaluate(now)
}

// Withdrawal says what became of the wish to take records out of a batch.
type Withdrawal uint8

const (
	TooLate   Withdrawal = iota // the batch is settled, or may be written
	IfUnsent                    // it is on its way; they are taken out if nothing of it turns out to be sent
	Withdrawn                   // OnSplit brings what is left
)

// OnWithdraw asks to take records out of a batch of which nothing was sent. In
// a transaction nothing is taken out.
func (m *Machine) OnWithdraw(now time.Time, id BatchID) Withdrawal {
	b := m.batches[id]
	if b == nil || m.tx != nil || b.maybe || b.part.waitingArea() || b.state == splitting {
		return TooLate
	}
	b.cut, b.part.cuts = true, true
	b.part.evaluate(now)
	if b.state == splitting || b.state == sealing && !b.stamped {
		return Withdrawn
	}
	return IfUnsent
}

// cutAll has the batches split that records are taken out of, and of which
// nothing was sent. One with sequences waits until nothing behind it is in
// doubt that needs them.
func (p *partition) cutAll() {
	if !p.cuts {
		return
	}
	p.cuts = false
	doubt := p.flying > 0
	for i := len(p.queue) - 1; i >= 0; i-- {
		b := p.queue[i]
		switch {
		case b.cut && !b.maybe && !(b.stamped && doubt) && (b.state == ready || b.state == closed):
			p.torn = p.torn || b.stamped
			b.stamped, b.cut = false, false
			b.split()
		case b.cut && !b.told:
			p.cuts = true
		}
		doubt = doubt || b.maybe
	}
}

// split has the driver make other batches of b.
func (b *batch) split() {
	b.state = splitting
	b.part.m.emit(Split{b.ID})
}
