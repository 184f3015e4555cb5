package streams

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestP12WhatAStaticMemberReleasesAfter(t *testing.T) {
	static := func() *rig { return newRig(t, func(c *Config) { c.InstanceID = "i1" }) }
	for code, epoch := range map[int16]int32{110: -2, 113: -2, 111: -2, 25: 0, 69: 0} {
		r := static().stable(4, "0_0")
		r.await()
		r.code(code) // in the group
		want(t, r.last().Lost, true)
		r.ack()
		if got := r.await().MemberEpoch; got != epoch {
			t.Errorf("%d in the group is followed by %d", code, got)
		}
		if code == 69 {
			continue
		}
		r = static()
		r.code(code) // to the join
		if got := r.await().MemberEpoch; got != epoch {
			t.Errorf("%d to the join is followed by %d", code, got)
		}
	}
	t.Run("not after a join that was not sent", func(t *testing.T) {
		r := static()
		id := r.out.ID
		r.out = nil
		r.m.OnFailure(r.now, id, errors.New("no connection"), true)
		r.step()
		want(t, r.await().MemberEpoch, int32(0))
	})
	t.Run("joins for an id in use back off", func(t *testing.T) {
		r := static()
		r.code(111)
		r.ok(-2)
		for n := range 8 {
			r.await()
			at := r.now
			r.code(111)
			want(t, r.await().MemberEpoch, int32(0))
			if d := r.now.Sub(at); d < min(50*time.Millisecond<<n, time.Second)*8/10 {
				t.Fatalf("join number %d follows after %v", n, d)
			}
		}
	})
}

func TestM50WhatABrokerSaysIsShown(t *testing.T) {
	r := newRig(t, nil)
	r.code(69, "Group g is not a streams group.")
	var ge *GroupTypeError
	want(t, errors.As(r.endErr, &ge) && ge.Message == "Group g is not a streams group.", true)
	want(t, strings.Contains(ge.Error(), "is no streams group"), true)
	r = newRig(t, nil)
	r.code(81, "full")
	var be *BrokerError
	want(t, errors.As(r.endErr, &be) && be.Code == 81 && strings.Contains(be.Error(), "group.streams.max.size"), true)
	r = newRig(t, nil)
	r.code(31000)
	want(t, strings.Contains(r.endErr.Error(), "error code 31000"), true)
	want(t, errors.As(r.endErr, &be) && be.Unwrap() == nil, true)
}

func TestP14ALeaveThatMeetsAnOlderBrokerEnds(t *testing.T) {
	r := newRig(t, func(c *Config) { c.InstanceID = "i1" }).stable(2, "0_0")
	r.await()
	r.version = 0
	r.code(16)
	r.m.OnLeave(r.now)
	for i := 0; !r.ended; i++ {
		want(t, i < 100, true)
		r.pass(100 * time.Millisecond)
	}
	var ue *UnsupportedError
	want(t, errors.As(r.endErr, &ue), true)
	r.state(Left)
}

func TestM41OneHeartbeatIsAskedFor(t *testing.T) {
	t.Run("29 fails it, not the member", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		r.m.OnHeartbeat(1)
		r.step()
		at := r.now
		r.code(29)
		var be *BrokerError
		want(t, errors.As(r.done[1], &be) && be.Code == 29, true)
		r.state(Stable)
		r.await()
		want(t, r.now.Sub(at), 5*time.Second)
	})
	t.Run("-1 is retried within the budget", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		r.m.OnHeartbeat(1)
		r.step()
		r.code(-1)
		_, done := r.done[1]
		want(t, done, false)
		r.ok(2)
		err, done := r.done[1]
		want(t, done && err == nil, true)
	})
	t.Run("nobody waits for one that was given up", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		r.m.OnHeartbeat(1)
		r.m.OnHeartbeat(2)
		r.m.OnCallAbandoned(2)
		r.step()
		r.ok(2)
		at := r.now
		r.await()
		want(t, r.now.Sub(at), 5*time.Second)
		_, done := r.done[2]
		want(t, done, false)
	})
	t.Run("not while it leaves or after it failed", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		r.m.OnLeave(r.now)
		r.step()
		r.m.OnHeartbeat(1)
		r.step()
		want(t, errors.Is(r.done[1], ErrLeft), true)
		r = newRig(t, nil).stable(2, "0_0")
		r.await()
		r.code(42)
		r.ack()
		r.m.OnHeartbeat(1)
		r.step()
		var be *BrokerError
		want(t, errors.As(r.done[1], &be) && be.Code == 42, true)
	})
}

func TestATouchedMemberStays(t *testing.T) {
	r := newRig(t, func(c *Config) { c.PollInterval = 3 * time.Second }).stable(2, "0_0")
	for range 60 {
		r.m.OnTouch(r.now)
		r.pass(time.Second)
		if r.out != nil {
			r.ok(2)
		}
	}
	r.state(Stable)
}

// A touch of before the join, which the driver hands over late.
func TestM61ATouchOfBeforeTheJoinEndsNothing(t *testing.T) {
	r := newRig(t, func(c *Config) { c.PollInterval = 3 * time.Second })
	before := r.now
	r.pass(10 * time.Second) // the join takes its time
	r.lists(2, "0_0")
	r.ack()
	r.ok(2)
	r.m.OnTouch(before)
	r.step()
	r.state(Stable)
	r.pass(2 * time.Second)
	r.state(Stable)
	r.pass(time.Second)
	r.state(Leaving)
}

func TestTheTopologysEpochIsSentAndItsIndexesAreChecked(t *testing.T) {
	top := testTopology()
	top.Epoch = 7
	want(t, top.Wire().Epoch, int32(7))
	w := kmsg.NewStreamsGroupHeartbeatRequestTopology()
	s := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
	s.SubtopologyID, s.SourceTopics = "0", []string{"a", "b"}
	g := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup()
	g.SourceTopics, g.RepartitionSourceTopics = []int16{-1, 0, 1, 2, 32767, -32768}, []int16{0, -1, 5}
	s.CopartitionGroups = append(s.CopartitionGroups, g)
	w.Subtopologies = append(w.Subtopologies, s)
	want(t, strings.Join(ReadTopology(&w).Subtopologies[0].CopartitionGroups[0], ","), "a,b")
}

// The owner acknowledges the older of two snapshots without a task that only that
// one had: it does not begin with it any more, so the next list gives it up.
func TestP33AnAcknowledgementSettlesWhatItsSnapshotOffered(t *testing.T) {
	r := newRig(t, nil)
	r.lists(2, "0_0", "0_1")
	older := r.last()
	r.lists(2, "0_0")
	if err := r.m.OnAcknowledge(r.now, older, tasksOf(t, "0_0")); err != nil {
		t.Fatal(err)
	}
	r.step()
	r.state(Reconciling)
	r.carries("0_0")
}

// A set that changes within the target is told at once, and told once.
func TestM26AnOwnedSetThatChangesLaterIsToldAtOnce(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0", "0_1")
	n := len(r.sent)
	r.ack("0_0")
	want(t, len(r.sent), n+1)
	r.carries("0_0")
	r.ok(2)
	r.carriesNulls()
}
