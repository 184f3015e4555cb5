package producer

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
)

// txActor is the part of the actor that is about transactions. Its fields belong
// to the actor's goroutine.
type txActor struct {
	p       *Producer
	rules   *produce.Transactions
	asker   *asker
	bumping bool // as the last identity says
	calls   map[produce.CallID]chan<- error
	begins  map[produce.CallID]*Tx
	offsets map[produce.CallID]*kmsg.TxnOffsetCommitRequest
}

// coordinators is what transactions need of a cluster beside the seam.
type coordinators interface {
	// once makes single attempts at the coordinator of a key.
	once(kind cluster.CoordinatorKind, key string, maxVersion int16) kmsg.Requestor
	// bumping reports whether everything that KIP-890 part 2 needs is there.
	bumping(ctx context.Context, id string) (bool, error)
}

func newTxActor(p *Producer, m *produce.Machine) *txActor {
	return &txActor{
		p: p, rules: produce.NewTransactions(m),
		asker: &asker{p.seam.(coordinators), p.cfg.TransactionalID, int32(p.cfg.TransactionTimeout.Milliseconds()), p.bound},
		calls: map[produce.CallID]chan<- error{}, begins: map[produce.CallID]*Tx{},
		offsets: map[produce.CallID]*kmsg.TxnOffsetCommitRequest{},
	}
}

// mark makes a Produce request one of a transaction.
func (x *txActor) mark(req *produceRequest) {
	req.txID = x.p.cfg.TransactionalID
	if x.bumping {
		req.least = addingProduce
	} else {
		req.most = pinnedProduce
	}
}

// carryOut does what the rules ask for.
func (x *txActor) carryOut(act produce.Action) {
	switch act := act.(type) {
	case produce.Return:
		x.finish(act.Call, act.Err)
	case produce.InitProducer:
		x.ask(func(ctx context.Context) produce.Reply { return x.asker.initProducer(ctx, act) })
	case produce.Enrol:
		x.ask(func(ctx context.Context) produce.Reply { return x.asker.enrol(ctx, act) })
	case produce.EnrolGroup:
		x.ask(func(ctx context.Context) produce.Reply { return x.asker.enrolGroup(ctx, act) })
	case produce.CommitOffsets:
		req := *x.offsets[act.Call]
		x.ask(func(ctx context.Context) produce.Reply { return x.asker.commitOffsets(ctx, &req, act) })
	case produce.EndTxn:
		x.ask(func(ctx context.Context) produce.Reply { return x.asker.endTxn(ctx, act) })
	}
}

// ask makes one request beside the actor.
func (x *txActor) ask(f func(ctx context.Context) produce.Reply) {
	p := x.p
	p.tasks.Go(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, p.cfg.RequestTimeout)
		defer cancel()
		r := f(ctx)
		if errors.Is(r.Err, cluster.ErrClosed) {
			r.Err = produce.Final(r.Err)
		}
		p.post(func(a *actor, now time.Time) { a.tx.onReply(now, r) })
		return nil
	})
}

func (x *txActor) onReply(now time.Time, r produce.Reply) {
	if r.Identity {
		x.bumping = r.Bumping
	}
	x.rules.OnReply(now, r)
}

// finish ends a call.
func (x *txActor) finish(id produce.CallID, err error) {
	if t := x.begins[id]; t != nil && err == nil {
		x.p.last.Store(t)
	}
	done := x.calls[id]
	delete(x.calls, id)
	delete(x.begins, id)
	delete(x.offsets, id)
	done <- err // has room
}

// hurryAll has every batch written without linger, also those of records that
// still wait for their partition.
func (a *actor) hurryAll() {
	for _, b := range a.live {
		b.urgent = true
	}
}

// onPlacedInTx takes note of waiting records that found no place: the
// transaction has a hole.
func (a *actor) onPlacedInTx(placed []Receipt) {
	for _, r := range placed {
		if err := r.batch.refused(); err != nil {
			a.tx.rules.OnFailed(err)
		}
	}
}

// refused is why the records of a batch never came to a partition.
func (b *batch) refused() error {
	if b.part != nil { // it has a partition
		return nil
	}
	select {
	case <-b.done:
		return b.verdict.err
	default:
		return nil
	}
}

// The seam's side.

func (c clusterSeam) once(kind cluster.CoordinatorKind, key string, maxVersion int16) kmsg.Requestor {
	return cluster.Once(c.Cluster, kind, key, maxVersion)
}

// transactionVersion is the feature that gates part 2 of KIP-890, and level 2 the
// one that has it.
const transactionVersion = "transaction.version"

func (c clusterSeam) bumping(ctx context.Context, id string) (bool, error) {
	level, _, err := c.FinalizedFeature(ctx, transactionVersion)
	if err != nil || level < 2 {
		return false, err
	}
	at, err := c.Coordinator(ctx, cluster.TransactionCoordinator, id)
	if err != nil {
		return false, err
	}
	for _, need := range []struct {
		req     kmsg.Request
		version int16
	}{
		{kmsg.NewPtrProduceRequest(), addingProduce}, {kmsg.NewPtrEndTxnRequest(), bumpingEnd}, {kmsg.NewPtrTxnOffsetCommitRequest(), addingCommit},
	} {
		v, err := c.Broker(at.ID).Version(ctx, need.req)
		var tooOld *kafka.VersionError
		switch {
		case errors.As(err, &tooOld) || err == nil && v < need.version:
			return false, nil
		case err != nil:
			return false, err
		}
	}
	return true, nil
}
