package streams

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestM28_B233_P26AfterAnyFailureEverythingIsSent(t *testing.T) {
	fail := map[string]func(r *rig){
		"14": func(r *rig) { r.code(14) }, "16": func(r *rig) { r.code(16) }, "15": func(r *rig) { r.code(15) },
		"a lost connection": func(r *rig) { r.lose() },
	}
	for name, f := range fail {
		t.Run("steady, "+name, func(t *testing.T) {
			r := newRig(t, nil).stable(2, "0_0", "0_1")
			r.carriesNulls()
			forgets := r.forgets
			f(r)
			r.state(Stable)
			r.carries("0_0", "0_1")
			want(t, r.forgets > forgets, name != "14")
			r.ok(2)
			r.carriesNulls()
		})
		t.Run("P26 the acknowledging heartbeat, "+name, func(t *testing.T) {
			r := newRig(t, nil)
			r.lists(2, "0_0")
			r.ack()
			r.carries("0_0")
			f(r)
			r.carries("0_0")
			r.ok(2)
			r.carriesNulls()
		})
	}
}

func TestP27AfterASuccessfulAcknowledgementOnlyNulls(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	for range 100 {
		at := r.now
		r.carriesNulls()
		if d := r.now.Sub(at); d > 5*time.Second {
			t.Fatalf("a heartbeat after %v", d)
		}
		r.ok(2)
	}
}

func TestM26_M29AnOwnedSetSetInFlightStaysPending(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0", "0_1")
	r.carriesNulls()
	r.ack("0_0") // while the heartbeat is in flight
	want(t, r.m.Owned().Equal(tasksOf(t, "0_0")), true)
	r.ok(2)
	r.carries("0_0")
	r.lose()
	// lists stay pending over a reconnect; 0_1 is the target's and was acknowledged before
	r.carries("0_0")
	r.ok(2)
	r.carriesNulls()
}

func TestP33NoListLacksAPendingTask(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	r.carriesNulls()
	r.lists(3, "0_0", "0_1")
	r.carriesNulls() // the owner has not taken 0_1 over
	r.lose()         // the answer may have asked to give 0_1 up
	r.carries("0_0", "0_1")
	r.ok(3)
	want(t, r.describe != nil || r.m.describe.wanted, true)
	r.described(tasksOf(t, "0_0"), true, nil)
	r.ack()
	r.carries("0_0")
}

// A coordinator that wants a task back while a list lacks it gives it to another
// member with the very answer. So no list may lack what the owner may be taking
// over from any snapshot that it has not acknowledged.
func TestP33NoListLacksATaskThatIsBeingTakenOver(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	r.lists(3, "0_0", "0_1")
	first := r.last()
	r.lists(3, "0_0", "0_2")
	second := r.last()
	acknowledge := func(s Snapshot, active ...string) error {
		err := r.m.OnAcknowledge(r.now, s, tasksOf(t, active...))
		r.step()
		return err
	}
	want(t, acknowledge(first, "0_0", "0_1"), nil)
	r.carries("0_0", "0_1", "0_2") // 0_2 may be on its way to the owner
	r.lists(3, "0_0")
	r.carriesNulls()
	r.lose()
	r.carries("0_0", "0_1", "0_2") // the owner may be at the second snapshot
	r.ok(3)
	want(t, acknowledge(second, "0_0", "0_2"), nil)
	r.carries("0_0", "0_2")
	r.ok(3)
	r.ack()
	r.carries("0_0")
	r.ok(3)
	t.Run("what was declined may be another's", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		r.lists(3, "0_0", "0_1")
		declined := r.last()
		r.ack("0_0")
		r.carries("0_0")
		r.lists(4, "0_0")
		want(t, r.m.OnAcknowledge(r.now, declined, declined.Target), ErrStaleAssignment)
		want(t, r.m.Owned().Equal(tasksOf(t, "0_0")), true)
	})
}

