package ottlatest

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	core "github.com/ottla/ottla/internal/core/streams"
)

// streamsGroup is one Streams group. Its mutex is that of streams.
type streamsGroup struct {
	id       string
	settings Streams
	counts   func(topic string) int // partitions of a topic, 0 = none
	create   func(topic string, partitions int, configs map[string]string) error

	epoch    int32 // of the group
	assigned int32 // epoch of the target
	topology *kmsg.StreamsGroupHeartbeatRequestTopology
	bytes    []byte // of the topology, to compare
	plan     core.Topology
	members  map[string]*streamsMember
	target   map[string]core.Tasks
	warmups  map[core.TaskID]string

	delayed   time.Time // end of the initial delay
	lastPlan  time.Time // when the target was made
	shape     string    // of topics and settings that the target was made for
	shutdown  string    // the member that asked for it
	endpoints int32     // endpoint information epoch
	extra     []kmsg.StreamsGroupHeartbeatResponseStatus
	described *kmsg.TopologyDescription
}

// streamsMember is one member of a group.
type streamsMember struct {
	id, instance, rack, process, host, client string
	topologyEpoch                             int32
	endpoint                                  *kmsg.StreamsGroupHeartbeatRequestUserEndpoint
	tags                                      []kmsg.StreamsGroupHeartbeatRequestClientTag
	rebalance                                 time.Duration

	epoch, previous int32
	held            core.Tasks // that the coordinator counts as held
	pending         core.Tasks // to be given up
	pendingEpoch    int32      // the target that asked for it
	until           time.Time  // when the acknowledgement is due; zero = none pending
	seen            time.Time  // last heartbeat
	offsets, ends   []kmsg.TaskOffset
}

func newStreamsGroup(id string) *streamsGroup {
	return &streamsGroup{
		id: id, epoch: 1, members: map[string]*streamsMember{}, target: map[string]core.Tasks{}, warmups: map[core.TaskID]string{},
	}
}

func (g *streamsGroup) bump() { g.epoch++ }

// expire removes members whose session ended, or who did not give up what they
// were asked for in time.
func (g *streamsGroup) expire(now time.Time) {
	for _, id := range sortedKeys(g.members) {
		m := g.members[id]
		if now.Sub(m.seen) > g.settings.Session || !m.until.IsZero() && now.After(m.until) {
			g.remove(id)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (g *streamsGroup) remove(id string) {
	m := g.members[id]
	delete(g.members, id)
	delete(g.target, id)
	if m.endpoint != nil {
		g.endpoints++
	}
	g.bump()
	if len(g.members) == 0 {
		g.shutdown, g.delayed = "", time.Time{}
		g.target = map[string]core.Tasks{}
		g.assigned = g.epoch
	}
}

// state is what describe calls the group.
func (g *streamsGroup) state() string {
	switch {
	case len(g.members) == 0:
		return "Empty"
	case len(g.problems(false)) > 0:
		return "NotReady"
	case g.assigned < g.epoch:
		return "Assigning"
	}
	for id, m := range g.members {
		if m.epoch >= 0 && (m.epoch != g.assigned || !m.until.IsZero() || !m.held.Equal(g.target[id])) {
			return "Reconciling"
		}
	}
	return "Stable"
}

// sameTopology compares as brokers do: in the order of everything but the
// subtopologies.
func sameTopology(t *kmsg.StreamsGroupHeartbeatRequestTopology) []byte {
	sorted := *t
	sorted.Epoch = 0
	sorted.Subtopologies = slices.Clone(t.Subtopologies)
	slices.SortFunc(sorted.Subtopologies, func(a, b kmsg.StreamsGroupHeartbeatRequestTopologySubtopology) int {
		return bytes.Compare([]byte(a.SubtopologyID), []byte(b.SubtopologyID))
	})
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Topology = &sorted
	return req.AppendTo(nil)
}

// status is one status of an answer.
func status(code int8, text string) kmsg.StreamsGroupHeartbeatResponseStatus {
	s := kmsg.NewStreamsGroupHeartbeatResponseStatus()
	s.StatusCode, s.StatusDetail = code, text
	return s
}

// settings are the broker's with those of a group; locked.
func (s *streams) settings(id string) Streams {
	out := s.c.cfg.Streams
	c := s.configs[id]
	for name, d := range map[string]*time.Duration{
		"session.timeout.ms": &out.Session, "heartbeat.interval.ms": &out.Heartbeat, "initial.rebalance.delay.ms": &out.InitialDelay,
		"assignment.interval.ms": &out.AssignmentInterval, "task.offset.interval.ms": &out.TaskOffsets,
	} {
		if n, err := strconv.Atoi(c[name]); err == nil {
			*d = time.Duration(n) * time.Millisecond
		}
	}
	if n, err := strconv.Atoi(c["num.standby.replicas"]); err == nil {
		out.Standbys = n
	}
	return out
}
