package streams

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestM16TheJoinCarriesEverythingOnce(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.InstanceID, c.RackID, c.Endpoint = "i1", "r1", &Endpoint{"host", 40000}
		c.Tags = map[string]string{"z": "1", "a": "2"}
		c.Offsets = map[TaskID]int64{{"0", 1}: 7}
	})
	q := r.await()
	t.Run("M8 instance", func(t *testing.T) { want(t, *q.InstanceID, "i1") })
	t.Run("M9 rack", func(t *testing.T) { want(t, *q.RackID, "r1") })
	t.Run("M10 process", func(t *testing.T) { want(t, *q.ProcessID, "p1") })
	t.Run("M11 endpoint", func(t *testing.T) {
		want(t, q.UserEndpoint.Host, "host")
		want(t, q.UserEndpoint.Port, uint16(40000))
	})
	t.Run("M12 tags are sorted", func(t *testing.T) {
		want(t, len(q.ClientTags), 2)
		want(t, q.ClientTags[0].Key+q.ClientTags[1].Key, "az")
	})
	t.Run("M17 endpoint epoch", func(t *testing.T) { want(t, q.EndpointInformationEpoch, int32(-1)) })
	want(t, q.MemberEpoch, int32(0))
	want(t, q.RebalanceTimeoutMillis, int32(300_000))
	want(t, q.ShutdownApplication, false)
	want(t, len(q.TaskOffsets), 1)
	want(t, q.TaskEndOffsets != nil, true)
	for _, l := range [][]kmsg.TaskIDs{q.ActiveTasks, q.StandbyTasks, q.WarmupTasks} {
		want(t, l != nil && len(l) == 0, true)
	}
	r.lists(2)
	r.ack()
	r.ok(2)
	q = r.await()
	t.Run("M24 M25 M27 a steady heartbeat carries nothing of it but the instance id", func(t *testing.T) {
		want(t, q.MemberEpoch, int32(2))
		want(t, q.RebalanceTimeoutMillis, int32(-1))
		want(t, *q.InstanceID, "i1")
		want(t, q.Topology == nil && q.RackID == nil && q.ProcessID == nil && q.UserEndpoint == nil && q.ClientTags == nil &&
			q.ActiveTasks == nil && q.TaskOffsets == nil && q.TaskEndOffsets == nil, true)
	})
}

func want[T comparable](t testing.TB, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestM12WithoutTagsTheListIsEmptyAndOptionalFieldsAreAbsent(t *testing.T) {
	q := newRig(t, nil).await()
	want(t, q.ClientTags != nil && len(q.ClientTags) == 0, true)
	want(t, q.InstanceID == nil && q.RackID == nil && q.UserEndpoint == nil, true)
}

// TestP10NoRequestOfVersion0HasTaskOffsets: brokers before 4.4 refuse any list,
// an empty one too; the rig refuses it for every request it sees.
func TestP10_M20_M31NoRequestOfVersion0HasTaskOffsets(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Offsets = map[TaskID]int64{{"0", 0}: 5} })
	// the first look-up was answered with version 1 before the test could say so
	want(t, r.out.Req.TaskOffsets != nil && r.out.Req.TaskEndOffsets != nil, true)
	r.version = 0
	r.lose()
	if err := r.m.OnTaskOffsets(map[TaskID]int64{{"0", 0}: 9}, map[TaskID]int64{{"0", 0}: 9}); err != nil {
		t.Fatal(err)
	}
	q := r.await()
	want(t, q.Version, int16(0))
	want(t, q.TaskOffsets == nil && q.TaskEndOffsets == nil, true)
	r.lists(2, "0_0")
	r.ack()
	want(t, r.await().TaskOffsets == nil, true)
	r.ok(2)
	// the values are kept for a connection of version 1
	r.version = 1
	r.await()
	r.code(16)
	q = r.await()
	want(t, q.Version, int16(1))
	want(t, len(q.TaskOffsets), 1)
	want(t, q.TaskOffsets[0].Offset, int64(9))
}

