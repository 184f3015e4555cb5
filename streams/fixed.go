package streams

import (
	"context"
	"iter"

	"github.com/ottla/ottla/kafka"
)

// fixed is a membership without a group.
type fixed struct {
	snap Snapshot
	left context.Context
	end  context.CancelFunc
}

// Fixed is a membership that always has the same tasks, for tests and tools. It
// needs no broker and has nothing to commit with. Tasks that make no sense for
// the topology panic.
func Fixed(t Topology, tasks Tasks) Membership {
	for _, l := range [][]TaskID{tasks.Active, tasks.Standby, tasks.Warmup} {
		for _, id := range l {
			if t.Partitions(id, func(string) int32 { return id.Partition + 1 }) == nil {
				panic("ottla: streams: Fixed: task " + id.String() + " reads no topic of the topology")
			}
		}
	}
	tasks = tasks.Clone()
	f := &fixed{snap: Snapshot{Version: 1, Target: tasks, Update: tasks.Update(), HasTarget: true, Ready: true, AcceptableRecoveryLag: -1}}
	f.left, f.end = context.WithCancel(context.Background())
	return f
}

func (f *fixed) Snapshot() Snapshot { return f.snap }

func (f *fixed) Assignments(ctx context.Context) iter.Seq2[Snapshot, error] {
	return func(yield func(Snapshot, error) bool) {
		if !yield(f.snap, nil) {
			return
		}
		select {
		case <-f.left.Done():
		case <-ctx.Done():
			yield(Snapshot{}, context.Cause(ctx))
		}
	}
}

func (f *fixed) Acknowledge(_ context.Context, s Snapshot, _ Tasks) error {
	switch {
	case f.left.Err() != nil:
		return ErrClosed
	case s.Version != f.snap.Version:
		return ErrStaleAssignment
	}
	return nil
}

func (f *fixed) Metadata() (kafka.GroupMetadata, bool) {
	return kafka.GroupMetadata{Kind: kafka.StreamsGroup, Generation: kafka.NoGeneration}, false
}

func (f *fixed) Leave(context.Context) error {
	f.end()
	return nil
}
