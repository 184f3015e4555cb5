package streams

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// stage is a cluster on which the same scripts run: the in-memory one in virtual
// time, and real Kafka.
type stage struct {
	t      *testing.T
	ctx    context.Context
	k      Kafka
	topic  func(name string, partitions int) // creates a topic
	grow   func(name string, partitions int) // makes it have more partitions
	prefix string                            // of names, so that runs do not meet
	// applied waits until the coordinator goes by settings that it took together with
	// this heartbeat interval; nil where settings hold at once
	applied  func(group string, interval int32)
	interval int32 // of the settings made last, in ms
	minor    int   // of Kafka 4.x
	memory   bool  // the in-memory cluster

	closers []func() // of members, for a stage that ends before its test
}

func (s *stage) name(base string) string { return s.prefix + base }

// source creates a topic under a name of this stage.
func (s *stage) source(base string, partitions int) string {
	s.t.Helper()
	s.topic(s.name(base), partitions)
	return s.name(base)
}

// sets settings of a group, and with them a heartbeat interval that no settings
// before had: who joins is told it as soon as the coordinator goes by them.
func (s *stage) sets(group string, kv ...string) {
	s.t.Helper()
	s.interval = max(s.interval, 200) + 1
	set := map[string]string{"heartbeat.interval.ms": fmt.Sprint(s.interval)}
	for i := 0; i < len(kv); i += 2 {
		set[kv[i]] = kv[i+1]
	}
	if s.minor < 3 {
		delete(set, "assignment.interval.ms")
	}
	if err := SetGroupConfigs(s.ctx, s.k, s.name(group), set); err != nil {
		s.t.Fatal(err)
	}
}

// quick has a group assign at once.
func (s *stage) quick(group string) {
	s.t.Helper()
	s.standing(group, 0)
}

// standing has a group assign at once and keep so many standbys.
func (s *stage) standing(group string, standbys int) {
	s.t.Helper()
	s.sets(group, "initial.rebalance.delay.ms", "0", "assignment.interval.ms", "0", "num.standby.replicas", fmt.Sprint(standbys))
	if s.applied != nil {
		s.applied(group, s.interval)
	}
}

// raw is a member that the test plays request by request.
type raw struct {
	*stage
	group, id, process, instance string
	topology                     Topology
	rebalance                    int32
	change                       func(*kmsg.StreamsGroupHeartbeatRequest) // of every request
}

func (s *stage) member(group, id string, t Topology) *raw {
	return &raw{stage: s, group: s.name(group), id: id, process: "p-" + id, topology: t, rebalance: 30_000}
}

// reading is a stateless topology.
func reading(topics ...string) Topology {
	return Topology{Subtopologies: []Subtopology{{ID: "0", Sources: topics}}}
}

// request is a heartbeat with an epoch.
func (m *raw) request(epoch int32) *kmsg.StreamsGroupHeartbeatRequest {
	m.t.Helper()
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.EndpointInformationEpoch = m.group, m.id, epoch, -1
	if m.minor >= 4 {
		req.Version = 1
	}
	if m.instance != "" {
		req.InstanceID = &m.instance
	}
	if epoch == 0 {
		canon, err := m.topology.Canonical()
		if err != nil {
			m.t.Fatal(err)
		}
		req.Topology, req.ProcessID, req.RebalanceTimeoutMillis = canon.Wire(), &m.process, m.rebalance
		req.ClientTags = []kmsg.StreamsGroupHeartbeatRequestClientTag{}
		m.list(req)
	}
	if m.change != nil {
		m.change(req)
	}
	return req
}

func (m *raw) list(req *kmsg.StreamsGroupHeartbeatRequest, tasks ...string) {
	var lists kmsg.StreamsGroupHeartbeatResponse
	setTarget(&lists, active(tasks...))
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = lists.ActiveTasks, lists.StandbyTasks, lists.WarmupTasks
}

