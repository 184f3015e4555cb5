package transact

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// Runner reads, calls a handler and writes, in transactions. Make it with [New].
type Runner struct {
	cfg    Config
	in     *consumer.Consumer
	out    *producer.Producer
	handle Handler

	turn    chan struct{} // capacity 1: held while a transaction is open
	leaving atomic.Bool   // partitions are to go: the open transaction ends now
	ahead   bool          // of Run: it read what is not committed, and has to go back first

	committed, aborted, records atomic.Int64
}

// New makes a runner, which joins its group in the background. Run it, or Close
// it.
func New(c *cluster.Cluster, cfg Config, handle Handler) (*Runner, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	out, err := producer.New(c, cfg.Producer)
	if err != nil {
		return nil, err
	}
	r := &Runner{cfg: cfg, out: out, handle: handle, turn: make(chan struct{}, 1)}
	users := cfg.Consumer.Group.OnRevoked
	cfg.Consumer.Group.OnRevoked = func(c *consumer.Consumer, tps []kafka.TopicPartition) {
		r.end()
		if users != nil {
			users(c, tps)
		}
	}
	if r.in, err = consumer.New(c, cfg.Consumer); err != nil {
		out.Close()
		return nil, err
	}
	return r, nil
}

// end has the open transaction end, and waits for it: partitions are about to
// go. The consumer waits no longer than a rebalance may take.
func (r *Runner) end() {
	r.leaving.Store(true)
	defer r.leaving.Store(false)
	r.turn <- struct{}{}
	<-r.turn
}

// Stats reads the counts. It may be called at any time.
func (r *Runner) Stats() Stats {
	return Stats{Committed: r.committed.Load(), Aborted: r.aborted.Load(), Records: r.records.Load()}
}

// Close ends the runner without finishing what is under way: an open transaction
// is aborted by its coordinator at its timeout, or by the next runner with its
// transactional id. Run calls it at its end.
func (r *Runner) Close() error {
	return errors.Join(r.in.Close(), r.out.Close())
}

// mostFailures is how many transactions in a row may fail by what time does not
// heal before Run gives up.
const mostFailures = 20

// Run works until ctx ends, the handler fails, this runner is fenced by the next
// one with its transactional id, its membership is over, or twenty transactions in
// a row fail by what time does not heal, such as a right that is missing. Brokers
// that are away and rebalances are waited out, however long. The transaction that
// is open when ctx ends is committed; then the member leaves. If ctx ended the
// error is nil.
//
// In a rebalance the open transaction ends before its partitions go. One that
// cannot be committed is aborted, the positions go back to what is committed, and
// its records are handled again: a handler may see a record more than once,
// readers of committed records see its results once.
func (r *Runner) Run(ctx context.Context) error {
	defer r.Close()
	failures, tries := 0, 0
	for ctx.Err() == nil {
		committed, err := r.step(ctx)
		switch {
		case committed:
			failures, tries = 0, 0
		case err == nil:
		case ctx.Err() != nil && !errors.Is(err, errHandler{}):
		case r.over(err), failures >= mostFailures:
			return reason(err)
		default:
			if !passing(err) {
				failures++
			}
			tries++
			r.cfg.Logger.Warn("a transaction failed; its records are handled again", "err", err)
			_ = task.Sleep(ctx, retry.Reconnect().Delay(tries, nil))
		}
	}
	r.release(ctx)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return r.in.Shutdown(end)
}

// step goes back after a transaction that failed, or polls and makes a transaction
// of what that brings.
func (r *Runner) step(ctx context.Context) (committed bool, err error) {
	if r.ahead {
		r.release(ctx)
		if err := r.rewind(ctx); err != nil {
			return false, err
		}
		r.ahead = false
	}
	batches, err := r.poll(ctx)
	if len(batches) == 0 {
		if r.over(err) {
			return false, err
		}
		return false, nil // it was told, and reading goes on
	}
	r.ahead = true
	if err := r.round(ctx, batches); err != nil {
		return false, err
	}
	r.ahead = false
	return true, nil
}

// over reports whether an error ends the run.
func (r *Runner) over(err error) bool {
	return errors.Is(err, errHandler{}) || errors.Is(err, kafka.ErrFenced) || errors.Is(err, cluster.ErrClosed) ||
		r.in.Group().Stats().State == "failed"
}

// passing reports whether time heals what a transaction failed by: brokers that
// cannot be reached or are not ready, and a group that rebalances, however long.
func passing(err error) bool {
	for _, one := range []error{errGone, consumer.ErrRevoked, kafka.ErrNotInGroup, context.DeadlineExceeded} {
		if errors.Is(err, one) {
			return true
		}
	}
	var conn *kafka.ConnError
	var dial *kafka.DialError
	var late *kafka.TimeoutError
	var leader *kafka.NoLeaderError
	if errors.As(err, &conn) || errors.As(err, &dial) || errors.As(err, &late) || errors.As(err, &leader) {
		return true
	}
	switch retry.Of(kafka.CodeOf(err)) {
	case retry.Retry, retry.RefreshMetadata, retry.FindCoordinator, retry.Rejoin:
		return true
	}
	return false
}

// errHandler is an error of the user's handler.
type errHandler struct{ err error }

func (e errHandler) Error() string      { return e.err.Error() }
func (errHandler) Is(target error) bool { _, ok := target.(errHandler); return ok }

// reason is err as the user knows it.
func reason(err error) error {
	var h errHandler
	if errors.As(err, &h) {
		return h.err
	}
	return err
}

