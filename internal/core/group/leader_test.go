package group

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// No assignor makes such plans; if one did, partitions would be read twice or not
// at all, so the leader sends none. Mutation: any of the checks.
func TestG12APlanThatIsWrongIsNotSent(t *testing.T) {
	r := &roster{assignor: Range, topics: []string{"a", "b"}, members: []Member{
		{ID: "x", Topics: []string{"a"}}, {ID: "y", Topics: []string{"a", "b"}, Owned: partitions([]string{"b/0"})},
	}}
	counts := map[string]int32{"a": 2, "b": 1}
	for _, c := range []struct{ x, y, z, why string }{
		{x: "a/0", y: "a/1 b/0"},
		{y: "a/0 a/1 b/0", why: "lacks member x"},
		{x: "a/0", y: "a/0 a/1 b/0", why: "a-0 to x and y"},
		{x: "a/0", y: "a/1 a/1 b/0", why: "a-1 to y and y"},
		{x: "a/0 b/0", y: "a/1", why: "b-0 to x, which"},
		{x: "a/0 a/-1", y: "a/1 b/0", why: "a to x, which"},
		{x: "a/0 a/2", y: "a/1 b/0", why: "a-2 to x, which"},
		{x: "a/0", y: "b/0", why: "a-1 to nobody"},
		{x: "a/0", y: "a/1", why: "b-0 to nobody"},
		{x: "a/0", y: "a/1 b/0", z: "-", why: "3 members of 2"},
	} {
		p := Plan{}
		for id, tps := range map[string]string{"x": c.x, "y": c.y, "z": strings.Trim(c.z, "-")} {
			p[id] = partitions(strings.Fields(tps))
		}
		if c.x == "" {
			delete(p, "x")
		}
		if c.z == "" {
			delete(p, "z")
		}
		err := r.check(p, counts)
		if c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	r.assignor = CooperativeSticky
	withheld := Plan{"x": partitions([]string{"a/0", "a/1"}), "y": nil}
	if err := r.check(withheld, counts); err != nil {
		t.Errorf("what somebody may still read is withheld: %v", err)
	}
}

// Who leads counts on what the broker says about members. Mutation: a roster that
// leaves out instance ids, or does not count what it drops.
func TestG12_G28TheRosterIsWhatTheBrokerListed(t *testing.T) {
	listed := make([]kmsg.JoinGroupResponseMember, 4)
	instance := "i1"
	sub := Subscription{Topics: []string{"b", "a"}, Rack: "r1", Owned: partitions([]string{"a/0"}), Generation: 3}
	for i, id := range []string{"x", "y", "x", "z"} {
		listed[i].MemberID, listed[i].ProtocolMetadata = id, sub.Append(nil)
	}
	listed[1].InstanceID, listed[3].ProtocolMetadata = &instance, []byte{0, 3, 0x7f}
	r := newRoster(CooperativeSticky, listed)
	if len(r.members) != 3 || r.members[1].InstanceID != instance || r.members[0].InstanceID != "" {
		t.Fatalf("members %+v", r.members)
	}
	if r.dropped != (Dropped{Blobs: 1, Members: 1}) {
		t.Errorf("dropped %+v", r.dropped)
	}
	for _, m := range r.members[:2] {
		if strings.Join(m.Topics, " ") != "a b" || m.Rack != "r1" || list(m.Owned) != "a/0" || m.Generation != 3 {
			t.Errorf("%+v", m)
		}
	}
	if m := r.members[2]; m.Topics != nil || m.Owned != nil || m.Generation != NoGeneration {
		t.Errorf("of a subscription that cannot be read: %+v", m)
	}
	if strings.Join(r.topics, " ") != "a b" {
		t.Errorf("topics %v", r.topics)
	}
}

// What the leader left out is counted by the member.
func TestG12AMemberCountsWhatItsPlansLeftOut(t *testing.T) {
	p := &player{t: t}
	p.make(Config{})
	for _, line := range []string{
		"subscribe a", "joined 0 gen=1 me=m1 leader=m1 m1:a:a/0:3 m1:a m2:a:a/0:3 m3:garbage", "counts a=2",
	} {
		p.do(strings.Fields(line))
	}
	if got := p.m.Dropped; got != (Dropped{Blobs: 1, Members: 1, Claims: 1}) {
		t.Errorf("%+v", got)
	}
}

// Mutation: a commit without its epoch, metadata or instance.
func TestG31_G28CommitsCarryEpochMetadataAndInstance(t *testing.T) {
	p := &player{t: t}
	p.make(Config{InstanceID: "i1"})
	for _, line := range []string{"subscribe a", "joined 0 gen=7 me=m1 leader=m9", "synced 0 a/0 a/1"} {
		p.do(strings.Fields(line))
	}
	p.m.Commit(Offsets{
		{Topic: "a", Partition: 0}: {Offset: 5, LeaderEpoch: 3, Metadata: "note"},
		{Topic: "a", Partition: 1}: {Offset: 6, LeaderEpoch: kafka.NoEpoch},
	})
	p.drain()
	req, ok := p.sends[len(p.sends)-1].Req.(*kmsg.OffsetCommitRequest)
	if !ok || req.Generation != 7 || req.MemberID != "m1" || req.InstanceID == nil || *req.InstanceID != "i1" {
		t.Fatalf("%+v", req)
	}
	for i, want := range []kafka.Commit{{Offset: 5, LeaderEpoch: 3, Metadata: "note"}, {Offset: 6, LeaderEpoch: -1}} {
		q := req.Topics[0].Partitions[i]
		if q.Partition != int32(i) || q.Offset != int64(want.Offset) || q.LeaderEpoch != int32(want.LeaderEpoch) || opt(q.Metadata) != want.Metadata {
			t.Errorf("%+v, want %+v", q, want)
		}
	}
}

// A plan that would have a partition read twice is not sent: the member leaves and
// says why. Mutation: a plan whose check is not looked at.
func TestG12AWrongPlanIsNeverSent(t *testing.T) {
	p := &player{t: t}
	p.make(Config{})
	for _, line := range []string{"subscribe a", "joined 79 me=m1", "joined 0 gen=1 me=m1 leader=m1 m1:a"} {
		p.do(strings.Fields(line))
	}
	leader := p.m.proto.(*classic).leader
	leader.members = append(leader.members, leader.members[0]) // as an assignor with a fault would have it
	out := p.do([]string{"counts", "a=2"})
	if strings.Contains(out, "SyncGroup") || !strings.Contains(out, "LeaveGroup") || !strings.Contains(out, "event over: ottla: group: the plan gives") {
		t.Error(out)
	}
}

// Results of commits and look-ups are told apart by their numbers.
func TestG34_G36EveryCommitAndLookUpHasItsOwnNumber(t *testing.T) {
	p := &player{t: t}
	p.make(Config{})
	seen := map[uint64]bool{}
	for range 3 {
		seen[p.m.Commit(Offsets{})], seen[p.m.Load(nil)] = true, true
	}
	if len(seen) != 6 {
		t.Errorf("%d numbers for 6", len(seen))
	}
}
