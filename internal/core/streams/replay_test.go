package streams

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// heartbeat decodes a captured heartbeat and its answer.
func (v vector) heartbeat(t testing.TB) (*kmsg.StreamsGroupHeartbeatRequest, *kmsg.StreamsGroupHeartbeatResponse) {
	t.Helper()
	resp := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	resp.Version = v.Version
	if err := resp.ReadFrom(v.bytes(t, v.Response)); err != nil {
		t.Fatal(err)
	}
	return v.join(t), resp
}

// asJava is the configuration of the Java member that sent a join.
func asJava(t testing.TB, v vector) func(*Config) {
	t.Helper()
	req := v.join(t)
	return func(c *Config) {
		c.Group, c.MemberID, c.ProcessID = req.Group, req.MemberID, *req.ProcessID
		c.Topology = ReadTopology(req.Topology)
		c.Topology.JavaOrder = true
		if req.InstanceID != nil {
			c.InstanceID = *req.InstanceID
		}
		if req.RackID != nil {
			c.RackID = *req.RackID
		}
		if e := req.UserEndpoint; e != nil {
			c.Endpoint = &Endpoint{e.Host, e.Port}
		}
		for _, tag := range req.ClientTags {
			if c.Tags == nil {
				c.Tags = map[string]string{}
			}
			c.Tags[tag.Key] = tag.Value
		}
		c.Offsets = offsetsOf(req.TaskOffsets)
	}
}

func offsetsOf(os []kmsg.TaskOffset) map[TaskID]int64 {
	out := map[TaskID]int64{}
	for _, o := range os {
		out[TaskID{o.SubtopologyID, o.Partition}] = o.Offset
	}
	return out
}

// inOrder sorts what Java sends in the order of its hash tables: brokers take any.
func inOrder(q *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatRequest {
	for _, l := range [][]kmsg.TaskIDs{q.ActiveTasks, q.StandbyTasks, q.WarmupTasks} {
		for _, e := range l {
			slices.Sort(e.Partitions)
		}
		slices.SortFunc(l, func(a, b kmsg.TaskIDs) int { return compareText(a.SubtopologyID, b.SubtopologyID) })
	}
	slices.SortFunc(q.ClientTags, func(a, b kmsg.StreamsGroupHeartbeatRequestClientTag) int { return compareText(a.Key, b.Key) })
	for _, l := range [][]kmsg.TaskOffset{q.TaskOffsets, q.TaskEndOffsets} {
		slices.SortFunc(l, func(a, b kmsg.TaskOffset) int {
			return TaskID{a.SubtopologyID, a.Partition}.Compare(TaskID{b.SubtopologyID, b.Partition})
		})
	}
	return q
}

// replay has the machine live the life of a captured Java member: its owner
// acknowledges when Java's did, and each request has to equal Java's. One
// difference is meant: lists that the broker has are not sent twice.
func replay(t *testing.T, life []vector) (repeated int) {
	join, _ := life[0].heartbeat(t)
	r := newIdleRig(t, func(c *Config) {
		asJava(t, life[0])(c)
		if last := life[len(life)-1].join(t); last.MemberEpoch == epochLeave && c.InstanceID != "" {
			c.OnLeave = LeaveGroup
		}
	})
	r.version = life[0].Version
	if join.ShutdownApplication {
		r.m.OnShutdown()
	}
	r.start()
	var last *kmsg.StreamsGroupHeartbeatResponse
	var sent *kmsg.StreamsGroupHeartbeatRequest // the last one with lists
	for i, v := range life {
		want, answer := v.heartbeat(t)
		if i > 0 {
			if want.MemberEpoch > 0 && want.EndpointInformationEpoch != last.EndpointInformationEpoch {
				r.missing(want) // steady heartbeats were not all captured
			}
			r.asOwner(want)
		}
		got := r.await()
		if want.ActiveTasks != nil && got.ActiveTasks == nil && sameLists(want, sent) {
			want.ActiveTasks, want.StandbyTasks, want.WarmupTasks = nil, nil, nil
			repeated++
		}
		if !bytes.Equal(inOrder(got).AppendTo(nil), inOrder(want).AppendTo(nil)) {
			t.Fatalf("pair %d, %s: the request is not Java's:\n got %#v\nwant %#v", i, v.What, got, want)
		}
		if got.ActiveTasks != nil {
			sent = got
		}
		r.reply(answer)
		last = answer
	}
	return repeated
}

func sameLists(a, b *kmsg.StreamsGroupHeartbeatRequest) bool {
	x, _ := carriedTasks(a)
	y, _ := carriedTasks(b)
	return x.Equal(y)
}

// missing is a steady heartbeat whose answer moved the endpoints' epoch.
func (r *rig) missing(next *kmsg.StreamsGroupHeartbeatRequest) {
	r.t.Helper()
	r.carriesNulls()
	resp := answerOf(next.MemberEpoch)
	resp.MemberID, resp.EndpointInformationEpoch = next.MemberID, next.EndpointInformationEpoch
	r.reply(resp)
}

// asOwner does what the Java program did before it sent a request.
func (r *rig) asOwner(q *kmsg.StreamsGroupHeartbeatRequest) {
	r.t.Helper()
	if q.MemberEpoch < 0 {
		r.m.OnLeave(r.now)
	}
	if q.MemberEpoch == 0 {
		r.ack() // of the loss
	}
	if q.ShutdownApplication {
		r.m.OnShutdown()
	}
	if q.TaskOffsets != nil && q.MemberEpoch > 0 {
		if err := r.m.OnTaskOffsets(offsetsOf(q.TaskOffsets), nil); err != nil {
			r.t.Fatal(err)
		}
		r.now = r.now.Add(time.Second)
	}
	if owned, ok := carriedTasks(q); ok && q.MemberEpoch > 0 {
		if err := r.m.OnAcknowledge(r.now, r.last(), owned); err != nil {
			r.t.Fatal(err)
		}
	}
	r.step()
}

// The members that were captured are those of Kafka Streams 4.2 and 4.4.
func TestC17CapturedLivesAreLivedLikeJavas(t *testing.T) {
	lives := map[string][]vector{}
	for _, v := range lifecycle(t) {
		if v.Key == 88 {
			who := v.Group + " " + v.Client
			lives[who] = append(lives[who], v)
		}
	}
	if len(lives) != 15 {
		t.Fatalf("%d lives of 15", len(lives))
	}
	repeated := 0
	for who, life := range lives {
		t.Run(who, func(t *testing.T) { repeated += replay(t, life) })
	}
	if repeated != 2 {
		t.Errorf("Java repeats its lists in %d pairs where ours sends nulls, want 2", repeated)
	}
}