// round is one transaction, which begins with batches.
func (r *Runner) round(ctx context.Context, batches []consumer.Batch) error {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-r.turn }()
	tx, err := r.begin(ctx)
	if err != nil {
		return err
	}
	b := bundle{at: map[kafka.TopicPartition]kafka.Commit{}, first: map[kafka.TopicPartition]consumer.Batch{}}
	err = r.collect(ctx, tx, batches, &b)
	if err == nil {
		err = r.commit(ctx, tx, &b)
	}
	if err == nil {
		return nil
	}
	work, cancel := finishing(ctx)
	defer cancel()
	switch end := tx.Abort(work); {
	case errors.Is(end, producer.ErrCommitted): // the answer was lost, not the transaction
		r.done(&b)
		return nil
	case end != nil:
		err = errors.Join(err, end)
	}
	r.aborted.Add(1)
	return err
}

// finishing is the context of requests of a transaction: what is begun is
// finished although ctx ends.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
}

func (r *Runner) begin(ctx context.Context) (*producer.Tx, error) {
	work, cancel := finishing(ctx)
	defer cancel()
	return r.out.Begin(work)
}

// poll tells of errors, beside which there may be batches.
func (r *Runner) poll(ctx context.Context) ([]consumer.Batch, error) {
	batches, err := r.in.Poll(ctx)
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		r.cfg.Logger.Warn("a poll brought an error", "err", err)
	}
	return batches, err
}

// release tells the consumer that nothing it handed out is in work any more. A
// member that took too long joins its group again by that.
func (r *Runner) release(ctx context.Context) {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, _ = r.poll(ended) // what it brings is read again
}

// bundle is what one transaction takes in.
type bundle struct {
	at      map[kafka.TopicPartition]kafka.Commit   // positions behind it
	first   map[kafka.TopicPartition]consumer.Batch // of each partition
	records int
}

// add takes a batch in whose records are handled.
func (b *bundle) add(in consumer.Batch) {
	tp := in.TopicPartition()
	if _, more := b.first[tp]; !more {
		b.first[tp] = in
	}
	b.at[tp] = kafka.Commit{Offset: in.Next(), LeaderEpoch: in.LeaderEpoch()}
	b.records += in.Count()
}

// collect handles batches until the transaction is full or old enough, ctx ends,
// or partitions are to go.
func (r *Runner) collect(ctx context.Context, tx *producer.Tx, batches []consumer.Batch, into *bundle) error {
	until := time.Now().Add(r.cfg.Interval)
	for {
		for _, b := range batches {
			if err := r.one(b, tx); err != nil {
				return err
			}
			into.add(b)
		}
		left := time.Until(until)
		if into.records >= r.cfg.MaxRecords || left <= 0 || ctx.Err() != nil || r.leaving.Load() {
			return nil
		}
		short, cancel := context.WithTimeout(ctx, min(left, 20*time.Millisecond))
		batches, _ = r.poll(short)
		cancel()
	}
}

// one calls the handler. What belongs to a partition that goes is not begun.
func (r *Runner) one(b consumer.Batch, tx *producer.Tx) error {
	ctx := b.Context()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := r.handle(ctx, b, tx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil || errors.Is(err, kafka.ErrAbortable) || errors.Is(err, kafka.ErrFenced):
		return err
	}
	return errHandler{err}
}

// commit commits what was written together with the positions that were read.
func (r *Runner) commit(ctx context.Context, tx *producer.Tx, b *bundle) error {
	ctx, cancel := finishing(ctx)
	defer cancel()
	token, err := r.token(b)
	if err != nil {
		return err
	}
	if err := tx.SendOffsets(ctx, token, b.at); err != nil {
		if errors.Is(err, kafka.ErrAbortable) || kafka.MayHaveHappened(err) {
			return err
		}
		if token, err = r.token(b); err != nil { // it was stale
			return err
		}
		if err = tx.SendOffsets(ctx, token, b.at); err != nil {
			return err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	r.done(b)
	return nil
}

// token proves the membership under which a bundle was read. Coordinators do not
// look at who owns what: a fresh token of a member that lost a partition meanwhile
// would commit positions over those of the next owner. The token is taken first,
// so that it is stale if a partition goes after the look.
func (r *Runner) token(b *bundle) (kafka.GroupMetadata, error) {
	token, err := r.in.Group().Metadata()
	if err != nil {
		return token, err
	}
	for _, batch := range b.first {
		if !r.in.Group().Owns(batch) {
			return token, errGone
		}
	}
	return token, nil
}

func (r *Runner) done(b *bundle) {
	r.committed.Add(1)
	r.records.Add(int64(b.records))
}

// rewind moves the positions back to what is committed, or to the start where
// nothing is. Until it has done so under one membership, nothing else is read:
// what is committed of a partition that went and came back meanwhile is old.
func (r *Runner) rewind(ctx context.Context) error {
	before, err := r.in.Group().Metadata()
	if err != nil {
		return err
	}
	tps := r.in.Assignment()
	if len(tps) == 0 {
		return nil
	}
	at, err := r.in.Group().Committed(ctx, tps...)
	if err != nil {
		return err
	}
	for _, tp := range tps {
		start := r.cfg.Consumer.Group.Start
		if c, ok := at[tp]; ok {
			start = consumer.AtOffset(c.Offset)
		}
		if err := r.in.Seek(tp, start); err != nil && !errors.Is(err, consumer.ErrNotAssigned) {
			return err
		}
	}
	if after, err := r.in.Group().Metadata(); err != nil || after != before {
		return errGone
	}
	return nil
}
