package produce

import (
	"slices"
	"time"

	"github.com/ottla/ottla/record"
)

// OnSplit hands over the two batches that take the place of one. They have its
// sequences. If it was given up meanwhile they end as it did.
func (m *Machine) OnSplit(now time.Time, id BatchID, left, right Batch) {
	b := m.batches[id]
	if b == nil || b.state != splitting {
		return
	}
	p := b.part
	delete(m.batches, id)
	i := slices.Index(p.queue, b)
	halves := []*batch{b.half(left), b.half(right)}
	halves[1].stamp.BaseSequence = record.AddSequence(b.stamp.BaseSequence, left.Count)
	if m.cfg.Plain {
		halves[1].stamp = record.NoProducer
	}
	p.queue = slices.Replace(p.queue, i, i+1, halves...)
	for _, h := range halves {
		m.batches[h.ID] = h
		m.emit(Seal{h.ID, h.stamp, h.codec})
	}
	p.evaluate(now)
}

func (b *batch) half(in Batch) *batch {
	return &batch{
		Batch: in, part: b.part, deadline: b.deadline, state: sealing, codec: b.codec,
		stamp: b.stamp, stamped: b.stamped, cause: b.cause,
	}
}
