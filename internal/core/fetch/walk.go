package fetch

import (
	"cmp"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// walk goes over the batches that an answer holds of one partition. It looks at
// headers only, and verifies what it leaves out.
type walk struct {
	a       *answer
	p       *part
	cursor  kafka.Offset      // where the next batch is expected
	epoch   kafka.LeaderEpoch // of the last batch before cursor
	aborted aborted
	stopped bool   // a batch that cannot be read ended the walk
	cut     []byte // what is there of a batch that was cut off
}

func (w *walk) batches(rp *kmsg.FetchResponseTopicPartition) {
	m := w.a.m
	stable := kafka.Offset(-1)
	if m.cfg.Isolation == ReadCommitted {
		w.aborted.reset(rp.AbortedTransactions)
		stable = kafka.Offset(rp.LastStableOffset)
	}
	data := rp.RecordBatches
	for len(data) > 0 {
		b, rest, err := record.Next(data)
		if err != nil {
			w.unreadable(err)
			return
		}
		if b.IsZero() { // cut off by the byte limit (F16)
			w.cut = data
			return
		}
		if stable >= 0 && b.LastOffset() >= stable { // F12
			return
		}
		if !w.batch(b) {
			return
		}
		data = rest
	}
}

// batch takes one batch in and reports whether the walk goes on.
func (w *walk) batch(b record.Batch) bool {
	w.aborted.enter(b.LastOffset())
	next := b.NextOffset()
	old := next <= w.cursor // wholly below the position: for the bookkeeping only
	if old && !b.Control() {
		return true
	}
	dropped, err := w.filter(b)
	switch {
	case err != nil:
		w.unreadable(err)
		return false
	case old:
		return true
	case dropped || b.Count() == 0:
		w.skip(next, b.LeaderEpoch())
	default:
		w.a.frame.refs++
		w.p.buffered += int64(b.Size())
		w.p.queue = append(w.p.queue, chunk{
			batch: b, from: w.cursor, next: next, epoch: b.LeaderEpoch(), frame: w.a.frame,
		})
	}
	w.cursor, w.epoch = next, b.LeaderEpoch()
	return true
}

// filter decides whether a batch is no data: a marker, or of an aborted
// transaction. A damaged header must not make it so: what is dropped has been
// verified.
func (w *walk) filter(b record.Batch) (dropped bool, err error) {
	m := w.a.m
	if b.Control() {
		m.Counters.Control++
		if err := b.Verify(); err != nil {
			return false, err
		}
		return true, w.marker(b)
	}
	if !b.Transactional() || !w.aborted.has(b.ProducerID()) {
		return false, nil
	}
	if err := b.Verify(); err != nil {
		return false, err
	}
	m.Counters.Aborted++
	return true, nil
}

// marker closes the range of an aborted transaction. A control batch without a
// record, as compaction leaves them, closes nothing.
func (w *walk) marker(b record.Batch) error {
	payload, err := b.Payload(&w.a.m.inflate, nil, markerLimit)
	if err != nil {
		return err
	}
	kind, err := b.Marker(payload)
	if err != nil {
		return err
	}
	if kind == record.Abort {
		w.aborted.leave(b.ProducerID())
	}
	return nil
}

// markerLimit bounds a control batch: a record in it has a few dozen bytes.
const markerLimit = 1 << 20

// skip passes over offsets without data.
func (w *walk) skip(next kafka.Offset, epoch kafka.LeaderEpoch) {
	p := w.p
	if n := len(p.queue); n > 0 && p.queue[n-1].silent() {
		p.queue[n-1].next, p.queue[n-1].epoch = next, epoch
		return
	}
	p.queue = append(p.queue, chunk{from: w.cursor, next: next, epoch: epoch})
}

// unreadable ends the walk with an error that is told when everything before it
// has been handed out.
func (w *walk) unreadable(err error) {
	w.stopped = true
	w.p.queue = append(w.p.queue, chunk{from: w.cursor, next: nextOf(err, w.cursor), err: err})
}

// nextOf is where to go on behind a batch that cannot be read.
func nextOf(err error, at kafka.Offset) kafka.Offset {
	var ce *record.CorruptError
	if errors.As(err, &ce) && ce.Next > at {
		return ce.Next
	}
	return at + 1
}

// aborted follows the aborted transactions of an answer.
type aborted struct {
	list []kmsg.FetchResponseTopicPartitionAbortedTransaction // not begun yet, sorted
	open map[kafka.ProducerID]struct{}
}

// reset begins with the list of an answer, whose order is not to be trusted
// (F11). It sorts it in place.
func (a *aborted) reset(list []kmsg.FetchResponseTopicPartitionAbortedTransaction) {
	slices.SortFunc(list, func(x, y kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return cmp.Compare(x.FirstOffset, y.FirstOffset)
	})
	a.list = list
}

// enter opens the ranges that begin at or below offset last.
func (a *aborted) enter(last kafka.Offset) {
	for len(a.list) > 0 && kafka.Offset(a.list[0].FirstOffset) <= last {
		if a.open == nil {
			a.open = make(map[kafka.ProducerID]struct{})
		}
		a.open[kafka.ProducerID(a.list[0].ProducerID)] = struct{}{}
		a.list = a.list[1:]
	}
}

func (a *aborted) has(id kafka.ProducerID) bool {
	_, ok := a.open[id]
	return ok
}

// leave closes the range of a producer at its abort marker.
func (a *aborted) leave(id kafka.ProducerID) { delete(a.open, id) }
