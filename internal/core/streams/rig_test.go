package streams

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
)

// rig drives a machine by hand: look-ups are answered at once, the rest by the
// test. After every step it checks what has to hold at any time.
type rig struct {
	t       testing.TB
	m       *Machine
	now     time.Time
	version int16 // of the coordinator

	out      *SendAction // in flight
	describe *DescribeAction
	push     *PushAction
	sent     []*kmsg.StreamsGroupHeartbeatRequest
	snaps    []Snapshot
	logs     []string
	retries  []*RetryAction
	done     map[uint64]error
	lookups  int
	forgets  int
	joined   bool
	failed   error
	ended    bool
	endErr   error
	noAnswer bool // look-ups are not answered
	looking  uint64
	lost     bool // a loss was published that no join followed
	lines    []string
}

var testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func testTopology() Topology {
	return Topology{Subtopologies: []Subtopology{{ID: "0", Sources: []string{"in"}}, {ID: "1", Sources: []string{"in2"}}}}
}

func testConfig() Config {
	return Config{
		Group: "g", MemberID: "m1", ProcessID: "p1", Topology: testTopology(), RebalanceTimeout: 5 * time.Minute,
		MissingSources: 5 * time.Minute, SessionTimeout: 45 * time.Second, MaxRetries: 5,
		Backoff: retry.Backoff{Base: 50 * time.Millisecond, Cap: time.Second},
	}
}

func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	r := newIdleRig(t, change)
	r.start()
	return r
}

func (r *rig) start() {
	r.t.Helper()
	r.m.OnStart(r.now)
	r.step()
}

// newIdleRig is a rig that has not begun.
func newIdleRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	cfg := testConfig()
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	var err error
	if cfg.Topology, err = cfg.Topology.Canonical(); err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, m: New(cfg, rand.New(rand.NewPCG(1, 2))), now: testStart, version: 1, done: map[uint64]error{}}
}

// step carries out what the machine asks for.
func (r *rig) step() {
	r.t.Helper()
	for i := 0; ; i++ {
		if i > 1000 {
			r.t.Fatal("the machine does not come to rest")
		}
		a, ok := r.m.Next(r.now)
		if !ok {
			break
		}
		r.take(a)
	}
	r.check()
}

func (r *rig) say(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *rig) take(a Action) {
	r.t.Helper()
	switch a := a.(type) {
	case *LookupAction:
		r.lookups++
		if a.Forget {
			r.forgets++
			r.say("forget the coordinator")
		}
		r.looking = a.ID
		if !r.noAnswer {
			r.m.OnVersion(r.now, a.ID, r.version)
		}
	case *SendAction:
		if r.out != nil && a.Req.MemberEpoch >= 0 {
			r.t.Fatalf("two heartbeats in flight")
		}
		r.checkRequest(a.Req)
		r.out, r.sent = a, append(r.sent, a.Req)
		r.say("send %s", showRequest(a.Req))
	case *DescribeAction:
		r.describe = a
		r.say("describe %s", a.Member)
	case *PushAction:
		r.push = a
		r.say("push topology epoch %d", a.Epoch)
	case *PublishAction:
		r.snaps = append(r.snaps, a.Snapshot)
		r.lost = a.Snapshot.Lost
		r.say("publish %s", showSnapshot(a.Snapshot))
	case *JoinedAction:
		r.joined = true
		r.say("joined")
	case *DoneAction:
		r.done[a.Call] = a.Err
		r.say("done %d %v", a.Call, a.Err)
	case *RetryAction:
		r.retries = append(r.retries, a)
		r.say("retry %s %d after %v", a.What, a.Attempt, a.After)
	case *LogAction:
		line := [...]string{"DEBUG", "INFO", "WARN", "ERROR"}[a.Level] + " " + a.Text
		for i := 4; i < len(a.Attrs); i += 2 {
			line += fmt.Sprintf(" %v=%v", a.Attrs[i], a.Attrs[i+1])
		}
		r.logs = append(r.logs, line)
		r.say("log %s", line)
	case *FailedAction:
		r.failed = a.Err
		r.say("failed %v", a.Err)
	case *EndAction:
		r.ended, r.endErr = true, a.Err
		r.say("end %v", a.Err)
	default:
		r.t.Fatalf("unknown action %T", a)
	}
}

