package ottlatest

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	core "github.com/ottla/ottla/internal/core/streams"
)

// beatError is a heartbeat that is refused.
type beatError struct {
	err  *kerr.Error
	text string
}

func refused(err *kerr.Error, text string) *beatError { return &beatError{err, text} }

// onHeartbeat answers StreamsGroupHeartbeat.
func (s *streams) onHeartbeat(kreq kmsg.Request) (kmsg.Response, bool) {
	req := kreq.(*kmsg.StreamsGroupHeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.StreamsGroupHeartbeatResponse)
	resp.AcceptableRecoveryLagLegacy = 0
	if s.c.cfg.Streams.Off {
		return refuseStreams(req, kerr.UnsupportedVersion.Code), true
	}
	if s.elsewhere(req.Group) {
		return refuseStreams(req, kerr.NotCoordinator.Code), true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.beat(req, resp); err != nil {
		resp.ErrorCode = err.err.Code
		resp.ErrorMessage = &err.text
	}
	return resp, true
}

// beat handles a heartbeat; locked.
func (s *streams) beat(req *kmsg.StreamsGroupHeartbeatRequest, resp *kmsg.StreamsGroupHeartbeatResponse) *beatError {
	if err := checkBeat(req, s.c.cfg.Streams.Legacy); err != nil {
		return err
	}
	g := s.group(req.Group)
	if g == nil {
		if req.MemberEpoch != 0 {
			return refused(kerr.GroupIDNotFound, "Streams group "+req.Group+" not found.")
		}
		g = newStreamsGroup(req.Group)
		g.settings = s.settings(req.Group)
		g.counts, g.create = s.count, s.create
	}
	now := time.Now()
	if req.ShutdownApplication && g.shutdown == "" {
		g.shutdown = req.MemberID
	}
	if req.MemberEpoch < 0 {
		return g.leave(req, resp)
	}
	m, told, err := g.admit(now, req)
	if err != nil {
		return err
	}
	s.groups[req.Group] = g // a join that is refused makes no group
	delete(s.deleted, req.Group)
	m.client, m.host = s.clients[m.id], "/127.0.0.1"
	g.answer(now, m, told, req, resp)
	return nil
}

// checkBeat refuses what makes no sense whatever the group.
func checkBeat(req *kmsg.StreamsGroupHeartbeatRequest, legacy bool) *beatError {
	given := 0
	for _, l := range [][]kmsg.TaskIDs{req.ActiveTasks, req.StandbyTasks, req.WarmupTasks} {
		if l != nil {
			given++
		}
	}
	empty := len(req.ActiveTasks)+len(req.StandbyTasks)+len(req.WarmupTasks) == 0
	bad := ""
	switch {
	case strings.TrimSpace(req.Group) == "":
		bad = "GroupId can't be empty."
	case strings.TrimSpace(req.MemberID) == "":
		bad = "MemberId can't be empty."
	case req.InstanceID != nil && strings.TrimSpace(*req.InstanceID) == "":
		bad = "InstanceId can't be empty."
	case req.InstanceID != nil && legacy:
		bad = "Static membership is not yet supported."
	case legacy && (req.TaskOffsets != nil || req.TaskEndOffsets != nil):
		bad = "TaskOffsets are not supported yet."
	case legacy && len(req.WarmupTasks) > 0:
		bad = "WarmupTasks are not supported yet."
	case req.MemberEpoch < -2, req.MemberEpoch == -2 && req.InstanceID == nil:
		bad = "MemberEpoch is invalid."
	case given != 0 && given != 3:
		bad = "Task lists must be all null or all set."
	case req.MemberEpoch == 0 && (given != 3 || !empty):
		bad = "ActiveTasks, StandbyTasks and WarmupTasks must be empty when (re-)joining."
	case req.MemberEpoch == 0 && req.Topology == nil, req.MemberEpoch != 0 && req.Topology != nil:
		bad = "Topology must be set when (re-)joining, and only then."
	case req.MemberEpoch == 0 && req.RebalanceTimeoutMillis == -1:
		bad = "RebalanceTimeoutMs must be provided in first request."
	}
	if bad != "" {
		return refused(kerr.InvalidRequest, bad)
	}
	return nil
}

// leave removes a member, or keeps its place for a while.
func (g *streamsGroup) leave(req *kmsg.StreamsGroupHeartbeatRequest, resp *kmsg.StreamsGroupHeartbeatResponse) *beatError {
	m := g.members[req.MemberID]
	if req.InstanceID != nil {
		holder := g.holder(*req.InstanceID)
		switch {
		case holder == nil:
			return refused(kerr.UnknownMemberID, "Instance "+*req.InstanceID+" is unknown.")
		case holder.id != req.MemberID:
			return refused(kerr.FencedInstanceID, "Instance "+*req.InstanceID+" belongs to another member.")
		}
		m = holder
	}
	if m == nil {
		return refused(kerr.UnknownMemberID, "Member "+req.MemberID+" is not a member of group "+g.id+".")
	}
	if req.MemberEpoch == -2 {
		m.previous, m.epoch = m.epoch, -2
	} else {
		g.remove(m.id)
	}
	resp.MemberID, resp.MemberEpoch = req.MemberID, req.MemberEpoch
	return nil
}

func (g *streamsGroup) holder(instance string) *streamsMember {
	for _, m := range g.members {
		if m.instance == instance {
			return m
		}
	}
	return nil
}

// admit finds or makes the member of a heartbeat. told says that the answer has
// to hold lists.
func (g *streamsGroup) admit(now time.Time, req *kmsg.StreamsGroupHeartbeatRequest) (m *streamsMember, told bool, err *beatError) {
	if req.MemberEpoch == 0 {
		m, err = g.joined(now, req)
		return m, true, err
	}
	m = g.members[req.MemberID]
	switch {
	case m == nil:
		return nil, false, refused(kerr.UnknownMemberID, "Member "+req.MemberID+" is not a member of group "+g.id+".")
	case req.InstanceID != nil && m.instance != *req.InstanceID:
		return nil, false, refused(kerr.FencedInstanceID, "Instance "+*req.InstanceID+" belongs to another member.")
	case req.MemberEpoch > m.epoch, req.MemberEpoch < m.epoch && !(req.MemberEpoch == m.previous && within(req, m.held)):
		return nil, false, refused(kerr.FencedMemberEpoch, "The streams group member has a different member epoch.")
	}
	m.seen = now
	if req.TaskOffsets != nil {
		m.offsets = req.TaskOffsets
	}
	if req.TaskEndOffsets != nil {
		m.ends = req.TaskEndOffsets
	}
	return m, false, nil
}

// lists are the owned tasks of a heartbeat; ok is false for nulls.
func lists(req *kmsg.StreamsGroupHeartbeatRequest) (t core.Tasks, ok bool) {
	if req.ActiveTasks == nil {
		return core.Tasks{}, false
	}
	a := kmsg.StreamsAssignment{ActiveTasks: req.ActiveTasks, StandbyTasks: req.StandbyTasks, WarmupTasks: req.WarmupTasks}
	return core.ReadAssignment(&a), true
}

// within reports whether a heartbeat lists nothing but what its member holds.
func within(req *kmsg.StreamsGroupHeartbeatRequest, held core.Tasks) bool {
	t, ok := lists(req)
	return ok && minus(t, held).IsEmpty()
}

// joined is a member that joins, joins again, or takes a static one's place.
func (g *streamsGroup) joined(now time.Time, req *kmsg.StreamsGroupHeartbeatRequest) (*streamsMember, *beatError) {
	if err := g.takeTopology(req.Topology); err != nil {
		return nil, err
	}
	m := g.members[req.MemberID]
	if req.InstanceID != nil {
		if h := g.holder(*req.InstanceID); h != nil {
			if h.epoch != -2 {
				return nil, refused(kerr.UnreleasedInstanceID, "Static member "+h.id+" with instance id "+*req.InstanceID+" cannot join again before it left.")
			}
			m = g.takeOver(h, req.MemberID)
		}
	}
	if m == nil {
		if g.settings.MaxSize > 0 && len(g.members) >= g.settings.MaxSize {
			return nil, refused(kerr.GroupMaxSizeReached, "The streams group has reached its maximum capacity.")
		}
		if len(g.members) == 0 {
			g.delayed = now.Add(g.settings.InitialDelay)
		}
		m = &streamsMember{id: req.MemberID}
		g.members[m.id] = m
		g.bump()
		m.epoch = max(1, g.assigned)
	}
	m.seen, m.topologyEpoch = now, req.Topology.Epoch
	m.rebalance = time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond
	m.instance, m.rack = text(req.InstanceID), text(req.RackID)
	if p := text(req.ProcessID); p != m.process {
		m.process = p
	}
	m.endpoint, m.tags, m.offsets, m.ends = req.UserEndpoint, req.ClientTags, req.TaskOffsets, req.TaskEndOffsets
	return m, nil
}

// takeOver gives the place of a static member that left for a while to another
// member id.
func (g *streamsGroup) takeOver(h *streamsMember, id string) *streamsMember {
	delete(g.members, h.id)
	g.target[id] = g.target[h.id]
	if h.id != id {
		delete(g.target, h.id)
	}
	h.id, h.epoch = id, h.previous
	g.members[id] = h
	return h
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// takeTopology stores the topology of the first joiner and compares the others'.
func (g *streamsGroup) takeTopology(t *kmsg.StreamsGroupHeartbeatRequestTopology) *beatError {
	for _, s := range t.Subtopologies {
		if len(s.SourceTopicRegex) > 0 {
			return refused(kerr.InvalidRequest, "Regular expressions for source topics are not supported yet.")
		}
		if len(s.SourceTopics)+len(s.RepartitionSourceTopics) == 0 {
			return refused(streamsInvalidTopology, "Subtopology "+s.SubtopologyID+" has no source topics.")
		}
	}
	b := sameTopology(t)
	switch {
	case g.topology == nil:
		g.topology, g.bytes, g.plan = t, b, core.ReadTopology(t)
	case t.Epoch < g.topology.Epoch:
	case t.Epoch > g.topology.Epoch || string(b) != string(g.bytes):
		return refused(kerr.InvalidRequest, "Topology updates are not supported yet.")
	}
	return nil
}

// streamsInvalidTopology is the code of a topology that no group can have.
var streamsInvalidTopology = &kerr.Error{Message: "STREAMS_INVALID_TOPOLOGY", Code: 130}

// answer fills the answer to a member.
func (g *streamsGroup) answer(now time.Time, m *streamsMember, told bool, req *kmsg.StreamsGroupHeartbeatRequest, resp *kmsg.StreamsGroupHeartbeatResponse) {
	resp.Status = append([]kmsg.StreamsGroupHeartbeatResponseStatus{}, g.problems(true)...)
	g.replan(now, len(resp.Status) > 0)
	if g.assigned < g.epoch && len(resp.Status) == 0 {
		resp.Status = append(resp.Status, status(5, g.delayText(now)))
	}
	if m.topologyEpoch < g.topology.Epoch {
		resp.Status = append(resp.Status, status(0, "The member's topology epoch is behind the group's."))
	}
	if g.shutdown != "" {
		resp.Status = append(resp.Status, status(4, "Streams group member "+g.shutdown+" encountered a fatal error and requested a shutdown for the entire application."))
	}
	resp.Status = append(resp.Status, g.extra...)
	owned, given := lists(req)
	if g.reconcile(now, m, owned, given) || told {
		resp.ActiveTasks, resp.StandbyTasks, resp.WarmupTasks = wireLists(m.held)
	}
	resp.MemberID, resp.MemberEpoch = m.id, m.epoch
	resp.HeartbeatIntervalMillis = int32(g.settings.Heartbeat.Milliseconds())
	resp.AcceptableRecoveryLag = g.settings.RecoveryLag
	if !g.settings.Legacy {
		resp.TaskOffsetIntervalMillis = int32(g.settings.TaskOffsets.Milliseconds())
	}
	resp.TopologyDescriptionRequired = g.settings.Descriptions && g.described == nil
	resp.EndpointInformationEpoch = g.endpoints
	if req.EndpointInformationEpoch != g.endpoints {
		resp.PartitionsByUserEndpoint = g.endpointData()
	}
}

func (g *streamsGroup) delayText(now time.Time) string {
	if now.Before(g.delayed) {
		return "Assignment delayed due to the configured initial rebalance delay."
	}
	return "Assignment delayed due to the configured assignment interval."
}

func wireLists(t core.Tasks) (active, standby, warmup []kmsg.TaskIDs) {
	return wireTasks(t.Active), wireTasks(t.Standby), wireTasks(t.Warmup)
}

func wireTasks(ts []core.TaskID) []kmsg.TaskIDs {
	out := []kmsg.TaskIDs{}
	for _, id := range ts {
		if n := len(out); n == 0 || out[n-1].SubtopologyID != id.Subtopology {
			e := kmsg.NewTaskIDs()
			e.SubtopologyID = id.Subtopology
			out = append(out, e)
		}
		out[len(out)-1].Partitions = append(out[len(out)-1].Partitions, id.Partition)
	}
	return out
}

// endpointData is what each member with an endpoint reads.
func (g *streamsGroup) endpointData() []kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpoint {
	out := []kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpoint{}
	for _, id := range sortedKeys(g.members) {
		m := g.members[id]
		if m.endpoint == nil {
			continue
		}
		e := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpoint()
		e.UserEndpoint.Host, e.UserEndpoint.Port = m.endpoint.Host, m.endpoint.Port
		for _, task := range m.held.Active {
			for _, tp := range g.plan.Partitions(task, func(t string) int32 { return int32(g.counts(t)) }) {
				p := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpointActivePartition()
				p.Topic, p.Partitions = tp.Topic, []int32{tp.Partition}
				e.ActivePartitions = append(e.ActivePartitions, p)
			}
		}
		for _, task := range m.held.Standby {
			for _, tp := range g.plan.Partitions(task, func(t string) int32 { return int32(g.counts(t)) }) {
				p := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpointStandbyPartition()
				p.Topic, p.Partitions = tp.Topic, []int32{tp.Partition}
				e.StandbyPartitions = append(e.StandbyPartitions, p)
			}
		}
		out = append(out, e)
	}
	return out
}