// send sends a request; what a coordinator answers while it loads is waited out.
func (m *raw) send(req *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
	m.t.Helper()
	for {
		resp, err := m.k.RequestCoordinator(m.ctx, m.group, req)
		if err != nil {
			m.t.Fatal(err)
		}
		r := resp.(*kmsg.StreamsGroupHeartbeatResponse)
		if r.ErrorCode != 14 && r.ErrorCode != 15 && r.ErrorCode != 16 {
			return r
		}
		m.k.ForgetCoordinator(m.group)
		time.Sleep(100 * time.Millisecond)
	}
}

// refuses sends a request that has to be answered with a code.
func (m *raw) refuses(code int16, req *kmsg.StreamsGroupHeartbeatRequest, text ...string) {
	m.t.Helper()
	r := m.send(req)
	if r.ErrorCode != code {
		m.t.Fatalf("answered with %d %s, want %d", r.ErrorCode, deref(r.ErrorMessage), code)
	}
	for _, s := range text {
		if !strings.Contains(deref(r.ErrorMessage), s) {
			m.t.Fatalf("the text is %q, want %q in it", deref(r.ErrorMessage), s)
		}
	}
}

// beat sends a heartbeat without lists, ack one with the tasks, join a join.
func (m *raw) beat(epoch int32) *kmsg.StreamsGroupHeartbeatResponse {
	m.t.Helper()
	return m.ok(m.request(epoch))
}

func (m *raw) ack(epoch int32, tasks ...string) *kmsg.StreamsGroupHeartbeatResponse {
	m.t.Helper()
	req := m.request(epoch)
	m.list(req, tasks...)
	return m.ok(req)
}

func (m *raw) join() *kmsg.StreamsGroupHeartbeatResponse {
	m.t.Helper()
	return m.ok(m.request(0))
}

func (m *raw) ok(req *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
	m.t.Helper()
	r := m.send(req)
	if r.ErrorCode != 0 {
		m.t.Fatalf("epoch %d is answered with %d %s", req.MemberEpoch, r.ErrorCode, deref(r.ErrorMessage))
	}
	return r
}

// settle joins and acknowledges until the member holds so many tasks; it gives
// the epoch and the tasks.
func (m *raw) settle(n int) (epoch int32, tasks []string) {
	m.t.Helper()
	r := m.join()
	for range 200 {
		if r.ActiveTasks != nil {
			got, _ := listsOf(&kmsg.StreamsGroupHeartbeatRequest{ActiveTasks: r.ActiveTasks, StandbyTasks: r.StandbyTasks, WarmupTasks: r.WarmupTasks})
			tasks = strings.Fields(got)
			r = m.ack(r.MemberEpoch, tasks...)
			continue
		}
		if len(tasks) == n {
			return r.MemberEpoch, tasks
		}
		time.Sleep(100 * time.Millisecond)
		r = m.beat(r.MemberEpoch)
	}
	m.t.Fatalf("%s holds %v, want %d tasks", m.id, tasks, n)
	return 0, nil
}

// show is an answer in one line: epoch, lists, statuses.
func show(r *kmsg.StreamsGroupHeartbeatResponse) string {
	s := fmt.Sprintf("epoch %d", r.MemberEpoch)
	if r.ActiveTasks != nil {
		var parts []string
		for _, e := range r.ActiveTasks {
			for _, p := range e.Partitions {
				parts = append(parts, TaskID{Subtopology: e.SubtopologyID, Partition: p}.String())
			}
		}
		slices.Sort(parts)
		s += fmt.Sprintf(" L(%s)", strings.Join(parts, ","))
	}
	for _, st := range r.Status {
		s += fmt.Sprintf(" status %d", st.StatusCode)
	}
	return s
}

func (s *stage) want(what string, r *kmsg.StreamsGroupHeartbeatResponse, want string) {
	s.t.Helper()
	if got := show(r); got != want {
		s.t.Fatalf("%s: answered %q, want %q", what, got, want)
	}
}
