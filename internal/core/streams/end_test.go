package streams

import (
	"errors"
	"testing"
	"time"
)

func TestM50AMemberThatFailedLeavesOnceItsOwnerIsDone(t *testing.T) {
	quick := func() *rig {
		r := newRig(t, nil)
		resp := withTarget(answerOf(2), tasksOf(t, "0_0"))
		resp.HeartbeatIntervalMillis = 200
		r.reply(resp)
		r.ack()
		resp = answerOf(2)
		resp.HeartbeatIntervalMillis = 200
		r.reply(resp)
		return r
	}
	t.Run("at once after its acknowledgement", func(t *testing.T) {
		r := quick()
		r.await()
		r.code(42)
		n := len(r.sent)
		r.pass(4900 * time.Millisecond) // many intervals
		want(t, len(r.sent), n)
		at := r.now
		r.ack()
		want(t, r.await().MemberEpoch, int32(-1))
		want(t, r.now, at)
		r.pass(4 * time.Second)
		r.ack() // once more
		r.pass(time.Second)
		want(t, r.ended, true) // the first one's 5 s
	})
	t.Run("at once if there were no tasks", func(t *testing.T) {
		r := newRig(t, nil)
		r.lists(2)
		r.ack()
		r.ok(2)
		r.await()
		at := r.now
		r.code(42)
		want(t, r.await().MemberEpoch, int32(-1))
		want(t, r.now, at)
	})
}

func TestM57ALeaveIsRepeatedAfterWhatPasses(t *testing.T) {
	for _, code := range []int16{0, 14, 15, 16, 27, -1} {
		r := newRig(t, nil).stable(2, "0_0")
		r.m.OnLeave(r.now)
		r.step()
		for range 2 {
			if code == 0 {
				r.lose()
			} else {
				r.code(code)
			}
			want(t, r.ended, false)
			want(t, r.await().MemberEpoch, int32(-1))
		}
		r.ok(-1)
		want(t, r.ended && r.endErr == nil, true)
	}
	t.Run("-1 within the budget", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		r.m.OnLeave(r.now)
		r.step()
		for n := 0; !r.ended; n++ {
			want(t, n <= 5, true)
			r.code(-1)
		}
		want(t, r.endErr != nil, true)
	})
	t.Run("a heartbeat that it overtook fails late", func(t *testing.T) {
		r := newRig(t, nil).stable(2, "0_0")
		r.await()
		old := r.out.ID
		r.m.OnLeave(r.now)
		r.step()
		r.m.OnFailure(r.now, old, errors.New("lost"), false)
		r.step()
		want(t, len(r.retries), 0)
		r.ok(-1)
		want(t, r.ended && r.endErr == nil, true)
	})
}

func TestM58WhatComesAfterALeaveDoesNotUndoIt(t *testing.T) {
	r := newRig(t, nil)
	r.lists(2, "0_0")
	s := r.last()
	r.m.OnLeave(r.now)
	r.step()
	if err := r.m.OnAcknowledge(r.now, s, s.Target); err != nil {
		t.Fatal(err)
	}
	r.step()
	r.state(Leaving)
	r.m.OnLeave(r.now) // a second one
	r.step()
	n := len(r.sent)
	r.ok(-1)
	r.state(Left)
	r.m.OnLeave(r.now)
	r.step()
	want(t, len(r.sent), n)
}

func TestM22AJoinThatSucceededIsNotAbandoned(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	r.m.OnAbandon(r.now, errors.New("no time"))
	r.step()
	r.state(Stable)
	want(t, r.failed == nil, true)
	t.Run("nor is one that failed failed again", func(t *testing.T) {
		r := newRig(t, nil)
		r.code(30)
		err := r.endErr
		r.m.OnAbandon(r.now, errors.New("no time"))
		r.step()
		want(t, r.m.Err(), err)
	})
	t.Run("a static one leaves for good if it is told to", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.InstanceID, c.OnLeave = "i1", LeaveGroup })
		r.m.OnAbandon(r.now, errors.New("no time"))
		r.out = nil
		r.step()
		want(t, r.await().MemberEpoch, int32(-1))
	})
}

