package ottlatest

import (
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	core "github.com/ottla/ottla/internal/core/streams"
	"github.com/ottla/ottla/kafka"
)

// Streams says how the coordinator of Streams groups behaves (KIP-1071). The
// zero value is a broker of Kafka 4.4 with its defaults. Each setting of a group
// (IncrementalAlterConfigs, resource type 32, prefix "streams.") goes before the
// one here.
type Streams struct {
	Off    bool // the feature streams.version is not finalized
	Legacy bool // as Kafka 4.2: version 0 of the APIs, no static members, no task offsets

	Session            time.Duration // group.streams.session.timeout.ms; 0 = 45 s
	Heartbeat          time.Duration // group.streams.heartbeat.interval.ms; 0 = 5 s
	InitialDelay       time.Duration // group.streams.initial.rebalance.delay.ms; 0 = 3 s, negative = none
	AssignmentInterval time.Duration // group.streams.assignment.interval.ms; 0 = 1 s, negative = none; Legacy has none
	TaskOffsets        time.Duration // group.streams.task.offset.interval.ms; 0 = 60 s
	RecoveryLag        int64         // group.streams.acceptable.recovery.lag; 0 = 10,000
	Standbys           int           // group.streams.num.standby.replicas
	MaxSize            int           // group.streams.max.size; 0 = unlimited
	Descriptions       bool          // descriptions of topologies are kept (KIP-1331)
}

func (s Streams) withDefaults() Streams {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&s.Session, 45 * time.Second}, {&s.Heartbeat, 5 * time.Second}, {&s.InitialDelay, 3 * time.Second},
		{&s.AssignmentInterval, time.Second}, {&s.TaskOffsets, 60 * time.Second},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
		*d.v = max(*d.v, 0)
	}
	if s.RecoveryLag == 0 {
		s.RecoveryLag = 10_000
	}
	if s.Legacy {
		s.AssignmentInterval = 0
	}
	return s
}

// streams coordinates the Streams groups of a cluster: whatever broker is asked,
// the groups are the same, so that they outlive a move of their coordinator.
type streams struct {
	c *Cluster

	mu      sync.Mutex
	groups  map[string]*streamsGroup
	configs map[string]map[string]string // of groups, without prefix
	deleted map[string]bool              // groups that were deleted, of whose offsets kfake is asked
	clients map[string]string            // client ids by member id
	faults  []*streamsFault
}

// streamsFault is a Fail of one of the APIs that kfake does not have.
type streamsFault struct {
	key, code int16

	mu                 sync.Mutex
	after, times, hits int // guarded by mu
}

// strikes reports whether the next request fails.
func (f *streamsFault) strikes() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.after > 0:
		f.after--
		return false
	case f.times == 0:
		return false
	}
	f.times--
	f.hits++
	return true
}

func isStreamsKey(key int16) bool {
	return key == keyStreamsHeartbeat || key == keyStreamsDescribe || key == keyStreamsPush
}

const (
	keyStreamsHeartbeat int16 = 88
	keyStreamsDescribe  int16 = 89
	keyStreamsPush      int16 = 93
)

// newStreams adds the coordinator to kfake, by the hooks that see requests before
// kfake does.
func newStreams(c *Cluster) *streams {
	s := &streams{c: c, groups: map[string]*streamsGroup{}, configs: map[string]map[string]string{}, deleted: map[string]bool{}, clients: map[string]string{}}
	for key, f := range map[int16]func(kmsg.Request) (kmsg.Response, bool){
		keyStreamsHeartbeat: s.onHeartbeat, keyStreamsDescribe: s.onDescribe, keyStreamsPush: s.onPush,
		8: s.onOffsetCommit, 9: s.onOffsetFetch, 32: s.onDescribeConfigs, 42: s.onDeleteGroups, 44: s.onAlterConfigs,
	} {
		c.kfake.ControlKey(key, func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive // kfake's form
			c.kfake.KeepControl()
			if code := s.fault(key); code != 0 {
				return refuseStreams(req, code), nil, true
			}
			resp, handled := f(req)
			return resp, nil, handled
		})
	}
	return s
}

// count is how many partitions a topic has, 0 if there is none.
func (s *streams) count(topic string) int {
	if !s.c.begin() {
		return 0
	}
	defer s.c.ops.Done()
	return len(s.c.kfake.PartitionInfos(topic))
}

// create creates an internal topic.
func (s *streams) create(topic string, partitions int, configs map[string]string) error {
	if !s.c.begin() {
		return ErrClosed
	}
	err := s.c.kfake.CreateTopic(topic, int32(partitions), configs)
	s.c.ops.Done()
	if err == nil {
		placer{s.c}.place(topic, 0)
	}
	return err
}

// sees notes whose client a member is: the hooks are not told.
func (s *streams) sees(req *kmsg.StreamsGroupHeartbeatRequest, client string) {
	if req.MemberEpoch == 0 {
		s.mu.Lock()
		s.clients[req.MemberID] = client
		s.mu.Unlock()
	}
}

