package consumer

import (
	"context"
	"slices"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// Consumer reads the partitions that it is assigned. Make it with [New]. It is
// safe for concurrent use; polls take turns.
type Consumer struct {
	actor
	lookups
	turn    chan struct{} // capacity 1: held by the one that polls
	decoder fetch.Decoder // guarded by turn
}

// New makes a consumer with nothing assigned. It sends nothing. The consumer
// must be closed; it ends with its client in any case. A client of controllers is
// kafka.ErrUnsupportedEndpointType.
func New(c *cluster.Cluster, cfg Config) (*Consumer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cluster.AtControllers(c) {
		return nil, kafka.ErrUnsupportedEndpointType
	}
	n := &Consumer{
		actor: actor{
			cluster: c, cfg: cfg, tasks: task.New(context.Background()), watch: c.Watch(),
			wake: make(chan struct{}, 1), machine: fetch.New(cfg.machine(c.MetadataMaxAge()), c.NewRand()),
		},
		turn:    make(chan struct{}, 1),
		decoder: fetch.Decoder{NoCRC: cfg.NoCRC, Limit: cfg.MaxBatchBytes},
	}
	n.ahead.c, n.lookups.c = &n.actor, &n.actor
	n.buffers.reuse, n.buffers.poison = cfg.ReuseBuffers, cfg.poison
	n.tasks.Go(n.run)
	if cfg.Group.ID != "" {
		n.group = newMember(n)
		n.group.start()
	}
	return n, nil
}

// Close ends outstanding fetches without waiting for their answers, wakes every
// call that waits, and waits for the consumer's own goroutines. What was fetched
// and not handed out is given up. Afterwards nothing is assigned and calls return
// [cluster.ErrClosed]. Close may be called more than once and returns nil.
func (c *Consumer) Close() error {
	if c.group != nil {
		c.group.close()
	}
	c.tasks.Cancel(cluster.ErrClosed)
	_ = c.tasks.Wait()
	c.goodbye()
	c.watch.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inbox = nil
	c.machine.Assign(nil)
	return nil
}

// Assign replaces the assignment. Partitions that stay keep their position and
// what was fetched of them, whatever their Start says: see [Consumer.Seek].
// Nothing of the others is handed out afterwards. A topic that does not exist
// yet is waited for, and its growth is never assigned by itself.
//
// Assign does not wait: starts other than an offset are resolved by the leader
// of the partition, as soon as it can be reached; [Consumer.Position] waits for
// that. The map is copied. Errors: that ctx has ended, [cluster.ErrClosed].
func (c *Consumer) Assign(ctx context.Context, at map[kafka.TopicPartition]Start) error {
	if err := c.byHand(ctx); err != nil {
		return err
	}
	if err := checkPartitions(at); err != nil {
		return err
	}
	c.do(func(m *fetch.Machine) { m.Assign(starts(at)) })
	return nil
}

// Add assigns more partitions. Those that are assigned already stay as they
// are. It is otherwise as Assign.
func (c *Consumer) Add(ctx context.Context, at map[kafka.TopicPartition]Start) error {
	if err := c.byHand(ctx); err != nil {
		return err
	}
	if err := checkPartitions(at); err != nil {
		return err
	}
	c.do(func(m *fetch.Machine) { m.Add(starts(at)) })
	return nil
}

// Remove takes partitions out of the assignment; others than assigned ones do
// no harm. Nothing of them is handed out by a Poll that returns later. On a member
// of a group it does nothing.
func (c *Consumer) Remove(tps ...kafka.TopicPartition) {
	if c.group != nil {
		return
	}
	c.do(func(m *fetch.Machine) { m.Remove(slices.Clone(tps)) })
}

func checkPartitions(at map[kafka.TopicPartition]Start) error {
	for tp := range at {
		if tp.Topic == "" || tp.Partition < 0 {
			return &assignError{tp}
		}
	}
	return nil
}

type assignError struct{ tp kafka.TopicPartition }

func (e *assignError) Error() string       { return "ottla: assign: " + e.tp.String() + " is no partition" }
func (*assignError) MayHaveHappened() bool { return false }

// notAssigned is the error of a call about a partition that is not assigned.
func notAssigned(op string, tp kafka.TopicPartition) error {
	return &kafka.OpError{Op: op, Broker: kafka.NoNode, Topic: tp.Topic, Partition: tp.Partition, Err: ErrNotAssigned}
}

// ErrNotAssigned is the reason of calls that name a partition which the consumer
// is not assigned.
var ErrNotAssigned error = notAssignedError{}

type notAssignedError struct{}

func (notAssignedError) Error() string {
	return "ottla: the partition is not assigned to this consumer"
}
func (notAssignedError) MayHaveHappened() bool { return false }

// Seek moves the position of an assigned partition. It takes effect before the
// next record is returned, in any state: while offsets load, on a paused
// partition, in a callback. A partition that had stopped with an error reads on.
// Seek does not wait; records come after the Fetch that the broker may hold back
// meanwhile for others, so up to Config.MaxWait later. That goes for Add, Assign
// and Resume too. The error wraps [ErrNotAssigned] or is [cluster.ErrClosed].
func (c *Consumer) Seek(tp kafka.TopicPartition, to Start) error {
	if err := c.closed(); err != nil {
		return err
	}
	ok := false
	defer lockBook(c.group)()
	c.do(func(m *fetch.Machine) { ok = m.Seek(tp, to.at) })
	if !ok {
		return notAssigned("seek", tp)
	}
	c.group.soughtLocked(tp, to)
	return nil
}

// Pause stops fetching and handing out of partitions, until Resume; a range over
// [Consumer.Records] stops before the next record. What was fetched is kept as
// long as the budget has room. Partitions that are not
// assigned are ignored; a pause ends when the partition is removed.
func (c *Consumer) Pause(tps ...kafka.TopicPartition) { c.pause(tps, true) }

// Resume lets paused partitions go on.
func (c *Consumer) Resume(tps ...kafka.TopicPartition) { c.pause(tps, false) }

// PauseTopics pauses all assigned partitions of topics. One that is assigned
// later is not paused.
func (c *Consumer) PauseTopics(topics ...string) { c.pause(c.assignedOf(topics), true) }

// ResumeTopics lets all assigned partitions of topics go on.
func (c *Consumer) ResumeTopics(topics ...string) { c.pause(c.assignedOf(topics), false) }

func (c *actor) assignedOf(topics []string) []kafka.TopicPartition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.machine.Assigned(), func(tp kafka.TopicPartition) bool { return !slices.Contains(topics, tp.Topic) })
}

