package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
)

func TestM2ManyMembersShareAClientsSockets(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 20 {
			w.join(func(c *Config) { c.MemberID = fmt.Sprintf("m%d", i) })
		}
		time.Sleep(time.Minute)
		if n := w.sim.Broker(1).Accepted(); n > 2 {
			t.Errorf("%d connections for 20 members", n)
		}
		if n := w.sim.Broker(1).Count(keyHeartbeat); n < 20*12 {
			t.Errorf("%d heartbeats in a minute", n)
		}
	})
}

func TestM19TheCoordinatorIsAskedWhetherItCan(t *testing.T) {
	t.Run("no API 88", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.sim.Broker(1).RemoveVersions(keyHeartbeat)
			unsupported(t, w, "4.2")
		})
	})
	t.Run("P14 the feature is off", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.sim.Update(func(tp *sim.Topology) { tp.Features = nil })
			w.c.Close() // the client knows the features of its connections
			w.c = w.connect()
			unsupported(t, w, "streams.version")
		})
	})
	t.Run("P14 an instance id on version 0", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.sim.Broker(1).SetVersions(keyHeartbeat, 0, 0)
			w.c.Close()
			w.c = w.connect()
			unsupported(t, w, "4.4", func(c *Config) { c.InstanceID = "i1" })
		})
	})
	t.Run("M20 version 0 works", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.sim.Broker(1).SetVersions(keyHeartbeat, 0, 0)
			w.c.Close()
			w.c = w.connect()
			w.co.assign(all("0_0"))
			m := w.join()
			w.own(m, nil)
			time.Sleep(time.Minute)
			if m.Info().State != Stable || w.lastRequest().Version != 0 {
				t.Errorf("%v, version %d", m.Info().State, w.lastRequest().Version)
			}
		})
	})
}

func unsupported(t *testing.T, w *world, text string, change ...func(*Config)) {
	t.Helper()
	_, err := w.tryJoin(t.Context(), change...)
	var ue *UnsupportedError
	if !errors.As(err, &ue) || !strings.Contains(err.Error(), text) {
		t.Fatalf("%v", err)
	}
	if n := w.sim.Count(keyHeartbeat); n != 0 {
		t.Errorf("%d heartbeats were sent", n)
	}
}

func TestM18TheCoordinatorIsLookedUpAfterItMoved(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.assign(all("0_0"))
		m := w.join()
		w.own(m, nil)
		time.Sleep(10 * time.Second)
		w.moveTo(2)
		time.Sleep(10 * time.Second)
		if n := w.sim.Broker(2).Count(keyHeartbeat); n == 0 {
			t.Fatal("the new coordinator got no heartbeat")
		}
		if i := m.Info(); i.Rejoins != 0 || i.State != Stable || i.Failures == 0 {
			t.Errorf("%+v", i)
		}
		// the first heartbeat there carries everything
		for _, f := range w.sim.Broker(2).FramesOf(keyHeartbeat)[:1] {
			if l, ok := listsOf(f.Req.(*kmsg.StreamsGroupHeartbeatRequest)); !ok || l != "0_0" {
				t.Errorf("lists %q %v", l, ok)
			}
		}
	})
}

func TestP4ACoordinatorThatMovesTwiceCostsOneJoinAndNoLeave(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.join()
		time.Sleep(time.Second)
		w.moveTo(2)
		time.Sleep(time.Second)
		w.moveTo(1)
		time.Sleep(20 * time.Second)
		w.moveTo(2)
		w.moveTo(1)
		w.moveTo(2)
		if err := m.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		joins, leaves := 0, 0
		for _, r := range w.requests() {
			switch r.MemberEpoch {
			case 0:
				joins++
			case -1:
				leaves++
			}
		}
		if joins != 1 || leaves < 1 || len(w.co.members) != 0 {
			t.Errorf("%d joins, %d leaves, %d members stay", joins, leaves, len(w.co.members))
		}
	})
}

