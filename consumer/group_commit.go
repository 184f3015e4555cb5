package consumer

import (
	"context"
	"errors"
	"slices"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/group"
	"github.com/ottla/ottla/kafka"
)

// committer sends commits and waits for their outcomes.
type committer struct {
	m   *member
	ops map[uint64]*commitCall // guarded by m.mu: without a result
}

// commitCall is a commit on its way.
type commitCall struct {
	offsets group.Offsets
	done    chan struct{} // closed once results are there
	results map[kafka.TopicPartition]error
	auto    bool
}

// err joins an OpError for each partition that was refused or is in doubt.
func (c *commitCall) err() error {
	var errs []error
	for _, tp := range sortedKeys(c.results) {
		if err := c.results[tp]; err != nil {
			errs = append(errs, &kafka.OpError{Op: "commit", Broker: kafka.NoNode, Topic: tp.Topic, Partition: tp.Partition, Err: err})
		}
	}
	return errors.Join(errs...)
}

func sortedKeys[V any](m map[kafka.TopicPartition]V) []kafka.TopicPartition {
	tps := make([]kafka.TopicPartition, 0, len(m))
	for tp := range m {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, kafka.TopicPartition.Compare)
	return tps
}

// send sends offsets as soon as the rules allow.
func (o *committer) send(offsets group.Offsets) *commitCall {
	call := &commitCall{offsets: offsets, done: make(chan struct{})}
	o.m.mu.Lock()
	o.ops[o.m.machine.Commit(offsets)] = call
	o.m.book.Sent(offsets)
	o.m.mu.Unlock()
	o.m.kick()
	return call
}

// committed takes the results of a commit.
func (o *committer) committed(a *group.Committed) {
	o.m.mu.Lock()
	call := o.settleLocked(a)
	o.m.mu.Unlock()
	if call == nil || !call.auto {
		return
	}
	for _, tp := range sortedKeys(a.Results) {
		if err := a.Results[tp]; err != nil {
			o.m.c.cfg.Logger.Warn("commit failed", "group", o.m.cfg.ID, "topic", tp.Topic, "partition", tp.Partition, "err", err)
			o.m.tell(GroupEvent{Kind: GroupCommitFailed, TopicPartition: tp, Err: err})
		}
	}
}

func (o *committer) settleLocked(a *group.Committed) *commitCall {
	call := o.ops[a.Op]
	if call == nil {
		return nil
	}
	delete(o.ops, a.Op)
	o.m.book.Settled(call.offsets, a.Results)
	o.m.counts.committed(a.Results)
	call.results = a.Results
	close(call.done)
	return call
}

// due is what is finished of these partitions, or of all with nil, and not
// committed.
func (o *committer) due(tps []kafka.TopicPartition) group.Offsets {
	o.m.mu.Lock()
	polled := !o.m.running && o.m.cfg.Commits != CommitMarked
	if tps == nil {
		tps = sortedKeys(o.m.holdings)
	}
	o.m.mu.Unlock()
	at := o.m.c.finished(tps)
	o.m.mu.Lock()
	defer o.m.mu.Unlock()
	for tp, p := range at {
		done := kafka.Commit{Offset: p.Offset, LeaderEpoch: p.Epoch}
		if polled {
			o.m.book.Set(tp, done)
		} else {
			o.m.book.Begin(tp, done)
		}
	}
	return o.m.book.Due(tps)
}

// all commits what is finished and waits for the outcome.
func (o *committer) all(ctx context.Context) error {
	if err := o.wait(ctx); err != nil {
		return err
	}
	due := o.due(nil)
	if len(due) == 0 {
		return nil
	}
	return o.await(ctx, o.send(due))
}

// wait waits for the commits that are on their way.
func (o *committer) wait(ctx context.Context) error {
	o.m.mu.Lock()
	var waits []*commitCall
	for _, call := range o.ops {
		waits = append(waits, call)
	}
	o.m.mu.Unlock()
	for _, call := range waits {
		select {
		case <-call.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-o.m.c.tasks.Context().Done():
			return cluster.ErrClosed
		}
	}
	return nil
}

func (o *committer) await(ctx context.Context, call *commitCall) error {
	select {
	case <-call.done:
		return call.err()
	case <-ctx.Done():
		return &commitInDoubt{context.Cause(ctx)}
	case <-o.m.c.tasks.Context().Done():
		return &commitInDoubt{cluster.ErrClosed}
	}
}

// commitInDoubt is a commit that nobody waits for any more.
type commitInDoubt struct{ why error }

func (e *commitInDoubt) Error() string       { return "ottla: commit: no answer so far: " + e.why.Error() }
func (e *commitInDoubt) Unwrap() error       { return e.why }
func (*commitInDoubt) MayHaveHappened() bool { return true }

// last commits what is finished of partitions that are about to go.
func (o *committer) last(ctx context.Context, tps []kafka.TopicPartition) error {
	if err := o.wait(ctx); err != nil {
		return err
	}
	due := o.due(tps)
	if len(due) == 0 {
		return nil
	}
	return o.await(ctx, o.send(due))
}