func TestM70ListsThatWereLostAreFound(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	r.await()
	r.lose()
	r.await()
	at := r.now
	r.ok(3)
	want(t, r.describe == nil, true)
	r.described(Tasks{}, false, errors.New("the coordinator moved")) // is repeated
	if d := r.now.Sub(at); d > describeJitter+200*time.Millisecond {
		t.Errorf("the describe came after %v", d)
	}
	beats := len(r.sent)
	r.described(tasksOf(t, "0_0", "0_1"), true, nil)
	want(t, r.last().Target.Equal(tasksOf(t, "0_0", "0_1")), true)
	want(t, r.m.counts.Describes, uint64(2))
	r.state(Reconciling)
	r.ack()
	r.carries("0_0", "0_1")
	want(t, len(r.sent) > beats, true)
	r.ok(3)
	t.Run("lists in an answer end the search", func(t *testing.T) {
		r.await()
		r.lose()
		r.await()
		r.lists(4, "0_0")
		want(t, r.m.describe.wanted, false)
	})
	t.Run("a failure while one is on its way asks anew", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		r.await()
		r.lose()
		r.await()
		r.ok(2)
		for r.describe == nil {
			r.pass(100 * time.Millisecond)
		}
		old := r.describe.ID
		r.describe = nil
		r.await()
		r.lose()
		r.m.OnDescribed(r.now, old, tasksOf(t, "0_0", "0_1"), true, nil) // older than what was lost since
		r.step()
		want(t, r.last().Target.Equal(tasksOf(t, "0_0")), true)
		r.await()
		r.ok(2)
		r.described(tasksOf(t, "0_1"), true, nil)
		want(t, r.last().Target.Equal(tasksOf(t, "0_1")), true)
	})
}

// An answer that gave a task is lost, and before a describe finds the task it is
// taken back: the owner never had it, but the coordinator waits for lists without it.
func TestM70ATaskTakenBackBeforeItWasFoundIsGivenUp(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	r.await()
	r.lose() // gave 0_1
	r.carries("0_0")
	r.ok(3)
	r.m.OnHeartbeat(1) // sooner than the describe
	r.step()
	r.carriesNulls()
	r.lists(3, "0_0") // takes 0_1 back
	at := r.now
	r.carries("0_0")
	want(t, r.now, at)
	want(t, r.last().Target.Equal(tasksOf(t, "0_0")), true)
	r.ok(4)
	r.state(Stable)
	r.carriesNulls()
	t.Run("a coordinator that repeats lists is not answered twice", func(t *testing.T) {
		r.lists(4, "0_0")
		r.carries("0_0")
		r.lists(4, "0_0")
		r.state(Stable)
		want(t, r.out == nil, true)
		r.carriesNulls()
	})
}

func TestM37_M38CommandsNeverMoveTheDeadline(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	last := r.m.beat.last
	for range 12 {
		for range 5000 {
			r.pass(time.Millisecond)
			if r.out != nil {
				break
			}
			r.m.OnTouch(r.now)
			if err := r.m.OnTaskOffsets(nil, nil); err != nil {
				t.Fatal(err)
			}
			if err := r.m.OnAcknowledge(r.now, r.last(), r.last().Target); err != nil {
				t.Fatal(err)
			}
		}
		want(t, r.m.beat.last.Sub(last), 5*time.Second)
		last = r.m.beat.last
		r.ok(2)
	}
}

func TestM37ANewIntervalTakesEffectAtOnce(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	resp := answerOf(2)
	resp.HeartbeatIntervalMillis = 200
	r.reply(resp)
	sent := r.m.beat.last
	r.await()
	want(t, r.now.Sub(sent), 200*time.Millisecond)
	t.Run("M32 an interval that is not positive keeps the old one", func(t *testing.T) {
		for _, ms := range []int32{0, -5} {
			resp := answerOf(2)
			resp.HeartbeatIntervalMillis = ms
			r.reply(resp)
			sent := r.m.beat.last
			r.await()
			want(t, r.now.Sub(sent), 200*time.Millisecond)
		}
	})
	t.Run("the first answer without an interval means 5 s", func(t *testing.T) {
		r := newRig(t, nil)
		resp := withTarget(answerOf(1), Tasks{})
		resp.HeartbeatIntervalMillis = 0
		r.reply(resp)
		sent := r.m.beat.last
		r.await()
		want(t, r.now.Sub(sent), 5*time.Second)
	})
}

func TestM35ThrottlingIsHonoured(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	resp := answerOf(2)
	resp.ThrottleMillis = 20_000
	r.reply(resp)
	at := r.now
	r.m.OnShutdown() // hurries, and waits all the same
	r.step()
	r.await()
	want(t, r.now.Sub(at), 20*time.Second)
}

