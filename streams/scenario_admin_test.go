package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/kafka"
)

// memberScenarios are whole members on a coordinator; like scenarios they run on
// the in-memory cluster and on real Kafka.
var memberScenarios = []struct {
	name string
	run  func(s *stage)
}{
	{"C9_P8_CommitsGoByTheMembersEpoch", func(s *stage) {
		in := s.source("in", 2)
		s.quick("g")
		m := s.owned("g", "m", reading(in))
		s.holds(m, 2)
		commit := map[kafka.TopicPartition]kafka.Commit{tp(in, 0): at(5), tp(in, 1): at(7)}
		if err := m.Commit(s.ctx, commit); err != nil {
			s.t.Fatal(err)
		}
		got, err := m.Committed(s.ctx, []kafka.TopicPartition{tp(in, 0), tp(in, 1)})
		if err != nil || got[tp(in, 0)].Offset != 5 || got[tp(in, 1)].Offset != 7 {
			s.t.Fatalf("%v, %v", got, err)
		}
		// an epoch that nobody has had is refused for every partition
		meta, _ := m.Metadata()
		meta.Generation += 50
		if r := m.commitOnce(s.ctx, meta, commit); r.code != codeStaleEpoch {
			s.t.Fatalf("a later epoch: %+v", r)
		}
		meta.MemberID = "nobody"
		if r := m.commitOnce(s.ctx, meta, commit); r.code != 25 {
			s.t.Fatalf("an unknown member: %+v", r)
		}
		s.leave(m)
	}},
	{"C11_P28_ConfigsOfAGroup", func(s *stage) {
		if err := SetGroupConfigs(s.ctx, s.k, s.name("g"), map[string]string{"num.standby.replicas": "1"}); err != nil {
			s.t.Fatal(err)
		}
		for range 100 { // a change is seen a moment later
			got, err := GroupConfigs(s.ctx, s.k, s.name("g"))
			if err != nil {
				s.t.Fatal(err)
			}
			if got["num.standby.replicas"] == "1" {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		s.t.Fatal("the setting does not show")
	}},
	{"P29TheGroupGoesAlthoughAnInternalTopicIsGone", func(s *stage) {
		s.quick("g")
		in := s.source("in", 1)
		top := reading(in)
		top.Subtopologies[0].Changelogs = []InternalTopic{
			{Name: s.name("a-changelog"), Replicas: 1}, {Name: s.name("b-changelog"), Replicas: 1},
		}
		m := s.owned("g", "m", top)
		s.holds(m, 1)
		if err := Delete(s.ctx, s.k, s.name("g"), true); !errors.Is(err, kerr.NonEmptyGroup) {
			s.t.Fatalf("with a member: %v", err)
		}
		if groups, err := List(s.ctx, s.k); err != nil || !slices.ContainsFunc(groups, func(g GroupListing) bool { return g.Group == s.name("g") }) {
			s.t.Fatalf("%v, %v", groups, err)
		}
		// a broker forgets an empty group without offsets by itself
		if err := m.Commit(s.ctx, map[kafka.TopicPartition]kafka.Commit{tp(in, 0): at(1)}); err != nil {
			s.t.Fatal(err)
		}
		s.leave(m)
		if err := deleteTopics(s.ctx, s.k, []string{s.name("a-changelog")}); err != nil {
			s.t.Fatal(err)
		}
		if err := Delete(s.ctx, s.k, s.name("g"), true); err != nil {
			s.t.Fatal(err)
		}
		var gone *GroupTypeError
		if _, err := Describe(s.ctx, s.k, s.name("g"), DescribeOptions{}); !errors.As(err, &gone) || !strings.Contains(err.Error(), "there is no streams group "+s.name("g")) {
			s.t.Fatalf("after it was deleted: %v", err)
		}
	}},
	{"P16_C6_AnotherTopologyIsRefusedWithWhatToDo", func(s *stage) {
		x, y := s.source("x", 1), s.source("y", 1)
		s.quick("g")
		m := s.owned("g", "m", reading(x))
		_, err := Join(s.ctx, s.k, Config{Group: s.name("g"), Topology: reading(x, y)})
		var be *BrokerError
		if !errors.As(err, &be) || be.Code != 42 || !strings.Contains(err.Error(), "new group id") {
			s.t.Fatalf("%v", err)
		}
		s.leave(m)
	}},
	{"AJoinThatIsRefusedMakesNoGroup", func(s *stage) {
		m := s.member("g", "m", reading(s.source("in", 1)))
		req := m.request(0)
		req.Topology.Subtopologies[0].SourceTopics = nil
		m.refuses(130, req)
		var gone *GroupTypeError
		if _, err := Describe(s.ctx, s.k, s.name("g"), DescribeOptions{}); !errors.As(err, &gone) {
			s.t.Fatalf("a group is described: %v", err)
		}
		m.refuses(69, m.request(5))
	}},
	{"B224TopicsOfACopartitionGroupThatDiffer", func(s *stage) {
		x, y := s.source("x", 3), s.source("y", 4)
		s.quick("g")
		top := reading(x, y)
		top.Subtopologies[0].CopartitionGroups = [][]string{{x, y}}
		_, err := Join(s.ctx, s.k, Config{Group: s.name("g"), Topology: top})
		var pe *PartitioningError
		if !errors.As(err, &pe) || !strings.Contains(err.Error(), x) || !strings.Contains(err.Error(), y) {
			s.t.Fatalf("%v", err)
		}
	}},
	{"P32_P17_TasksAreSharedAndNobodyElseIsDisturbed", func(s *stage) {
		in := s.source("in", 4)
		s.quick("g")
		a := s.owned("g", "a", reading(in))
		s.holds(a, 4)
		b := s.owned("g", "b", reading(in))
		s.holds(a, 2)
		s.holds(b, 2)
		version := a.Snapshot().Version
		c := s.member("h", "c", reading(in)) // another group
		s.quick("h")
		c.join()
		time.Sleep(time.Second)
		if a.Snapshot().Version != version {
			s.t.Fatal("an event without a change")
		}
		s.leave(b)
		s.holds(a, 4)
		s.leave(a)
	}},
	{"StandbysFollowTheSetting", func(s *stage) {
		in := s.source("in", 2)
		s.standing("g", 1)
		top := reading(in)
		top.Subtopologies[0].Changelogs = []InternalTopic{{Name: s.name("c-changelog"), Replicas: 1}}
		a, b := s.owned("g", "a", top), s.owned("g", "b", top)
		s.until("one active and one standby each", func() bool {
			x, y := a.Owned(), b.Owned()
			return len(x.Active) == 1 && len(y.Active) == 1 && len(x.Standby) == 1 && len(y.Standby) == 1 && x.Active[0] == y.Standby[0]
		})
		s.leave(a)
		s.leave(b)
	}},
}

// owned is a member with an owner that takes every target over at once. Each
// member is a process of its own.
func (s *stage) owned(group, id string, top Topology) *Member {
	s.t.Helper()
	return s.ownedBy(Config{Group: s.name(group), MemberID: id, ProcessID: "p-" + id, Topology: top})
}

func (s *stage) ownedBy(cfg Config) *Member {
	s.t.Helper()
	m, err := Join(s.ctx, s.k, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for snap, err := range m.Assignments(s.ctx) {
			if err != nil {
				return
			}
			_ = m.Acknowledge(s.ctx, snap, snap.Target)
		}
	})
	s.t.Cleanup(func() { m.Close(); wg.Wait() })
	s.closers = append(s.closers, func() { m.Close(); wg.Wait() })
	return m
}

// holds waits until a member owns so many active tasks.
func (s *stage) holds(m *Member, n int) {
	s.t.Helper()
	s.until(fmt.Sprintf("%s owns %d tasks", m.Info().MemberID, n), func() bool { return len(m.Owned().Active) == n && m.Info().State == Stable })
}

func (s *stage) until(what string, cond func() bool) {
	s.t.Helper()
	for range 1800 {
		if cond() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.t.Fatalf("it never came to this: %s", what)
}

func (s *stage) leave(m *Member) {
	s.t.Helper()
	if err := m.Leave(context.WithoutCancel(s.ctx)); err != nil {
		s.t.Fatal(err)
	}
}
