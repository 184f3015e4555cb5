package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/kafka"
)

// refreshWait is a caller that waits for a refresh of some topics, or of the
// brokers.
type refreshWait struct {
	topics []string // empty = brokers and controller; else those still missing
	after  uint64   // the refresh in flight with this number does not do
	answer *answer
}

// refresh waits until the named topics, or with none the brokers, have been
// refreshed once. The error is that of the round: it says that no broker
// answered, not what brokers say about a topic.
func (c *client) refresh(ctx context.Context, topics []string, n meta.Need) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if len(topics) > 0 && c.cfg.atControllers() {
		return kafka.ErrUnsupportedEndpointType
	}
	for _, t := range topics { // one in a request spoils it for all that are in it
		if len(t) > math.MaxInt16 {
			return tooLong(len(t))
		}
	}
	w := &refreshWait{topics: slices.Clone(topics), answer: newAnswer()}
	if !c.inbox.post(func(s *state) { s.wantRefresh(w, n) }) {
		return ErrClosed
	}
	return c.wait(ctx, w.answer, func() {
		c.inbox.post(func(s *state) { s.leaveRefresh(w) })
	})
}

// tooLong is the error of a topic whose name no request can hold.
func tooLong(n int) error {
	text := fmt.Sprintf("not sent: the name has %d bytes, and Kafka's strings have at most %d", n, math.MaxInt16)
	return kafka.CodeError(kerr.InvalidTopicException.Code, &text)
}

func (s *state) wantRefresh(w *refreshWait, n meta.Need) {
	if n.Force {
		w.after = s.flights
	}
	for _, t := range w.topics {
		s.topics.Want(t, n)
	}
	if len(w.topics) == 0 {
		s.topics.WantCluster()
	}
	s.waits = append(s.waits, w)
}

func (s *state) leaveRefresh(w *refreshWait) {
	s.waits = slices.DeleteFunc(s.waits, func(o *refreshWait) bool { return o == w })
}

// sendRefresh asks some broker for what the map wants.
func (s *state) sendRefresh(r meta.Refresh) {
	s.flights++
	s.c.counts.refreshes.Add(1)
	began := s.now
	can := s.c.candidates(r.Avoid)
	can.Spread = r.Doubt
	s.ask(&ask{
		walk: meta.NewWalk(can, s.c.rand.derive()),
		make: func() (kmsg.Request, int16) { return s.c.cfg.mapRequest(r), 1 },
		judge: func(addr string, resp kmsg.Response) error {
			return s.judge(addr, mapAnswer(resp))
		},
		done: func(addr string, resp kmsg.Response, err error) { s.refreshed(r, began, addr, resp, err) },
	})
}

// metadataRequest is the request for one refresh. Its list of topics is never
// null, which would ask for all of them.
func metadataRequest(r meta.Refresh) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(r.Topics))
	for _, name := range r.Topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	req.AllowAutoTopicCreation = r.Create && len(r.Topics) > 0
	return req
}

// judge says why an answer does not count, so that another broker is asked. An
// answer that calls for a rebootstrap does count.
func (s *state) judge(addr string, resp *kmsg.MetadataResponse) error {
	v, err := s.topics.Judge(resp)
	switch v {
	case meta.Merged, meta.MustRebootstrap:
		return nil
	case meta.OtherCluster:
		return s.otherCluster(addr, err)
	}
	if kafka.CodeOf(err) == kerr.MismatchedEndpointType.Code {
		return &brokerError{err}
	}
	return err
}

// refreshed ends the refresh in flight.
func (s *state) refreshed(r meta.Refresh, began time.Time, addr string, resp kmsg.Response, err error) {
	if err == nil {
		var v meta.Verdict
		mr := mapAnswer(resp)
		if v, err = s.topics.OnAnswer(s.now, addr, mr); v == meta.MustRebootstrap {
			s.rebootstrap(err)
		}
		if err == nil {
			s.unbar(mr)
		}
	} else if s.topics.OnFailure(s.now, isRefusal(err)) {
		s.rebootstrap(err)
	}
	s.publish()
	if err != nil {
		s.c.counts.refreshFailures.Add(1)
	}
	s.c.tracer.refreshed(r.Topics, addr, s.now.Sub(began), err)
	s.giveRefresh(r, err)
}