func TestP5DescribeDecidesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.onDesc = func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.StreamsGroupDescribeResponse)
			g := kmsg.NewStreamsGroupDescribeResponseGroup()
			g.Group, g.State = "g", "NotReady"
			resp.Groups = append(resp.Groups, g)
			return sim.Reply(resp)
		}
		m := w.join()
		d, err := Describe(t.Context(), w.c, "g", DescribeOptions{})
		if err != nil || d.State != "NotReady" || d.Topology != nil {
			t.Fatalf("%+v %v", d, err)
		}
		if !m.Snapshot().Ready {
			t.Error("the member is not ready")
		}
	})
}

func TestM39TheInboxIsBounded(t *testing.T) {
	m := &Member{}
	m.inbox, m.done = make(chan command, inboxSize), make(chan struct{})
	for range inboxSize {
		m.inbox <- command{}
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("full"))
	defer cancel()
	if err := m.RequestShutdown(ctx); err == nil || err.Error() != "full" {
		t.Errorf("%v", err)
	}
}

func TestM36_M38_M40CommandsAreRecordedAndHeartbeatsKeepTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.assign(all("0_0"))
		m := w.join()
		w.own(m, nil)
		time.Sleep(7 * time.Second)
		w.sim.Broker(1).Forget()
		for range 60_000 { // 1,000 a second for a minute
			if err := m.SetTaskOffsets(map[TaskID]int64{{Subtopology: "0"}: 1}, nil); err != nil {
				t.Fatal(err)
			}
			m.Touch()
			time.Sleep(time.Millisecond)
		}
		fs := w.sim.Broker(1).FramesOf(keyHeartbeat)
		if len(fs) < 11 || len(fs) > 13 {
			t.Fatalf("%d heartbeats in a minute", len(fs))
		}
		for i := 1; i < len(fs); i++ {
			if d := fs[i].At.Sub(fs[i-1].At); d < 4900*time.Millisecond || d > 5100*time.Millisecond {
				t.Errorf("a heartbeat after %v", d)
			}
		}
		// recorded, not sent: the broker hangs
		w.co.then(func(q *sim.Request, _ *kmsg.StreamsGroupHeartbeatRequest) sim.Answer { return sim.Answer{} })
		go m.Heartbeat(t.Context())
		time.Sleep(time.Second)
		at := time.Now()
		if err := m.RequestShutdown(t.Context()); err != nil || time.Since(at) != 0 {
			t.Errorf("%v after %v", err, time.Since(at))
		}
		if err := m.Acknowledge(t.Context(), m.Snapshot(), m.Snapshot().Target); err != nil || time.Since(at) != 0 {
			t.Errorf("%v after %v", err, time.Since(at))
		}
	})
}

func TestP19TheShutdownOfTheApplication(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.join()
		if err := m.Acknowledge(t.Context(), m.Snapshot(), Tasks{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		n := len(w.requests())
		for range 3 {
			if err := m.RequestShutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if rs := w.requests(); len(rs) != n+1 || !rs[n].ShutdownApplication {
			t.Fatalf("%d more heartbeats", len(rs)-n)
		}
		time.Sleep(20 * time.Second)
		if !w.lastRequest().ShutdownApplication {
			t.Error("a later heartbeat does not carry it")
		}
	})
}

func TestM43_M49_M59WhatEndsTheLoopEndsTheCalls(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.assign(all("0_0"))
		m := w.join()
		got := make(chan error, 2)
		go func() {
			for _, err := range m.Assignments(t.Context()) {
				if err != nil {
					got <- err
				}
			}
			close(got)
		}()
		w.co.fails(42, 1)
		_, err := m.Heartbeat(t.Context())
		var be *BrokerError
		if !errors.As(err, &be) || be.Code != 42 {
			t.Fatalf("%v", err)
		}
		<-m.Done()
		if !errors.As(m.Err(), &be) || m.Info().State != Failed {
			t.Errorf("%v, %v", m.Err(), m.Info().State)
		}
		if err := <-got; !errors.As(err, &be) {
			t.Errorf("M49: a subscription ends with %v", err)
		}
		if _, more := <-got; more {
			t.Error("M49: it goes on")
		}
		err = m.RequestShutdown(t.Context())
		if !errors.Is(err, ErrClosed) || !errors.Is(err, net.ErrClosed) || !errors.As(err, &be) {
			t.Errorf("a call afterwards: %v", err)
		}
	})
}

