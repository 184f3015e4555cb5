package streams

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// answer is what a heartbeat's answer says, checked.
type answer struct {
	lists Update // all nil or none
	has   bool   // lists came
}

// reader takes the answers to a member's heartbeats.
type reader struct{ *member }

// read checks the lists of an answer before anything of it is used.
func (m reader) read(active, standby, warmup []kmsg.TaskIDs) (answer, error) {
	a := answer{lists: Update{readTasks(active), readTasks(standby), readTasks(warmup)}}
	given := 0
	for _, l := range (Tasks(a.lists)).lists() {
		if l != nil {
			given++
		}
	}
	if given != 0 && given != roles {
		return answer{}, &ProtocolError{"some task lists are null and some are not"}
	}
	a.has = given > 0
	for _, l := range (Tasks(a.lists)).lists() {
		for _, id := range l {
			if !m.cfg.Topology.has(id.Subtopology) {
				return answer{}, &ProtocolError{fmt.Sprintf("task %v is of no subtopology of this member's topology", id)}
			}
		}
	}
	if err := (Tasks(a.lists)).check(); err != nil {
		return answer{}, &ProtocolError{err.Error()}
	}
	return a, nil
}

// onSuccess applies the answer to a heartbeat that succeeded.
func (m reader) onSuccess(now time.Time, s *sent, resp *kmsg.StreamsGroupHeartbeatResponse) {
	b := &m.beat
	b.failures, b.unknown = 0, 0
	m.counts.LastSuccess = now
	switch s.kind {
	case leaveBeat:
		m.left(now, nil)
		return
	case releaseBeat:
		mender(m).onReleased(now)
		return
	}
	a, err := m.read(resp.ActiveTasks, resp.StandbyTasks, resp.WarmupTasks)
	if err == nil && s.kind == joinBeat && resp.MemberEpoch <= 0 {
		err = &ProtocolError{fmt.Sprintf("the join is answered with epoch %d", resp.MemberEpoch)}
	}
	if err != nil {
		m.join.unanswered = true // the coordinator has the member, whatever it says
		m.log(LevelError, "the coordinator's answer makes no sense", "err", err)
		m.fatal(now, err, mayLeave)
		return
	}
	m.adoptIdentity(resp)
	if resp.HeartbeatIntervalMillis > 0 {
		b.interval = time.Duration(resp.HeartbeatIntervalMillis) * time.Millisecond
	}
	m.offsets.onSent(s.offsets, s.at)
	first := !m.join.joined
	if s.kind == joinBeat {
		m.onJoined(now)
	} else {
		m.book.onSent(s)
	}
	if resp.TopologyDescriptionRequired && m.cfg.Describes {
		m.push.wanted = true
	}
	m.describe.onSuccess(now, a.has, m.rng)
	m.apply(now, a, resp)
	if !m.state.InGroup() {
		return
	}
	if a.has && !s.lists && !m.book.pending {
		m.confirm()
	}
	if first {
		m.queue(&JoinedAction{})
	}
	m.finishCall(s.call, nil)
}

// confirm answers lists that the owner has taken over already: they take back a
// task that only a lost answer gave, and the coordinator waits for lists without it.
func (m reader) confirm() {
	m.book.gen++
	m.book.due, m.state = true, Acknowledging
}

// adoptIdentity takes over how the coordinator knows the member.
func (m reader) adoptIdentity(resp *kmsg.StreamsGroupHeartbeatResponse) {
	if id := resp.MemberID; id != "" && id != m.id.member {
		m.logOnce("member id", LevelWarn, "the coordinator gave the member another id", "was", m.id.member, "is", id)
		m.id.member = id
	}
	if resp.MemberEpoch > 0 {
		m.id.epoch = resp.MemberEpoch
	}
	m.id.endpoint = resp.EndpointInformationEpoch
}

// onJoined is the success of a join; its lists are applied afterwards.
func (m reader) onJoined(now time.Time) {
	m.join = join{joined: true}
	m.book.reset()
	m.state = Stable
	m.watch = watch{touched: now}
	m.describe.uncertain = true // if the lists are missing
	m.log(LevelDebug, "joined", "epoch", int(m.id.epoch))
}

// apply publishes what an answer says.
func (m reader) apply(now time.Time, a answer, resp *kmsg.StreamsGroupHeartbeatResponse) {
	next := m.snap
	next.Lost = false
	next.Epoch = m.id.epoch
	next.Statuses = readStatuses(resp.Status)
	next.Ready = ready(next.Statuses)
	_, next.Shutdown = detail(next.Statuses, ShutdownApplication)
	next.AcceptableRecoveryLag = -1
	if resp.Version >= 1 {
		next.AcceptableRecoveryLag = resp.AcceptableRecoveryLag
	}
	next.TaskOffsetInterval = time.Duration(resp.TaskOffsetIntervalMillis) * time.Millisecond
	if resp.PartitionsByUserEndpoint != nil {
		next.Endpoints = readEndpoints(resp.PartitionsByUserEndpoint)
	}
	m.target(&next, a)
	m.publish(next)
	m.react(now)
}

// target takes lists over into a snapshot.
func (m *member) target(next *Snapshot, a answer) {
	if !a.has {
		return
	}
	t := Tasks(a.lists).Clone()
	fresh := !next.HasTarget || !t.Equal(next.Target)
	next.HasTarget, next.Update = true, a.lists
	if !fresh {
		return
	}
	next.Target = t
	m.book.onTarget(t, m.snap.Version+1)
	m.state = Reconciling
}

// publish makes a snapshot the newest one, if it says anything new.
func (m *member) publish(next Snapshot) {
	if next.same(&m.snap) {
		return
	}
	next.Version = m.snap.Version + 1
	m.snap = next
	m.queue(&PublishAction{Snapshot: next})
}

// react does what statuses ask for.
func (m reader) react(now time.Time) {
	missing := false
	for _, s := range m.snap.Statuses {
		switch s.Code {
		case IncorrectlyPartitionedTopics:
			m.fatal(now, &PartitioningError{Detail: s.Detail}, mayLeave)
			return
		case MissingSourceTopics:
			missing = true
		case MissingInternalTopics, ShutdownApplication, AssignmentDelayed:
		case StaleTopology, MissingClientTags:
			m.logOnce(s.Code.String(), LevelWarn, "status of the group", "status", s.Code.String(), "detail", s.Detail)
		default:
			m.logOnce(fmt.Sprintf("status %d", s.Code), LevelWarn, "unknown status of the group", "status", int(s.Code), "detail", s.Detail)
		}
	}
	switch {
	case !missing:
		m.watch.missing = time.Time{}
	case m.watch.missing.IsZero():
		m.watch.missing = now
	}
}
