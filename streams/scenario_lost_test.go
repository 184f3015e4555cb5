package streams

import (
	"context"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// lossy loses answers to heartbeats behind the coordinator.
type lossy struct {
	Kafka

	mu     sync.Mutex
	loses  func(*kmsg.StreamsGroupHeartbeatRequest, *kmsg.StreamsGroupHeartbeatResponse) bool // guarded by mu
	epochs []int32                                                                            // that heartbeats carried; guarded by mu
	lost   int                                                                                // guarded by mu
}

// errLost is an answer that did not come.
type errLost struct{}

func (errLost) Error() string         { return "the answer was lost" }
func (errLost) MayHaveHappened() bool { return true }

func (l *lossy) RequestCoordinator(ctx context.Context, group string, req kmsg.Request) (kmsg.Response, error) {
	resp, err := l.Kafka.RequestCoordinator(ctx, group, req)
	q, ok := req.(*kmsg.StreamsGroupHeartbeatRequest)
	if !ok || err != nil {
		return resp, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epochs = append(l.epochs, q.MemberEpoch)
	if l.loses != nil && l.loses(q, resp.(*kmsg.StreamsGroupHeartbeatResponse)) {
		l.lost++
		l.loses = nil
		return nil, errLost{}
	}
	return resp, nil
}

func (l *lossy) lose(f func(*kmsg.StreamsGroupHeartbeatRequest, *kmsg.StreamsGroupHeartbeatResponse) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loses = f
}

// seen are the epochs that heartbeats carried, and how many answers were lost.
func (l *lossy) seen() ([]int32, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.epochs), l.lost
}

// lostScenarios are whole members whose answers get lost, on every coordinator.
var lostScenarios = []struct {
	name string
	run  func(s *stage)
}{
	{"P12TheJoinAnswerOfAStaticMemberIsLost", func(s *stage) {
		if s.minor < 4 {
			return // no static members
		}
		in := s.source("in", 2)
		s.quick("g")
		l := &lossy{Kafka: s.k}
		l.lose(func(q *kmsg.StreamsGroupHeartbeatRequest, _ *kmsg.StreamsGroupHeartbeatResponse) bool {
			return q.MemberEpoch == 0
		})
		one := *s
		one.k = l
		m := one.ownedBy(Config{Group: s.name("g"), MemberID: "m", InstanceID: "i", Topology: reading(in)})
		s.closers = append(s.closers, one.closers[len(one.closers)-1])
		s.holds(m, 2)
		epochs, lost := l.seen()
		if lost != 1 || !slices.Equal(epochs[:3], []int32{0, -2, 0}) || slices.Contains(epochs[3:], -2) {
			s.t.Fatalf("heartbeats with the epochs %v, %d answers lost; want a release between two joins", epochs, lost)
		}
		s.leave(m)
	}},
	{"P33_M70ListsThatAreLostAreFound", func(s *stage) {
		in := s.source("in", 2)
		s.quick("g")
		l := &lossy{Kafka: s.k}
		one := *s
		one.k = l
		m := one.ownedBy(Config{Group: s.name("g"), MemberID: "m", ProcessID: "p-m", Topology: reading(in)})
		s.closers = append(s.closers, one.closers[len(one.closers)-1])
		s.holds(m, 2)
		withLists := func(_ *kmsg.StreamsGroupHeartbeatRequest, r *kmsg.StreamsGroupHeartbeatResponse) bool {
			return r.ActiveTasks != nil
		}
		for lost := 1; lost < 4; lost += 2 {
			l.lose(withLists) // those that ask for a task
			other := s.owned("g", "other", reading(in))
			s.holds(m, 1)
			s.holds(other, 1)
			l.lose(withLists) // those that give it back
			s.leave(other)
			s.holds(m, 2)
			if _, n := l.seen(); n != lost+1 {
				s.t.Fatalf("%d answers with lists were lost, want %d", n, lost+1)
			}
		}
		if i := m.Info(); i.Describes < 4 && i.Rejoins == 0 { // a machine under load may end sessions
			s.t.Fatalf("the lists were found otherwise: %+v", i)
		}
		s.leave(m)
	}},
}
