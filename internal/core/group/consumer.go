package group

import (
	"bytes"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// unreleasedPatience is how long a static member waits, beyond a session, for
// the place of one that did not say goodbye.
const unreleasedPatience = 15 * time.Second

// consumer is a member of the consumer protocol (KIP-848), where the
// coordinator divides partitions and heartbeats carry everything.
type consumer struct {
	m     *Machine
	at    int32 // member epoch; 0 = to join, negative = outside
	stays bool  // a leave keeps a static member's place

	target  map[kafka.TopicID][]int32 // what the member is to have, nil until told
	names   map[kafka.TopicID]string  // of topics in targets
	asked   map[kafka.TopicID]bool    // whose names are being looked up
	full    bool                      // the next heartbeat says everything
	ack     bool                      // what is owned changed since the last heartbeat
	news    bool                      // the subscription changed since
	matched bool                      // there was a pattern, which is to be taken back
	beatAt  time.Time
	every   time.Duration // heartbeat interval as told
	trouble int           // failed attempts in a row
	refused time.Time     // since when the instance id is another's
}

func newConsumer(m *Machine) *consumer {
	return &consumer{
		m: m, at: -1, every: m.cfg.Heartbeat,
		names: map[kafka.TopicID]string{}, asked: map[kafka.TopicID]bool{},
	}
}

func (c *consumer) epoch() int32 { return c.at }

func (c *consumer) mayCommit() bool { return c.at > 0 }

func (c *consumer) subscribed(now time.Time) {
	if c.m.state == Idle {
		c.enter(now, 0)
		c.m.begin("first join")
		return
	}
	c.full, c.news = true, true // with everything: some coordinators look at nothing less
	c.m.begin("subscription changed")
}

// enter joins, or joins again, after a delay.
func (c *consumer) enter(now time.Time, after time.Duration) {
	c.m.state, c.at, c.full = Joining, 0, true
	c.beatAt = now.Add(after)
}

func (c *consumer) rejoin(string) { c.full, c.ack = true, true }

func (c *consumer) onRevoked(now time.Time) {
	c.ack = true
	c.m.state = Stable
	c.reconcile()
}

func (c *consumer) onLost(int16) {
	c.at = -1
	c.target = nil
}

// active reports whether heartbeats are sent.
func (c *consumer) active() bool { return c.at >= 0 }

// next sends the heartbeat that is due. What the coordinator waits for goes out
// of turn.
func (c *consumer) next(now time.Time) {
	if c.active() && !c.m.flying(flightHeartbeat) && (!now.Before(c.beatAt) || c.urgent()) {
		c.beat()
	}
}

func (c *consumer) urgent() bool { return c.at > 0 && (c.ack || c.news) }

func (c *consumer) deadline() time.Time {
	if !c.active() || c.m.flying(flightHeartbeat) {
		return time.Time{}
	}
	return c.beatAt
}

// beat sends a heartbeat with what changed, or everything.
func (c *consumer) beat() {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = c.m.cfg.Group, c.m.memberID, c.at
	full := c.full || c.at == 0
	req.RebalanceTimeoutMillis = -1
	if c.m.cfg.InstanceID != "" {
		req.InstanceID = &c.m.cfg.InstanceID
	}
	if full {
		req.RebalanceTimeoutMillis = int32(c.m.cfg.Rebalance / time.Millisecond)
		if c.m.cfg.Rack != "" {
			req.RackID = &c.m.cfg.Rack
		}
		if c.m.cfg.ServerAssignor != "" {
			req.ServerAssignor = &c.m.cfg.ServerAssignor
		}
	}
	if full {
		req.SubscribedTopicNames = append([]string{}, c.m.topics...)
		if c.m.pattern != "" || c.matched {
			req.SubscribedTopicRegex = &c.m.pattern
		}
		c.matched = c.matched || c.m.pattern != ""
	}
	if full || c.ack {
		req.Topics = c.owned()
	}
	c.full, c.ack, c.news = false, false, false
	c.m.send(&flight{kind: flightHeartbeat}, req, 0)
}

// owned is what is read, by topic id; empty, not null, when that is nothing.
func (c *consumer) owned() []kmsg.ConsumerGroupHeartbeatRequestTopic {
	out := []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for _, tp := range c.m.Owned() {
		id := c.m.owned[tp]
		if n := len(out); n == 0 || out[n-1].TopicID != id {
			t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
			t.TopicID = id
			out = append(out, t)
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, tp.Partition)
	}
	return out
}

func (c *consumer) leave(reason string) {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = c.m.cfg.Group, c.m.memberID, -1
	req.RebalanceTimeoutMillis = -1
	if c.m.cfg.InstanceID != "" {
		req.InstanceID = &c.m.cfg.InstanceID
		if c.stays {
			req.MemberEpoch = -2
		}
	}
	c.m.send(&flight{kind: flightLeave}, req, 0)
	c.at = -1
}

func (c *consumer) onAnswer(now time.Time, _ *flight, resp kmsg.Response, code int16, err error) {
	r, ok := resp.(*kmsg.ConsumerGroupHeartbeatResponse)
	if err != nil || !ok || code != 0 {
		var message *string
		if ok {
			message = r.ErrorMessage
		}
		c.failed(now, code, message, err)
		return
	}
	c.trouble, c.refused = 0, time.Time{}
	c.m.confirm(now)
	if r.HeartbeatIntervalMillis > 0 {
		c.every = time.Duration(r.HeartbeatIntervalMillis) * time.Millisecond
	}
	c.beatAt = now.Add(c.every)
	if r.MemberID != nil && *r.MemberID != "" && !c.m.cfg.HeartbeatV1 {
		c.m.memberID = *r.MemberID
	}
	c.at = max(r.MemberEpoch, 0)
	if r.Assignment != nil {
		c.target = map[kafka.TopicID][]int32{}
		for _, t := range r.Assignment.Topics {
			c.target[t.TopicID] = append(c.target[t.TopicID], t.Partitions...)
		}
	}
	if c.m.state == Joining && c.at > 0 {
		c.m.state = Stable
		c.m.tell(Event{Kind: Joined})
	}
	c.reconcile()
}

// failed deals with a heartbeat that was refused or lost.
func (c *consumer) failed(now time.Time, code int16, message *string, err error) {
	c.full = true
	c.trouble++
	delay := c.m.cfg.Backoff.Delay(c.trouble, c.m.rng)
	c.beatAt = now.Add(min(delay, c.every))
	switch {
	case permanent(err):
		c.m.fail(err)
	case err != nil || c.m.coordinatorMoved(code):
	case code == codeUnknownMember || code == codeFencedEpoch || code == codeGroupNotFound && c.at > 0:
		c.m.lose(code, &LostError{Group: c.m.cfg.Group, Reason: "the coordinator does not count on this member any more", Err: kafka.CodeError(code, message)})
		c.m.begin("lost")
		c.enter(now, delay)
	case code == codeUnreleasedInstance && c.waitForRelease(now):
		c.beatAt = now.Add(max(delay, time.Second))
	case code == codeGroupFull:
		c.m.tell(Event{Kind: Trouble, Err: c.m.memberError(code, message)})
		c.beatAt = now.Add(max(delay, time.Second))
	default:
		c.m.fail(c.m.memberError(code, message))
	}
}

// waitForRelease reports whether to go on asking for a place that another
// member still has: as long as that one may be dead.
func (c *consumer) waitForRelease(now time.Time) bool {
	if c.refused.IsZero() {
		c.refused = now
	}
	return now.Before(c.refused.Add(c.m.cfg.Session + unreleasedPatience))
}

// reconcile takes the next step towards the target: first give up, report that,
// then take (G23).
func (c *consumer) reconcile() {
	if c.target == nil || c.m.state != Stable {
		return
	}
	var gone []kafka.TopicPartition
	for _, tp := range c.m.Owned() {
		if !slices.Contains(c.target[c.m.owned[tp]], tp.Partition) {
			gone = append(gone, tp)
		}
	}
	if len(gone) > 0 {
		c.m.begin("partitions move")
		c.m.revoke(gone)
		return
	}
	if c.ack || c.m.flying(flightHeartbeat) { // what was given up is to be reported first
		return
	}
	ids := map[kafka.TopicPartition]kafka.TopicID{}
	var added []kafka.TopicPartition
	for _, id := range c.targetIDs() {
		name, known := c.names[id]
		for _, p := range c.target[id] {
			tp := kafka.TopicPartition{Topic: name, Partition: p}
			if known && p >= 0 && !c.m.Owns(tp) {
				ids[tp] = id
				added = append(added, tp)
			}
		}
	}
	c.resolve()
	if len(added) > 0 {
		slices.SortFunc(added, kafka.TopicPartition.Compare)
		c.m.give(ids, slices.Compact(added))
		c.ack = true
	}
}

func (c *consumer) targetIDs() []kafka.TopicID {
	ids := make([]kafka.TopicID, 0, len(c.target))
	for id := range c.target {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b kafka.TopicID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// resolve asks for the names of topics that are not known yet.
func (c *consumer) resolve() {
	var ids []kafka.TopicID
	for _, id := range c.targetIDs() {
		if _, known := c.names[id]; !known && !c.asked[id] && !id.IsZero() {
			c.asked[id] = true
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		c.m.queue = append(c.m.queue, &ResolveIDs{IDs: ids})
	}
}

// OnNames gives the names of topic ids from a [ResolveIDs]. Those that are not
// found are asked for again.
func (m *Machine) OnNames(names map[kafka.TopicID]string, missing []kafka.TopicID) {
	c, ok := m.proto.(*consumer)
	if !ok || m.state.over() {
		return
	}
	for id, name := range names {
		c.names[id] = name
		delete(c.asked, id)
	}
	for _, id := range missing {
		delete(c.asked, id)
	}
	c.reconcile()
}
