package producer

import (
	"time"

	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// split is the batches that take the place of one.
type split struct {
	whole  *batch
	parts  []*batch
	placed []Receipt // where each record of whole is now
}

// cut makes other batches of one: one without the records that were withdrawn,
// or two, if the broker finds it too large.
func (s *sealers) cut(b *batch, w *worker) {
	half, drop := b.count/2, b.dropped
	if len(drop) > 0 {
		half = b.count
	}
	built, index := s.reopen(b, w, func(i int) int {
		switch {
		case drop[int32(i)] != nil:
			return none
		case i < half:
			return 0
		}
		return 1
	})
	out := split{whole: b, placed: make([]Receipt, b.count)}
	var batches [2]*batch
	raw := 0
	for k := range built {
		if built[k].Count() > 0 {
			batches[k] = b.part.heir(b, built[k])
			out.parts = append(out.parts, batches[k])
			raw += batches[k].raw
		}
	}
	for _, part := range out.parts {
		part.room = min(b.room*int64(part.raw)/int64(raw), int64(part.raw))
	}
	for i, at := range index {
		if at.part == none {
			out.placed[i] = failedAt(b.tp, drop[int32(i)])
		} else {
			out.placed[i] = Receipt{batches[at.part], at.index}
		}
	}
	s.p.post(func(a *actor, now time.Time) { a.onSplit(now, out) })
}

// heir is a batch for records of b.
func (q *partition) heir(b *batch, builder record.Builder) *batch {
	return &batch{
		id: produce.BatchID(q.p.ids.Add(1)), tp: b.tp, part: q, since: b.since, closed: true,
		builder: builder, count: builder.Count(), raw: builder.Len(),
		done: make(chan struct{}), verdict: undecided(),
	}
}

// none is the part of a record that is left out.
const none = -1

// place is where a record of a batch went: which part, and where in it.
type place struct {
	part  int
	index int32
}

// reopen encodes the records of a batch anew, each into the part that it
// belongs to.
func (s *sealers) reopen(b *batch, w *worker, part func(i int) int) (parts [2]record.Builder, index []place) {
	if b.wire == nil { // never sealed
		b.wire, _ = b.builder.Seal(record.NoProducer, compress.None, nil, 0, nil)
	}
	view, _, err := record.Next(b.wire)
	var payload []byte
	if err == nil {
		payload, err = view.Payload(&w.decompress, nil, b.raw)
	}
	var rd record.Reader
	rd.Reset(view, payload)
	var r kafka.Record
	for err == nil && rd.Next(&r) {
		at := place{part: part(len(index))}
		if at.part != none {
			to := &parts[at.part]
			at.index = int32(to.Count())
			to.Append(r.Timestamp, r.Key, r.Value, r.Headers)
		}
		index = append(index, at)
		rd.Recycle()
	}
	if err != nil || len(index) != b.count {
		panic("ottla: a batch of our own does not parse")
	}
	return parts, index
}

// onSplit puts batches in the place of one, whose receipts lead to them.
func (a *actor) onSplit(now time.Time, s split) {
	b := s.whole
	if a.live[b.id] == nil { // given up meanwhile
		a.p.release(b, false)
		return
	}
	delete(a.live, b.id)
	room, entries := b.room, make([]produce.Batch, len(s.parts))
	for i, part := range s.parts {
		a.live[part.id] = part
		entries[i] = part.entry()
		room -= part.room
	}
	a.piped -= room
	a.p.budget.give(room)
	b.part.queued.Add(int32(len(s.parts) - 1))
	b.placed = s.placed
	close(b.done)
	a.flushes.inherit(b)
	a.m.OnSplit(now, b.id, entries...)
	a.p.release(b, true)
	a.onPressure(now)
}
