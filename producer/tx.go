package producer

import (
	"context"
	"errors"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
)

// ErrOpen is the error of [Producer.Begin] while a transaction is open.
var ErrOpen = produce.ErrOpen

// ErrCommitted is the error of [Tx.Abort] that finds the transaction committed:
// an earlier Commit, whose outcome was not known, has gone through.
var ErrCommitted = produce.ErrCommitted

var (
	errOutside error = notDone("ottla: a producer with a TransactionalID writes through Begin and the Tx that it returns")
	errNoTxID  error = notDone("ottla: Begin needs a TransactionalID in the producer's Config")
	errEnding  error = notDone("ottla: the transaction is ending: it takes no more records")
)

// Tx is one transaction: what is written through it becomes visible to consumers
// that read committed records all at once, or never (KIP-98). It is safe for
// concurrent use.
type Tx struct {
	p    *Producer
	gate gate
	loan loan // of a bound producer
}

// Begin opens a transaction. The first one fetches the producer's identity,
// which fences earlier producers of the same TransactionalID and aborts what
// they left open; later ones wait until the one before is settled at its
// coordinator. It blocks until then, or until ctx ends, whose cause it returns.
//
// The error is [ErrOpen] while a transaction of this producer is open, and
// unwraps to kafka.ErrFenced once another producer has taken over: then only a
// new producer can go on. Errors of authorization and a transaction timeout that
// the broker does not allow come at once; a later Begin tries again.
func (p *Producer) Begin(ctx context.Context) (*Tx, error) {
	switch {
	case p.cfg.TransactionalID == "":
		return nil, errNoTxID
	case p.closing.Load():
		return nil, cluster.ErrClosed
	}
	if last := p.last.Load(); last != nil && last.gate.ended() { // no record of it may come into the next one
		if err := last.gate.wait(ctx); err != nil {
			return nil, beginFailed(err)
		}
		if err := p.Flush(ctx); err != nil {
			return nil, beginFailed(err)
		}
	}
	t := &Tx{p: p}
	if err := t.borrow(ctx); err != nil {
		return nil, err
	}
	err := p.call(ctx, func(a *actor, _ time.Time, id produce.CallID) {
		a.tx.begins[id] = t
		a.tx.rules.OnBegin(id)
	})
	if err != nil {
		t.giveBack(false, err)
		return nil, err
	}
	return t, nil
}

func beginFailed(err error) error {
	return &kafka.OpError{Op: "begin", Broker: kafka.NoNode, Partition: -1, Err: endedWait{err}}
}

// endedWait is a wait that its context ended before anything was sent.
type endedWait struct{ error }

func (e endedWait) Unwrap() error       { return e.error }
func (endedWait) MayHaveHappened() bool { return false }

// Append adds a record to the transaction, as [Producer.Append] does outside of
// one. Receipts tell when a record is in the log; it is visible after Commit.
func (t *Tx) Append(ctx context.Context, r kafka.Record) (Receipt, error) {
	if !t.gate.enter() {
		return Receipt{}, errEnding
	}
	defer t.gate.leave()
	t.loan.used.Store(true)
	return t.p.append(ctx, r)
}

// AppendAll adds records in order, as [Producer.AppendAll] does outside of a
// transaction.
func (t *Tx) AppendAll(ctx context.Context, rs []kafka.Record, to []Receipt) ([]Receipt, error) {
	if !t.gate.enter() {
		return to, errEnding
	}
	defer t.gate.leave()
	t.loan.used.Store(true)
	return t.p.appendAll(ctx, rs, to)
}

// Send adds records and waits for their results, as [Producer.Send] does outside
// of a transaction.
func (t *Tx) Send(ctx context.Context, rs ...kafka.Record) ([]Result, error) {
	return t.p.send(ctx, t.AppendAll, rs)
}

