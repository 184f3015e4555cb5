package streams

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestP6_P17ReadinessFollowsTheStatuses(t *testing.T) {
	for _, code := range []int8{1, 3, 5} {
		r := newRig(t, nil)
		resp := withStatus(withTarget(answerOf(1), Tasks{}), code, "wait")
		r.reply(resp)
		want(t, r.last().Ready, false)
		want(t, r.last().Statuses[0].Detail, "wait")
		r.ack()
		for range 3 {
			r.reply(withStatus(answerOf(1), code, "wait"))
			want(t, r.last().Ready, false)
		}
		sent := r.m.beat.last
		r.await()
		want(t, r.now.Sub(sent), 5*time.Second) // no status shortens the interval
		n := len(r.snaps)
		r.ok(1)
		want(t, len(r.snaps), n+1)
		want(t, r.last().Ready, true)
		want(t, len(r.last().Statuses), 0)
	}
}

func TestP17TheAssignmentIntervalTakesNothingAway(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	r.reply(withStatus(answerOf(2), 5, "assignment interval"))
	want(t, r.last().Ready, false)
	want(t, r.last().Target.Equal(tasksOf(t, "0_0")), true)
	want(t, r.m.Owned().Equal(tasksOf(t, "0_0")), true)
	r.state(Stable) // nothing to acknowledge
	r.carriesNulls()
}

func TestP11AnUnknownStatusIsLoggedOnceAndTheRestApplied(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	for range 3 {
		r.reply(withStatus(withTarget(answerOf(3), tasksOf(t, "0_1")), 99, "news"))
	}
	want(t, r.last().Target.Equal(tasksOf(t, "0_1")), true)
	want(t, count(r.logs, "unknown status"), 1)
	want(t, r.last().Ready, true)
	r.state(Reconciling)
}

func TestM35Statuses0And6WarnOnce(t *testing.T) {
	for code, name := range map[int8]string{0: "STALE_TOPOLOGY", 6: "MISSING_CLIENT_TAGS"} {
		r := newRig(t, nil).stable(2, "0_0")
		for range 3 {
			r.reply(withStatus(answerOf(2), code, "text"))
		}
		want(t, count(r.logs, name), 1)
		want(t, r.last().Ready, true)
		r.state(Stable)
	}
}

func TestB221AMemberOfAnOlderTopologyStaysAndWorksLater(t *testing.T) {
	r := newRig(t, nil)
	r.reply(withStatus(withTarget(answerOf(2), Tasks{}), 0, "behind"))
	r.ack()
	r.reply(withStatus(answerOf(2), 0, "behind"))
	want(t, r.last().Statuses[0].Code, StaleTopology)
	want(t, r.await().Topology == nil, true)
	r.lists(3, "0_0")
	want(t, r.last().Target.Equal(tasksOf(t, "0_0")), true)
	want(t, len(r.last().Statuses), 0)
}

func TestP15InternalTopicsThatCannotBeCreatedAreShown(t *testing.T) {
	r := newRig(t, nil)
	text := "Unauthorized to CREATE on topics c."
	r.reply(withStatus(withTarget(answerOf(1), Tasks{}), 3, text))
	r.ack()
	for range 200 {
		r.reply(withStatus(answerOf(1), 3, text))
	}
	want(t, r.last().Statuses[0], Status{MissingInternalTopics, text})
	want(t, r.m.State(), Stable) // waited for without end
	want(t, r.ended, false)
}

func TestB224TopicsThatDoNotFitEndTheMember(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	r.reply(withStatus(withTarget(answerOf(2), Tasks{}), 2, "Existing topic c has different number of partitions: expected 2, found 3"))
	var pe *PartitioningError
	if !errors.As(r.failed, &pe) || !strings.Contains(pe.Error(), "topic c") {
		t.Fatalf("%v", r.failed)
	}
	r.ack()
	want(t, r.await().MemberEpoch, int32(-1))
}

