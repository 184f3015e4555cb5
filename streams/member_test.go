package streams

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/ottla/ottla/internal/sim"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestM21JoinReturnsWithIdEpochIntervalAndSnapshot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.assign(all("0_0", "0_1"))
		m := w.join()
		s, i := m.Snapshot(), m.Info()
		if !s.HasTarget || !s.Target.Equal(active("0_0", "0_1")) || s.Version != 1 || !s.Ready {
			t.Errorf("snapshot %+v", s)
		}
		if i.Epoch != 2 || i.Interval != 5*time.Second || len(i.MemberID) != 36 || i.State != Reconciling {
			t.Errorf("info %+v", i)
		}
		if g, ok := m.Metadata(); !ok || g.Generation != 2 || g.MemberID != i.MemberID || g.Group != "g" {
			t.Errorf("metadata %+v %v", g, ok)
		}
		if r := w.requests()[0]; r.MemberID != i.MemberID || r.MemberEpoch != 0 || r.Version != 1 {
			t.Errorf("the join was %+v", r)
		}
	})
}

func TestM55LeaveTellsTheBrokerAndEndsTheMember(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.assign(all("0_0"))
		m := w.join()
		if err := m.Acknowledge(t.Context(), m.Snapshot(), m.Snapshot().Target); err != nil {
			t.Fatal(err)
		}
		if err := m.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := w.lastRequest()
		if r.MemberEpoch != -1 || r.ShutdownApplication || r.Topology != nil || r.ActiveTasks != nil || r.TaskOffsets != nil ||
			r.ProcessID != nil || r.RebalanceTimeoutMillis != -1 {
			t.Errorf("the leave was %+v", r)
		}
		if _, ok := m.Metadata(); ok || m.Info().State != Left || m.Err() != nil {
			t.Errorf("after the leave: %v %v", m.Info().State, m.Err())
		}
		_, err := m.Heartbeat(t.Context())
		if !errors.Is(err, ErrClosed) || !errors.Is(err, net.ErrClosed) {
			t.Errorf("a call after the leave: %v", err)
		}
	})
}

func TestM23AJoinThatIsGivenUpLeavesNoGhost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.then(func(q *sim.Request, r *kmsg.StreamsGroupHeartbeatRequest) sim.Answer {
			return sim.Answer{Response: w.co.actLocked(q, r), Delay: 2 * time.Second}
		})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("no patience"))
		defer cancel()
		m, err := w.tryJoin(ctx)
		if m != nil || err == nil || err.Error() != "no patience" {
			t.Fatalf("%v, %v", m, err)
		}
		rs := w.requests()
		if len(rs) != 2 || rs[1].MemberEpoch != -1 || rs[1].MemberID != rs[0].MemberID {
			t.Errorf("the broker saw %d heartbeats, the last with epoch %d", len(rs), rs[len(rs)-1].MemberEpoch)
		}
		if len(w.co.members) != 0 {
			t.Error("a ghost stays in the group")
		}
	})
}

// The loop of an owner as everybody writes it: it ends with the error, and Close
// follows. The leave of the member that failed has been sent by then: it fails if
// the loop ends with the loss.
func TestM50_M49AMemberThatFailsHasLeftWhenItsLoopsEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.assign(all("0_0"))
		m := w.join()
		dropped, ended := false, make(chan error, 1)
		go func() {
			defer m.Close()
			for s, err := range m.Assignments(t.Context()) {
				if err != nil {
					ended <- err
					return
				}
				if dropped = s.Lost; dropped {
					time.Sleep(time.Second) // it takes its time to drop everything
					if r := w.lastRequest(); r.MemberEpoch < 0 {
						t.Error("it left while its owner ran the task")
					}
				}
				_ = m.Acknowledge(t.Context(), s, s.Target)
			}
		}()
		time.Sleep(6 * time.Second)
		w.co.fails(42, 1)
		var be *BrokerError
		if err := <-ended; !errors.As(err, &be) || be.Code != 42 || !dropped {
			t.Fatalf("%v, told of the loss: %v", err, dropped)
		}
		if r := w.lastRequest(); r.MemberEpoch != -1 {
			t.Errorf("the last request has epoch %d: the tasks stay until the session ends", r.MemberEpoch)
		}
	})
}
