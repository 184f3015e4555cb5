package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// partitioned is a split request whose items are partitions.
type partitioned interface {
	split
	partition(i int) (name string, id kafka.TopicID, part int32)
}

// toLeaders sends the partitions of a request to their leaders. A topic
// that the cluster does not know is not created.
func (a *attempts) toLeaders() (kmsg.Response, error) {
	s := splitByLeader(a.req)
	if s == nil {
		return nil, opError(a.api, kafka.NoNode, ErrNotRouted)
	}
	r := &leaderRouter{c: a.c, s: s, first: make(map[string]time.Time)}
	r.load(a.ctx)
	return a.spread(s, r)
}

// leaderRouter leads partitions to their leaders.
type leaderRouter struct {
	c     *client
	s     partitioned
	first map[string]time.Time // when a topic was first said not to exist
}

// load has all unknown topics looked up at once.
func (r *leaderRouter) load(ctx context.Context) {
	var unknown []int
	snap := r.c.snap.Load()
	for i := range r.s.len() {
		if tp, ok := r.tp(i); ok {
			if _, _, known := snap.Leader(tp); !known {
				unknown = append(unknown, i)
			}
		}
	}
	r.want(ctx, unknown, meta.Need{})
}

// tp is the partition of an item by its topic's name.
func (r *leaderRouter) tp(i int) (kafka.TopicPartition, bool) {
	name, id, part := r.s.partition(i)
	if name == "" {
		name = r.c.snap.Load().Names[id]
	}
	return kafka.TopicPartition{Topic: name, Partition: part}, name != ""
}

func (r *leaderRouter) route(_ context.Context, i int) (kafka.Broker, error) {
	tp, ok := r.tp(i)
	if !ok {
		return kafka.Broker{}, kafka.CodeError(kerr.UnknownTopicID.Code, nil)
	}
	snap := r.c.snap.Load()
	if b, _, ok := snap.Leader(tp); ok {
		return b, nil
	}
	e := snap.Topics[tp.Topic]
	err := e.Err
	switch {
	case err != nil && !e.Missing.IsZero() && time.Since(e.Missing) >= r.c.cfg.TopicPatience:
		return kafka.Broker{}, &hopeless{kafka.NoLeaderError{TopicPartition: tp, Err: err}}
	case err == nil && e.Topic != nil && (tp.Partition < 0 || int(tp.Partition) >= len(e.Topic.Partitions)):
		return kafka.Broker{}, r.patience(tp, kafka.CodeError(kerr.UnknownTopicOrPartition.Code, nil))
	case err == nil && e.Topic != nil:
		err = e.Topic.Partitions[tp.Partition].Err
	}
	return kafka.Broker{}, &kafka.NoLeaderError{TopicPartition: tp, Err: err}
}

// patience is the error of a partition that the cluster does not have: for a
// time it may be in creation.
func (r *leaderRouter) patience(tp kafka.TopicPartition, err error) error {
	key := tp.String()
	if r.first[key].IsZero() {
		r.first[key] = time.Now()
	}
	e := kafka.NoLeaderError{TopicPartition: tp, Err: err}
	if time.Since(r.first[key]) >= r.c.cfg.TopicPatience {
		return &hopeless{e}
	}
	return &e
}

// hopeless is a partition that has been missing for too long.
type hopeless struct{ kafka.NoLeaderError }

func (e *hopeless) Unwrap() error { return &e.NoLeaderError }

func (r *leaderRouter) rejected(ctx context.Context, i int, b kafka.Broker, err error) bool {
	tp, ok := r.tp(i)
	t := troubleOf(ctx, err)
	switch {
	case !ok:
		return false
	case t == overdue:
		r.c.inbox.post(func(s *state) { s.topics.DoubtLeader(tp, b.ID) })
		return false
	case t != cut && !moved(err, retry.RefreshMetadata):
		return false
	}
	r.c.inbox.post(func(s *state) { s.topics.InvalidateLeader(tp, b.ID) })
	if kafka.CodeOf(err) == kerr.UnknownTopicOrPartition.Code || kafka.CodeOf(err) == kerr.UnknownTopicID.Code {
		var h *hopeless
		return !errors.As(r.patience(tp, err), &h)
	}
	return true
}

func (r *leaderRouter) refresh(ctx context.Context, items []int) {
	r.want(ctx, items, meta.Need{Force: true})
}

// want waits until the topics of some items were refreshed once.
func (r *leaderRouter) want(ctx context.Context, items []int, n meta.Need) {
	seen := make(map[string]bool)
	var topics []string
	for _, i := range items {
		if tp, ok := r.tp(i); ok && !seen[tp.Topic] {
			seen[tp.Topic] = true
			topics = append(topics, tp.Topic)
		}
	}
	if len(topics) > 0 {
		_ = r.c.refresh(ctx, topics, n) // what is still unknown is told by route
	}
}