func TestB223MissingSourceTopics(t *testing.T) {
	missing := func(r *rig) {
		r.t.Helper()
		r.reply(withStatus(withTarget(answerOf(2), Tasks{}), 1, "Source topics in are missing."))
	}
	t.Run("return in time heals", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		missing(r)
		want(t, r.last().Ready || !r.last().Target.IsEmpty(), false)
		r.ack()
		began := r.now
		for r.now.Sub(began) < 4*time.Minute {
			missing(r)
		}
		r.lists(3, "0_0")
		r.ack()
		for r.now.Sub(began) < 20*time.Minute {
			r.ok(3)
		}
		want(t, r.failed == nil, true)
		want(t, r.last().Ready, true)
	})
	t.Run("the patience runs out", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		missing(r)
		r.ack()
		began := r.now
		for r.failed == nil && r.now.Sub(began) < time.Hour {
			r.await()
			if r.out.Req.MemberEpoch > 0 {
				missing(r)
			}
			if at := r.m.Deadline(); r.failed == nil && r.out == nil && at.After(r.now) {
				r.now = at
				r.step()
			}
		}
		var me *MissingSourceTopicsError
		if !errors.As(r.failed, &me) || me.After < 5*time.Minute || !strings.Contains(me.Error(), "Source topics in are missing.") {
			t.Fatalf("%v", r.failed)
		}
	})
	t.Run("times are 64 bits wide", func(t *testing.T) {
		r := newRig(t, nil)
		resp := withStatus(withTarget(answerOf(2), Tasks{}), 1, "Source topics in are missing.")
		resp.HeartbeatIntervalMillis = 2_000_000_000
		r.reply(resp)
		r.ack()
		resp = withStatus(answerOf(2), 1, "Source topics in are missing.")
		resp.HeartbeatIntervalMillis = 2_000_000_000
		r.reply(resp)
		want(t, r.m.Deadline().Sub(r.now), 5*time.Minute) // the patience comes first
		r.pass(5 * time.Minute)
		var me *MissingSourceTopicsError
		want(t, errors.As(r.failed, &me), true)
	})
	t.Run("a negative patience has no end", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MissingSources = -1 })
		missing(r)
		r.ack()
		began := r.now
		for r.now.Sub(began) < time.Hour {
			missing(r)
		}
		want(t, r.failed == nil, true)
	})
}

func TestP7_M46_B232TheEndpointMapAndItsEpoch(t *testing.T) {
	endpoints := func(resp *kmsg.StreamsGroupHeartbeatResponse, epoch int32, hosts ...string) *kmsg.StreamsGroupHeartbeatResponse {
		resp.EndpointInformationEpoch = epoch
		resp.PartitionsByUserEndpoint = []kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpoint{}
		for _, h := range hosts {
			e := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpoint()
			e.UserEndpoint.Host, e.UserEndpoint.Port = h, 9000
			resp.PartitionsByUserEndpoint = append(resp.PartitionsByUserEndpoint, e)
		}
		return resp
	}
	r := newRig(t, nil)
	want(t, r.await().EndpointInformationEpoch, int32(-1))
	r.reply(endpoints(withTarget(answerOf(2), Tasks{}), 3, "b", "a", "a"))
	want(t, len(r.last().Endpoints), 3)
	want(t, r.last().Endpoints[0].Endpoint.Host+r.last().Endpoints[2].Endpoint.Host, "ab")
	r.ack()
	resp := answerOf(2)
	resp.EndpointInformationEpoch = 3 // null: kept
	n := len(r.snaps)
	r.reply(resp)
	want(t, len(r.snaps), n)
	want(t, r.await().EndpointInformationEpoch, int32(3))
	r.reply(endpoints(answerOf(2), 4)) // empty: cleared
	want(t, len(r.last().Endpoints), 0)
	r.reply(endpoints(answerOf(2), 0, "c")) // a number that goes back is echoed
	want(t, r.last().Endpoints[0].Endpoint.Host, "c")
	want(t, r.await().EndpointInformationEpoch, int32(0))
	// neither errors nor a rejoin reset it
	r.reply(endpoints(answerOf(2), 9, "c"))
	r.await()
	r.code(25)
	want(t, r.await().EndpointInformationEpoch, int32(9))
	want(t, len(r.last().Endpoints), 1)
}

func TestM48ASnapshotFollowsAChangeOnly(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0", "0_1")
	v := r.m.snap.Version
	for range 10 {
		r.ok(2)
	}
	want(t, r.m.snap.Version, v)
	t.Run("M69 the order of lists has no effect", func(t *testing.T) {
		resp := withTarget(answerOf(2), tasksOf(t, "0_0", "0_1"))
		resp.ActiveTasks[0].Partitions = []int32{1, 0}
		r.reply(resp)
		want(t, r.m.snap.Version, v)
		r.state(Stable)
	})
	r.reply(withStatus(answerOf(2), 5, "x"))
	want(t, r.m.snap.Version, v+1)
	resp := withStatus(answerOf(2), 5, "x")
	resp.TaskOffsetIntervalMillis = 7
	r.reply(resp)
	want(t, r.m.snap.Version, v+2)
	inc := r.m.snap.Incarnation
	r.await()
	r.code(110)
	want(t, r.m.snap.Version, v+3)
	want(t, r.m.snap.Incarnation, inc+1)
}

func TestM35AVersion0BrokerNamesNoRecoveryLag(t *testing.T) {
	r := newRig(t, nil)
	r.version = 0
	r.code(16)
	r.lists(2)
	want(t, r.last().AcceptableRecoveryLag, int64(-1))
	r.version = 1
	r.code(16)
	r.ok(2)
	want(t, r.last().AcceptableRecoveryLag, int64(10000))
}

