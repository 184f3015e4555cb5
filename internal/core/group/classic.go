package group

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// protocolType is what members of a consumer group are called by.
const protocolType = "consumer"

// syncGrace is how long a member waits for JoinGroup and SyncGroup beyond the
// rebalance timeout, so that the broker decides first.
const syncGrace = 5 * time.Second

// classic is a member of the classic protocol: JoinGroup, SyncGroup, Heartbeat.
type classic struct {
	m           *Machine
	cooperative bool
	generation  int32 // of the group, as of the last JoinGroup answer
	ownedSince  int32 // generation in which what is owned was given
	assignor    string
	leader      *roster          // the group if this member leads it
	planned     map[string]int32 // counts that the leader's plan was made from
	racks       Racks            // of the next plan, nil unless it is to look at them
	skip        bool             // the leader is to keep the plan that there is (KIP-814)
	due         bool             // a JoinGroup is to be sent
	cause       string           // of the round, told to the broker (KIP-800)
	again       string           // cause of a rejoin to come, empty = none
	gaveUp      bool             // something was given up since the last JoinGroup
	attempts    int
	retryAt     time.Time
	beatAt      time.Time
	syncedAt    time.Time // of the last SyncGroup answer
}

func newClassic(m *Machine) *classic {
	c := &classic{m: m, generation: NoGeneration, ownedSince: NoGeneration, cooperative: true}
	for _, a := range m.cfg.Assignors {
		c.cooperative = c.cooperative && Cooperative(a)
	}
	return c
}

func (c *classic) epoch() int32 { return c.generation }

// mayCommit reports whether a commit would meet no round (G35).
func (c *classic) mayCommit() bool { return c.m.state == Stable || c.m.state == Revoking }

func (c *classic) subscribed(now time.Time) {
	switch c.m.state {
	case Idle:
		c.m.state, c.due, c.retryAt = Joining, true, now
		c.begin("first join")
	case Stable:
		c.rejoin("subscription changed")
	default:
		c.again = "subscription changed"
	}
}

func (c *classic) begin(cause string) {
	c.cause = cause
	c.m.begin(cause)
}

// rejoin begins a round: what has to be given up before JoinGroup is given up
// first.
func (c *classic) rejoin(cause string) {
	c.begin(cause)
	c.due, c.retryAt = true, time.Time{}
	tps := c.m.Owned()
	if c.cooperative {
		tps = slices.DeleteFunc(tps, func(tp kafka.TopicPartition) bool {
			_, wanted := slices.BinarySearch(c.m.topics, tp.Topic)
			return wanted
		})
	}
	if len(tps) > 0 {
		c.m.revoke(tps)
		return
	}
	c.m.state = Joining
}

func (c *classic) onRevoked(time.Time) {
	c.gaveUp = true
	c.m.state = Joining
	c.due, c.retryAt = true, time.Time{}
}

func (c *classic) onLost(code int16) {
	if code == codeUnknownMember {
		c.m.memberID = ""
	}
	c.ownedSince = NoGeneration
}

// next queues what is due.
func (c *classic) next(now time.Time) {
	if c.m.state == Joining && c.due && !now.Before(c.retryAt) && !c.m.commits.flying() {
		c.join()
	}
	if c.m.state.joined() && !c.m.flying(flightHeartbeat) && !now.Before(c.beatAt) {
		c.beat()
	}
}

func (c *classic) deadline() time.Time {
	var d time.Time
	if c.m.state == Joining && c.due {
		d = c.retryAt
	}
	if c.m.state.joined() && !c.m.flying(flightHeartbeat) {
		d = retry.Earlier(d, c.beatAt)
	}
	return d
}

func (c *classic) instance() *string {
	if c.m.cfg.InstanceID == "" {
		return nil
	}
	return &c.m.cfg.InstanceID
}

// join sends JoinGroup.
func (c *classic) join() {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group = c.m.cfg.Group
	req.SessionTimeoutMillis = int32(c.m.cfg.Session / time.Millisecond)
	req.RebalanceTimeoutMillis = int32(c.m.cfg.Rebalance / time.Millisecond)
	req.MemberID = c.m.memberID
	req.InstanceID = c.instance()
	req.ProtocolType = protocolType
	owned := c.m.Owned()
	for _, a := range c.m.cfg.Assignors {
		s := Subscription{
			Topics: c.m.topics, Owned: owned, Generation: c.ownedSince, Rack: c.m.cfg.Rack,
			UserData: stickyData(a, owned, c.ownedSince),
		}
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = a, s.Append(nil)
		req.Protocols = append(req.Protocols, p)
	}
	reason := c.cause
	req.Reason = &reason
	c.due, c.again = false, ""
	c.leader = nil
	c.m.forget(flightHeartbeat)
	c.m.send(&flight{kind: flightJoin}, req, c.m.cfg.Rebalance+syncGrace)
}

