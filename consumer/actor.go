package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// actor drives the machine: one goroutine carries out what it asks for.
type actor struct {
	cluster *cluster.Cluster
	cfg     Config // checked, with defaults
	tasks   *task.Group
	watch   *cluster.Watch
	group   *member       // nil without Config.Group
	wake    chan struct{} // capacity 1: there is something to do

	interrupts atomic.Uint64 // counts what may end a range over Records

	mu      sync.Mutex
	machine *fetch.Machine        // guarded by mu
	inbox   []func(now time.Time) // guarded by mu: what came for the machine
	changed chan struct{}         // guarded by mu: closed when something did; nil if nobody waits

	ahead   ahead
	buffers buffers
}

// closed reports why the consumer takes no more calls: it or its client is closed,
// or its membership in a group is over.
func (c *actor) closed() error {
	select {
	case <-c.tasks.Context().Done():
		return cluster.ErrClosed
	case <-c.cluster.Done():
		return cluster.ErrClosed
	default:
		return c.group.err()
	}
}

// ready reports why a call should not begin: its context has ended, or the
// consumer is closed.
func (c *actor) ready(ctx context.Context) error {
	if err := c.closed(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// do runs f with the machine and has the actor carry out what follows.
func (c *actor) do(f func(m *fetch.Machine)) {
	c.mu.Lock()
	f(c.machine)
	c.interrupts.Add(1)
	c.signalLocked()
	c.mu.Unlock()
	c.kick()
}

// signalLocked wakes those who wait for a change.
func (c *actor) signalLocked() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// waiterLocked is closed at the next change.
func (c *actor) waiterLocked() <-chan struct{} {
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// wait waits for a change.
func (c *actor) wait(ctx context.Context, change <-chan struct{}) error {
	select {
	case <-change:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.tasks.Context().Done():
		return cluster.ErrClosed
	case <-c.cluster.Done():
		return cluster.ErrClosed
	}
}

// run is the goroutine: it carries out what the machine asks for.
func (c *actor) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		actions, failures, deadline := c.step()
		for _, f := range failures {
			c.cfg.Logger.Warn("fetch failed; its partitions are retried", "broker", f.Broker, "err", f.Err)
		}
		for _, a := range actions {
			c.perform(ctx, a)
		}
		c.ahead.start()
		timer.Reset(untilNext(deadline))
		select {
		case <-ctx.Done():
			return nil
		case <-c.cluster.Done():
			return nil
		case <-c.wake:
		case <-timer.C:
		case <-c.watch.Ready():
			c.onEvents(c.watch.Take())
		}
	}
}

func untilNext(deadline time.Time) time.Duration {
	if deadline.IsZero() {
		return time.Hour
	}
	return time.Until(deadline)
}

// step feeds the machine what came and collects what is to be done.
func (c *actor) step() ([]fetch.Action, []fetch.Failure, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, f := range c.inbox {
		f(now)
	}
	c.inbox = c.inbox[:0]
	var actions []fetch.Action
	for a, ok := c.machine.Next(now); ok; a, ok = c.machine.Next(now) {
		if h, ok := a.(*fetch.HintAction); ok {
			if c.cluster.LearnLeader(h.TopicPartition, h.Leader, h.Epoch, h.Brokers) {
				c.machine.OnHint(h)
			}
			continue
		}
		actions = append(actions, a)
	}
	c.signalLocked()
	return actions, c.machine.Failures(), c.machine.Deadline(now)
}

// kick has the actor look at the machine.
func (c *actor) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// post hands the machine something that came, if that is not too late. It never
// blocks.
func (c *actor) post(f func(now time.Time)) {
	c.mu.Lock()
	if c.tasks.Context().Err() == nil {
		c.inbox = append(c.inbox, f)
	}
	c.mu.Unlock()
	c.kick()
}

// perform carries out an action without waiting for its outcome.
func (c *actor) perform(ctx context.Context, a fetch.Action) {
	switch a := a.(type) {
	case *fetch.FetchAction:
		c.fetch(ctx, a)
	case *fetch.ListAction:
		c.cluster.Broker(a.Broker).Start(ctx, a.Req, func(resp kmsg.Response, err error) {
			r, _ := resp.(*kmsg.ListOffsetsResponse)
			c.post(func(now time.Time) { c.machine.OnList(now, a.ID, r, answerError(r == nil, err)) })
		})
	case *fetch.EpochAction:
		c.cluster.Broker(a.Broker).Start(ctx, a.Req, func(resp kmsg.Response, err error) {
			r, _ := resp.(*kmsg.OffsetForLeaderEpochResponse)
			c.post(func(now time.Time) { c.machine.OnEpochs(now, a.ID, r, answerError(r == nil, err)) })
		})
	case *fetch.LookupAction:
		c.tasks.Go(func(ctx context.Context) error {
			c.lookup(ctx, a)
			return nil
		})
	}
}

// fetch sends a Fetch. A broker that the cluster does not name, such as a new
// replica, is looked for once.
func (c *actor) fetch(ctx context.Context, a *fetch.FetchAction) {
	done := func(resp kmsg.Response, err error) {
		r, _ := resp.(*kmsg.FetchResponse)
		c.post(func(now time.Time) { c.machine.OnFetch(now, a.ID, r, answerError(r == nil, err)) })
	}
	b := c.cluster.Broker(a.Broker)
	if slices.ContainsFunc(c.cluster.Brokers(), func(k kafka.Broker) bool { return k.ID == a.Broker }) {
		b.StartInto(ctx, a.Req, func(n int) []byte {
			c.mu.Lock()
			defer c.mu.Unlock()
			return a.Buffer(n)
		}, done)
		return
	}
	c.tasks.Go(func(ctx context.Context) error {
		done(b.Request(ctx, a.Req))
		return nil
	})
}

// goodbye closes the fetch sessions that brokers keep, without waiting.
func (c *actor) goodbye() {
	c.mu.Lock()
	actions := c.machine.Goodbyes()
	c.mu.Unlock()
	for _, a := range actions {
		c.cluster.Broker(a.Broker).Start(context.Background(), a.Req, func(kmsg.Response, error) {})
	}
}

// answerError makes sure that no answer comes with an error.
func answerError(none bool, err error) error {
	if err == nil && none {
		return errNoAnswer
	}
	return err
}

var errNoAnswer = errors.New("ottla: fetch: neither an answer nor an error came")

// lookup asks the cluster for a topic, and for new leaders in place of those
// that were refused.
func (c *actor) lookup(ctx context.Context, a *fetch.LookupAction) {
	for _, p := range a.Stale {
		c.cluster.InvalidateLeader(kafka.TopicPartition{Topic: a.Topic, Partition: p})
	}
	var err error
	if len(a.Stale) > 0 {
		_, err = c.cluster.Leader(ctx, kafka.TopicPartition{Topic: a.Topic, Partition: a.Stale[0]})
	}
	var t *cluster.Topic
	if kafka.CodeOf(err) != kerr.UnknownTopicOrPartition.Code {
		t, err = c.cluster.Topic(ctx, a.Topic)
	}
	if err != nil || t == nil {
		c.post(func(now time.Time) {
			c.machine.OnTopicError(now, a.Topic, kafka.CodeOf(err), err)
			if !slices.ContainsFunc(c.machine.Assigned(), func(tp kafka.TopicPartition) bool { return tp.Topic == a.Topic }) {
				c.cluster.ForgetTopic(a.Topic) // it was given up meanwhile: the look-up must not keep it
			}
		})
		return
	}
	c.post(func(now time.Time) { c.machine.OnTopic(now, a.Topic, topicInfo(t)) })
}

func topicInfo(t *cluster.Topic) fetch.TopicInfo {
	info := fetch.TopicInfo{ID: t.ID, Partitions: make([]fetch.PartitionInfo, len(t.Partitions))}
	for i, p := range t.Partitions {
		info.Partitions[i] = fetch.PartitionInfo{Leader: p.Leader, Epoch: p.Epoch}
	}
	return info
}

// onEvents tells the machine what the cluster noticed about topics.
func (c *actor) onEvents(events []cluster.Event) {
	seen := map[string]bool{}
	for _, e := range events {
		switch e.Kind {
		case cluster.TopicFound, cluster.TopicGrew, cluster.TopicRecreated, cluster.LeaderChanged:
		default:
			continue
		}
		if seen[e.Topic] {
			continue
		}
		seen[e.Topic] = true
		if t, ok := c.cluster.CachedTopic(e.Topic); ok {
			c.post(func(now time.Time) { c.machine.OnTopic(now, t.Name, topicInfo(t)) })
		}
	}
}