// giveRefresh tells those whose topics were all refreshed.
func (s *state) giveRefresh(r meta.Refresh, err error) {
	rest := s.waits[:0]
	for _, w := range s.waits {
		if w.after >= s.flights {
			rest = append(rest, w)
			continue
		}
		before := len(w.topics)
		w.topics = slices.DeleteFunc(w.topics, func(t string) bool { return slices.Contains(r.Topics, t) })
		if len(w.topics) == 0 || err != nil && len(w.topics) < before {
			w.answer.give(err)
			continue
		}
		rest = append(rest, w)
	}
	clear(s.waits[len(rest):])
	s.waits = rest
}

// rebootstrap drops what was learned and starts again from the bootstrap
// addresses.
func (s *state) rebootstrap(cause error) {
	s.c.counts.rebootstraps.Add(1)
	s.topics.Rebootstrap(s.now, cause)
	s.coords.ForgetAll()
	s.publish()
	s.c.pool.want(nil, func(string) bool { return false })
}

// lookup is how a caller wants a topic.
type lookup struct {
	need  meta.Need
	stale bool // a topic of any age does
}

// topic finds a topic, and waits for as many refreshes as that takes.
func (c *client) topic(ctx context.Context, name string, l lookup) (*Topic, error) {
	if err := c.over(); err != nil {
		return nil, err
	}
	limit := c.limit(ctx)
	var last error // of a round without an answer
	for {
		e := c.snap.Load().Topics[name]
		if c.serves(e, l) {
			c.track(name, e, l)
			return e.Topic, nil
		}
		err := c.refresh(ctx, []string{name}, l.need)
		e = c.snap.Load().Topics[name]
		if err == nil && c.serves(e, l) {
			return e.Topic, nil
		}
		if err != nil && ctx.Err() == nil {
			last = err
		} else if err != nil && last != nil {
			err = &gaveUp{cause: context.Cause(ctx), last: last}
		}
		if err = c.topicError(ctx, name, e, err, limit); err != nil {
			return nil, err
		}
		l.need.Force = true
	}
}

func (c *client) serves(e meta.Entry, l lookup) bool {
	return e.Topic.Count() > 0 && (l.stale || !e.Topic.IsStale(time.Now(), c.cfg.MetadataMaxAge))
}

// track keeps a topic fresh that was only looked at so far.
func (c *client) track(name string, e meta.Entry, l lookup) {
	if l.need.Track && !e.Tracked {
		c.inbox.post(func(s *state) { s.topics.Track(name) })
	}
}

// topicError is why a look-up of a topic ends, nil if it goes on.
func (c *client) topicError(ctx context.Context, name string, e meta.Entry, err error, limit time.Time) error {
	now := time.Now()
	switch {
	case err == nil && e.Err != nil && (e.Missing.IsZero() || now.Sub(e.Missing) >= c.cfg.TopicPatience):
		err = e.Err
	case err == nil && e.Err == nil && e.Topic.Count() == 0:
		err = &kafka.NoLeaderError{TopicPartition: kafka.TopicPartition{Topic: name, Partition: -1}}
		if now.Before(limit) {
			return nil
		}
	case errors.Is(err, ErrClosed):
		return err
	case err == nil || ctx.Err() == nil && !permanent(err) && now.Before(limit):
		return nil
	}
	if ctx.Err() != nil && e.Err != nil {
		err = &gaveUp{cause: context.Cause(ctx), last: e.Err}
	}
	return topicOpError(name, err)
}

func topicOpError(topic string, err error) error {
	if errors.Is(err, ErrClosed) {
		return err
	}
	return &kafka.OpError{Op: "metadata", Broker: kafka.NoNode, Topic: topic, Partition: -1, Err: err}
}

// limit is when a call stops to begin attempts: never if its context has a
// deadline of its own.
func (c *client) limit(ctx context.Context) time.Time {
	if d, ok := ctx.Deadline(); ok {
		return d.Add(time.Hour)
	}
	return time.Now().Add(c.cfg.RetryTimeout)
}

// Topic describes a topic no older than Config.MetadataMaxAge. It waits for a
// refresh if the topic is unknown or older, and for a topic in creation up to
// Config.TopicPatience; unless Config.NoTopicCreation is set the broker may
// create it. From then on the topic is kept fresh until [Cluster.ForgetTopic].
// Errors: what brokers say about the topic, or that none answers.
func (c *Cluster) Topic(ctx context.Context, name string) (*Topic, error) {
	return c.topic(ctx, name, lookup{need: meta.Need{Create: true, Track: true}})
}

