package ottlatest

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	core "github.com/ottla/ottla/internal/core/streams"
)

// onDescribe answers StreamsGroupDescribe.
func (s *streams) onDescribe(kreq kmsg.Request) (kmsg.Response, bool) {
	req := kreq.(*kmsg.StreamsGroupDescribeRequest)
	resp := req.ResponseKind().(*kmsg.StreamsGroupDescribeResponse)
	for _, id := range req.Groups {
		g := kmsg.NewStreamsGroupDescribeResponseGroup()
		g.Group = id
		elsewhere := s.elsewhere(id)
		s.mu.Lock()
		switch group := s.group(id); {
		case elsewhere:
			g.ErrorCode = kerr.NotCoordinator.Code
		case group == nil:
			text := "Group " + id + " not found."
			g.ErrorCode, g.ErrorMessage = kerr.GroupIDNotFound.Code, &text
		default:
			group.describe(&g, req)
		}
		s.mu.Unlock()
		resp.Groups = append(resp.Groups, g)
	}
	return resp, true
}

func (g *streamsGroup) describe(out *kmsg.StreamsGroupDescribeResponseGroup, req *kmsg.StreamsGroupDescribeRequest) {
	out.State, out.Epoch, out.AssignmentEpoch = g.state(), g.epoch, g.assigned
	topology := kmsg.NewStreamsGroupDescribeResponseGroupTopology()
	topology.Epoch = g.topology.Epoch
	for _, s := range g.topology.Subtopologies {
		d := kmsg.NewStreamsGroupDescribeResponseGroupTopologySubtopology()
		d.SubtopologyID, d.SourceTopics, d.RepartitionSinkTopics = s.SubtopologyID, s.SourceTopics, s.RepartitionSinkTopics
		d.StateChangelogTopics, d.RepartitionSourceTopics = s.StateChangelogTopics, s.RepartitionSourceTopics
		topology.Subtopologies = append(topology.Subtopologies, d)
	}
	out.Topology = &topology
	if req.Version >= 1 {
		assignor := "sticky"
		out.AssignorName = &assignor
	}
	if req.IncludeTopologyDescription {
		out.TopologyDescriptionStatus = 1
		if d := g.described; d != nil {
			out.TopologyDescriptionStatus = 3
			t := kmsg.NewStreamsGroupDescribeResponseGroupTopologyDescription()
			t.Subtopologies, t.GlobalStores = d.Subtopologies, d.GlobalStores
			out.TopologyDescription = &t
		}
	}
	for _, id := range sortedKeys(g.members) {
		out.Members = append(out.Members, g.members[id].describe(g.target[id]))
	}
}

func (m *streamsMember) describe(target core.Tasks) kmsg.StreamsGroupDescribeResponseGroupMember {
	d := kmsg.NewStreamsGroupDescribeResponseGroupMember()
	d.MemberID, d.MemberEpoch, d.TopologyEpoch, d.ProcessID = m.id, m.epoch, m.topologyEpoch, m.process
	if m.instance != "" {
		d.InstanceID = &m.instance
	}
	if m.rack != "" {
		d.RackID = &m.rack
	}
	d.ClientID, d.ClientHost = m.client, m.host
	if m.endpoint != nil {
		e := kmsg.NewStreamsGroupDescribeResponseGroupMemberUserEndpoint()
		e.Host, e.Port = m.endpoint.Host, m.endpoint.Port
		d.UserEndpoint = &e
	}
	for _, t := range m.tags {
		tag := kmsg.NewStreamsGroupDescribeResponseGroupMemberClientTag()
		tag.Key, tag.Value = t.Key, t.Value
		d.ClientTags = append(d.ClientTags, tag)
	}
	d.TaskOffsets, d.TaskEndOffsets = m.offsets, m.ends
	d.Assignment.ActiveTasks, d.Assignment.StandbyTasks, d.Assignment.WarmupTasks = wireLists(m.held)
	d.TargetAssignment.ActiveTasks, d.TargetAssignment.StandbyTasks, d.TargetAssignment.WarmupTasks = wireLists(target)
	return d
}

// onPush keeps the description of a topology.
func (s *streams) onPush(kreq kmsg.Request) (kmsg.Response, bool) {
	req := kreq.(*kmsg.StreamsGroupTopologyDescriptionUpdateRequest)
	resp := req.ResponseKind().(*kmsg.StreamsGroupTopologyDescriptionUpdateResponse)
	if !s.c.cfg.Streams.Descriptions {
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		return resp, true
	}
	elsewhere := s.elsewhere(req.Group)
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.group(req.Group)
	switch {
	case elsewhere:
		resp.ErrorCode = kerr.NotCoordinator.Code
	case g == nil:
		resp.ErrorCode = kerr.GroupIDNotFound.Code
	case g.members[req.MemberID] == nil:
		resp.ErrorCode = kerr.UnknownMemberID.Code
	case req.TopologyEpoch != g.topology.Epoch:
		resp.ErrorCode = kerr.InvalidRequest.Code
	default:
		g.described = &req.TopologyDescription
	}
	return resp, true
}

