package consumer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/internal/core/group"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// mover takes partitions into possession and gives them up, one step after the
// other on a goroutine of its own.
type mover struct {
	m     *member
	wake  chan struct{}               // capacity 1: there is a step
	queue []func(ctx context.Context) // guarded by m.mu
	loads map[uint64][]*holding       // guarded by m.mu: look-ups of committed offsets
}

// run is the goroutine.
func (v *mover) run(ctx context.Context) error {
	for {
		v.m.mu.Lock()
		var next func(ctx context.Context)
		if len(v.queue) > 0 {
			next = v.queue[0]
			v.queue = v.queue[1:]
		}
		v.m.mu.Unlock()
		if next != nil {
			next(ctx)
			continue
		}
		select {
		case <-v.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

func (v *mover) later(f func(ctx context.Context)) {
	v.m.mu.Lock()
	v.queue = append(v.queue, f)
	v.m.mu.Unlock()
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// given takes partitions into possession and looks up where to begin.
func (v *mover) given(ctx context.Context, tps []kafka.TopicPartition) {
	at := make(map[kafka.TopicPartition]fetch.Start, len(tps))
	v.m.mu.Lock()
	hs := make([]*holding, 0, len(tps))
	for _, tp := range tps {
		h := &holding{TopicPartition: tp}
		h.ctx, h.cancel = context.WithCancelCause(ctx)
		v.m.holdings[tp] = h
		hs = append(hs, h)
		at[tp] = fetch.Pending()
	}
	v.m.counts.given += int64(len(tps))
	v.loads[v.m.machine.Load(tps)] = hs
	v.m.mu.Unlock()
	v.m.c.grant(at)
}

// loaded begins to read what a look-up was made for.
func (v *mover) loaded(a *group.Loaded) {
	v.m.mu.Lock()
	hs := v.loads[a.Op]
	delete(v.loads, a.Op)
	hs = v.m.currentLocked(hs)
	v.m.mu.Unlock()
	if len(hs) == 0 {
		return
	}
	if a.Err != nil {
		v.loadFailed(hs, a.Err)
		return
	}
	if v.m.cfg.OnAssigned == nil {
		v.begin(hs, a.Offsets)
		return
	}
	v.later(func(ctx context.Context) {
		select {
		case <-v.assign(hs, a.Offsets):
			v.begin(hs, a.Offsets)
		case <-ctx.Done():
		}
	})
}

// assign calls the user about what is still owned. What went meanwhile was never
// the user's, neither before nor afterwards.
func (v *mover) assign(hs []*holding, offsets group.Offsets) <-chan struct{} {
	v.m.mu.Lock() // over the call, so that no loss comes between
	defer v.m.mu.Unlock()
	at := make(map[kafka.TopicPartition]kafka.Commit, len(hs))
	for _, h := range v.m.currentLocked(slices.Clone(hs)) {
		h.told = true
		at[h.TopicPartition] = kafka.Commit{Offset: -1, LeaderEpoch: kafka.NoEpoch}
		if c, ok := offsets[h.TopicPartition]; ok {
			at[h.TopicPartition] = c
		}
	}
	if len(at) == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	return v.m.callbacks.call(func() { v.m.cfg.OnAssigned(v.m.c, at) })
}

// toldOf are the partitions of those that the user knows to own. The member's
// mutex is held.
func toldOf(hs []*holding) (tps []kafka.TopicPartition) {
	for _, h := range hs {
		if h.told || h.begun {
			tps = append(tps, h.TopicPartition)
		}
	}
	return tps
}

// currentLocked leaves out what was lost or given up.
func (m *member) currentLocked(hs []*holding) []*holding {
	return slices.DeleteFunc(hs, func(h *holding) bool { return m.holdings[h.TopicPartition] != h })
}

// loadFailed tells the user why partitions cannot begin, and tries again.
func (v *mover) loadFailed(hs []*holding, err error) {
	v.m.c.tell(&kafka.OpError{Op: "fetch committed offsets of group " + v.m.cfg.ID, Broker: kafka.NoNode, Partition: -1, Err: err})
	v.m.c.tasks.Go(func(ctx context.Context) error {
		if task.Sleep(ctx, 5*time.Second) != nil {
			return nil
		}
		v.m.mu.Lock()
		if hs = v.m.currentLocked(hs); len(hs) > 0 {
			v.loads[v.m.machine.Load(partitionsOf(hs))] = hs
		}
		v.m.mu.Unlock()
		v.m.kick()
		return nil
	})
}

func partitionsOf(hs []*holding) []kafka.TopicPartition {
	tps := make([]kafka.TopicPartition, len(hs))
	for i, h := range hs {
		tps[i] = h.TopicPartition
	}
	return tps
}

// begin reads partitions from what is committed, or from Start. Where the user
// sought meanwhile, that stands.
func (v *mover) begin(hs []*holding, offsets group.Offsets) {
	at := make(map[kafka.TopicPartition]fetch.Start, len(hs))
	v.m.mu.Lock()
	for _, h := range v.m.currentLocked(hs) {
		h.begun = true
		c, ok := offsets[h.TopicPartition]
		if !ok {
			c = kafka.Commit{Offset: -1, LeaderEpoch: kafka.NoEpoch}
			at[h.TopicPartition] = v.m.cfg.Start.at
		} else {
			at[h.TopicPartition] = fetch.AtProgress(fetch.Progress{Offset: c.Offset, Epoch: c.LeaderEpoch})
		}
		v.m.book.Open(h.TopicPartition, c, ok)
	}
	v.m.mu.Unlock()
	v.m.c.do(func(f *fetch.Machine) { f.Begin(at) })
}

// taken gives partitions up, at once if they are lost.
func (v *mover) taken(a *group.Taken) {
	v.m.mu.Lock()
	hs := make([]*holding, 0, len(a.Partitions))
	for _, tp := range a.Partitions {
		if h := v.m.holdings[tp]; h != nil {
			hs = append(hs, h)
		}
	}
	told := toldOf(hs)
	if a.Lost {
		v.m.counts.lost += int64(len(a.Partitions))
		v.m.dropLocked(hs)
		v.m.c.revoke(partitionsOf(hs))
		v.m.letGoLocked(hs)
	} else {
		v.m.counts.revoked += int64(len(a.Partitions))
	}
	v.m.mu.Unlock()
	if !a.Lost {
		v.stop(hs, ErrRevoked)
		v.later(func(ctx context.Context) { v.revoke(ctx, a.ID, hs) })
		return
	}
	for _, h := range hs {
		h.cancel(a.Why)
	}
	v.m.c.cfg.Logger.Warn("partitions are lost", "group", v.m.cfg.ID, "partitions", len(a.Partitions), "err", a.Why)
	if f := v.m.cfg.OnLost; f != nil && len(told) > 0 {
		v.m.callbacks.call(func() { f(v.m.c, told, a.Why) })
	}
}

// stop ends the contexts of partitions and has nothing more of them handed out.
func (v *mover) stop(hs []*holding, cause error) {
	for _, h := range hs {
		h.cancel(cause)
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = v.m.c.withhold(now, partitionsOf(hs))
}

// dropLocked ends the possession of partitions.
func (m *member) dropLocked(hs []*holding) {
	for _, h := range hs {
		if m.holdings[h.TopicPartition] == h {
			delete(m.holdings, h.TopicPartition)
			m.book.Close(h.TopicPartition)
		}
	}
}

// revoke waits until work on partitions is finished, for a bounded time, calls
// the user, commits what is finished, and lets go.
func (v *mover) revoke(ctx context.Context, id uint64, hs []*holding) {
	began := time.Now()
	bound, cancel := context.WithTimeout(ctx, v.m.cfg.RebalanceTimeout*9/10)
	defer cancel()
	v.waitIdle(bound, hs)
	v.m.mu.Lock()
	hs = v.m.currentLocked(hs) // the others were lost meanwhile
	told := toldOf(hs)
	v.m.mu.Unlock()
	if f := v.m.cfg.OnRevoked; f != nil && ctx.Err() == nil && len(told) > 0 {
		v.callBounded(bound, began, func() { f(v.m.c, told) })
	}
	if v.m.cfg.Commits != CommitManual {
		if err := v.m.commits.last(bound, partitionsOf(hs)); err != nil {
			v.m.c.cfg.Logger.Warn("the last commit of partitions failed", "group", v.m.cfg.ID, "err", err)
		}
	}
	v.m.mu.Lock()
	hs = v.m.currentLocked(hs)
	v.m.dropLocked(hs)
	v.m.c.revoke(partitionsOf(hs))
	v.m.letGoLocked(hs)
	v.m.mu.Unlock()
	v.m.do(func(g *group.Machine, now time.Time) { g.OnRevoked(now, id) })
}

// waitIdle waits until nothing of these partitions is unfinished, for at most
// the time that a revocation may take.
func (v *mover) waitIdle(ctx context.Context, hs []*holding) {
	ctx, cancel := context.WithTimeout(ctx, v.m.cfg.RevokeTimeout)
	defer cancel()
	tps := partitionsOf(hs)
	v.m.mu.Lock()
	polled := !v.m.running && v.m.cfg.Commits != CommitMarked
	v.m.mu.Unlock()
	if polled {
		_ = v.m.c.withhold(ctx, tps)
		return
	}
	for {
		v.m.c.mu.Lock()
		change := v.m.c.waiterLocked()
		v.m.c.mu.Unlock()
		v.m.mu.Lock()
		left := v.m.book.Unfinished(tps)
		v.m.mu.Unlock()
		if left == 0 || v.m.c.wait(ctx, change) != nil {
			return
		}
	}
}

// callBounded calls the user and waits for it, until ctx ends. It tells when
// that takes long.
func (v *mover) callBounded(ctx context.Context, began time.Time, f func()) {
	done := v.m.callbacks.call(f)
	half := time.NewTimer(time.Until(began.Add(v.m.cfg.RebalanceTimeout / 2)))
	defer half.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-half.C:
			age := time.Since(began)
			v.m.c.cfg.Logger.Warn("OnRevoked takes long", "group", v.m.cfg.ID, "age", age)
			v.m.tell(GroupEvent{Kind: GroupSlowCallback, Age: age})
		}
	}
}

// leave ends the membership in order (G44): nothing more is handed out, contexts
// end, unfinished work has its time, what is finished is committed.
func (v *mover) leave(ctx context.Context) error {
	v.m.shut(true)
	v.m.mu.Lock()
	hs := make([]*holding, 0, len(v.m.holdings))
	for _, h := range v.m.holdings {
		hs = append(hs, h)
	}
	told := toldOf(hs)
	v.m.mu.Unlock()
	if len(hs) == 0 {
		return nil
	}
	v.stop(hs, cluster.ErrClosed)
	v.waitIdle(ctx, hs)
	if f := v.m.cfg.OnRevoked; f != nil && ctx.Err() == nil && len(told) > 0 && !v.m.callbacks.busy() {
		v.callBounded(ctx, time.Now(), func() { f(v.m.c, told) })
	}
	if v.m.cfg.Commits == CommitManual {
		return nil
	}
	return v.m.commits.last(ctx, partitionsOf(hs))
}

// stallError is why a member left that was too slow.
func stallError(limit time.Duration) string {
	return fmt.Sprintf("work that was handed out is unfinished for %v (max.poll.interval.ms)", limit)
}