func TestM44_M47_M49SubscribersSkipAndNeverBlock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.join()
		slow := make(chan Snapshot)
		go func() {
			for s, err := range m.Assignments(t.Context()) {
				if err != nil {
					return
				}
				slow <- s
			}
			close(slow)
		}()
		first := <-slow
		if first.Version != m.Snapshot().Version {
			t.Fatal("the present snapshot does not come first")
		}
		for i := range 10 {
			w.co.assign(all(fmt.Sprintf("0_%d", i)))
			if _, err := m.Heartbeat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		n := w.sim.Count(keyHeartbeat)
		time.Sleep(time.Minute) // nobody takes a snapshot
		if w.sim.Count(keyHeartbeat) < n+10 {
			t.Error("a slow subscriber holds heartbeats up")
		}
		got := []Snapshot{<-slow, <-slow}
		if got[1].Version != m.Snapshot().Version || !got[1].Target.Equal(active("0_9")) {
			t.Errorf("it gets %v and %v", got[0].Version, got[1].Version)
		}
		if err := m.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, more := <-slow; more {
			t.Error("M49: a clean leave ends it without an error")
		}
	})
}

func TestM54HooksAndCounters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		seen := map[string]int{}
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			seen[what]++
		}
		m := w.join(func(c *Config) {
			c.Trace = &Trace{
				LookedUp: func(string, time.Duration, error) { note("lookup") },
				Heartbeat: func(_ string, _ int32, _ time.Duration, code int16, err error) {
					note(fmt.Sprintf("heartbeat %d %v", code, err != nil))
				},
				Retried: func(what string, _ int, _ time.Duration, _ error) { note("retry " + what) },
				Changed: func(from, to State) { note(from.String() + " to " + to.String()) },
			}
		})
		w.own(m, nil)
		w.co.fails(14, 2)
		w.co.fails(25, 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		i := m.Info()
		mu.Lock()
		defer mu.Unlock()
		if i.Failures != 3 || i.Retries != 2 || i.Rejoins != 1 || i.LastSuccess.IsZero() || i.Heartbeats == 0 || i.Lookups < i.Heartbeats {
			t.Errorf("%+v", i)
		}
		if seen["retry heartbeat"] != 2 || seen["heartbeat 14 false"] != 2 || seen["heartbeat 25 false"] != 1 || seen["lookup"] == 0 || seen["joining to stable"] == 0 && seen["joining to reconciling"] == 0 {
			t.Errorf("%v", seen)
		}
	})
}

func TestM58LeaveAndCloseTogether(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.join()
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				var err error
				if i%2 == 0 {
					err = m.Leave(t.Context())
				} else {
					time.Sleep(time.Millisecond)
					err = m.Close()
				}
				if err != nil && !errors.Is(err, ErrClosed) {
					t.Errorf("%v", err)
				}
			})
		}
		wg.Wait()
		if err := m.Leave(t.Context()); err != nil {
			t.Errorf("a later leave: %v", err)
		}
		if err := m.Close(); err != nil {
			t.Errorf("a later close: %v", err)
		}
	})
}

func TestM59_M60CloseSendsNoLeave(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.join(func(c *Config) { c.MemberID = "closed" })
		m.Close()
		n := len(w.requests())
		time.Sleep(time.Minute)
		if more := len(w.requests()) - n; more != 0 {
			t.Errorf("%d heartbeats after Close", more)
		}
		if w.lastRequest().MemberEpoch < 0 || w.co.members["closed"] == nil {
			t.Error("it left the group")
		}
		if !errors.Is(m.Err(), ErrClosed) || m.Info().State != Left {
			t.Errorf("%v %v", m.Err(), m.Info().State)
		}
	})
}