// checkRequest holds what every heartbeat has to obey.
func (r *rig) checkRequest(q *kmsg.StreamsGroupHeartbeatRequest) {
	r.t.Helper()
	given := 0
	for _, l := range [][]kmsg.TaskIDs{q.ActiveTasks, q.StandbyTasks, q.WarmupTasks} {
		if l != nil {
			given++
		}
	}
	if given != 0 && given != 3 {
		r.t.Fatalf("%d of three lists: %s", given, showRequest(q))
	}
	if q.MemberEpoch == 0 != (q.Topology != nil) || q.MemberEpoch == 0 && q.RebalanceTimeoutMillis <= 0 || q.MemberEpoch != 0 && q.RebalanceTimeoutMillis != -1 {
		r.t.Fatalf("topology or time-out do not go with the epoch: %s", showRequest(q))
	}
	if q.Version == 0 && (q.TaskOffsets != nil || q.TaskEndOffsets != nil || q.InstanceID != nil || len(q.WarmupTasks) > 0) {
		r.t.Fatalf("a broker of version 0 refuses this: %s", showRequest(q))
	}
	if q.MemberEpoch < 0 && (given != 0 || q.TaskOffsets != nil || q.ProcessID != nil) {
		r.t.Fatalf("a leave carries more than it may: %s", showRequest(q))
	}
	if q.MemberEpoch == -1 && r.m.state != Leaving && r.m.state != Failed {
		r.t.Fatalf("a leave in state %v", r.m.state)
	}
}

// check holds the machine's invariants.
func (r *rig) check() {
	r.t.Helper()
	m := r.m
	if m.id.epoch < 0 {
		r.t.Fatalf("a negative epoch is stored: %d", m.id.epoch)
	}
	if _, ok := m.Metadata(); ok && r.lost {
		r.t.Fatal("there is an epoch to commit with after a loss")
	}
	if m.state.InGroup() && m.id.epoch <= 0 {
		r.t.Fatalf("in the group without an epoch, state %v", m.state)
	}
	if m.state == Stable && m.book.pending || m.state == Reconciling && !m.book.pending {
		r.t.Fatalf("state %v, pending %v", m.state, m.book.pending)
	}
	for _, l := range m.book.owned.lists() {
		for _, id := range l {
			if !m.book.seen[id] {
				r.t.Fatalf("owns %v, which was never a target", id)
			}
		}
	}
	if len(r.snaps) > 0 && r.snaps[len(r.snaps)-1].Version != m.snap.Version {
		r.t.Fatal("the newest snapshot was not published")
	}
	if d := m.Deadline(); !d.IsZero() && d.Before(r.now) && r.out == nil && !r.noAnswer {
		r.t.Fatalf("a deadline in the past: %v", r.now.Sub(d))
	}
}

// pass lets time pass while a heartbeat is in flight, or not.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	r.now = r.now.Add(d)
	r.step()
}

// await lets time pass until a heartbeat is out, and gives it.
func (r *rig) await() *kmsg.StreamsGroupHeartbeatRequest {
	r.t.Helper()
	for i := 0; r.out == nil; i++ {
		at := r.m.Deadline()
		if at.IsZero() || i > 100 || r.ended {
			r.t.Fatalf("no heartbeat comes; state %v\n%s", r.m.state, strings.Join(r.lines, "\n"))
		}
		if at.After(r.now) {
			r.now = at
		}
		r.step()
	}
	return r.out.Req
}

// reply answers the heartbeat in flight, after it came out.
func (r *rig) reply(resp *kmsg.StreamsGroupHeartbeatResponse) {
	r.t.Helper()
	r.await()
	resp.Version = r.out.Req.Version
	id := r.out.ID
	r.out = nil
	r.m.OnAnswer(r.now, id, resp)
	r.step()
}

// ok answers with an epoch and without lists.
func (r *rig) ok(epoch int32) { r.t.Helper(); r.reply(answerOf(epoch)) }

// lists answers with an epoch and a target of active tasks.
func (r *rig) lists(epoch int32, active ...string) {
	r.t.Helper()
	r.reply(withTarget(answerOf(epoch), tasksOf(r.t, active...)))
}

// code answers with an error.
func (r *rig) code(code int16, text ...string) {
	r.t.Helper()
	resp := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	resp.ErrorCode = code
	if len(text) > 0 {
		resp.ErrorMessage = &text[0]
	}
	r.reply(resp)
}

// lose loses the heartbeat in flight or its answer.
func (r *rig) lose() {
	r.t.Helper()
	r.await()
	id := r.out.ID
	r.out = nil
	r.m.OnFailure(r.now, id, errors.New("connection lost"), false)
	r.step()
}

// ack acknowledges the newest snapshot with its target, or with the tasks given.
func (r *rig) ack(active ...string) {
	r.t.Helper()
	s := r.last()
	owned := s.Target
	if active != nil {
		owned = tasksOf(r.t, active...)
	}
	if err := r.m.OnAcknowledge(r.now, s, owned); err != nil {
		r.t.Fatal(err)
	}
	r.step()
}