func TestM13_M22_M50TheFirstJoinRetriesWithinItsBudget(t *testing.T) {
	for _, code := range []int16{0, -1, 14, 15, 16, 27, 25, 110, 113} {
		r := newRig(t, nil)
		for range 6 {
			if r.ended {
				t.Fatalf("code %d: ended early", code)
			}
			if code == 0 {
				r.lose()
			} else {
				r.code(code, "no")
			}
		}
		if code == 0 {
			// it may have joined: M23
			want(t, r.await().MemberEpoch, int32(-1))
			r.ok(-1)
			var fe *FailedError
			if !errors.As(r.endErr, &fe) || fe.Tries != 6 {
				t.Fatalf("%v", r.endErr)
			}
			continue
		}
		var be *BrokerError
		if !r.ended || !errors.As(r.endErr, &be) || be.Code != code || be.Tries != 6 || !strings.Contains(be.Message, "no") || be.Group != "g" {
			t.Fatalf("code %d: %v", code, r.endErr)
		}
		want(t, len(r.retries), 5)
		want(t, len(r.sent), 6)
	}
}

func TestM50FatalCodesEndTheFirstJoinAtOnce(t *testing.T) {
	for code, in := range map[int16]string{
		29: "TOPIC_AUTHORIZATION_FAILED", 30: "GROUP_AUTHORIZATION_FAILED", 31: "CLUSTER_AUTHORIZATION_FAILED", 24: "INVALID_GROUP_ID",
		42: "new group id", 81: "group.streams.max.size", 82: "instance id", 131: "STREAMS_INVALID_TOPOLOGY_EPOCH", 132: "STREAMS_TOPOLOGY_FENCED", 999: "error code 999",
	} {
		r := newRig(t, nil)
		r.code(code, "said the broker.")
		if !r.ended || len(r.sent) != 1 || r.joined {
			t.Fatalf("code %d: ended %v after %d requests", code, r.ended, len(r.sent))
		}
		if s := r.endErr.Error(); !strings.Contains(s, in) || !strings.Contains(s, "said the broker") {
			t.Errorf("code %d: %s", code, s)
		}
		if ke := kerr.ErrorForCode(code); code < 999 && !errors.Is(r.endErr, ke) {
			t.Errorf("code %d is no %v", code, ke)
		}
	}
}

func TestB220TopologyAndConfigurationErrorsAreFinal(t *testing.T) {
	for _, code := range []int16{130, 131, 132, 42, 81, 35} {
		r := newRig(t, nil)
		r.code(code, "the broker's text")
		if !r.ended || len(r.sent) != 1 || len(r.snaps) > 1 || !strings.Contains(r.endErr.Error(), "the broker's text") {
			t.Errorf("code %d: %v after %d requests", code, r.endErr, len(r.sent))
		}
		if code == 35 && !strings.Contains(r.endErr.Error(), "streams.version") {
			t.Errorf("no hint in %v", r.endErr)
		}
	}
	r := newRig(t, nil)
	r.noAnswer = true
	r.lose()
	r.pass(time.Second)
	r.m.OnLookupFailed(r.now, r.looking, 0, &UnsupportedError{"API 88", "Kafka 4.2"})
	r.step()
	var ue *UnsupportedError
	if !r.ended || !errors.As(r.endErr, &ue) {
		t.Errorf("%v", r.endErr)
	}
}

func TestB217AJoinWhoseAnswerIsLostIsLeft(t *testing.T) {
	for instance, epoch := range map[string]int32{"": -1, "i1": -2} {
		r := newRig(t, func(c *Config) { c.InstanceID = instance })
		r.m.OnAbandon(r.now, errors.New("no time"))
		r.out = nil // its answer is dropped
		r.step()
		q := r.await()
		want(t, q.MemberEpoch, epoch)
		want(t, q.MemberID, "m1")
		r.ok(epoch)
		want(t, r.ended, true)
		want(t, r.endErr.Error(), "no time")
	}
}

