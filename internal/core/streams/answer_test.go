package streams

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestM33WhatAJoinIsAnswered(t *testing.T) {
	for _, epoch := range []int32{0, -1, -2, -1 << 31} {
		r := newRig(t, nil)
		r.lists(epoch, "0_0")
		var pe *ProtocolError
		want(t, errors.As(r.failed, &pe) && !r.joined, true)
		want(t, r.await().MemberEpoch, int32(-1)) // the coordinator may have the member
		r.ok(-1)
		want(t, r.ended, true)
	}
	t.Run("M63 M23 lists that make no sense leave no ghost", func(t *testing.T) {
		r := newRig(t, nil)
		at := r.now
		r.lists(4, "9_0")
		var pe *ProtocolError
		want(t, errors.As(r.failed, &pe) && !r.joined, true)
		want(t, r.await().MemberEpoch, int32(-1))
		want(t, r.now, at) // there is no owner to wait for
	})
	t.Run("M70 null lists are asked for", func(t *testing.T) {
		r := newRig(t, nil)
		r.ok(4)
		want(t, r.joined, true)
		r.state(Stable)
		r.described(tasksOf(t, "0_0"), true, nil)
		r.state(Reconciling)
		want(t, r.last().Target.Equal(tasksOf(t, "0_0")), true)
	})
	t.Run("an empty id and epoch 0 are none", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		resp := answerOf(0)
		resp.MemberID = ""
		r.reply(resp)
		want(t, r.m.id.epoch, int32(2))
		want(t, r.await().MemberID, "m1")
		want(t, len(r.logs), count(r.logs, "DEBUG"))
	})
}

func TestM35ThrottlingOutlastsTheInterval(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	resp := answerOf(2)
	resp.ThrottleMillis = 20_000
	r.reply(resp)
	at := r.now
	r.await()
	want(t, r.now.Sub(at), 20*time.Second)
}

func TestM35TheRecoveryLagIsUnknownAfterAMoveToVersion0(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	want(t, r.last().AcceptableRecoveryLag, int64(10000))
	r.await()
	r.version = 0
	r.code(16)
	r.ok(2)
	want(t, r.last().AcceptableRecoveryLag, int64(-1))
}

func TestM42ALookUpThatFailsIsRepeated(t *testing.T) {
	for _, code := range []int16{0, 14, 15, 16} {
		r := newRig(t, nil).stable(2, "0_0")
		r.noAnswer = true
		for n := range 20 {
			before, at := r.lookups, r.now
			for r.lookups == before {
				r.pass(100 * time.Millisecond)
				if r.now.Sub(at) > 6*time.Second {
					t.Fatalf("code %d: no look-up follows number %d", code, n)
				}
			}
			r.m.OnLookupFailed(r.now, r.looking, code, errors.New("not found"))
			r.step()
		}
		r.noAnswer = false
		r.carries("0_0")
		r.state(Stable)
	}
}

func TestM70WhatADescribeCannotDo(t *testing.T) {
	uncertain := func() *rig {
		r := newRig(t, nil).stable(2, "0_0")
		r.await()
		r.lose()
		r.ok(2)
		return r
	}
	t.Run("a group without the member takes nothing away", func(t *testing.T) {
		r := uncertain()
		r.described(Tasks{}, false, nil)
		want(t, r.last().Target.Equal(tasksOf(t, "0_0")), true)
		r.state(Stable)
	})
	t.Run("one answer counts once", func(t *testing.T) {
		r := uncertain()
		for r.describe == nil {
			r.pass(100 * time.Millisecond)
		}
		id := r.describe.ID
		r.described(tasksOf(t, "0_1"), true, nil)
		r.m.OnDescribed(r.now, id, tasksOf(t, "1_1"), true, nil)
		r.step()
		want(t, r.last().Target.Equal(tasksOf(t, "0_1")), true)
	})
	t.Run("M63 lists that make no sense end the member", func(t *testing.T) {
		r := uncertain()
		r.described(tasksOf(t, "9_1"), true, nil)
		var pe *ProtocolError
		want(t, errors.As(r.failed, &pe), true)
		want(t, r.last().Lost, true)
	})
	t.Run("failures back off", func(t *testing.T) {
		r := uncertain()
		for r.describe == nil {
			r.pass(100 * time.Millisecond)
		}
		for n := 1; n <= 8; n++ {
			id := r.describe.ID
			r.describe = nil
			r.m.OnDescribed(r.now, id, Tasks{}, false, errors.New("not now"))
			d := r.m.describe.due.Sub(r.now)
			if least := min(50*time.Millisecond<<(n-1), time.Second) * 8 / 10; d < least {
				t.Fatalf("number %d is repeated after %v", n, d)
			}
			r.now = r.m.describe.due
			r.step()
		}
	})
	t.Run("nothing is asked for outside of the group", func(t *testing.T) {
		r := uncertain()
		r.m.OnLeave(r.now)
		r.pass(2 * describeJitter)
		want(t, r.describe == nil, true)
	})
}