func TestM42_P2AnOutageOfAnyLengthIsSurvived(t *testing.T) {
	for _, d := range []time.Duration{10 * time.Minute, time.Hour} {
		r := newRig(t, nil).stable(2, "0_0")
		end := r.now.Add(d)
		codes := []int16{14, 15, 16}
		n := 0
		for r.await(); r.now.Before(end); r.await() {
			if n%4 == 3 {
				r.lose()
			} else {
				r.code(codes[n%4])
			}
			n++
		}
		r.ok(2)
		r.state(Stable)
		if late := r.now.Sub(end); late > 1200*time.Millisecond {
			t.Errorf("recovered %v late", late)
		}
		if gap := d / time.Duration(n); gap < 600*time.Millisecond {
			t.Errorf("%d attempts in %v: it spins", n, d)
		}
	}
}

func TestM51BackoffDoublesToASecondAndNeverOverflows(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	for n := 1; n <= 1000; n++ {
		r.await()
		r.code(14)
		base := min(50*time.Millisecond<<min(n-1, 10), time.Second)
		if d := r.retries[len(r.retries)-1].After; d < base*8/10 || d > base*12/10 {
			t.Fatalf("failure %d: %v, want about %v", n, d, base)
		}
	}
}

func TestM33_M34WhatAnswersNeverDo(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	before := r.m.snap
	resp := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	text := "loading"
	resp.ErrorCode, resp.ErrorMessage, resp.MemberEpoch, resp.HeartbeatIntervalMillis = 14, &text, 99, 1
	resp.MemberID, resp.EndpointInformationEpoch = "other", 50
	r.reply(resp)
	want(t, r.m.id.epoch, int32(2))
	want(t, r.m.id.member, "m1")
	want(t, r.m.id.endpoint, int32(0))
	want(t, r.m.beat.interval, 5*time.Second)
	want(t, r.m.snap.Version, before.Version)
	r.ok(-1) // a negative epoch is not stored
	want(t, r.m.id.epoch, int32(2))
	for range 2 {
		resp = answerOf(2)
		resp.MemberID = "m2"
		r.reply(resp)
	}
	want(t, r.m.id.member, "m2")
	want(t, count(r.logs, "another id"), 1)
	want(t, r.await().MemberID, "m2")
}

func count(lines []string, part string) int {
	n := 0
	for _, l := range lines {
		if strings.Contains(l, part) {
			n++
		}
	}
	return n
}

func TestP30_M30_M45NullIsNotEmpty(t *testing.T) {
	r := newRig(t, nil)
	want(t, r.m.snap.HasTarget, false)
	r.stable(2, "0_0")
	v := r.m.snap.Version
	r.ok(2) // nulls
	want(t, r.m.snap.Version, v)
	want(t, r.m.snap.Target.Equal(tasksOf(t, "0_0")), true)
	r.lists(2) // L()
	want(t, r.last().HasTarget && r.last().Target.IsEmpty(), true)
	want(t, r.last().Update.Active != nil && r.last().Update.Standby != nil && r.last().Update.Warmup != nil, true)
	r.ack()
	r.carries() // L() is sent after all was given up
}

func TestM63_B227AnAnswerThatMakesNoSenseChangesNothing(t *testing.T) {
	for name, spoil := range map[string]func(*kmsg.StreamsGroupHeartbeatResponse){
		"B227 some lists are null": func(p *kmsg.StreamsGroupHeartbeatResponse) { p.StandbyTasks = nil },
		"an unknown subtopology":   func(p *kmsg.StreamsGroupHeartbeatResponse) { p.ActiveTasks[0].SubtopologyID = "9" },
		"a negative partition":     func(p *kmsg.StreamsGroupHeartbeatResponse) { p.ActiveTasks[0].Partitions[0] = -1 },
		"twice in a role":          func(p *kmsg.StreamsGroupHeartbeatResponse) { p.ActiveTasks = append(p.ActiveTasks, p.ActiveTasks[0]) },
		"in two roles":             func(p *kmsg.StreamsGroupHeartbeatResponse) { p.StandbyTasks = append(p.StandbyTasks, p.ActiveTasks[0]) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil).stable(2, "0_0")
			resp := withTarget(answerOf(3), tasksOf(t, "0_1"))
			spoil(resp)
			r.reply(resp)
			var pe *ProtocolError
			if !errors.As(r.failed, &pe) {
				t.Fatalf("%v", r.failed)
			}
			want(t, r.last().Lost && r.last().Target.IsEmpty(), true)
			want(t, count(r.logs, "ERROR"), 1)
			for _, s := range r.snaps {
				if s.Target.Equal(tasksOf(t, "0_1")) {
					t.Error("its lists were applied")
				}
			}
			n := len(r.sent)
			r.ack() // the owner dropped everything
			want(t, r.await().MemberEpoch, int32(-1))
			want(t, len(r.sent), n+1)
			r.ok(-1)
			want(t, r.ended, true)
		})
	}
	t.Run("the leave goes out after 5 s if nobody acknowledges", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		resp := withTarget(answerOf(3), tasksOf(t, "0_1"))
		resp.WarmupTasks = nil
		r.reply(resp)
		at := r.now
		want(t, r.await().MemberEpoch, int32(-1))
		want(t, r.now.Sub(at), 5*time.Second)
		for !r.ended {
			r.lose()
			for r.out == nil && !r.ended {
				r.now = r.m.Deadline()
				r.step()
			}
		}
		if d := r.now.Sub(at); d > 11*time.Second {
			t.Errorf("the leave was tried for %v", d)
		}
	})
}

