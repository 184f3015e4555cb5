package streams

import (
	"errors"
	"testing"
	"time"
)

// The owner may have begun with tasks that it has not acknowledged, standbys too:
// a rejoin beside it is a second life of the same tasks.
func TestM53ALossWaitsForAnOwnerThatHasAcknowledgedNothingYet(t *testing.T) {
	for _, task := range []string{"0_0", "s:0_0", "w:0_0"} {
		r := newRig(t, nil)
		r.reply(withTarget(answerOf(2), tasksOf(t, task)))
		r.await()
		r.code(110)
		n := len(r.sent)
		r.pass(time.Minute)
		want(t, len(r.sent), n)
		r.state(Fenced)
		r.ack("")
		want(t, r.await().MemberEpoch, int32(0))
	}
}

// What the group said before a loss is not said of the time after it.
func TestM47ALossSaysNothingOfBefore(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	r.reply(withStatus(withStatus(withTarget(answerOf(2), tasksOf(t, "0_1")), 4, "m2 asks"), 0, "old"))
	want(t, r.last().Shutdown && r.last().Ready, true)
	n := r.last().Incarnation
	r.code(25)
	s := r.last()
	want(t, s.Lost && s.Incarnation == n+1, true)
	want(t, s.Ready || s.Shutdown || s.HasTarget || len(s.Statuses) > 0 || s.Epoch != 0, false)
	want(t, s.Target.IsEmpty() && s.Update.Active == nil && s.Update.Standby == nil && s.Update.Warmup == nil, true)
}

// A describe that is due is for the group's members only. It fails if it is due to
// one that leaves or has lost its tasks: the loop then spins until that is over.
func TestM70NothingIsDueToAMemberThatIsGoing(t *testing.T) {
	for name, end := range map[string]func(r *rig){
		"it leaves":         func(r *rig) { r.m.OnLeave(r.now) },
		"it is fenced":      func(r *rig) { r.m.OnHeartbeat(1); r.step(); r.code(110) },
		"nobody calls it":   func(r *rig) { r.m.cfg.PollInterval = time.Nanosecond },
		"it fails for ever": func(r *rig) { r.m.OnHeartbeat(1); r.step(); r.code(42) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil).stable(2, "0_0")
			r.await()
			r.lose()
			r.ok(2)
			want(t, r.m.describe.wanted, true)
			end(r)
			r.step()
			for range 40 {
				r.pass(100 * time.Millisecond)
				if d := r.m.Deadline(); !d.IsZero() && !d.After(r.now) {
					t.Fatalf("in state %v something is due at once, and nothing is done", r.m.state)
				}
			}
			want(t, r.describe == nil, true)
		})
	}
}

// A member that leaves owes nothing to the failures before.
func TestM57ALeaveWaitsForNoBackoff(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	for range 10 {
		r.code(-1, "")
		r.code(14)
	}
	at := r.now
	r.m.OnLeave(r.now)
	r.step()
	want(t, r.await().MemberEpoch, int32(-1))
	want(t, r.now, at)
	for range 5 { // the budget of -1, and short waits
		r.code(-1)
		want(t, r.ended, false)
	}
	want(t, r.retries[len(r.retries)-5].After < 100*time.Millisecond, true)
}

func TestM41AHeartbeatInALeaveIsToldOfTheLeave(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	r.code(110)
	r.ack("")
	r.lists(3, "0_0")
	r.m.OnLeave(r.now)
	r.m.OnHeartbeat(7)
	r.step()
	want(t, errors.Is(r.done[7], ErrLeft), true)
}

// What a member did before it came back does not decide how it ends.
func TestM50AMemberThatCameBackEndsAsAnyOther(t *testing.T) {
	r := newRig(t, func(c *Config) { c.PollInterval = 3 * time.Second }).stable(2, "0_0")
	want(t, r.await().MemberEpoch, int32(-1))
	r.ok(-1)
	r.state(Stale)
	r.ack("")
	r.m.OnTouch(r.now)
	r.step()
	want(t, r.await().MemberEpoch, int32(0))
	n := len(r.sent)
	r.code(30) // it may not leave either
	want(t, r.ended, true)
	r.pass(6 * time.Second)
	r.pass(time.Minute)
	want(t, len(r.sent), n)
	r.state(Failed)
}

// An offer that the owner declined is over with the snapshot that had it last: a
// list that names it longer holds the task back from the member that it is for.
func TestP33ADeclinedOfferIsNamedNoLonger(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	r.lists(3, "0_0", "0_1")
	first := r.last()
	r.lists(3, "0_0", "0_2")
	r.lists(3, "0_0", "0_3")
	want(t, r.m.OnAcknowledge(r.now, first, tasksOf(t, "0_0")), nil)
	r.step()
	r.await()
	r.lose()
	r.carries("0_0", "0_2", "0_3")
}

// Without lists a member may lack tasks for as long as the describe fails.
func TestM70ADescribeThatFailsIsTold(t *testing.T) {
	r := newRig(t, nil).stable(2, "0_0")
	r.lose()
	r.ok(2)
	for range 4 {
		r.described(Tasks{}, false, errors.New("not allowed"))
	}
	want(t, count(r.logs, "WARN task lists may be lost"), 1)
	r.described(tasksOf(t, "0_1"), true, nil)
	want(t, r.last().Target.Equal(tasksOf(t, "0_1")), true)
}

// A session's time of 81 or 111 counts from the first one of this join, not of a
// join long ago: the member would be fatal at the first.
func TestM50TheTimeOfAFullGroupBeginsAnewWithEachJoin(t *testing.T) {
	for code, instance := range map[int16]string{81: "", 111: "i1"} {
		r := newRig(t, func(c *Config) { c.InstanceID = instance }).stable(2, "0_0")
		for range 2 {
			r.await()
			r.code(110)
			r.ack("")
			for range 3 {
				for r.await().MemberEpoch == epochTemporary {
					r.ok(-2)
				}
				r.code(code)
				want(t, r.failed == nil, true)
			}
			for r.await().MemberEpoch == epochTemporary {
				r.ok(-2)
			}
			r.stable(3, "0_0")
			r.now = r.now.Add(time.Hour)
		}
	}
}

// A describe that was under way may be older than lists that came since, and one
// that comes to a member that leaves would bring it back.
func TestM70ADescribeThatIsOvertakenIsDropped(t *testing.T) {
	underWay := func() (*rig, uint64) {
		r := newRig(t, nil).stable(2, "0_0")
		r.lose()
		r.ok(2)
		for r.describe == nil {
			r.pass(100 * time.Millisecond)
		}
		return r, r.describe.ID
	}
	r, id := underWay()
	r.lists(3, "0_1")
	r.m.OnDescribed(r.now, id, tasksOf(t, "0_0"), true, nil)
	r.step()
	want(t, r.last().Target.Equal(tasksOf(t, "0_1")), true)
	r, id = underWay()
	r.m.OnLeave(r.now)
	r.m.OnDescribed(r.now, id, tasksOf(t, "0_1"), true, nil)
	r.step()
	r.state(Leaving)
	want(t, r.last().Target.Equal(tasksOf(t, "0_0")), true)
}