func TestM57ALeaveEndsWithItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.join()
		w.co.fails(14, 1000)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
		defer cancel()
		at := time.Now()
		if err := m.Leave(ctx); err == nil || err.Error() != "enough" || time.Since(at) != time.Second {
			t.Errorf("%v after %v", err, time.Since(at))
		}
	})
}

// The member has failed, and its owner does not say that it dropped its tasks.
func TestM57ALeaveOfAMemberThatFailedEndsWithItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.assign(all("0_0"))
		m := w.join()
		w.co.fails(42, 1)
		_, failed := m.Heartbeat(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := m.Leave(ctx)
		if d := time.Since(began); d > 2*time.Second || err == nil || !errors.Is(failed, kerr.InvalidRequest) || !errors.Is(err, kerr.InvalidRequest) {
			t.Errorf("Leave: %v after %v; failed: %v", err, d, failed)
		}
	})
}

func TestM58AnotherLeaveEndsWithItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.join()
		w.co.fails(14, 1000)
		go func() { _ = m.Leave(t.Context()) }()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
		defer cancel()
		at := time.Now()
		if err := m.Leave(ctx); err == nil || err.Error() != "enough" || time.Since(at) != time.Second {
			t.Errorf("%v after %v", err, time.Since(at))
		}
		<-m.Done()
		if err := m.Leave(t.Context()); err != nil {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestP24ARevokeStepThatPanicsOnceIsDoneAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.assign(all("0_0", "0_1"))
		m := w.join()
		panics := 1
		step := func(s Snapshot) (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = fmt.Errorf("%v", r)
				}
			}()
			if panics--; panics == 0 {
				panic("revoke")
			}
			return m.Acknowledge(t.Context(), s, s.Target)
		}
		if err := step(m.Snapshot()); err == nil {
			t.Fatal("no panic")
		}
		time.Sleep(time.Minute)
		if m.Info().State != Reconciling {
			t.Fatalf("%v", m.Info().State)
		}
		if err := step(m.Snapshot()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if l, ok := listsOf(w.lastRequest()); !ok || l != "0_0 0_1" || m.Info().State != Stable {
			t.Errorf("lists %q %v, %v", l, ok, m.Info().State)
		}
	})
}

func TestB226AllMembersStopWhenOneAsks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		asked := false
		act := func(q *sim.Request, r *kmsg.StreamsGroupHeartbeatRequest) sim.Answer {
			asked = asked || r.ShutdownApplication
			resp := w.co.actLocked(q, r)
			if asked && r.MemberEpoch > 0 {
				s := kmsg.NewStreamsGroupHeartbeatResponseStatus()
				s.StatusCode, s.StatusDetail = 4, "a asked for it"
				resp.Status = append(resp.Status, s)
			}
			return sim.Reply(resp)
		}
		for range 200 {
			w.co.then(act)
		}
		var ms []*Member
		var wg sync.WaitGroup
		for _, id := range []string{"a", "b", "c"} {
			m := w.join(func(c *Config) { c.MemberID = id })
			ms = append(ms, m)
			wg.Go(func() {
				for s, err := range m.Assignments(t.Context()) {
					if err != nil {
						t.Errorf("%v", err)
					}
					if s.Shutdown {
						if err := m.Leave(t.Context()); err != nil {
							t.Errorf("%v", err)
						}
						return
					}
					_ = m.Acknowledge(t.Context(), s, s.Target)
				}
			})
		}
		time.Sleep(time.Second)
		if err := ms[0].RequestShutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		flags := map[string][]int32{}
		for _, r := range w.requests() {
			if r.ShutdownApplication {
				flags[r.MemberID] = append(flags[r.MemberID], r.MemberEpoch)
			}
		}
		if len(flags) != 1 || flags["a"][0] <= 0 || len(w.co.members) != 0 {
			t.Errorf("the flag was in %v, %d members stay", flags, len(w.co.members))
		}
	})
}