// CachedTopic is what is known of a topic, of any age, without a request or a
// lock. It reports false if no broker has described the topic yet.
func (c *Cluster) CachedTopic(name string) (*Topic, bool) {
	t := c.snap.Load().Topics[name].Topic
	return t, t != nil
}

// PartitionCount is a topic's number of partitions, with a leader or not, no
// older than Config.MetadataMaxAge. It waits as [Cluster.Topic] does.
func (c *Cluster) PartitionCount(ctx context.Context, topic string) (int32, error) {
	t, err := c.Topic(ctx, topic)
	return t.Count(), err
}

// Leader is the known leader of a partition, of any age, without a request. If
// none is known it waits for one refresh, shared with all who wait for it;
// then there is none, it is a [*kafka.NoLeaderError].
func (c *Cluster) Leader(ctx context.Context, tp kafka.TopicPartition) (kafka.Broker, error) {
	if err := c.settle(ctx); err != nil {
		return kafka.Broker{ID: kafka.NoNode}, opError("leader", kafka.NoNode, err)
	}
	if b, _, ok := c.snap.Load().Leader(tp); ok {
		return b, nil
	}
	err := c.refresh(ctx, []string{tp.Topic}, meta.Need{Create: true, Track: true})
	snap := c.snap.Load()
	b, _, ok := snap.Leader(tp)
	if ok {
		return b, nil
	}
	e := snap.Topics[tp.Topic]
	switch {
	case err != nil:
	case e.Err != nil:
		err = e.Err
	case e.Topic != nil && int(tp.Partition) >= len(e.Topic.Partitions):
		err = kafka.CodeError(kerr.UnknownTopicOrPartition.Code, nil)
	case e.Topic != nil && tp.Partition >= 0:
		err = e.Topic.Partitions[tp.Partition].Err
	}
	if errors.Is(err, ErrClosed) {
		return b, err
	}
	return b, &kafka.NoLeaderError{TopicPartition: tp, Err: err}
}

// RefreshIfStale asks for a topic that is older than Config.MetadataMaxAge or
// unknown, and reports growth only: a topic that is fresh, has fewer or as many
// partitions, or is seen for the first time, has a zero Growth.
func (c *Cluster) RefreshIfStale(ctx context.Context, topic string) (Growth, error) {
	if err := c.over(); err != nil {
		return Growth{}, err
	}
	e := c.snap.Load().Topics[topic]
	l := lookup{need: meta.Need{Create: true, Track: true}}
	if !e.Topic.IsStale(time.Now(), c.cfg.MetadataMaxAge) {
		c.track(topic, e, l)
		return Growth{}, nil
	}
	before := e.Topic.Count()
	if err := c.refresh(ctx, []string{topic}, l.need); err != nil {
		return Growth{}, topicOpError(topic, err)
	}
	e = c.snap.Load().Topics[topic]
	if e.Err != nil && e.Missing.IsZero() {
		return Growth{}, topicOpError(topic, e.Err)
	}
	return meta.GrowthBetween(topic, before, e.Topic.Count()), nil
}

// InvalidateLeader forgets the leader of one partition and has its topic
// refreshed, at most every 100 ms. No other partition is touched.
func (c *Cluster) InvalidateLeader(tp kafka.TopicPartition) {
	c.inbox.post(func(s *state) { s.topics.InvalidateLeader(tp, kafka.NoNode) })
}

// LearnLeader takes the leader that a broker named in its answer to another
// request (KIP-951), with the addresses that came along. It is taken only with
// an epoch above the known one and with an address that is known, and reports
// whether it was.
func (c *Cluster) LearnLeader(tp kafka.TopicPartition, leader kafka.NodeID, epoch kafka.LeaderEpoch, endpoints []kafka.Broker) bool {
	if !c.snap.Load().TakesHint(tp, leader, epoch, endpoints) {
		return false
	}
	endpoints = slices.Clone(endpoints)
	return c.inbox.post(func(s *state) { s.topics.OnHint(tp, leader, epoch, endpoints) })
}

// ForgetTopic drops all that is known of a topic and stops keeping it fresh.
func (c *Cluster) ForgetTopic(topic string) {
	c.inbox.post(func(s *state) { s.topics.ForgetTopic(topic) })
}