func TestM57HowLeavesEnd(t *testing.T) {
	for _, code := range []int16{25, 82, 110, 113, 69} {
		r := newRig(t, nil).stable(2, "0_0")
		r.m.OnLeave(r.now)
		r.step()
		r.code(code)
		want(t, r.ended && r.endErr == nil, true)
		r.state(Left)
	}
	for _, code := range []int16{29, 30, 31, 35, 42} {
		r := newRig(t, nil).stable(2, "0_0")
		r.m.OnLeave(r.now)
		r.step()
		r.code(code)
		if !r.ended || r.endErr == nil {
			t.Errorf("code %d: ended %v, %v", code, r.ended, r.endErr)
		}
	}
	t.Run("for 10 s", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		r.m.OnLeave(r.now)
		r.step()
		began := r.now
		for !r.ended {
			if r.out != nil {
				r.code(16)
				continue
			}
			r.now = r.m.Deadline()
			r.step()
		}
		if d := r.now.Sub(began); d != 10*time.Second || r.endErr == nil {
			t.Errorf("after %v: %v", d, r.endErr)
		}
		want(t, len(r.sent) > 8, true) // more than a coordinator's fail-over takes
	})
	t.Run("M56 the flag is false unless it was asked for", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		r.m.OnLeave(r.now)
		r.step()
		want(t, r.await().ShutdownApplication, false)
	})
	t.Run("the leave overtakes what is in flight, whose answer is dropped", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		r.await()
		old := r.out.ID
		r.m.OnLeave(r.now)
		r.step()
		want(t, r.out.Req.MemberEpoch, int32(-1))
		r.m.OnAnswer(r.now, old, withTarget(answerOf(5), tasksOf(t, "0_1")))
		r.step()
		want(t, r.m.snap.Target.Equal(tasksOf(t, "0_0")), true)
		r.ok(-1)
		want(t, r.ended, true)
	})
	t.Run("no rejoin", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		r.await()
		r.code(110)
		r.m.OnLeave(r.now)
		r.step()
		want(t, r.await().MemberEpoch, int32(-1)) // also if the broker may not know the member
		r.code(25)
		want(t, r.ended && r.endErr == nil, true)
	})
}

func TestM50WhatEndsAMemberOfTheGroup(t *testing.T) {
	for _, c := range []struct {
		code  int16
		leave bool
	}{{30, false}, {31, false}, {35, false}, {82, false}, {42, true}, {130, true}, {999, true}} {
		r := newRig(t, nil).stable(2, "0_0")
		r.await()
		r.code(c.code)
		if r.failed == nil || !r.last().Lost || r.m.State() != Failed {
			t.Fatalf("code %d: %v", c.code, r.failed)
		}
		want(t, r.ended, !c.leave)
		if !c.leave {
			continue
		}
		n := len(r.sent)
		r.pass(4 * time.Second)
		want(t, len(r.sent), n) // not before the owner dropped the tasks
		r.ack()
		want(t, r.await().MemberEpoch, int32(-1))
		r.ok(-1)
		want(t, r.ended, true)
	}
	t.Run("-1 five times in a row", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		for range 4 {
			r.await()
			r.code(-1)
			want(t, r.failed == nil, true)
		}
		r.ok(2)
		for range 5 {
			r.await()
			r.code(-1)
		}
		want(t, r.failed != nil, true)
	})
	t.Run("29 is reported every 30 s and changes nothing", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		began := r.now
		for r.now.Sub(began) < 2*time.Minute {
			at := r.now
			r.await()
			if d := r.now.Sub(at); d < 5*time.Second && at != began {
				t.Fatalf("again after %v", d)
			}
			r.code(29)
		}
		if n := count(r.logs, "may not be described"); n < 3 || n > 5 {
			t.Errorf("%d reports", n)
		}
		want(t, r.m.Owned().Equal(tasksOf(t, "0_0")), true)
		want(t, r.failed == nil, true)
	})
}