// SendOffsets makes positions of a consumer group part of the transaction
// (KIP-447): they are committed with it, or not at all. It blocks until the
// group's coordinator has them, or ctx ends.
//
// If the group refuses the member, because it was replaced or has missed a
// rebalance, the transaction can only be aborted, and the error unwraps to
// kafka.ErrAbortable. A token that is only stale (STALE_MEMBER_EPOCH, and for a
// member of a Streams group ILLEGAL_GENERATION) may be refused once without
// that: try again with a fresh one from the member. An error that may have
// happened leaves only the abort, too.
func (t *Tx) SendOffsets(ctx context.Context, group kafka.GroupMetadata, offsets map[kafka.TopicPartition]kafka.Commit) error {
	if len(offsets) == 0 {
		return nil
	}
	t.loan.used.Store(true)
	req := offsetsRequest(t.p.cfg.TransactionalID, group, offsets)
	return t.call(ctx, "commit offsets in the transaction", func(a *actor, now time.Time, id produce.CallID) {
		a.tx.offsets[id] = req
		a.tx.rules.OnOffsets(now, id, group, len(offsets))
	})
}

// Commit writes out what the transaction holds and commits it. It blocks until
// the coordinator has decided, or ctx ends. Nil means committed: everything in
// it, exactly once.
//
// The transaction is not committed if the error answers false to
// kafka.MayHaveHappened. It unwraps to kafka.ErrAbortable, with the cause, if
// one of the records or offsets did not end well or the coordinator has aborted
// the transaction at its timeout; then call Abort. If ctx ended before the
// commit was sent, Commit may be called again.
//
// An error that may have happened leaves the outcome open: the commit was sent,
// and its answer did not come. [Tx.Abort] finds out, and so does the next Begin;
// until then a Commit of the same transaction joins the one under way, or is
// refused.
func (t *Tx) Commit(ctx context.Context) error {
	t.gate.close()
	if err := t.gate.wait(ctx); err != nil {
		return &kafka.OpError{Op: "commit", Broker: kafka.NoNode, Partition: -1, Err: endedWait{err}}
	}
	if err := t.join(ctx); err != nil {
		return err
	}
	err := t.call(ctx, "commit", func(a *actor, now time.Time, id produce.CallID) {
		a.hurryAll()
		a.tx.rules.OnCommit(now, id)
	})
	t.giveBack(true, err)
	return err
}

// Abort ends the transaction so that nothing of it becomes visible: records not
// sent yet are given up. It blocks until the coordinator has decided, or ctx
// ends; then the abort goes on without the caller, and the next Begin waits for
// it.
//
// After a Commit whose outcome is not known Abort finds it out: nil means that
// the transaction is aborted, [ErrCommitted] that it had been committed. An error
// that may have happened means that it is not known, or that nobody can tell any
// more: a copy of an earlier request that came late has opened it anew.
func (t *Tx) Abort(ctx context.Context) error {
	t.gate.close()
	err := t.call(ctx, "abort", func(a *actor, now time.Time, id produce.CallID) { a.tx.rules.OnAbort(now, id) })
	t.giveBack(false, err)
	return err
}

// call is [Producer.call] for a call about t, if it is the last transaction.
func (t *Tx) call(ctx context.Context, op string, f func(a *actor, now time.Time, id produce.CallID)) error {
	return t.p.call(ctx, func(a *actor, now time.Time, id produce.CallID) {
		if a.p.last.Load() != t {
			a.tx.finish(id, &kafka.OpError{Op: op, Broker: kafka.NoNode, Partition: -1, Err: kafka.ErrNoTransaction})
			return
		}
		f(a, now, id)
	})
}

// call has the actor do something that returns later, and waits for it.
func (p *Producer) call(ctx context.Context, f func(a *actor, now time.Time, id produce.CallID)) error {
	id := produce.CallID(p.ids.Add(1))
	done := make(chan error, 1)
	if !p.post(func(a *actor, now time.Time) {
		a.tx.calls[id] = done
		f(a, now, id)
	}) {
		return cluster.ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	p.post(func(a *actor, now time.Time) {
		if a.tx.calls[id] != nil {
			a.tx.rules.OnLeave(now, id, context.Cause(ctx))
		}
	})
	return <-done
}

// abortOpen ends a transaction that is open when the producer shuts down: left
// open it would hold up consumers until its timeout.
func (p *Producer) abortOpen(ctx context.Context) error {
	t := p.last.Load()
	if t == nil {
		return nil
	}
	err := t.Abort(ctx)
	if errors.Is(err, kafka.ErrNoTransaction) {
		return nil
	}
	return err
}