func (r *rig) last() Snapshot {
	r.t.Helper()
	if len(r.snaps) == 0 {
		r.t.Fatal("nothing was published")
	}
	return r.snaps[len(r.snaps)-1]
}

func (r *rig) state(want State) {
	r.t.Helper()
	if r.m.state != want {
		r.t.Fatalf("state %v, want %v\n%s", r.m.state, want, strings.Join(r.lines, "\n"))
	}
}

// stable joins with tasks and acknowledges them.
func (r *rig) stable(epoch int32, active ...string) *rig {
	r.t.Helper()
	r.lists(epoch, active...)
	r.ack()
	r.ok(epoch)
	r.state(Stable)
	return r
}

func answerOf(epoch int32) *kmsg.StreamsGroupHeartbeatResponse {
	resp := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = "m1", epoch, 5000
	resp.Status = []kmsg.StreamsGroupHeartbeatResponseStatus{}
	resp.AcceptableRecoveryLag, resp.TaskOffsetIntervalMillis = 10000, 60000
	return resp
}

func withTarget(resp *kmsg.StreamsGroupHeartbeatResponse, t Tasks) *kmsg.StreamsGroupHeartbeatResponse {
	t = t.Clone()
	resp.ActiveTasks, resp.StandbyTasks, resp.WarmupTasks = appendTasks(t.Active), appendTasks(t.Standby), appendTasks(t.Warmup)
	return resp
}

func withStatus(resp *kmsg.StreamsGroupHeartbeatResponse, code int8, text string) *kmsg.StreamsGroupHeartbeatResponse {
	s := kmsg.NewStreamsGroupHeartbeatResponseStatus()
	s.StatusCode, s.StatusDetail = code, text
	resp.Status = append(resp.Status, s)
	return resp
}

// tasksOf reads tasks such as "0_1", "s:0_2" and "w:0_3".
func tasksOf(t testing.TB, names ...string) Tasks {
	t.Helper()
	var out Tasks
	for _, n := range names {
		if n == "" {
			continue
		}
		l := &out.Active
		if rest, ok := strings.CutPrefix(n, "s:"); ok {
			n, l = rest, &out.Standby
		} else if rest, ok := strings.CutPrefix(n, "w:"); ok {
			n, l = rest, &out.Warmup
		}
		id, err := ParseTaskID(n)
		if err != nil {
			t.Fatal(err)
		}
		*l = append(*l, id)
	}
	return out
}

// carriedTasks are the lists of a heartbeat; ok is false if they are null.
func carriedTasks(q *kmsg.StreamsGroupHeartbeatRequest) (Tasks, bool) {
	if q.ActiveTasks == nil {
		return Tasks{}, false
	}
	return Tasks{readTasks(q.ActiveTasks), readTasks(q.StandbyTasks), readTasks(q.WarmupTasks)}, true
}

func (r *rig) carries(want ...string) {
	r.t.Helper()
	got, ok := carriedTasks(r.await())
	if !ok || !got.Equal(tasksOf(r.t, want...)) {
		r.t.Fatalf("the heartbeat carries %v (lists %v), want %v\n%s", got, ok, want, strings.Join(r.lines, "\n"))
	}
}

func (r *rig) carriesNulls() {
	r.t.Helper()
	if got, ok := carriedTasks(r.await()); ok {
		r.t.Fatalf("the heartbeat carries %v, want nulls\n%s", got, strings.Join(r.lines, "\n"))
	}
}

func showRequest(q *kmsg.StreamsGroupHeartbeatRequest) string {
	s := fmt.Sprintf("v%d epoch %d endpoint %d", q.Version, q.MemberEpoch, q.EndpointInformationEpoch)
	if q.Topology != nil {
		s += " topology"
	}
	if t, ok := carriedTasks(q); ok {
		s += " " + t.String()
	}
	if q.InstanceID != nil {
		s += " instance " + *q.InstanceID
	}
	if q.TaskOffsets != nil {
		s += fmt.Sprintf(" offsets %d", len(q.TaskOffsets))
	}
	if q.ShutdownApplication {
		s += " shutdown"
	}
	return s
}

func showSnapshot(s Snapshot) string {
	out := fmt.Sprintf("%d/%d epoch %d", s.Version, s.Incarnation, s.Epoch)
	if s.HasTarget {
		out += " " + s.Target.String()
	}
	if s.Ready {
		out += " ready"
	}
	if s.Lost {
		out += " lost"
	}
	if s.Shutdown {
		out += " shutdown"
	}
	for _, st := range s.Statuses {
		out += fmt.Sprintf(" status %d %q", st.Code, st.Detail)
	}
	return out
}