// fault is the code that an installed fault answers with, 0 for none.
func (s *streams) fault(key int16) int16 {
	if !isStreamsKey(key) {
		return 0 // kfake's own
	}
	s.mu.Lock()
	faults := slices.Clone(s.faults)
	s.mu.Unlock()
	for _, f := range faults {
		if f.key == key && f.strikes() {
			return f.code
		}
	}
	return 0
}

func (s *streams) fail(key, code int16, times, after int) *streamsFault {
	if times == 0 {
		times = 1
	}
	f := &streamsFault{key: key, code: code, times: times, after: after}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
	return f
}

// refuseStreams answers with a code.
func refuseStreams(req kmsg.Request, code int16) kmsg.Response {
	resp := req.ResponseKind()
	switch r := resp.(type) {
	case *kmsg.StreamsGroupHeartbeatResponse:
		r.ErrorCode = code
	case *kmsg.StreamsGroupDescribeResponse:
		for _, id := range req.(*kmsg.StreamsGroupDescribeRequest).Groups {
			g := kmsg.NewStreamsGroupDescribeResponseGroup()
			g.Group, g.ErrorCode = id, code
			r.Groups = append(r.Groups, g)
		}
	case *kmsg.StreamsGroupTopologyDescriptionUpdateResponse:
		r.ErrorCode = code
	}
	return resp
}

// elsewhere reports whether another broker coordinates a group.
func (s *streams) elsewhere(group string) bool {
	return s.c.kfake.CoordinatorFor(group) != s.c.kfake.CurrentNode()
}

// group is a group by its id; locked.
func (s *streams) group(id string) *streamsGroup {
	g := s.groups[id]
	if g == nil {
		return nil
	}
	g.settings = s.settings(id)
	g.expire(time.Now())
	return g
}

// offer adds what kfake does not know to an answer to ApiVersions.
func (s *streams) offer(resp *kmsg.ApiVersionsResponse) {
	if len(resp.ApiKeys) < 10 { // the answer to a version that is too new
		return
	}
	resp.ApiKeys = slices.DeleteFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return isStreamsKey(k.ApiKey) })
	add := func(key, high int16) {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MaxVersion = key, high
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	add(keyStreamsHeartbeat, s.maxVersion())
	add(keyStreamsDescribe, s.maxVersion())
	if !s.c.cfg.Streams.Legacy {
		add(keyStreamsPush, 0)
	}
	const feature = "streams.version"
	resp.FinalizedFeatures = slices.DeleteFunc(resp.FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool { return f.Name == feature })
	if !s.c.cfg.Streams.Off {
		f := kmsg.NewApiVersionsResponseFinalizedFeature()
		f.Name, f.MaxVersionLevel, f.MinVersionLevel = feature, 1, 1
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, f)
	}
}

func (s *streams) maxVersion() int16 {
	if s.c.cfg.Streams.Legacy {
		return 0
	}
	return 1
}

// StreamsStatus has every answer of a Streams group carry a status with a text,
// such as 1 (MISSING_SOURCE_TOPICS), beside those that its state gives it. An
// empty text takes it away again.
func (c *Cluster) StreamsStatus(group string, code int8, text string) {
	c.streams.mu.Lock()
	defer c.streams.mu.Unlock()
	g := c.streams.groups[group]
	if g == nil {
		return
	}
	g.extra = slices.DeleteFunc(g.extra, func(s kmsg.StreamsGroupHeartbeatResponseStatus) bool { return s.StatusCode == code })
	if text != "" {
		g.extra = append(g.extra, status(code, text))
	}
}

// WarmUp has a member of a Streams group hold a task as a warm-up, from the next
// assignment on, if its process holds it in no other role; an empty member ends
// that. No broker up to Kafka 4.4 assigns warm-ups by itself.
func (c *Cluster) WarmUp(group, task, member string) error {
	id, err := core.ParseTaskID(task)
	if err != nil {
		return err
	}
	c.streams.mu.Lock()
	defer c.streams.mu.Unlock()
	if g := c.streams.groups[group]; g != nil {
		delete(g.warmups, id)
		if member != "" {
			g.warmups[id] = member
		}
		g.bump()
	}
	return nil
}

// list puts the Streams groups of a broker into its answer to ListGroups.
func (s *streams) list(node kafka.NodeID, resp *kmsg.ListGroupsResponse) {
	s.mu.Lock()
	ids := make([]string, 0, len(s.groups))
	states := map[string]string{}
	for id := range s.groups {
		ids, states[id] = append(ids, id), s.group(id).state()
	}
	s.mu.Unlock()
	resp.Groups = slices.DeleteFunc(resp.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return states[g.Group] != "" })
	slices.Sort(ids)
	for _, id := range ids {
		if s.c.Coordinator(id) != node {
			continue
		}
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupState, g.GroupType = id, "streams", states[id], "streams"
		resp.Groups = append(resp.Groups, g)
	}
}