func TestM23AJoinThatWasNeverSentIsNotLeft(t *testing.T) {
	r := newRig(t, nil)
	r.code(14)
	r.m.OnAbandon(r.now, errors.New("no time"))
	r.step()
	want(t, r.ended, true)
	want(t, len(r.sent), 1)
}

func TestM18LookUpErrorsFollowTheTable(t *testing.T) {
	r := newRig(t, nil)
	r.noAnswer = true
	r.code(16)
	r.await0()
	r.m.OnLookupFailed(r.now, r.looking, 30, errors.New("denied"))
	r.step()
	var be *BrokerError
	if !r.ended || !errors.As(r.endErr, &be) || be.Code != 30 || be.Group != "g" {
		t.Fatalf("%v", r.endErr)
	}
}

// await0 lets time pass until a look-up is out.
func (r *rig) await0() {
	r.t.Helper()
	for range 10 {
		if at := r.m.Deadline(); !at.IsZero() && at.After(r.now) {
			r.now = at
		}
		r.step()
	}
}

func TestP14AnInstanceIDOnVersion0IsRefusedHere(t *testing.T) {
	r := newRig(t, func(c *Config) { c.InstanceID = "i1" })
	r.stable(2, "0_0")
	r.await()
	r.version = 0
	n := len(r.sent)
	r.code(16) // the coordinator moves to an older broker
	r.await0()
	var ue *UnsupportedError
	if !errors.As(r.failed, &ue) || !strings.Contains(ue.Error(), "4.4") {
		t.Fatalf("%v", r.failed)
	}
	want(t, len(r.sent), n) // nothing on the wire, no leave either
	want(t, r.last().Lost, true)
	want(t, r.ended, true)
}

func TestM61_B218HowMembersLeave(t *testing.T) {
	for _, c := range []struct {
		name, instance string
		mode           LeaveMode
		epoch          int32 // 0 = nothing is sent
	}{
		{"dynamic", "", LeaveAuto, -1}, {"dynamic, leave", "", LeaveGroup, -1}, {"dynamic, remain", "", Remain, 0},
		{"static", "i1", LeaveAuto, -2}, {"static, leave", "i1", LeaveGroup, -1},
		{"static, temporarily", "i1", LeaveTemporarily, -2}, {"static, remain", "i1", Remain, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.InstanceID, cfg.OnLeave = c.instance, c.mode })
			r.stable(3, "0_0")
			n := len(r.sent)
			r.m.OnLeave(r.now)
			r.step()
			if c.epoch == 0 {
				want(t, len(r.sent), n)
			} else {
				want(t, r.await().MemberEpoch, c.epoch)
				r.ok(c.epoch)
			}
			want(t, r.ended && r.endErr == nil, true)
			r.state(Left)
		})
	}
}

func TestP12StaticMembersReleaseBeforeTheyJoinAgain(t *testing.T) {
	static := func(c *Config) { c.InstanceID = "i1" }
	t.Run("111 to a join", func(t *testing.T) {
		r := newRig(t, static)
		r.code(111)
		want(t, r.await().MemberEpoch, int32(-2))
		r.ok(-2)
		want(t, r.await().MemberEpoch, int32(0))
		r.lists(4, "0_0")
		want(t, r.joined, true)
	})
	t.Run("82 to the release: the join is repeated for a session", func(t *testing.T) {
		r := newRig(t, static)
		began := r.now
		r.code(111)
		want(t, r.await().MemberEpoch, int32(-2))
		r.code(82)
		for !r.ended {
			want(t, r.await().MemberEpoch, int32(0))
			r.code(111)
		}
		if d := r.now.Sub(began); d < 45*time.Second || d > 47*time.Second {
			t.Errorf("it gave up after %v", d)
		}
		if !strings.Contains(r.endErr.Error(), "instance id is in use") {
			t.Errorf("%v", r.endErr)
		}
	})
	t.Run("110: the release comes before the join", func(t *testing.T) {
		r := newRig(t, static)
		r.stable(4, "0_0")
		r.await()
		r.code(110)
		r.ack()
		want(t, r.await().MemberEpoch, int32(-2))
		r.ok(-2)
		want(t, r.await().MemberEpoch, int32(0))
	})
	t.Run("25: nothing is held, the join follows alone", func(t *testing.T) {
		r := newRig(t, static)
		r.stable(4, "0_0")
		r.await()
		r.code(25)
		r.ack()
		want(t, r.await().MemberEpoch, int32(0))
	})
	t.Run("M57 82 to a leave is success", func(t *testing.T) {
		r := newRig(t, static)
		r.stable(4, "0_0")
		r.m.OnLeave(r.now)
		r.step()
		r.code(82)
		want(t, r.ended && r.endErr == nil, true)
	})
}

