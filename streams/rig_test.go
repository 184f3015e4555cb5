package streams

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/memnet"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// world is scripted brokers b1 and b2 and a client in virtual time. Broker 1
// coordinates every group until the test moves it.
type world struct {
	t   *testing.T
	net *memnet.Network
	sim *sim.Cluster
	c   *cluster.Cluster
	co  *coordinator
}

// inWorld runs f in a bubble of its own.
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: memnet.New(1), co: &coordinator{members: map[string]*simMember{}}}
		w.net.SetLatency(100*time.Microsecond, 900*time.Microsecond)
		var ls []net.Listener
		for _, name := range []string{"b1:9092", "b2:9092"} {
			l, err := w.net.Listen(name)
			if err != nil {
				t.Fatal(err)
			}
			ls = append(ls, l)
		}
		w.sim = sim.New(t, ls...)
		w.sim.Update(func(tp *sim.Topology) { tp.Features = map[string]int16{"streams.version": 1} })
		for _, b := range w.sim.Brokers() {
			b.Handle(keyHeartbeat, w.co.handle)
			b.Handle(keyDescribe, w.co.describe)
		}
		w.sim.SetTopic("in", 1, 1)
		w.c = w.connect()
		f(t, w)
	})
}

func (w *world) connect() *cluster.Cluster {
	w.t.Helper()
	c, err := cluster.Connect(w.t.Context(), cluster.Config{Bootstrap: w.sim.Seeds(), Dial: w.net.Dial, Rand: rand.NewPCG(7, 7)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

func oneTopic() Topology {
	return Topology{Subtopologies: []Subtopology{{ID: "0", Sources: []string{"in"}}}}
}

// join makes a member that the test closes.
func (w *world) join(change ...func(*Config)) *Member {
	w.t.Helper()
	m, err := w.tryJoin(w.t.Context(), change...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { m.Close() })
	return m
}

func (w *world) tryJoin(ctx context.Context, change ...func(*Config)) (*Member, error) {
	cfg := Config{Group: "g", Topology: oneTopic()}
	for _, f := range change {
		f(&cfg)
	}
	return Join(ctx, w.c, cfg)
}

// moveTo makes a broker the coordinator of every group.
func (w *world) moveTo(node int32) {
	w.co.mu.Lock()
	w.co.node = node
	w.co.mu.Unlock()
	w.sim.Update(func(tp *sim.Topology) { tp.Coordinators = map[string]int32{"g": node} })
}

// requests are the heartbeats that the brokers accepted, in order.
func (w *world) requests() []*kmsg.StreamsGroupHeartbeatRequest {
	var out []*kmsg.StreamsGroupHeartbeatRequest
	frames := w.sim.Frames()
	slices.SortStableFunc(frames, func(a, b sim.Frame) int { return a.At.Compare(b.At) })
	for _, f := range frames {
		if r, ok := f.Req.(*kmsg.StreamsGroupHeartbeatRequest); ok {
			out = append(out, r)
		}
	}
	return out
}

func (w *world) lastRequest() *kmsg.StreamsGroupHeartbeatRequest {
	w.t.Helper()
	rs := w.requests()
	if len(rs) == 0 {
		w.t.Fatal("no heartbeat came")
	}
	return rs[len(rs)-1]
}

// own runs the owner of a member on a goroutine: it acknowledges each target as
// it comes, after revoke if that is not nil.
func (w *world) own(m Membership, revoke func(Snapshot)) {
	go func() {
		var table TaskTable
		for s, err := range m.Assignments(w.t.Context()) {
			if err != nil {
				return
			}
			if s.Lost {
				table = TaskTable{}
				_ = m.Acknowledge(w.t.Context(), s, Tasks{})
				continue
			}
			if _, err := table.Reconcile(s.Target.Update()); err != nil {
				w.t.Error(err)
				return
			}
			if revoke != nil {
				revoke(s)
			}
			_ = m.Acknowledge(w.t.Context(), s, table.Tasks())
		}
	}()
}

// coordinator answers heartbeats: a script first, then by what it wants members
// to have.
type coordinator struct {
	mu      sync.Mutex
	node    int32 // 0 = any
	script  []func(q *sim.Request, r *kmsg.StreamsGroupHeartbeatRequest) sim.Answer
	members map[string]*simMember
	target  func(member string) Tasks
	epoch   int32
	onDesc  func(q *sim.Request) sim.Answer
	slow    time.Duration // of a describe
}

type simMember struct {
	epoch int32
	told  *Tasks
}

// then adds an answer to the script.
func (c *coordinator) then(fs ...func(q *sim.Request, r *kmsg.StreamsGroupHeartbeatRequest) sim.Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.script = append(c.script, fs...)
}

// fails is n answers with an error code.
func (c *coordinator) fails(code int16, n int) {
	for range n {
		c.then(func(q *sim.Request, _ *kmsg.StreamsGroupHeartbeatRequest) sim.Answer {
			return refusal(q, code, "refused")
		})
	}
}

// drops is an answer that is lost: the coordinator acts, and the connection ends.
func (c *coordinator) drops() {
	c.then(func(q *sim.Request, r *kmsg.StreamsGroupHeartbeatRequest) sim.Answer {
		c.actLocked(q, r)
		return sim.Answer{End: sim.Close}
	})
}

func refusal(q *sim.Request, code int16, text string) sim.Answer {
	resp := q.Response().(*kmsg.StreamsGroupHeartbeatResponse)
	resp.ErrorCode, resp.ErrorMessage = code, &text
	return sim.Reply(resp)
}

// assign says what members shall have, and raises the epoch.
func (c *coordinator) assign(target func(member string) Tasks) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.target = target
	c.epoch++
}

func (c *coordinator) handle(q *sim.Request) sim.Answer {
	r := q.Req.(*kmsg.StreamsGroupHeartbeatRequest)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node != 0 && q.Broker.ID != c.node {
		return refusal(q, 16, "not here")
	}
	if len(c.script) > 0 {
		f := c.script[0]
		c.script = c.script[1:]
		return f(q, r)
	}
	return sim.Reply(c.actLocked(q, r))
}

// actLocked is a coordinator of few words: it hands targets out at once.
func (c *coordinator) actLocked(q *sim.Request, r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
	resp := q.Response().(*kmsg.StreamsGroupHeartbeatResponse)
	resp.MemberID, resp.HeartbeatIntervalMillis = r.MemberID, 5000
	resp.Status = []kmsg.StreamsGroupHeartbeatResponseStatus{}
	resp.AcceptableRecoveryLag, resp.TaskOffsetIntervalMillis = 10000, 60000
	m := c.members[r.MemberID]
	switch {
	case r.MemberEpoch < 0:
		delete(c.members, r.MemberID)
		resp.MemberEpoch, resp.HeartbeatIntervalMillis = r.MemberEpoch, 0
		return resp
	case r.MemberEpoch == 0:
		c.epoch++
		m = &simMember{}
		c.members[r.MemberID] = m
	case m == nil:
		resp.ErrorCode = 25
		return resp
	}
	m.epoch = c.epoch
	resp.MemberEpoch = m.epoch
	var t Tasks
	if c.target != nil {
		t = c.target(r.MemberID).Clone()
	}
	if m.told == nil || !m.told.Equal(t) {
		m.told = &t
		setTarget(resp, t)
	}
	return resp
}

func setTarget(resp *kmsg.StreamsGroupHeartbeatResponse, t Tasks) {
	lists := func(ts []TaskID) []kmsg.TaskIDs {
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
	resp.ActiveTasks, resp.StandbyTasks, resp.WarmupTasks = lists(t.Active), lists(t.Standby), lists(t.Warmup)
}

// describe answers StreamsGroupDescribe.
func (c *coordinator) describe(q *sim.Request) sim.Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.onDesc != nil {
		return c.onDesc(q)
	}
	resp := q.Response().(*kmsg.StreamsGroupDescribeResponse)
	g := kmsg.NewStreamsGroupDescribeResponseGroup()
	g.Group, g.State, g.Epoch = "g", "Stable", c.epoch
	for id, m := range c.members {
		d := kmsg.NewStreamsGroupDescribeResponseGroupMember()
		d.MemberID, d.MemberEpoch = id, m.epoch
		if m.told != nil {
			var lists kmsg.StreamsGroupHeartbeatResponse
			setTarget(&lists, *m.told)
			d.Assignment = kmsg.StreamsAssignment{ActiveTasks: lists.ActiveTasks, StandbyTasks: lists.StandbyTasks, WarmupTasks: lists.WarmupTasks}
		}
		g.Members = append(g.Members, d)
	}
	resp.Groups = append(resp.Groups, g)
	return sim.Answer{Response: resp, Delay: c.slow}
}

// active are tasks named as "0_1".
func active(names ...string) Tasks {
	var out Tasks
	for _, n := range names {
		id, err := ParseTaskID(n)
		if err != nil {
			panic(err)
		}
		out.Active = append(out.Active, id)
	}
	return out
}

func all(names ...string) func(string) Tasks { return func(string) Tasks { return active(names...) } }

// listsOf are the lists that a heartbeat carried; ok is false for nulls.
func listsOf(r *kmsg.StreamsGroupHeartbeatRequest) (string, bool) {
	if r.ActiveTasks == nil {
		return "", false
	}
	var out []string
	for _, l := range [][]kmsg.TaskIDs{r.ActiveTasks, r.StandbyTasks, r.WarmupTasks} {
		for _, e := range l {
			for _, p := range e.Partitions {
				out = append(out, TaskID{Subtopology: e.SubtopologyID, Partition: p}.String())
			}
		}
	}
	return strings.Join(out, " "), true
}

func tp(topic string, p int32) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: topic, Partition: p}
}