// firstBeat is when a member of a cooperative group asks, after a round, whether
// the next one has begun: who gives partitions up joins again as soon as it has,
// and until everybody knows they are read by nobody.
const firstBeat = 100 * time.Millisecond

// pace is how long to wait for the next heartbeat: after a cooperative round as
// long as that is ago, up to the interval.
func (c *classic) pace(now time.Time) time.Duration {
	if !Cooperative(c.assignor) {
		return c.m.cfg.Heartbeat
	}
	return min(max(now.Sub(c.syncedAt), firstBeat), c.m.cfg.Heartbeat)
}

func (c *classic) beat() {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = c.m.cfg.Group, c.generation, c.m.memberID, c.instance()
	c.m.send(&flight{kind: flightHeartbeat}, req, 0)
}

func (c *classic) leave(reason string) {
	if c.m.memberID == "" {
		return
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = c.m.cfg.Group, c.m.memberID
	one := kmsg.NewLeaveGroupRequestMember()
	one.MemberID, one.InstanceID, one.Reason = c.m.memberID, c.instance(), &reason
	req.Members = append(req.Members, one)
	c.m.send(&flight{kind: flightLeave}, req, 0)
	c.m.memberID = ""
}

func (c *classic) onAnswer(now time.Time, f *flight, resp kmsg.Response, code int16, err error) {
	if f.kind == flightHeartbeat {
		c.onHeartbeat(now, f, code, err)
		return
	}
	join, _ := resp.(*kmsg.JoinGroupResponse)
	sync, _ := resp.(*kmsg.SyncGroupResponse)
	switch {
	case join != nil && code == 0:
		c.onJoined(now, join)
	case sync != nil && code == 0:
		c.onSynced(now, sync)
	case join != nil && code == codeMemberIDRequired && join.MemberID != "":
		c.m.memberID = join.MemberID
		c.joinAfter(now, 0)
	default:
		c.refused(now, code, err)
	}
}

// joinAfter sends JoinGroup once more, after a delay.
func (c *classic) joinAfter(now time.Time, after time.Duration) {
	c.m.state, c.due, c.retryAt = Joining, true, now.Add(after)
}

func (c *classic) backoff() time.Duration {
	c.attempts++
	return c.m.cfg.Backoff.Delay(c.attempts, c.m.rng)
}

// refused deals with a failed JoinGroup or SyncGroup.
func (c *classic) refused(now time.Time, code int16, err error) {
	switch {
	case permanent(err):
		c.m.fail(err)
	case err != nil:
		c.m.tell(Event{Kind: Trouble, Err: err})
		c.joinAfter(now, c.backoff())
	case code == codeRebalancing:
		c.joinAfter(now, 0)
	case code == codeIllegalGeneration || code == codeUnknownMember:
		c.lost(now, code)
	case code == codeGroupFull:
		c.m.tell(Event{Kind: Trouble, Err: c.m.memberError(code, nil)})
		c.joinAfter(now, max(c.backoff(), time.Second))
	case c.m.coordinatorMoved(code):
		c.joinAfter(now, c.backoff())
	default:
		c.m.fail(c.m.memberError(code, nil))
	}
}

// lost ends the membership that the coordinator does not know, and joins anew.
func (c *classic) lost(now time.Time, code int16) {
	c.m.lose(code, &LostError{Group: c.m.cfg.Group, Reason: "the coordinator does not count on this member any more", Err: kafka.CodeError(code, nil)})
	c.begin("lost")
	c.joinAfter(now, c.backoff())
}

func (c *classic) onHeartbeat(now time.Time, f *flight, code int16, err error) {
	c.beatAt = now.Add(c.pace(now))
	switch {
	case f.epoch != c.generation:
		return
	case err == nil && (code == 0 || code == codeRebalancing):
		c.attempts = 0
		c.m.confirm(now)
		if code == codeRebalancing && c.m.state == Stable {
			c.rejoin("the group rebalances")
		}
		return
	}
	switch {
	case permanent(err):
		c.m.fail(err)
	case err != nil || c.m.coordinatorMoved(code):
		c.beatAt = now.Add(min(c.backoff(), c.m.cfg.Heartbeat))
	case code == codeIllegalGeneration || code == codeUnknownMember:
		c.lost(now, code)
	default:
		c.m.fail(c.m.memberError(code, nil))
	}
}

// onJoined takes the generation, and the task of the leader.
func (c *classic) onJoined(now time.Time, r *kmsg.JoinGroupResponse) {
	name := ""
	if r.Protocol != nil {
		name = *r.Protocol
	}
	if r.MemberID != "" {
		c.m.memberID = r.MemberID
	}
	if !slices.Contains(c.m.cfg.Assignors, name) || r.ProtocolType != nil && *r.ProtocolType != protocolType {
		err := c.m.memberError(codeInconsistent, nil)
		c.m.proto.leave("the group chose an unknown assignor")
		c.m.fail(fmt.Errorf("%w: the group chose %q", err, name))
		return
	}
	c.m.state, c.generation, c.assignor = Syncing, r.Generation, name
	c.gaveUp = false
	c.m.confirm(now)
	c.beatAt = now.Add(c.m.cfg.Heartbeat)
	c.leader, c.planned, c.skip = nil, nil, r.SkipAssignment
	if r.LeaderID != r.MemberID {
		c.sync(nil)
		return
	}
	c.leader = newRoster(name, r.Members)
	c.m.queue = append(c.m.queue, &WatchCounts{Topics: c.leader.topics})
	if c.skip {
		c.sync(nil)
	}
}

// OnCounts tells the leader of a group how many partitions topics have; those
// that do not exist are 0 or left out. It is called after a [WatchCounts], and
// again when counts change.
func (m *Machine) OnCounts(counts map[string]int32) {
	c, ok := m.proto.(*classic)
	if !ok || c.leader == nil {
		return
	}
	if c.planned != nil {
		c.grew(counts)
		return
	}
	c.planned = make(map[string]int32, len(c.leader.topics))
	for _, t := range c.leader.topics {
		c.planned[t] = max(counts[t], 0)
	}
	if c.skip || m.state != Syncing {
		return
	}
	plan, err := c.leader.plan(layout{c.planned, c.racks})
	m.Dropped.add(c.leader.dropped)
	if err != nil {
		c.leave("the plan is wrong")
		m.fail(err)
		return
	}
	c.sync(plan.sync(c.leader.members))
}

// grew has the group divide again if a topic has more partitions than in the
// plan.
func (c *classic) grew(counts map[string]int32) {
	for _, t := range c.leader.topics {
		if counts[t] <= c.planned[t] {
			continue
		}
		cause := "topic " + t + " grew"
		if c.m.state == Stable {
			c.rejoin(cause)
		} else {
			c.again = cause
		}
		return
	}
}

func (c *classic) sync(plan []kmsg.SyncGroupRequestGroupAssignment) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = c.m.cfg.Group, c.generation, c.m.memberID, c.instance()
	kind, name := protocolType, c.assignor
	req.ProtocolType, req.Protocol = &kind, &name
	req.GroupAssignment = plan
	c.m.send(&flight{kind: flightSync}, req, c.m.cfg.Rebalance+syncGrace)
}