func TestP18_P32AnEpochAloneIsNoNews(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	n := len(r.snaps)
	r.ok(7)
	want(t, len(r.snaps), n)
	g, ok := r.m.Metadata()
	want(t, ok && g.Generation == 7, true)
	want(t, r.await().MemberEpoch, int32(7))
	r.state(Stable)
}

func TestP3EpochsAreAdoptedAsTheyCome(t *testing.T) {
	r := newRig(t, nil)
	r.lists(7)
	r.ack()
	r.ok(9)
	r.await()
	r.lists(8, "0_0")
	want(t, r.m.id.epoch, int32(8))
	want(t, len(r.snaps), 2)
	want(t, r.snaps[0].Target.IsEmpty() && r.snaps[1].Target.Equal(tasksOf(t, "0_0")), true)
}

func TestP9ASessionMovesToABrokerOfVersion0(t *testing.T) {
	r := newRig(t, nil)
	r.reply(withTarget(answerOf(2), tasksOf(t, "0_0", "w:0_1")))
	r.ack()
	r.carries("0_0", "w:0_1")
	r.version = 0
	r.code(16)
	r.carries("0_0") // brokers of version 0 refuse warm-ups
	want(t, r.out.Req.WarmupTasks != nil, true)
	r.ok(2)
	r.carriesNulls()
	r.version = 1
	r.code(14)
	r.carries("0_0", "w:0_1")
}

func TestOffsetsGoWhenItIsTimeForThem(t *testing.T) {
	one := map[TaskID]int64{{"0", 0}: 10}
	r := newRig(t, func(c *Config) { c.Offsets = one }).stable(2, "0_0")
	_ = r.m.OnTaskOffsets(map[TaskID]int64{{"0", 0}: 20}, nil)
	r.carriesNulls()
	// the owned set changed, so they go along; ends are unset
	want(t, len(r.out.Req.TaskOffsets), 1)
	want(t, r.out.Req.TaskEndOffsets == nil, true)
	at := r.now
	r.ok(2)
	_ = r.m.OnTaskOffsets(map[TaskID]int64{{"0", 0}: 30}, map[TaskID]int64{})
	for r.await().TaskOffsets == nil {
		r.ok(2)
	}
	if d := r.now.Sub(at); d != 60*time.Second {
		t.Errorf("the next offsets came after %v", d)
	}
	want(t, r.out.Req.TaskEndOffsets == nil, true) // the join sent an empty list already
	r.lose()
	q := r.await() // a failure clears the memory; the time is not used up
	want(t, len(q.TaskOffsets) == 1 && q.TaskEndOffsets != nil, true)
	r.ok(2)
	want(t, r.await().TaskOffsets == nil, true)
}

func TestHotWarmUpsHurryTheirOffsets(t *testing.T) {
	for _, c := range []struct {
		name    string
		at, end int64
		hot     bool
	}{
		{"far behind", 10, 100_000, false}, {"near", 95_000, 100_000, true}, {"beyond the end", 200, 100, true},
		{"saturated", math.MaxInt64, math.MaxInt64, false}, {"as far as can be", math.MinInt64, math.MaxInt64 - 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.reply(withTarget(answerOf(2), tasksOf(t, "w:0_1")))
			r.ack()
			_ = r.m.OnTaskOffsets(map[TaskID]int64{{"0", 1}: 1}, map[TaskID]int64{{"0", 1}: 1})
			r.ok(2)
			for r.await().TaskOffsets == nil { // the change of the owned set is used up
				r.ok(2)
			}
			r.ok(2)
			_ = r.m.OnTaskOffsets(map[TaskID]int64{{"0", 1}: c.at}, map[TaskID]int64{{"0", 1}: c.end})
			want(t, r.await().TaskOffsets != nil, c.hot)
		})
	}
}