func TestB230LostIsNotRevoked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.assign(all("0_0", "0_1"))
		m := w.join()
		w.own(m, nil)
		time.Sleep(time.Second)
		w.co.fails(110, 1)
		if _, err := m.Heartbeat(t.Context()); err == nil {
			t.Fatal("the fence does not show")
		}
		// no commit is possible with the lost tasks, whatever the owner tries
		if _, ok := m.Metadata(); ok && m.Info().Rejoins == 0 {
			t.Error("there is an epoch to commit with")
		}
		time.Sleep(time.Minute)
		for _, f := range w.sim.Frames() {
			if f.Key == keyOffsetCommit {
				t.Error("something was committed")
			}
		}
		if !m.Owned().Equal(active("0_0", "0_1")) || m.Info().Rejoins != 1 {
			t.Errorf("%v, %+v", m.Owned(), m.Info())
		}
	})
}

func TestM70MembersOfAProcessShareADescribe(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.assign(all("0_0"))
		var ms []*Member
		for i := range 50 {
			m := w.join(func(c *Config) { c.MemberID = fmt.Sprintf("m%d", i) })
			w.own(m, nil)
			ms = append(ms, m)
		}
		time.Sleep(time.Second)
		w.co.assign(all("0_1"))
		w.co.slow = 300 * time.Millisecond
		w.sim.Broker(1).EndAll(sim.Close)
		for range 50 {
			w.co.drops()
		}
		time.Sleep(2 * time.Minute)
		for _, m := range ms {
			if !m.Snapshot().Target.Equal(active("0_1")) || !m.Owned().Equal(active("0_1")) {
				t.Fatalf("%s has %v", m.Info().MemberID, m.Snapshot().Target)
			}
		}
		describes := 0
		for _, m := range ms {
			describes += int(m.Info().Describes)
		}
		if n := w.sim.Count(keyDescribe); n == 0 || n >= describes {
			t.Errorf("%d describes for %d that were asked for", n, describes)
		}
	})
}

func TestACallOfAClosedClientEndsTheMember(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.join(func(c *Config) { c.Logger = slog.New(slog.DiscardHandler) })
		w.c.Close()
		<-m.Done()
		if !errors.Is(m.Err(), net.ErrClosed) || m.Info().State != Failed {
			t.Errorf("%v %v", m.Err(), m.Info().State)
		}
	})
}

func TestFixedNeedsNoBroker(t *testing.T) {
	f := Fixed(oneTopic(), active("0_1", "0_0"))
	for s, err := range f.Assignments(t.Context()) {
		if err != nil || s.Target.String() != "A[0_0 0_1] S[] W[]" || !s.Ready {
			t.Fatalf("%+v %v", s, err)
		}
		if err := f.Acknowledge(t.Context(), s, s.Target); err != nil {
			t.Error(err)
		}
		if err := f.Acknowledge(t.Context(), Snapshot{Version: 9}, Tasks{}); !errors.Is(err, ErrStaleAssignment) {
			t.Error(err)
		}
		if _, ok := f.Metadata(); ok {
			t.Error("there is an epoch")
		}
		if err := f.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Config.Description may end the member, and one that never returns holds nobody
// up: the bubble fails if a call hangs.
func TestM59ADescriptionDoesNotHoldTheEndUp(t *testing.T) {
	for name, end := range map[string]func(*Member) error{
		"Close": (*Member).Close,
		"Leave": func(m *Member) error { return m.Leave(context.Background()) },
	} {
		for _, inside := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s inside %v", name, inside), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					member, asked, hold := make(chan *Member, 1), make(chan struct{}), make(chan struct{})
					defer close(hold)
					w.co.then(func(q *sim.Request, r *kmsg.StreamsGroupHeartbeatRequest) sim.Answer {
						resp := w.co.actLocked(q, r)
						resp.TopologyDescriptionRequired = true
						return sim.Reply(resp)
					})
					ended := make(chan error, 1)
					m := w.join(func(c *Config) {
						c.Description = func() TopologyDescription {
							close(asked)
							if inside {
								ended <- end(<-member)
							} else {
								<-hold
							}
							return TopologyDescription{}
						}
					})
					<-asked
					member <- m
					if !inside {
						ended <- end(m)
					}
					if err := <-ended; err != nil {
						t.Error(err)
					}
					<-m.Done()
				})
			})
		}
	}
}