func TestADescriptionIsPushedAgainWhenAskedForAgain(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Describes = true })
	for n := range 3 {
		resp := withTarget(answerOf(2), Tasks{})
		resp.TopologyDescriptionRequired = true
		r.reply(resp)
		want(t, r.push != nil, true)
		again := answerOf(2)
		again.TopologyDescriptionRequired = true
		r.push = nil
		r.reply(again)
		want(t, r.push == nil, true) // one at a time
		r.m.OnPushed(nil)
		r.step()
		want(t, r.push != nil, true) // asked for meanwhile
		r.m.OnPushed(nil)
		r.push = nil
		want(t, n+len(r.logs), n+count(r.logs, "DEBUG"))
	}
}

func TestP12NothingIsReleasedBeforeTheOwnerDroppedItsTasks(t *testing.T) {
	r := newRig(t, func(c *Config) { c.InstanceID = "i1" })
	resp := withTarget(answerOf(4), tasksOf(t, "0_0"))
	resp.HeartbeatIntervalMillis = 200
	r.reply(resp)
	r.ack()
	r.await()
	r.code(110)
	n := len(r.sent)
	r.pass(time.Minute)
	want(t, len(r.sent), n)
	at := r.now
	r.ack()
	want(t, r.await().MemberEpoch, int32(-2))
	want(t, r.now, at)
}

func TestM22TheErrorOfTheFirstJoinSaysHowOftenItWasSent(t *testing.T) {
	r := newRig(t, nil)
	r.code(14)
	r.code(14)
	r.code(30, "denied")
	var be *BrokerError
	want(t, errors.As(r.endErr, &be), true)
	want(t, be.Tries, 3)
	want(t, strings.Contains(be.Error(), "denied"), true)
}

func TestM50UnknownErrorsInARowAreCountedAnew(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	for range 3 {
		for range 4 {
			r.await()
			r.code(-1)
		}
		r.code(14)
	}
	want(t, r.failed == nil, true)
	r.ok(2)
	r.state(Stable)
}

func TestM46EndpointsHaveTheirPartitions(t *testing.T) {
	answer := func(active, standby []int32) *kmsg.StreamsGroupHeartbeatResponse {
		e := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpoint()
		e.UserEndpoint.Host, e.UserEndpoint.Port = "h", 65535
		a := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpointActivePartition()
		a.Topic, a.Partitions = "in", active
		s := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpointStandbyPartition()
		s.Topic, s.Partitions = "in", standby
		e.ActivePartitions, e.StandbyPartitions = append(e.ActivePartitions, a), append(e.StandbyPartitions, s)
		resp := answerOf(2)
		resp.PartitionsByUserEndpoint = append(resp.PartitionsByUserEndpoint, e)
		return resp
	}
	r := newRig(t, nil).stable(2, "0_0")
	for _, c := range []struct {
		active, standby []int32
		shown           string
	}{
		{[]int32{2, 0}, []int32{3, 1}, "[{{h 65535} [in/0 in/2] [in/1 in/3]}]"},
		{[]int32{0}, []int32{1, 3}, "[{{h 65535} [in/0] [in/1 in/3]}]"},
		{[]int32{0}, []int32{1}, "[{{h 65535} [in/0] [in/1]}]"},
	} {
		n := len(r.snaps)
		r.reply(answer(c.active, c.standby))
		want(t, len(r.snaps), n+1)
		want(t, strings.ReplaceAll(fmt.Sprint(r.last().Endpoints), "-", "/"), c.shown)
		r.reply(answer(c.active, c.standby))
		want(t, len(r.snaps), n+1)
	}
}