// The owner of a member that left by itself: it comes back, or it leaves.
func TestM61AMemberThatIsNotTouchedLeavesByItself(t *testing.T) {
	for instance, epoch := range map[string]int32{"": -1, "i1": -2} {
		alone := func(mode LeaveMode) *rig {
			r := newRig(t, func(c *Config) { c.InstanceID, c.PollInterval, c.OnLeave = instance, 3*time.Second, mode })
			r.lists(4, "0_0")
			r.ack()
			at := r.now
			r.ok(4)
			want(t, r.await().MemberEpoch, epoch) // before the next heartbeat would be due
			want(t, r.now.Sub(at), 3*time.Second)
			want(t, r.last().Lost, false)
			r.ok(epoch)
			r.state(Stale)
			want(t, r.last().Lost, true)
			return r
		}
		r := alone(Remain)
		n := len(r.sent)
		r.m.OnTouch(r.now) // the owner still runs the tasks
		r.pass(time.Minute)
		want(t, len(r.sent), n)
		r.ack()
		r.pass(time.Minute)
		want(t, len(r.sent), n)
		r.m.OnTouch(r.now)
		r.step()
		want(t, r.await().MemberEpoch, int32(0))
		r.lists(5, "0_0")
		r.state(Reconciling)

		r = alone(LeaveAuto)
		n = len(r.sent)
		r.m.OnLeave(r.now)
		r.step()
		r.state(Left)
		want(t, r.ended && r.endErr == nil, true)
		want(t, len(r.sent), n)
	}
	t.Run("a leave that meets it ends the member", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.PollInterval = 3 * time.Second }).stable(2, "0_0")
		want(t, r.await().MemberEpoch, int32(-1))
		n := len(r.sent)
		r.m.OnLeave(r.now)
		r.step()
		want(t, len(r.sent), n)
		r.ok(-1)
		r.state(Left)
		want(t, r.ended && r.endErr == nil, true)
	})
}

func TestM41_M43WhoWaitsForAHeartbeatIsTold(t *testing.T) {
	asked := func() *rig {
		r := newRig(t, nil).stable(2, "0_0")
		r.m.OnHeartbeat(1)
		r.m.OnHeartbeat(2)
		r.step()
		return r
	}
	ended := func(r *rig, why func(error) bool) {
		t.Helper()
		for id := uint64(1); id <= 2; id++ {
			if err, done := r.done[id]; !done || !why(err) {
				t.Fatalf("call %d: done %v, %v", id, done, err)
			}
		}
	}
	broker := func(code int16) func(error) bool {
		return func(err error) bool { var be *BrokerError; return errors.As(err, &be) && be.Code == code }
	}
	r := asked()
	r.code(42) // fatal
	ended(r, broker(42))
	r = asked()
	r.code(110) // a loss
	ended(r, broker(110))
	n := len(r.sent)
	r.m.OnHeartbeat(3) // the caller may be the owner, who has to acknowledge the loss
	r.step()
	want(t, broker(110)(r.done[3]), true)
	want(t, len(r.sent), n)
	r = newRig(t, func(c *Config) { c.PollInterval = time.Second }).stable(2, "0_0")
	r.m.OnHeartbeat(1)
	r.m.OnHeartbeat(2)
	r.step()
	r.pass(time.Second)
	ended(r, func(err error) bool { return errors.Is(err, ErrNotTouched) })
	r = asked()
	r.m.OnLeave(r.now)
	r.step()
	ended(r, func(err error) bool { return errors.Is(err, ErrLeft) })
	_, ok := r.m.Metadata()
	want(t, ok, false)
}

// The answer to a heartbeat that was on its way when the member ended: one that is
// taken has a member that nobody owns heartbeat for ever, and hold its tasks.
func TestM50AnAnswerToAMemberThatEndedIsDropped(t *testing.T) {
	for name, end := range map[string]func(r *rig){
		"source topics are missing": func(r *rig) {
			r.pass(r.m.watch.missing.Add(7 * time.Second).Sub(r.now))
		},
		"M70 M63 a describe makes no sense": func(r *rig) {
			r.m.OnDescribed(r.now, r.describe.ID, tasksOf(t, "9_9"), true, nil)
			r.step()
		},
		"the client is closed": func(r *rig) {
			r.m.OnClosed(r.now, errors.New("closed"))
			r.step()
		},
		"M61 it leaves without a word": func(r *rig) {
			r.m.OnLeave(r.now)
			r.step()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.MissingSources, c.OnLeave = 7*time.Second, Remain }).stable(2, "0_0")
			r.lose()
			r.reply(withStatus(answerOf(2), 1, "Source topics in are missing."))
			for r.describe == nil {
				r.pass(100 * time.Millisecond)
			}
			r.await()
			answer := r.out.ID
			end(r)
			state, sent, last := r.m.State(), len(r.sent), r.m.Snapshot().Version
			r.m.OnAnswer(r.now, answer, withTarget(answerOf(3), tasksOf(t, "0_1")))
			r.step()
			r.state(state)
			_, commits := r.m.Metadata()
			want(t, commits, false)
			want(t, len(r.sent), sent)
			want(t, r.m.Snapshot().Version, last)
			want(t, state == Failed || state == Left, true)
		})
	}
}
