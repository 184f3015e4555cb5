package group

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// A token is there while the member is stable, fresh in each round, and at no other
// time: one from before a round would commit offsets that others have by now.
// Mutation: a Token that does not look at the state.
func TestG1ATokenIsFreshAndAbsentUnlessStable(t *testing.T) {
	now := time.Unix(0, 0)
	m := New(Config{Group: "g", Session: time.Minute, Heartbeat: time.Second, Rebalance: time.Minute, Assignors: []string{CooperativeSticky}}, nil)
	want := func(when string, generation int32) {
		t.Helper()
		token, ok := m.Token()
		if ok != (generation >= 0) || ok && (token.Generation != generation || token.Group != "g" || token.MemberID != "m1" || token.Kind != kafka.ClassicGroup) {
			t.Errorf("%s: %+v %v", when, token, ok)
		}
	}
	round := func(generation int32) {
		t.Helper()
		id := next[*Send](t, m, now).ID
		want("joining", -1)
		join := kmsg.NewPtrJoinGroupResponse()
		name := CooperativeSticky
		join.MemberID, join.LeaderID, join.Protocol, join.Generation = "m1", "m2", &name, generation
		m.OnAnswer(now, id, join, nil)
		id = next[*Send](t, m, now).ID
		want("syncing", -1)
		sync := kmsg.NewPtrSyncGroupResponse()
		sync.MemberAssignment = AppendAssignment(nil, partitions([]string{"t/0"}))
		m.OnAnswer(now, id, sync, nil)
		want("stable", generation)
	}
	want("before", -1)
	m.Subscribe(now, []string{"t"}, "")
	round(4)
	m.Rejoin("asked")
	next[*Given](t, m, now)
	round(5)
	m.Suspend("too slow")
	want("suspended", -1)
}