func TestP1_P31RejoinsThatAreRefused(t *testing.T) {
	t.Run("P1 110 to three rejoins", func(t *testing.T) {
		r := newRig(t, nil)
		r.stable(5, "0_0")
		r.await()
		r.code(110)
		r.ack()
		var waits []time.Duration
		for range 3 {
			at := r.now
			want(t, r.await().MemberID, "m1")
			want(t, r.out.Req.MemberEpoch, int32(0))
			waits = append(waits, r.now.Sub(at))
			r.code(110)
		}
		r.await()
		r.lists(6, "0_0")
		r.state(Reconciling)
		if !(waits[0] == 0 && waits[1] > 0 && waits[2] > waits[1]) {
			t.Errorf("waits %v", waits)
		}
	})
	t.Run("P31 81 to a rejoin ends after a session and says why", func(t *testing.T) {
		r := newRig(t, nil)
		r.stable(5, "0_0")
		r.await()
		r.code(25)
		r.ack()
		began := r.now
		for !r.ended {
			r.await()
			r.code(81)
		}
		if d := r.now.Sub(began); d < 45*time.Second || d > 47*time.Second || !strings.Contains(r.endErr.Error(), "group.streams.max.size") {
			t.Errorf("after %v: %v", d, r.endErr)
		}
	})
	t.Run("69 to a rejoin is another kind of group", func(t *testing.T) {
		r := newRig(t, nil)
		r.stable(5, "0_0")
		r.await()
		r.code(69)
		r.ack()
		r.await()
		r.code(69, "Group g is not a streams group.")
		var ge *GroupTypeError
		if !r.ended || !errors.As(r.endErr, &ge) || !errors.Is(r.endErr, kerr.GroupIDNotFound) {
			t.Errorf("%v", r.endErr)
		}
	})
}

func TestM52_M53ARejoinWaitsForTheOwnerAndHurriesThen(t *testing.T) {
	r := newRig(t, func(c *Config) { c.RackID = "r1" })
	r.stable(5, "0_0", "0_1")
	r.await()
	n := len(r.sent)
	r.code(110)
	r.state(Fenced)
	if _, ok := r.m.Metadata(); ok {
		t.Fatal("there is an epoch to commit with")
	}
	r.pass(time.Hour)
	want(t, len(r.sent), n)
	at := r.now
	r.ack()
	want(t, len(r.sent), n+1)
	want(t, r.now, at)
	q := r.out.Req
	want(t, q.MemberID == "m1" && *q.RackID == "r1" && q.Topology != nil && q.MemberEpoch == 0, true)
	r.carries()
	r.lists(6, "0_0")
	want(t, len(r.sent), n+1) // no needless heartbeat
}

func TestAMemberThatHeldNothingRejoinsAtOnce(t *testing.T) {
	r := newRig(t, nil)
	r.lists(1)
	r.ack()
	r.ok(1)
	r.await()
	r.code(25)
	want(t, r.await().MemberEpoch, int32(0))
}