func TestM48EveryChangeIsNews(t *testing.T) {
	one, other := tasksOf(t, "0_0"), tasksOf(t, "0_1")
	base := func() Snapshot {
		return Snapshot{Target: one, Update: one.Update(), HasTarget: true, Ready: true, Endpoints: []EndpointPartitions{{Endpoint: Endpoint{"h", 1}}}}
	}
	a := base()
	b := base()
	b.Version, b.Epoch = 7, 7
	want(t, a.same(&b), true)
	for name, change := range map[string]func(s *Snapshot){
		"incarnation": func(s *Snapshot) { s.Incarnation++ },
		"target":      func(s *Snapshot) { s.Target = other },
		"role":        func(s *Snapshot) { s.Target = Tasks{Standby: one.Active} },
		"warm-up":     func(s *Snapshot) { s.Target = Tasks{Active: one.Active, Warmup: other.Active} },
		"standby":     func(s *Snapshot) { s.Target = Tasks{Active: one.Active, Standby: other.Active} },
		"update":      func(s *Snapshot) { s.Update = other.Update() },
		"has target":  func(s *Snapshot) { s.HasTarget = false },
		"ready":       func(s *Snapshot) { s.Ready = false },
		"lost":        func(s *Snapshot) { s.Lost = true },
		"shutdown":    func(s *Snapshot) { s.Shutdown = true },
		"status":      func(s *Snapshot) { s.Statuses = []Status{{AssignmentDelayed, "text"}} },
		"lag":         func(s *Snapshot) { s.AcceptableRecoveryLag++ },
		"interval":    func(s *Snapshot) { s.TaskOffsetInterval++ },
		"endpoint":    func(s *Snapshot) { s.Endpoints[0].Endpoint.Port++ },
		"endpoints":   func(s *Snapshot) { s.Endpoints = nil },
	} {
		b := base()
		change(&b)
		if a.same(&b) {
			t.Errorf("another %s is no news", name)
		}
	}
}

func TestOffsetsAreNotSentWhereTheIntervalIsZero(t *testing.T) {
	r := newRig(t, nil)
	silent := func(resp *kmsg.StreamsGroupHeartbeatResponse) { resp.TaskOffsetIntervalMillis = 0; r.reply(resp) }
	silent(withTarget(answerOf(2), tasksOf(t, "s:0_0")))
	r.ack()
	silent(answerOf(2))
	if err := r.m.OnTaskOffsets(map[TaskID]int64{{"0", 0}: 1}, nil); err != nil {
		t.Fatal(err)
	}
	silent(answerOf(2)) // the set had changed
	for n := range int64(30) {
		if err := r.m.OnTaskOffsets(map[TaskID]int64{{"0", 0}: 100 + n}, nil); err != nil {
			t.Fatal(err)
		}
		want(t, r.await().TaskOffsets == nil, true)
		silent(answerOf(2))
	}
}

func TestM64OffsetsOfTasksThatCannotBeMeant(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	for _, id := range []TaskID{{"", 0}, {"0", -1}} {
		var te *TaskError
		want(t, errors.As(r.m.OnTaskOffsets(map[TaskID]int64{id: 1}, nil), &te), true)
		want(t, errors.As(r.m.OnTaskOffsets(nil, map[TaskID]int64{id: 1}), &te), true)
	}
	want(t, r.m.offsets.values.set == nil && r.m.offsets.ends.set == nil, true)
}

func TestAWarmUpIsHotWithinTheLag(t *testing.T) {
	id := TaskID{"0", 0}
	for name, c := range map[string]struct {
		at, end, lag int64
		hot          bool
	}{
		"at the lag": {100, 110, 10, true}, "above it": {100, 111, 10, false}, "ahead of the end": {5, 3, 0, true},
		"a lag of 0": {5, 5, 0, true}, "position saturated": {math.MaxInt64, 1, 10, false},
		"end saturated": {math.MaxInt64 - 1, math.MaxInt64, 10, false}, "far apart": {math.MinInt64, math.MaxInt64 - 1, math.MaxInt64, false},
	} {
		o := offsets{values: report{set: map[TaskID]int64{id: c.at}}, ends: report{set: map[TaskID]int64{id: c.end}}}
		if got := o.hot(id, c.lag); got != c.hot {
			t.Errorf("%s: %v", name, got)
		}
		s := Snapshot{Target: Tasks{Warmup: []TaskID{id}}, AcceptableRecoveryLag: c.lag}
		want(t, o.due(testStart, &s), c.hot)
		s.AcceptableRecoveryLag = -1
		want(t, o.due(testStart, &s), false)
	}
	half := offsets{values: report{set: map[TaskID]int64{id: 0}}}
	want(t, half.hot(id, 10), false)
	half = offsets{ends: report{set: map[TaskID]int64{id: 0}}}
	want(t, half.hot(id, 10), false)
}

func TestP33APendingTaskIsListedInItsRole(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	r.reply(withTarget(answerOf(3), tasksOf(t, "0_0", "s:0_1", "w:1_0")))
	r.await()
	r.lose()
	r.carries("0_0", "s:0_1", "w:1_0")
	r.reply(withTarget(answerOf(3), tasksOf(t, "0_0", "0_1"))) // the owner may still make a standby of it
	r.await()
	r.lose()
	r.carries("0_0", "s:0_1", "w:1_0")
}
