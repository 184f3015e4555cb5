package producer

import (
	"time"

	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// cut makes two batches of one that the broker finds too large.
func (s *sealers) cut(b *batch, w *worker) {
	parts := s.reopen(b, w, b.count/2)
	left, right := b.part.heir(b), b.part.heir(b)
	left.builder, right.builder = parts[0], parts[1]
	left.count, right.count = left.builder.Count(), right.builder.Count()
	left.raw, right.raw = left.builder.Len(), right.builder.Len()
	left.room = b.room * int64(left.raw) / int64(left.raw+right.raw)
	right.room = b.room - left.room
	s.p.post(func(a *actor, now time.Time) { a.onSplit(now, b, left, right) })
}

// heir is a batch for records of b.
func (q *partition) heir(b *batch) *batch {
	return &batch{
		id: produce.BatchID(q.p.ids.Add(1)), tp: b.tp, part: q, since: b.since, closed: true,
		done: make(chan struct{}), verdict: undecided(),
	}
}

// reopen encodes the records of a sealed batch anew: the first n and the others.
func (s *sealers) reopen(b *batch, w *worker, n int) (parts [2]record.Builder) {
	view, _, err := record.Next(b.wire)
	var payload []byte
	if err == nil {
		payload, err = view.Payload(&w.decompress, nil, b.raw)
	}
	var rd record.Reader
	rd.Reset(view, payload)
	var r kafka.Record
	for i := 0; err == nil && rd.Next(&r); i++ {
		part := &parts[0]
		if i >= n {
			part = &parts[1]
		}
		part.Append(r.Timestamp, r.Key, r.Value, r.Headers)
		rd.Recycle()
	}
	if err != nil || parts[0].Count()+parts[1].Count() != b.count {
		panic("ottla: a batch of our own does not parse")
	}
	return parts
}

// onSplit puts two batches in the place of one, whose receipts lead to them.
func (a *actor) onSplit(now time.Time, b, left, right *batch) {
	if a.live[b.id] == nil { // given up meanwhile
		a.release(b, false)
		return
	}
	delete(a.live, b.id)
	a.live[left.id], a.live[right.id] = left, right
	b.part.queued.Add(1)
	b.placed = make([]Receipt, 0, b.count)
	for _, half := range []*batch{left, right} {
		for i := range half.count {
			b.placed = append(b.placed, Receipt{half, int32(i)})
		}
	}
	close(b.done)
	a.flushes.inherit(b)
	a.m.OnSplit(now, b.id, left.entry(), right.entry())
	a.release(b, true)
}