func (c *actor) pause(tps []kafka.TopicPartition, paused bool) {
	c.do(func(m *fetch.Machine) {
		for _, tp := range tps {
			m.Pause(tp, paused)
		}
	})
}

// Paused lists the paused partitions, in order. It is the caller's own.
func (c *Consumer) Paused() []kafka.TopicPartition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine.Paused()
}

// Assignment lists the assigned partitions, in order. It is the caller's own.
func (c *Consumer) Assignment() []kafka.TopicPartition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine.Assigned()
}

// Position is the offset of the next record to be handed out. Records that Poll
// has returned count as handed out; those of a range over [Consumer.Records] count
// when it leaves their batch. Position waits until ctx ends while the
// offset is being asked for. Errors: [ErrNotAssigned] in an OpError, the cause
// of ctx, [cluster.ErrClosed].
func (c *Consumer) Position(ctx context.Context, tp kafka.TopicPartition) (kafka.Offset, error) {
	for {
		if err := c.closed(); err != nil {
			return -1, err
		}
		c.mu.Lock()
		at, ok := c.machine.At(tp)
		change := c.waiterLocked()
		c.mu.Unlock()
		switch {
		case !ok:
			return -1, notAssigned("position", tp)
		case at.Position >= 0:
			return at.Position, nil
		}
		if err := c.wait(ctx, change); err != nil {
			return -1, err
		}
	}
}

// Lag is the number of offsets between the position and the end of what the
// isolation level lets a reader see, as of the last answer of the broker. No
// request is sent for it. It reports false before the first answer, and for a
// partition that is not assigned. Offsets without a record count.
func (c *Consumer) Lag(tp kafka.TopicPartition) (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, _ := c.machine.At(tp)
	return at.Lag, at.HasLag
}

// Log tells the start, last stable offset and high watermark of a partition as
// of the last answer. No request is sent for it.
func (c *Consumer) Log(tp kafka.TopicPartition) (Log, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.machine.At(tp)
	return Log(at.Log), ok
}
