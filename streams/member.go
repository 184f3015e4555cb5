package streams

import (
	"context"
	"encoding/binary"
	"io"
	"iter"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	core "github.com/ottla/ottla/internal/core/streams"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// ErrClosed is what calls return after the end of a member, together with what
// ended it. It unwraps to net.ErrClosed.
var ErrClosed error = &closedError{}

// closedError is the end of a member and what caused it.
type closedError struct{ cause error }

func (e *closedError) Error() string {
	if e.cause != nil {
		return "ottla: streams: the member is closed: " + e.cause.Error()
	}
	return "ottla: streams: the member is closed"
}

// Is makes every closedError match ErrClosed.
func (e *closedError) Is(target error) bool { return target == ErrClosed }

func (e *closedError) Unwrap() []error {
	if e.cause != nil {
		return []error{net.ErrClosed, e.cause}
	}
	return []error{net.ErrClosed}
}

func (*closedError) MayHaveHappened() bool { return false }

// Membership is what runs tasks needs of a member: a [*Member], or tasks that
// [Fixed] assigns.
type Membership interface {
	// Snapshot is the newest snapshot, without waiting.
	Snapshot() Snapshot
	// Assignments yields the newest snapshot and then each newer one.
	Assignments(ctx context.Context) iter.Seq2[Snapshot, error]
	// Acknowledge says that the owner took a snapshot over and holds owned now.
	Acknowledge(ctx context.Context, s Snapshot, owned Tasks) error
	// Metadata is what a commit needs; false: there is no epoch to commit with.
	Metadata() (kafka.GroupMetadata, bool)
	// Leave ends the membership.
	Leave(ctx context.Context) error
}

// Member is one participant of a Streams group. Make it with [Join]. It is safe
// for concurrent use.
type Member struct {
	actor
	lastCall atomic.Uint64
	leaving  atomic.Bool
	topics   topicIDs
}

// Join makes a member and returns once the group has it, with the first snapshot
// set. It tries again what may get better, Config.MaxRetries times, until ctx
// ends, which has no effect later. If it gives up after a join was sent it sends
// a leave first, for up to 5 s, so that no ghost stays in the group.
//
// Errors: [*ConfigError], [*UnsupportedError], [*BrokerError],
// [*GroupTypeError], [*PartitioningError], [*FailedError], the cause of ctx.
//
// A member that is never closed, or closed without [Member.Leave], stays in the
// group until its session ends.
func Join(ctx context.Context, c Kafka, cfg Config) (*Member, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	cfg = cfg.withDefaults()
	var err error
	if cfg.Topology, err = cfg.Topology.Canonical(); err != nil {
		return nil, err
	}
	m := &Member{}
	m.actor = actor{
		kafka: c, cfg: cfg, tasks: task.New(context.Background()), tracer: newTracer(cfg.Trace),
		inbox: make(chan command, inboxSize), events: make(chan func(time.Time)), wake: make(chan struct{}, 1),
		joined: make(chan struct{}), done: make(chan struct{}), calls: map[uint64]chan error{}, began: time.Now().Add(-1),
		machine: core.New(cfg.machine(), rand.New(rand.NewPCG(seed(cfg.Rand), seed(cfg.Rand)))),
	}
	m.view.Store(&view{
		member: cfg.MemberID, changed: make(chan struct{}), snap: m.machine.Snapshot(),
		meta: kafka.GroupMetadata{Group: cfg.Group, Kind: kafka.StreamsGroup, Generation: kafka.NoGeneration},
	})
	m.tasks.Go(m.run)
	select {
	case <-m.joined:
		return m, nil
	case <-m.done:
	case <-ctx.Done():
		_ = m.do(context.WithoutCancel(ctx), func(k *core.Machine, now time.Time) error {
			k.OnAbandon(now, context.Cause(ctx))
			return nil
		})
		select {
		case <-m.joined:
			return m, nil
		case <-m.done:
		}
	}
	err = m.Err()
	_ = m.Close()
	return nil, err
}

func seed(r io.Reader) uint64 {
	var b [8]byte
	_, _ = io.ReadFull(r, b[:]) // a short one is as good a seed
	return binary.LittleEndian.Uint64(b[:])
}

// Snapshot is the newest snapshot. It costs nothing.
func (m *Member) Snapshot() Snapshot { return m.view.Load().snap }

// Assignments yields the newest snapshot first and then each newer one; a slow
// loop skips to the newest. Any number of loops may run, and none delays
// heartbeats. It ends with the member: with its error, or without one after a
// clean leave; and with the cause of ctx. A member that fails loses its tasks
// first, and its loops end once it has left, which waits for the acknowledgement.
//
// A snapshot follows a change only: members whose tasks stay learn nothing of
// the rebalances of others.
func (m *Member) Assignments(ctx context.Context) iter.Seq2[Snapshot, error] {
	return func(yield func(Snapshot, error) bool) {
		last := uint64(0)
		for {
			v := m.view.Load()
			switch {
			case v.snap.Version > last:
				last = v.snap.Version
				if !yield(v.snap, nil) {
					return
				}
				continue
			case v.over:
				if v.err != nil {
					yield(Snapshot{}, v.err)
				}
				return
			}
			select {
			case <-v.changed:
			case <-ctx.Done():
				yield(Snapshot{}, context.Cause(ctx))
				return
			}
		}
	}
}

// Acknowledge says that the owner took the target of s over and holds owned now,
// active tasks that it gave up being committed and closed. It returns when the
// member has recorded it; the heartbeat that tells the broker goes out at once if
// owned holds nothing outside of the target, else with the next one. A snapshot
// with Lost is acknowledged with Tasks{}, after everything was dropped.
//
// It is refused, and nothing changes, with [ErrStaleAssignment] if a loss or a
// later acknowledgement overtook s, with a [*TaskError] for a task that was not
// assigned since the last join, with a [*ConflictError] for one that stands
// twice, and with [ErrClosed].
func (m *Member) Acknowledge(ctx context.Context, s Snapshot, owned Tasks) error {
	owned = owned.Clone()
	return m.do(ctx, func(k *core.Machine, now time.Time) error { return k.OnAcknowledge(now, s, owned) })
}

// Metadata is what a commit of this member needs now. ok is false while there is
// no epoch: before the join, after a loss and after the end.
func (m *Member) Metadata() (g kafka.GroupMetadata, ok bool) {
	v := m.view.Load()
	return v.meta, v.hasMeta
}

// Owned is what was acknowledged last.
func (m *Member) Owned() Tasks { return m.view.Load().owned.Clone() }

// Config is the configuration in use: with its defaults, and a canonical
// topology.
func (m *Member) Config() Config { return m.cfg }

// Info is what a member did so far and where it stands.
type Info struct {
	Group, MemberID string
	Epoch           int32 // 0 = none
	State           State
	Interval        time.Duration // of heartbeats, as the broker asked

	Heartbeats  uint64 // sent, joins and leaves included
	Failures    uint64 // of those, and of look-ups
	Retries     uint64
	Rejoins     uint64
	Lookups     uint64    // of the coordinator and its version, one before each heartbeat
	Describes   uint64    // to find lists that were lost with an answer
	LastSuccess time.Time // of a heartbeat
}

// Info costs no request.
func (m *Member) Info() Info {
	v := m.view.Load()
	i := Info{
		Group: m.cfg.Group, MemberID: v.member, State: v.state, Interval: v.interval,
		Heartbeats: v.counters.Heartbeats, Failures: v.counters.Failures, Retries: v.counters.Retries, Rejoins: v.counters.Rejoins,
		Lookups: v.counters.Lookups, Describes: v.counters.Describes, LastSuccess: v.counters.LastSuccess,
	}
	if v.hasMeta {
		i.Epoch = v.meta.Generation
	}
	return i
}

// Heartbeat sends a heartbeat at once, after those that wait, and returns the
// snapshot after its answer. An error ends the call, not the member; if it is nil
// and the incarnation is that of an earlier acknowledgement, the broker has that.
// While the member has lost its tasks nothing is sent and the reason returned at
// once. It blocks until the answer, Config.MaxRetries failures, or the end of
// ctx.
func (m *Member) Heartbeat(ctx context.Context) (Snapshot, error) {
	id := m.lastCall.Add(1)
	answer := make(chan error, 1)
	err := m.do(ctx, func(k *core.Machine, _ time.Time) error {
		m.calls[id] = answer
		k.OnHeartbeat(id)
		return nil
	})
	if err != nil {
		return m.Snapshot(), err
	}
	select {
	case err = <-answer:
	case <-ctx.Done():
		_ = m.do(context.WithoutCancel(ctx), func(k *core.Machine, _ time.Time) error {
			delete(m.calls, id)
			k.OnCallAbandoned(id)
			return nil
		})
		return m.Snapshot(), context.Cause(ctx)
	case <-m.done:
		select {
		case err = <-answer:
		default:
			err = m.closed()
		}
	}
	if err == core.ErrLeft {
		err = m.closed()
	}
	return m.Snapshot(), err
}

// SetTaskOffsets sets what is told of the state of tasks: for each task the sum
// of its positions in its changelogs, and the sum of their ends. Name all standby
// and warm-up tasks, active ones that still restore, and tasks whose state lies
// on disk here; leave running active tasks out. A nil map is unset, an empty one
// clears. The newest maps win; they go along with heartbeats as the broker asks,
// and with every join. Brokers before 4.4 are told nothing. The maps are copied.
func (m *Member) SetTaskOffsets(offsets, ends map[TaskID]int64) error {
	return m.do(context.Background(), func(k *core.Machine, _ time.Time) error { return k.OnTaskOffsets(offsets, ends) })
}

// RequestShutdown has all members of the group told to stop, this one included,
// until the group is empty: it cannot be taken back. It returns when the member
// has recorded it; a heartbeat with the request goes out at once.
func (m *Member) RequestShutdown(ctx context.Context) error {
	return m.do(ctx, func(k *core.Machine, _ time.Time) error { k.OnShutdown(); return nil })
}

// Touch says that the owner is alive: see Config.PollInterval. It is cheap and
// never blocks. After the member left by itself, and the loss was acknowledged,
// it has it join again.
func (m *Member) Touch() {
	m.touched.Store(int64(time.Since(m.began)))
	if m.view.Load().state == Stale {
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
}

// Leave ends the membership as Config.OnLeave says; commit and close the tasks
// first. It tries again for up to 10 s or until ctx ends, and waits for the
// member's goroutines. Its error says that the broker did not confirm it: the
// member then stays in the group until its session ends. With a ctx that has
// ended already nothing may be sent. Of several calls one leaves; the others
// return nil at the end of the member, or the cause of their ctx before.
func (m *Member) Leave(ctx context.Context) error {
	if m.leaving.Swap(true) {
		select {
		case <-m.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if m.do(context.WithoutCancel(ctx), func(k *core.Machine, now time.Time) error { k.OnLeave(now); return nil }) != nil {
		return m.Close()
	}
	select {
	case <-m.done:
	case <-ctx.Done():
		_ = m.do(context.WithoutCancel(ctx), func(k *core.Machine, now time.Time) error {
			k.OnLeaveAbandoned(now, context.Cause(ctx))
			return nil
		})
		<-m.done
	}
	err := m.Err()
	_ = m.Close()
	return err
}

// Close ends the member at once, without a leave: the group keeps it until its
// session ends. It waits for the member's goroutines, returns nil and may be
// called more than once, also beside Leave.
func (m *Member) Close() error {
	m.tasks.Cancel(ErrClosed)
	_ = m.tasks.Wait()
	m.tracer.close()
	return nil
}

// Done is closed at the end of the member.
func (m *Member) Done() <-chan struct{} { return m.done }

// Err is what ended the member, or failed it; nil before and after a clean
// leave, [ErrClosed] after Close.
func (m *Member) Err() error { return m.view.Load().err }
