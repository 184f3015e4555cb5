package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// Producer is the bound producer of the leadership: whatever is written through
// it is refused by brokers once the leadership is over. It writes in
// transactions only, one at a time, and shares them with the lease: one that is
// open for longer than a renew interval is aborted. It is closed with the
// leadership; do not close it.
//
// It is nil where the Elector works over another client than *cluster.Cluster,
// and after the end. Where an answer was lost it is replaced: as long as Begin
// fails with producer.ErrUnbound, call Producer again. Transact does that by
// itself.
func (t *Term) Producer() *producer.Producer {
	c, ok := t.e.kafka.(*cluster.Cluster)
	if !ok || t.Err() != nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil || t.producer != nil {
		return t.producer
	}
	b := &bound{t: t, pair: t.token}
	p, err := producer.Bind(c, producer.Config{TransactionalID: t.role, TransactionTimeout: time.Duration(t.e.cfg.transactionTimeout()) * time.Millisecond}, b.pair.ID, b.pair.Epoch, b)
	if err != nil {
		t.e.cfg.Logger.Error("ottla: the bound producer cannot be made", "role", t.role, "err", err)
		return nil
	}
	t.producer = p
	return p
}

// Transact runs f in a transaction of the leadership and commits it; the lease
// is renewed within if that is due. If f fails, or takes longer than a renew
// interval, the transaction is aborted. A nil error means that all of it is
// committed, while this leadership lasted: side effects that depend on it come
// after. The error may have happened as kafka.MayHaveHappened says.
func (t *Term) Transact(ctx context.Context, f func(ctx context.Context, tx *producer.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.e.cfg.Renew)
	defer cancel()
	stop := context.AfterFunc(t.ctx, cancel)
	defer stop()
	var tx *producer.Tx
	for tries := 0; tx == nil; tries++ {
		if err := t.Err(); err != nil {
			return err
		}
		p := t.Producer()
		if p == nil {
			return invalid("there is no bound producer over this client")
		}
		var err error
		if tx, err = p.Begin(ctx); err == nil {
			break
		}
		if !errors.Is(err, producer.ErrUnbound) || tries > 2 {
			return failed(ErrProducer, t.role, "transact", err)
		}
	}
	err := f(ctx, tx)
	if err == nil {
		if err = tx.Commit(ctx); err == nil || kafka.MayHaveHappened(err) {
			return err
		}
	}
	actx, done := context.WithTimeout(context.WithoutCancel(ctx), t.e.cfg.Renew)
	defer done()
	return errors.Join(err, tx.Abort(actx))
}

// bound is the leadership as the owner of one bound producer.
type bound struct {
	t      *Term
	pair   Token
	joined *lead.Now // of the lease in the open transaction
}

// Begin keeps the lease's own transactions apart until End.
func (b *bound) Begin(ctx context.Context) (time.Duration, error) {
	t := b.t
	if err := t.Err(); err != nil {
		return 0, err
	}
	if err := t.lease.lock(ctx); err != nil {
		return 0, err
	}
	b.joined = nil
	if !t.lease.w.Clean() { // which resolves what is left open
		if err := t.renewLocked(); err != nil {
			t.lease.unlock()
			return 0, err
		}
	}
	if t.lease.w.Pair() != b.pair {
		t.lease.unlock()
		t.replaceProducer()
		return 0, producer.ErrUnbound
	}
	return t.e.cfg.Renew, nil
}

// Commit appends the lease to the user's transaction, if a renewal is due soon.
func (b *bound) Commit(ctx context.Context) error {
	t := b.t
	if err := t.Err(); err != nil {
		return err
	}
	from := t.e.cfg.now()
	t.mu.Lock()
	due, limit := t.holder.RenewAt()-from.Local < t.e.cfg.Renew/2, t.holder.AttemptFor(from.Local)
	t.mu.Unlock()
	if !due {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b.joined = &from
	if err := t.lease.join(ctx, leaseRecord{from: from}, t.Err); err != nil {
		return t.e.writeFailed(t.role, "renew", err)
	}
	return nil
}

// End takes note of how the user's transaction ended.
func (b *bound) End(e producer.Ending) {
	t := b.t
	now := t.e.cfg.now().Local
	// After an error the producer is replaced, and the next one counts its
	// records from 0: that must be under another pair.
	left := lead.Leave{Known: true, Doubt: e.Err != nil}
	if e.Used {
		left.Asked, left.Known = lead.Abort, e.Err == nil
		if e.Committed {
			left.Asked = lead.Commit
		} else if b.joined != nil {
			left.Known = false // it is not known whether there was anything to end
		}
	}
	t.lease.w.Left(now, left)
	if e.Committed && e.Err == nil && b.joined != nil {
		t.renewed(*b.joined)
	}
	t.lease.unlock()
	switch {
	case IsFence(e.Err):
		t.end(&Error{Kind: ErrFenced, Role: t.role, Op: "transact", Err: fmt.Errorf("the bound producer: %w", e.Err)})
	case e.Err != nil:
		t.replaceProducer()
	}
}

// replaceProducer ends the bound producer. The next call of Producer makes a new
// one, while the leadership lasts.
func (t *Term) replaceProducer() {
	t.mu.Lock()
	old := t.producer
	t.producer = nil
	t.mu.Unlock()
	t.e.closeBeside(old)
}

// closeBeside closes a producer on a goroutine of its own: it may be one of the
// producer's own that asks.
func (e *Elector) closeBeside(p *producer.Producer) {
	if p != nil && !e.tasks.Go(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, min(e.cfg.RequestTimeout, e.cfg.Lease/2))
		defer cancel()
		_ = p.Shutdown(ctx) // ends an open transaction
		return nil
	}) {
		p.Close()
	}
}
