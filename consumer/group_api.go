package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/internal/core/group"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// Group is a Consumer's membership in its group. It is safe for concurrent use
// and may be used in callbacks.
type Group struct{ m *member }

// Group is the membership, nil without Config.Group.
func (c *Consumer) Group() *Group {
	if c.group == nil {
		return nil
	}
	return &Group{c.group}
}

// Subscribe replaces the subscription. The member joins, or rebalances once, in
// the background; partitions of topics that stay keep their positions. Topics
// that do not exist yet are waited for. Without topics the member leaves the
// group.
func (g *Group) Subscribe(topics ...string) error {
	return g.subscribe(subscription{topics: slices.Clone(topics)})
}

// SubscribePattern subscribes to all topics whose whole name the regular
// expression matches, those made later included. In a classic group the names of
// all topics are listed at the metadata age for it; in the consumer protocol the
// broker matches, in the syntax of RE2/J.
func (g *Group) SubscribePattern(expr string) error {
	if _, err := compilePattern(expr); err != nil {
		return err
	}
	return g.subscribe(subscription{expr: expr})
}

func (g *Group) subscribe(s subscription) error {
	m := g.m
	if err := m.c.closed(); err != nil {
		return err
	}
	m.mu.Lock()
	gone := m.want.names
	s.local, s.settled, s.listing = m.want.local, m.want.settled, m.want.listing
	m.want = s
	m.subscribeLocked(time.Now())
	m.mu.Unlock()
	m.topics.forget(gone, s.topics)
	m.kick()
	return nil
}

// Rejoin asks for a rebalance, with a reason for the brokers' logs. It does
// nothing while one is under way.
func (g *Group) Rejoin(reason string) {
	g.m.do(func(g *group.Machine, _ time.Time) { g.Rejoin(reason) })
}

// Commit commits what is finished and waits for the outcome until ctx ends. The
// error joins a *kafka.OpError for each partition, whose MayHaveHappened tells
// whether its offset may be committed all the same; what was refused because the
// partition is no longer this member's is read by another one. During a rebalance
// Commit waits for its end.
func (g *Group) Commit(ctx context.Context) error {
	if err := g.m.c.ready(ctx); err != nil {
		return err
	}
	return g.m.commits.all(ctx)
}

// CommitOffsets commits these offsets, each the next one to read, and waits for
// the outcome as Commit does. Offsets of partitions that the member does not own
// are refused.
func (g *Group) CommitOffsets(ctx context.Context, offsets map[kafka.TopicPartition]kafka.Commit) error {
	if err := g.m.c.ready(ctx); err != nil {
		return err
	}
	own := make(group.Offsets, len(offsets))
	for tp, o := range offsets {
		own[tp] = o
	}
	return g.m.commits.await(ctx, g.m.commits.send(own))
}

// Committed asks the coordinator what is committed for these partitions, stable
// offsets only; those that have nothing are absent. It waits until ctx ends.
func (g *Group) Committed(ctx context.Context, tps ...kafka.TopicPartition) (map[kafka.TopicPartition]kafka.Commit, error) {
	c := g.m.c
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	for {
		resp, err := c.cluster.Request(ctx, group.OffsetsRequest(g.m.cfg.ID, tps))
		if err != nil {
			return nil, err
		}
		offsets, unstable, err := group.OffsetsOf(g.m.cfg.ID, tps, resp.(*kmsg.OffsetFetchResponse))
		if err != nil || !unstable {
			return offsets, err
		}
		if task.Sleep(ctx, 100*time.Millisecond) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// Metadata proves the membership to a transaction that commits offsets. Take a
// fresh one for each. The error is [kafka.ErrNotInGroup] unless the member is
// stable.
func (g *Group) Metadata() (kafka.GroupMetadata, error) {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	t, ok := g.m.machine.Token()
	if !ok {
		return t, kafka.ErrNotInGroup
	}
	return t, nil
}

// Owns reports whether the member has owned the partition of b without a break
// since b was handed out. A partition that is being revoked is still owned until
// the revocation ends. A transaction takes the positions of b in only while that is
// so: with a token from before the call, the coordinator refuses them if the
// partition goes afterwards.
func (g *Group) Owns(b Batch) bool {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	h := g.m.holdings[b.TopicPartition()]
	return h != nil && h.ctx == b.ctx
}

// Stats reads the counts of the membership. It costs no request.
func (g *Group) Stats() GroupStats {
	m := g.m
	m.mu.Lock()
	defer m.mu.Unlock()
	s := GroupStats{
		State: m.machine.State().String(), MemberID: m.machine.MemberID(), Partitions: len(m.holdings),
		Rebalances: map[string]int64{}, Given: m.counts.given, Revoked: m.counts.revoked, Lost: m.counts.lost,
		Heartbeats: m.counts.beats, Misses: m.counts.misses, HeartbeatTime: m.counts.beatTime,
		Committed: m.counts.done, CommitsRefused: m.counts.refused, CommitsInDoubt: m.counts.unsure,
		Stalls: m.counts.stalls, Events: map[GroupEventKind]int64{},
	}
	if m.failed != nil {
		s.State = group.Failed.String()
	}
	d := m.machine.Dropped
	s.Dropped = d.Blobs + d.Members + d.Claims
	for cause, n := range m.counts.rebalances {
		s.Rebalances[cause] = n
	}
	for kind, n := range m.counts.events {
		if n > 0 {
			s.Events[GroupEventKind(kind)] = n
		}
	}
	if since, _ := m.oldestLocked(); !since.IsZero() {
		s.Unfinished = time.Since(since)
	}
	return s
}

// Commit counts everything that Poll has handed out as finished, and is
// otherwise [Group.Commit]. It is for the goroutine that polls; with CommitMarked
// and in Run it commits what is finished.
func (c *Consumer) Commit(ctx context.Context) error {
	if c.group == nil {
		return ErrNoGroup
	}
	c.finish()
	return c.Group().Commit(ctx)
}

// Mark says that records are done with, for CommitMarked. What is committed of a
// partition ends before its first record without a mark. Marks of records that
// were handed out before the partition went, or before a seek, do nothing.
func (c *Consumer) Mark(records ...kafka.Record) {
	if c.group == nil {
		return
	}
	c.group.mu.Lock()
	for i := range records {
		c.group.book.MarkAt(records[i].TopicPartition(), records[i].Offset)
	}
	c.group.mu.Unlock()
	c.do(func(*fetch.Machine) {}) // wakes who waits for finished work
}