// onDeleteGroups forgets Streams groups that are empty; kfake deletes their
// offsets.
func (s *streams) onDeleteGroups(kreq kmsg.Request) (kmsg.Response, bool) {
	req := kreq.(*kmsg.DeleteGroupsRequest)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range req.Groups {
		g := s.group(id)
		if g == nil {
			continue
		}
		if len(g.members) > 0 {
			return refuseDelete(req), true
		}
		delete(s.groups, id)
		s.deleted[id] = true
	}
	return nil, false
}

func refuseDelete(req *kmsg.DeleteGroupsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, id := range req.Groups {
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group, g.ErrorCode = id, kerr.NonEmptyGroup.Code
		resp.Groups = append(resp.Groups, g)
	}
	return resp
}

// onDeleted mends kfake's answer for groups whose only traces were here.
func (s *streams) onDeleted(resp *kmsg.DeleteGroupsResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range resp.Groups {
		if g := &resp.Groups[i]; s.deleted[g.Group] && g.ErrorCode == kerr.GroupIDNotFound.Code {
			g.ErrorCode, g.ErrorMessage = 0, nil
		}
	}
}

// onOffsetCommit judges commits of members of Streams groups, and has kfake store
// those that pass.
func (s *streams) onOffsetCommit(kreq kmsg.Request) (kmsg.Response, bool) {
	req := kreq.(*kmsg.OffsetCommitRequest)
	s.mu.Lock()
	defer s.mu.Unlock()
	code := s.judge(req.Group, req.MemberID, req.Generation)
	if code == notOurs {
		return nil, false
	}
	if code == 0 {
		req.MemberID, req.InstanceID, req.Generation = "", nil, -1
		return nil, false
	}
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, code
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, true
}

// notOurs says that a group is no Streams group with members.
const notOurs int16 = -1000

// judge is the code for a member's epoch in a request about offsets; locked. An
// older epoch is refused whatever the tasks.
func (s *streams) judge(group, member string, epoch int32) int16 {
	g := s.group(group)
	if g == nil || member == "" && epoch < 0 && len(g.members) == 0 {
		return notOurs
	}
	m := g.members[member]
	switch {
	case m == nil:
		return kerr.UnknownMemberID.Code
	case epoch != m.epoch:
		return kerr.StaleMemberEpoch.Code
	}
	return 0
}

// onOffsetFetch judges fetches of members alike; without a member nothing is
// checked.
func (s *streams) onOffsetFetch(kreq kmsg.Request) (kmsg.Response, bool) {
	req := kreq.(*kmsg.OffsetFetchRequest)
	if len(req.Groups) != 1 || text(req.Groups[0].MemberID) == "" {
		return nil, false
	}
	asked := &req.Groups[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	code := s.judge(asked.Group, text(asked.MemberID), asked.MemberEpoch)
	if code == notOurs {
		return nil, false
	}
	if code == 0 {
		asked.MemberID, asked.MemberEpoch = nil, -1
		return nil, false
	}
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	g := kmsg.NewOffsetFetchResponseGroup()
	g.Group, g.ErrorCode = asked.Group, code
	resp.Groups = append(resp.Groups, g)
	return resp, true
}

// groupResource is the resource type of groups; streamsPrefix begins the names of
// the settings of Streams groups.
const (
	groupResource kmsg.ConfigResourceType = 32
	streamsPrefix                         = "streams."
)

// onAlterConfigs takes settings of Streams groups.
func (s *streams) onAlterConfigs(kreq kmsg.Request) (kmsg.Response, bool) {
	req := kreq.(*kmsg.IncrementalAlterConfigsRequest)
	for _, r := range req.Resources {
		if r.ResourceType != groupResource {
			return nil, false
		}
		for _, c := range r.Configs {
			if !strings.HasPrefix(c.Name, streamsPrefix) {
				return nil, false
			}
		}
	}
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range req.Resources {
		if s.configs[r.ResourceName] == nil {
			s.configs[r.ResourceName] = map[string]string{}
		}
		for _, c := range r.Configs {
			name := strings.TrimPrefix(c.Name, streamsPrefix)
			delete(s.configs[r.ResourceName], name)
			if c.Op == kmsg.IncrementalAlterConfigOpSet {
				s.configs[r.ResourceName][name] = text(c.Value)
			}
		}
		a := kmsg.NewIncrementalAlterConfigsResponseResource()
		a.ResourceType, a.ResourceName = r.ResourceType, r.ResourceName
		resp.Resources = append(resp.Resources, a)
	}
	return resp, true
}

// onDescribeConfigs shows settings of Streams groups: those that were set.
func (s *streams) onDescribeConfigs(kreq kmsg.Request) (kmsg.Response, bool) {
	req := kreq.(*kmsg.DescribeConfigsRequest)
	for _, r := range req.Resources {
		if r.ResourceType != groupResource {
			return nil, false
		}
	}
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range req.Resources {
		a := kmsg.NewDescribeConfigsResponseResource()
		a.ResourceType, a.ResourceName = r.ResourceType, r.ResourceName
		for _, name := range sortedKeys(s.configs[r.ResourceName]) {
			c := kmsg.NewDescribeConfigsResponseResourceConfig()
			value := s.configs[r.ResourceName][name]
			c.Name, c.Value, c.Source = streamsPrefix+name, &value, 8
			a.Configs = append(a.Configs, c)
		}
		resp.Resources = append(resp.Resources, a)
	}
	return resp, true
}