func TestM41HeartbeatsThatAreAskedForAreServedInTurn(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	r.await() // one in flight, which serves none of them
	for id := uint64(1); id <= 3; id++ {
		r.m.OnHeartbeat(id)
	}
	r.ok(2)
	for id := uint64(1); id <= 3; id++ {
		want(t, r.out != nil, true)
		want(t, len(r.done), int(id)-1)
		at := r.now
		r.ok(2)
		want(t, r.now, at)
		err, ok := r.done[id]
		want(t, ok && err == nil, true)
	}
	t.Run("a failure counts against the first and does not stop the loop", func(t *testing.T) {
		r.done = map[uint64]error{}
		r.m.OnHeartbeat(4)
		r.step()
		for range 6 {
			want(t, len(r.done), 0)
			r.await()
			r.lose()
		}
		var fe *FailedError
		if !errors.As(r.done[4], &fe) || fe.Tries != 6 {
			t.Fatalf("%v", r.done[4])
		}
		r.ok(2)
		r.state(Stable)
	})
	t.Run("a loss ends it, and after it nothing is sent", func(t *testing.T) {
		r.done = map[uint64]error{}
		r.m.OnHeartbeat(5)
		r.step()
		r.await()
		r.code(110)
		want(t, r.done[5] != nil, true)
		n := len(r.sent)
		r.m.OnHeartbeat(6)
		r.step()
		want(t, r.done[6] != nil, true)
		want(t, len(r.sent), n)
	})
}

func TestP25_B229ALateAcknowledgementIsRefused(t *testing.T) {
	r := newRig(t, nil)
	r.lists(2, "0_0")
	old := r.last()
	r.ok(2) // its heartbeat
	r.await()
	r.lists(3, "0_0", "0_1") // B229: Y during the work on X
	if err := r.m.OnAcknowledge(r.now, old, old.Target); err != nil {
		t.Fatal(err) // only a newer target came: recorded, and Y waits for its own
	}
	r.step()
	r.state(Reconciling)
	r.await()
	r.code(110)
	if err := r.m.OnAcknowledge(r.now, old, old.Target); !errors.Is(err, ErrStaleAssignment) {
		t.Fatalf("%v", err)
	}
	want(t, r.m.Owned().IsEmpty(), true)
	r.ack()
	r.await()
	r.lists(4, "0_1")
	if err := r.m.OnAcknowledge(r.now, old, old.Target); !errors.Is(err, ErrStaleAssignment) {
		t.Fatalf("%v", err)
	}
	r.ack()
	r.carries("0_1")
	r.ok(4)
	r.state(Stable)
	t.Run("below one that was acknowledged", func(t *testing.T) {
		first := r.last()
		r.await()
		r.lists(5, "0_0", "0_1")
		r.ack()
		if err := r.m.OnAcknowledge(r.now, first, first.Target); !errors.Is(err, ErrStaleAssignment) {
			t.Fatalf("%v", err)
		}
	})
}

func TestAcknowledgementsThatCannotBeMeantChangeNothing(t *testing.T) {
	r := newRig(t, nil)
	r.lists(2, "0_0", "0_1")
	s := r.last()
	var te *TaskError
	if err := r.m.OnAcknowledge(r.now, s, tasksOf(t, "0_0", "0_7")); !errors.As(err, &te) || te.Partition != 7 {
		t.Errorf("%v", err)
	}
	var ce *ConflictError
	if err := r.m.OnAcknowledge(r.now, s, tasksOf(t, "0_0", "s:0_0")); !errors.As(err, &ce) || ce.Second != Standby {
		t.Errorf("%v", err)
	}
	if err := r.m.OnAcknowledge(r.now, s, tasksOf(t, "0_0", "0_0")); !errors.As(err, &ce) {
		t.Errorf("%v", err)
	}
	later := s
	later.Version++ // of another member, or of none
	if err := r.m.OnAcknowledge(r.now, later, s.Target); !errors.Is(err, ErrStaleAssignment) {
		t.Errorf("a snapshot that was never published: %v", err)
	}
	want(t, r.m.Owned().IsEmpty(), true)
	r.state(Reconciling)
	t.Run("a set with tasks outside the target goes with the next heartbeat", func(t *testing.T) {
		r.ack()
		r.ok(2)
		r.await()
		r.lists(2, "0_0") // gives 0_1 up
		n := len(r.sent)
		if err := r.m.OnAcknowledge(r.now, r.last(), tasksOf(t, "0_0", "0_1")); err != nil {
			t.Fatal(err)
		}
		r.step()
		r.state(Reconciling)
		want(t, len(r.sent), n)
		r.ack()
		want(t, len(r.sent), n+1)
		r.carries("0_0")
	})
}

func TestDescriptionsArePushedWhenAskedFor(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Describes = true })
	resp := withTarget(answerOf(2), Tasks{})
	resp.TopologyDescriptionRequired = true
	r.reply(resp)
	want(t, r.push != nil, true)
	r.m.OnPushed(errors.New("plug-in failed"))
	r.step()
	want(t, count(r.logs, "description"), 1)
	r.push = nil
	r.ack()
	r.ok(2)
	want(t, r.push == nil, true) // no retry of its own
	r.state(Stable)
	quiet := newRig(t, nil)
	resp = withTarget(answerOf(2), Tasks{})
	resp.TopologyDescriptionRequired = true
	quiet.reply(resp)
	want(t, quiet.push == nil, true)
}