// onSynced takes the assignment.
func (c *classic) onSynced(now time.Time, r *kmsg.SyncGroupResponse) {
	tps, err := ParseAssignment(r.MemberAssignment)
	if err == nil && r.Protocol != nil && *r.Protocol != c.assignor {
		err = fmt.Errorf("ottla: group: the plan is by %q, the group agreed on %q", *r.Protocol, c.assignor)
	}
	if err != nil {
		c.m.tell(Event{Kind: Trouble, Err: err})
		c.joinAfter(now, max(c.backoff(), time.Second))
		return
	}
	c.attempts = 0
	c.ownedSince = c.generation
	c.m.state = Stable
	c.m.confirm(now)
	c.syncedAt = now
	c.beatAt = now.Add(c.pace(now))
	want := c.wanted(tps)
	var gone, added []kafka.TopicPartition
	for _, tp := range c.m.Owned() {
		if _, ok := slices.BinarySearchFunc(want, tp, kafka.TopicPartition.Compare); !ok {
			gone = append(gone, tp)
		}
	}
	for _, tp := range want {
		if !c.m.Owns(tp) {
			added = append(added, tp)
		}
	}
	again := c.again
	if len(gone) > 0 {
		c.begin("partitions move")
		c.m.revoke(gone)
	} else {
		c.m.tell(Event{Kind: Joined})
	}
	c.m.give(nil, added)
	if len(gone) == 0 && again != "" {
		c.rejoin(again)
	}
}

// wanted is an assignment in order, without what was not asked for.
func (c *classic) wanted(tps []kafka.TopicPartition) []kafka.TopicPartition {
	tps = slices.DeleteFunc(tps, func(tp kafka.TopicPartition) bool {
		_, ok := slices.BinarySearch(c.m.topics, tp.Topic)
		return !ok || tp.Partition < 0
	})
	slices.SortFunc(tps, kafka.TopicPartition.Compare)
	return slices.Compact(tps)
}
