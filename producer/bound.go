package producer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
)

// ErrUnbound is the end of a producer made with [Bind]: it would need another
// epoch of its transactional id, and only its owner may take one.
var ErrUnbound error = notDone("ottla: the producer needs a new epoch, which only the owner of its transactional id may take")

// Owner lends a producer the identity that it holds, and shares its
// transactions: leadership is the case in point. Its methods are called on the
// goroutines of those who use the producer.
type Owner interface {
	// Begin is called before each transaction. It blocks until what the owner
	// writes under the identity itself is apart, or ctx ends; from then to End
	// the identity is the producer's. The transaction is aborted if it is open
	// for longer than limit.
	Begin(ctx context.Context) (limit time.Duration, err error)
	// Commit is called when every record of a transaction is in the log and
	// before it is committed: what the owner writes now goes into it, as its
	// last records. After an error the transaction can only be aborted. It is
	// not called for a transaction without anything in it.
	Commit(ctx context.Context) error
	// End is called once for each Begin without an error.
	End(Ending)
}

// Ending is how a bound producer's transaction ended.
type Ending struct {
	Used      bool  // there were records or offsets in it
	Committed bool  // a commit was asked for
	Err       error // nil: it ended as asked; else kafka.MayHaveHappened says whether that is known
}

// Bind makes a producer for the transactions of an identity that another holds.
// It never asks for an identity itself: where it would need a new epoch it is
// over, with [ErrUnbound]. It keeps to the protocol below KIP-890 part 2, in
// which the epoch stays. cfg.TransactionalID names the id.
func Bind(c *cluster.Cluster, cfg Config, id kafka.ProducerID, epoch kafka.ProducerEpoch, o Owner) (*Producer, error) {
	switch {
	case c == nil || o == nil:
		return nil, errors.New("ottla: producer.Bind needs a cluster and an owner")
	case cfg.TransactionalID == "" || id < 0 || epoch < 0:
		return nil, errors.New("ottla: producer.Bind needs a TransactionalID and its identity")
	}
	return launch(clusterSeam{c}, cfg, &binding{owner: o, id: id, epoch: epoch})
}

// binding is what a bound producer has in place of its own identity.
type binding struct {
	owner Owner
	id    kafka.ProducerID
	epoch kafka.ProducerEpoch
}

// identity answers for the coordinator: once, with what was lent.
func (b *binding) identity(act produce.InitProducer) produce.Reply {
	if act.ID >= 0 {
		return produce.Reply{Err: produce.Final(ErrUnbound), ID: -1}
	}
	return produce.Reply{ID: b.id, Epoch: b.epoch, Identity: true}
}

// loan is what a transaction of a bound producer has of the owner's.
type loan struct {
	used  atomic.Bool
	limit *time.Timer

	mu   sync.Mutex // held while the owner writes
	over bool       // given back
}

// borrow begins a loan.
func (t *Tx) borrow(ctx context.Context) error {
	if t.p.bound == nil {
		return nil
	}
	limit, err := t.p.bound.owner.Begin(ctx)
	if err != nil {
		return &kafka.OpError{Op: "begin", Broker: kafka.NoNode, Partition: -1, Err: err}
	}
	t.loan.limit = time.AfterFunc(limit, func() {
		ctx, cancel := context.WithTimeout(context.Background(), t.p.cfg.RequestTimeout)
		defer cancel()
		_ = t.Abort(ctx)
	})
	return nil
}

// join lets the owner add its records once those of the user are in the log.
func (t *Tx) join(ctx context.Context) error {
	if t.p.bound == nil || !t.loan.used.Load() {
		return nil
	}
	err := t.p.Flush(ctx)
	if err == nil {
		if err := t.call(ctx, "commit", func(a *actor, _ time.Time, id produce.CallID) {
			t.loan.used.Store(produce.Touched(a.tx.rules))
			a.tx.finish(id, nil)
		}); err != nil {
			return err
		}
		err = t.ownerCommit(ctx)
	}
	if err != nil {
		return &kafka.OpError{Op: "commit", Broker: kafka.NoNode, Partition: -1, Err: abortOnly{err}}
	}
	return nil
}

// ownerCommit has the owner write, unless the loan is over: the limit may have
// ended it at any time. It is not given back meanwhile.
func (t *Tx) ownerCommit(ctx context.Context) error {
	t.loan.mu.Lock()
	defer t.loan.mu.Unlock()
	if t.loan.over || !t.loan.used.Load() {
		return nil
	}
	return t.p.bound.owner.Commit(ctx)
}

// abortOnly is why a transaction can only be aborted: nothing of it was
// committed.
type abortOnly struct{ cause error }

func (e abortOnly) Error() string       { return "the transaction can only be aborted: " + e.cause.Error() }
func (e abortOnly) Unwrap() []error     { return []error{kafka.ErrAbortable, e.cause} }
func (abortOnly) MayHaveHappened() bool { return false }

// giveBack ends the loan, unless the transaction goes on: one whose commit was
// refused can still be aborted, and one whose commit was not sent be committed.
func (t *Tx) giveBack(committed bool, err error) {
	if t.p.bound == nil {
		return
	}
	open := committed && err != nil && !kafka.MayHaveHappened(err) && !errors.Is(err, kafka.ErrFenced) && !errors.Is(err, cluster.ErrClosed)
	if open {
		return
	}
	t.loan.mu.Lock()
	defer t.loan.mu.Unlock()
	if t.loan.over {
		return
	}
	t.loan.over = true
	t.loan.limit.Stop()
	t.p.bound.owner.End(Ending{t.loan.used.Load(), committed, err})
}
