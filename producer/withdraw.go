package producer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
)

// withdrawnError is a record that was taken out of its batch before anything of
// it was sent.
type withdrawnError struct{ cause error }

func (e *withdrawnError) Error() string {
	return "withdrawn before it was sent: " + e.cause.Error()
}
func (e *withdrawnError) Unwrap() error       { return e.cause }
func (*withdrawnError) MayHaveHappened() bool { return false }

// withdraw takes records out of the queue that nobody waits for any more,
// because ctx has ended, and that nothing was sent of. They will never be sent:
// their places in receipts are taken by those of their results.
func (p *Producer) withdraw(ctx context.Context, receipts []Receipt) {
	done := make(chan struct{})
	cause := &withdrawnError{context.Cause(ctx)}
	if p.post(func(a *actor, now time.Time) {
		for _, r := range receipts {
			r.now().batch.shut()
		}
		if !p.post(func(a *actor, now time.Time) { // behind the batches that were just closed
			a.onWithdraw(now, receipts, cause)
			close(done)
		}) {
			close(done)
		}
	}) {
		<-done
	}
}

// waitFor reports whether all records have results before ctx ends.
func waitFor(ctx context.Context, receipts []Receipt) bool {
	var lost *WaitError
	for _, r := range receipts {
		if errors.As(r.Result(ctx).Err, &lost) {
			return false
		}
	}
	return true
}

// now is the receipt of the batch that has the record at this time.
func (r Receipt) now() Receipt {
	for {
		select {
		case <-r.batch.done:
			if r.batch.placed == nil {
				return r
			}
			r = r.batch.placed[r.index]
		default:
			return r
		}
	}
}

// shut closes a batch of a partition that is open.
func (b *batch) shut() {
	if b.tp.Partition == produce.WaitingArea || b.part == nil {
		return
	}
	b.part.mu.Lock()
	defer b.part.mu.Unlock()
	if b.part.open == b {
		b.part.closeLocked()
	}
}

func (a *actor) onWithdraw(now time.Time, receipts []Receipt, cause error) {
	for i, r := range receipts {
		r = r.now()
		if a.live[r.batch.id] != nil && withdraw(a, now, r, cause) {
			receipts[i] = failedAt(r.batch.tp, cause)
		}
	}
}

// withdraw reports whether a record will not be sent. If that is not certain
// yet it may still turn out so.
func withdraw(a *actor, now time.Time, r Receipt, cause error) bool {
	b := r.batch
	switch {
	case b.tp.Partition == produce.WaitingArea:
		return b.part.topic.dropWaiting(r, cause)
	case b.cutting:
		return false
	case b.out != produce.Withdrawn: // else another one was taken out just before
		b.out = a.m.OnWithdraw(now, b.id)
	}
	if b.out != produce.TooLate {
		b.drop(r.index, cause)
	}
	return b.out == produce.Withdrawn
}

// withdrawals is the records that are taken out of a batch.
type withdrawals struct {
	dropped map[int32]error    // in the waiting area its mutex guards it, else it is the actor's
	out     produce.Withdrawal // what became of the wish to leave them out; the actor's
	cutting bool               // a worker leaves them out: there will be no more of them; the actor's
}

// drop leaves a record out of what becomes of b.
func (b *batch) drop(index int32, cause error) {
	if b.dropped == nil {
		b.dropped = map[int32]error{}
	}
	b.dropped[index] = cause
}

// dropWaiting drops a record of the waiting area, unless it is being placed.
func (t *topic) dropWaiting(r Receipt, cause error) bool {
	t.area.mu.Lock()
	defer t.area.mu.Unlock()
	if !slices.Contains(t.waiting, r.batch) {
		return false
	}
	r.batch.drop(r.index, cause)
	return true
}

// failedAt is the receipt of a record that is in no batch.
func failedAt(tp kafka.TopicPartition, err error) Receipt {
	b := &batch{tp: tp, done: make(chan struct{}), verdict: undecided()}
	b.err = &kafka.OpError{Op: "produce", Broker: kafka.NoNode, Topic: tp.Topic, Partition: tp.Partition, Err: err}
	close(b.done)
	return Receipt{batch: b}
}
