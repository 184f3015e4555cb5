package producer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// partition takes the records of one partition, or those of a topic's waiting
// area. Records are encoded under its mutex on the goroutine that appends.
type partition struct {
	p      *Producer
	topic  *topic
	tp     kafka.TopicPartition
	queued atomic.Int32 // batches without a result

	mu     sync.Mutex
	open   *batch // guarded by mu
	over   error  // guarded by mu: set when the producer closes
	hint   int    // guarded by mu: size of the last closed batch
	sticky int    // guarded by mu: bytes of records without key since it was chosen for them
}

// most is an upper bound of what a record adds to a batch.
func most(r *kafka.Record) int64 {
	n := 40 + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += 10 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// chunk is how much of the budget a growing batch takes ahead, so that few
// records have to ask.
const chunk = 16 << 10

// appendLocked encodes a record into the open batch. While there is no room it
// waits without the mutex; it returns with it. A timestamp of 0 is the time of
// the call; now is that time if it is known.
func (q *partition) appendLocked(ctx context.Context, r *kafka.Record, ts kafka.Timestamp, now time.Time) (Receipt, error) {
	need := most(r)
	var got int64
	for {
		if err := q.endLocked(); err != nil {
			q.p.budget.give(got)
			return Receipt{}, err
		}
		if missing := need - got - q.freeLocked(); missing > 0 {
			n, waited, err := q.roomLocked(ctx, missing)
			if err != nil {
				q.p.budget.give(got)
				return Receipt{}, err
			}
			got += n
			if waited { // others may have been here
				continue
			}
		}
		rc, left, ok := q.addLocked(r, ts, now, got)
		if ok {
			return rc, nil
		}
		got = left
	}
}

// endLocked is why no record comes in any more, nil if one may.
func (q *partition) endLocked() error {
	if q.over == nil && q.tp.Partition == produce.WaitingArea && q.topic.layout.Load() != nil {
		return errPlaced
	}
	return q.over
}

// errPlaced turns a record away that waited for room in a waiting area which is
// closed by now: what the same goroutine appends next goes to the partition, and
// must not be overtaken by it.
var errPlaced = errors.New("the topic has its partitions")

// roomLocked takes at least n bytes of the budget. If it has to wait for them it
// does so without the mutex.
func (q *partition) roomLocked(ctx context.Context, n int64) (got int64, waited bool, err error) {
	if got := q.tryLocked(n); got > 0 {
		return got, false, nil
	}
	q.mu.Unlock()
	defer q.mu.Lock()
	return n, true, q.p.waitForRoom(ctx, n, &q.tp)
}

// freeLocked is what the open batch took ahead, less what a new one needs.
func (q *partition) freeLocked() int64 {
	if q.open == nil {
		return -record.HeaderSize
	}
	return q.open.room - int64(q.open.builder.Len())
}

// tryLocked takes at least n bytes without waiting, 0 if it cannot.
func (q *partition) tryLocked(n int64) int64 {
	if q.open != nil {
		more := n + min(int64(q.open.builder.Len()), chunk, q.p.budget.size()/256)
		if q.p.budget.try(more) {
			return more
		}
	}
	if q.p.budget.try(n) {
		return n
	}
	return 0
}

// addLocked encodes a record for which there is room: got bytes that it brings
// along and what the open batch has. If the batch is full it closes it and
// gives back what is left; the next call opens another one.
func (q *partition) addLocked(r *kafka.Record, ts kafka.Timestamp, now time.Time, got int64) (Receipt, int64, bool) {
	b := q.open
	if b == nil {
		b = q.openLocked(now, most(r))
	}
	b.room += got
	if need := int(most(r)); need > b.builder.Room() {
		q.p.enlarge(b, need)
	}
	if ts == 0 {
		ts = b.now()
	}
	if !b.builder.Append(ts, r.Key, r.Value, r.Headers) {
		left := max(b.room-int64(b.builder.Len()), 0)
		b.room -= left
		q.closeLocked()
		return Receipt{}, left, false
	}
	if q.tp.Partition == produce.WaitingArea && q.p.cfg.Partitioner == Manual {
		b.choices = append(b.choices, r.Partition)
	}
	return Receipt{b, int32(b.builder.Count() - 1)}, 0, true
}

func (q *partition) openLocked(now time.Time, need int64) *batch {
	if now.IsZero() {
		now = time.Now()
	}
	b := &batch{
		id: produce.BatchID(q.p.ids.Add(1)), tp: q.tp, part: q, since: now,
		done: make(chan struct{}), verdict: undecided(),
	}
	b.builder.Limit = q.p.cfg.BatchBytes
	b.builder.Reset(q.bufferLocked(b, int(need)+record.HeaderSize))
	q.open = b
	q.queued.Add(1)
	if q.tp.Partition == produce.WaitingArea {
		q.topic.waiting = append(q.topic.waiting, b)
		q.p.post(func(a *actor, now time.Time) { a.onWaiting(now, b) })
	} else {
		q.p.post(func(a *actor, now time.Time) { a.onOpened(now, b) })
	}
	return b
}

// bufferLocked is a buffer for a new batch: as large as the last one was, as
// long as the buffers that are open everywhere do not add up to too much.
func (q *partition) bufferLocked(b *batch, need int) []byte {
	b.ahead = int64(max(q.hint, need))
	if q.p.ahead.Add(b.ahead) > q.p.cfg.BufferBytes/4 {
		q.p.ahead.Add(int64(need) - b.ahead)
		b.ahead = int64(need)
	}
	return q.p.buffers.take(int(b.ahead))
}

// enlarge gives b a buffer with room for need more bytes, and for what may
// follow.
func (p *Producer) enlarge(b *batch, need int) {
	now := b.builder.Len()
	want := min(max(now+need, 4*now), max(p.cfg.BatchBytes, now+need))
	p.buffers.put(b.builder.Move(p.buffers.take(want)))
}

// closeLocked closes the open batch and hands it to the actor.
func (q *partition) closeLocked() {
	b := q.open
	q.open = nil
	q.p.ahead.Add(-b.ahead)
	b.count, b.raw = b.builder.Count(), b.builder.Len()
	q.hint = b.raw
	if q.tp.Partition == produce.WaitingArea {
		return // the topic has it
	}
	if left := b.room - int64(b.raw); left > 0 {
		b.room -= left
		q.p.budget.give(left)
	}
	q.p.post(func(a *actor, now time.Time) { a.onClosed(now, b) })
}

// stickLocked counts bytes of a record without key and reports whether the
// next such record belongs elsewhere.
func (q *partition) stickLocked(n int64) bool {
	q.sticky += int(n)
	if q.sticky < q.p.cfg.BatchBytes {
		return false
	}
	q.sticky = 0
	return true
}

// end refuses further records; what is open is handed over.
func (q *partition) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = err
	if q.open != nil {
		q.closeLocked()
	}
}
