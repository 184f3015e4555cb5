package streams

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fullGroup is group.streams.max.size of the stages.
const fullGroup = 12

// scenarios are the facts about coordinators that members depend on. They run on
// the in-memory cluster and on real Kafka alike.
var scenarios = []struct {
	name string
	run  func(s *stage)
}{
	{"C1TheShutdownFlagOfALeaveIsRecorded", func(s *stage) {
		top := reading(s.source("in", 2))
		s.quick("g")
		a, b := s.member("g", "a", top), s.member("g", "b", top)
		epoch, _ := a.settle(2)
		b.join()
		req := b.request(-1)
		req.ShutdownApplication = true
		b.ok(req)
		r := a.beat(epoch)
		if !strings.Contains(show(r), "status 4") || !strings.Contains(r.Status[0].StatusDetail+r.Status[len(r.Status)-1].StatusDetail, "b") {
			s.t.Fatalf("after a leave with the flag: %s", show(r))
		}
		if r = a.beat(r.MemberEpoch); !strings.Contains(show(r), "status 4") {
			s.t.Fatalf("a later false takes it back: %s", show(r))
		}
		a.ok(a.request(-1))
		if r = a.join(); strings.Contains(show(r), "status 4") {
			s.t.Fatalf("it outlives the empty group: %s", show(r))
		}
	}},
	{"C2ThePreviousEpochIsGoodWithFullListsOnly", func(s *stage) {
		top := reading(s.source("in", 2))
		s.quick("g")
		a, b := s.member("g", "a", top), s.member("g", "b", top)
		epoch, tasks := a.settle(2)
		b.join()
		r := a.beat(epoch) // asks to give one up; the answer counts as lost
		keep := ""
		for _, id := range tasks {
			if strings.Contains(show(r), id) {
				keep = id
			}
		}
		// with the old lists nothing moves, and the lost lists are not sent again
		s.want("repeated lists", a.ack(epoch, tasks...), show(&kmsg.StreamsGroupHeartbeatResponse{MemberEpoch: epoch}))
		r = a.ack(epoch, keep)
		if r.MemberEpoch <= epoch {
			s.t.Fatalf("the acknowledgement gives epoch %d after %d", r.MemberEpoch, epoch)
		}
		// that answer is lost too: the previous epoch with full lists is good
		again := a.ack(epoch, keep)
		if again.MemberEpoch != r.MemberEpoch {
			s.t.Fatalf("epoch %d, want %d", again.MemberEpoch, r.MemberEpoch)
		}
		rejoin := a.join()
		if rejoin.MemberEpoch != r.MemberEpoch || !strings.Contains(show(rejoin), keep) {
			s.t.Fatalf("a live member that joins again: %s", show(rejoin))
		}
		a.refuses(110, a.request(epoch))
	}},
	{"P33AListThatLacksATaskGivesItAway", func(s *stage) {
		top := reading(s.source("in", 2))
		s.quick("g")
		a, b := s.member("g", "a", top), s.member("g", "b", top)
		epoch, tasks := a.settle(2)
		b.join()
		r := a.ack(epoch) // owns nothing, says this list, while one of the two is wanted back
		if r.MemberEpoch <= epoch || len(r.ActiveTasks) != 1 {
			s.t.Fatalf("a list without its tasks %v is answered %s: no revocation is awaited", tasks, show(r))
		}
		if got := show(b.beat(r.MemberEpoch)); strings.Count(got, "0_") != 1 {
			s.t.Fatalf("the other member gets %s, want the task at once", got)
		}
	}},
	{"C3AStaticMemberIsLetInAfterARelease", func(s *stage) {
		top := reading(s.source("in", 2))
		s.quick("g")
		a := s.member("g", "a", top)
		a.instance = "i1"
		if s.minor < 4 {
			a.change = nil
			a.refuses(42, a.request(0), "Static membership")
			return
		}
		epoch, tasks := a.settle(2)
		a.refuses(111, a.request(0))
		b := s.member("g", "b", top)
		b.instance, b.process = "i1", a.process
		b.refuses(111, b.request(0))
		b.refuses(82, b.request(-2))
		a.ok(a.request(-2))
		a.refuses(110, a.request(epoch))
		r := b.join()
		if r.MemberEpoch != epoch || !strings.Contains(show(r), tasks[0]) || !strings.Contains(show(r), tasks[1]) {
			s.t.Fatalf("the successor gets %s, want epoch %d and %v", show(r), epoch, tasks)
		}
		c := s.member("g", "c", top)
		c.instance = "unknown"
		c.refuses(25, c.request(-2))
	}},
	{"C4NoStatusIsAnEmptyList", func(s *stage) {
		a := s.member("g", "a", reading(s.source("in", 1)))
		s.quick("g")
		epoch, _ := a.settle(1)
		if r := a.beat(epoch); r.Status == nil || len(r.Status) != 0 {
			s.t.Fatalf("statuses %v", r.Status)
		}
	}},
	{"C5TheOrderOfATopologyMatters", func(s *stage) {
		x, y := s.source("x", 1), s.source("y", 1)
		s.quick("g")
		top := Topology{Subtopologies: []Subtopology{{ID: "0", Sources: []string{x, y}}, {ID: "1", Sources: []string{y}}}}
		s.member("g", "a", top).join()
		b := s.member("g", "b", top)
		b.change = func(r *kmsg.StreamsGroupHeartbeatRequest) {
			subs := r.Topology.Subtopologies
			subs[0], subs[1] = subs[1], subs[0]
		}
		b.join()
		c := s.member("g", "c", top)
		c.change = func(r *kmsg.StreamsGroupHeartbeatRequest) {
			topics := r.Topology.Subtopologies[0].SourceTopics
			topics[0], topics[1] = topics[1], topics[0]
		}
		c.refuses(42, c.request(0))
	}},
	{"C6AChangedTopologyIsRefused", func(s *stage) {
		x, y := s.source("x", 1), s.source("y", 1)
		s.quick("g")
		top := reading(x)
		top.Epoch = 1
		a := s.member("g", "a", top)
		a.join()
		b := s.member("g", "b", reading(x, y))
		b.topology.Epoch = 1
		b.refuses(42, b.request(0), "Topology updates")
		b.topology = reading(x)
		b.topology.Epoch = 2
		b.refuses(42, b.request(0), "Topology updates")
		b.topology = reading(x, y)
		if r := b.join(); !strings.Contains(show(r), "status 0") {
			s.t.Fatalf("a lower epoch is answered %s", show(r))
		}
		a.ok(a.request(-1))
		b.ok(b.request(-1))
		b.topology.Epoch = 1
		b.refuses(42, b.request(0), "Topology updates") // the emptied group keeps it
	}},
	{"C7UnequalSourcesGiveTasksUpToTheLargest", func(s *stage) {
		a := s.member("g", "a", reading(s.source("x", 2), s.source("y", 4)))
		s.quick("g")
		a.settle(4)
	}},
	{"C8TaskOffsetsAreOf44", func(s *stage) {
		a := s.member("g", "a", reading(s.source("in", 1)))
		s.quick("g")
		a.change = func(r *kmsg.StreamsGroupHeartbeatRequest) { r.TaskOffsets = []kmsg.TaskOffset{} }
		if s.minor < 4 {
			a.refuses(42, a.request(0), "TaskOffsets")
			return
		}
		a.join()
		a.change = func(r *kmsg.StreamsGroupHeartbeatRequest) {
			o := kmsg.NewTaskOffset()
			o.SubtopologyID, o.Partition, o.Offset = "none", 7, -5
			r.TaskOffsets, r.TaskEndOffsets = []kmsg.TaskOffset{o}, []kmsg.TaskOffset{}
		}
		a.beat(2)
	}},
	{"C12IdsOfAnyShapeButNoMixedLists", func(s *stage) {
		top := reading(s.source("in", 1))
		s.quick("g")
		s.member("g", "any text, é and 字", top).join()
		a := s.member("g", " ", top)
		a.refuses(42, a.request(0))
		a.id = "a"
		req := a.request(0)
		req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = nil, nil, nil
		a.refuses(42, req)
		epoch := a.join().MemberEpoch
		req = a.request(epoch)
		req.ActiveTasks = []kmsg.TaskIDs{}
		a.refuses(42, req)
		req.MemberEpoch = -1
		a.refuses(42, req)
		a.ok(a.request(-1))
	}},
	{"C13AFullGroupAndAMemberThatIsKnown", func(s *stage) {
		top := reading(s.source("in", 1))
		s.quick("g")
		var first *raw
		for i := range fullGroup {
			m := s.member("g", fmt.Sprint("m", i), top)
			m.join()
			if first == nil {
				first = m
			}
		}
		late := s.member("g", "late", top)
		late.refuses(81, late.request(0))
		if s.minor < 4 && !s.memory {
			first.refuses(81, first.request(0))
			return
		}
		first.join()
	}},
	{"C14StatesAndTopologyOfADescription", func(s *stage) {
		top := reading(s.source("in", 2))
		s.quick("g")
		a := s.member("g", "a", top)
		a.settle(2)
		is := func(want string) {
			s.t.Helper()
			g, err := Describe(s.ctx, s.k, a.group, DescribeOptions{})
			if err != nil || g.State != want || g.Topology == nil {
				s.t.Fatalf("described as %+v, %v; want %s with a topology", g, err, want)
			}
		}
		is("Stable")
		b := s.member("g", "b", top)
		b.join()
		is("Reconciling")
		a.ok(a.request(-1))
		b.ok(b.request(-1))
		is("Empty")
		c := s.member("n", "c", reading(s.name("missing")))
		s.quick("n")
		c.join()
		g, err := Describe(s.ctx, s.k, c.group, DescribeOptions{})
		if err != nil || g.State != "NotReady" {
			s.t.Fatalf("without its source: %+v, %v", g, err)
		}
	}},
	{"C16TheWireTrace", func(s *stage) {
		top := reading(s.source("in", 2))
		s.sets("g", "initial.rebalance.delay.ms", "3000", "assignment.interval.ms", "1000")
		m1, m2 := s.member("g", "m1", top), s.member("g", "m2", top)
		if s.applied != nil {
			s.applied("g", s.interval)
		}
		s.want("m1 joins", m1.join(), "epoch 1 L() status 5")
		s.want("m1 acknowledges", m1.ack(1), "epoch 1 status 5")
		s.want("m1 on its interval", m1.beat(1), "epoch 1 status 5")
		time.Sleep(3500 * time.Millisecond)
		s.want("m1 after the delay", m1.beat(1), "epoch 2 L(0_0,0_1)")
		s.want("m1 acknowledges", m1.ack(2, "0_0", "0_1"), "epoch 2")
		time.Sleep(1500 * time.Millisecond)
		s.want("m2 joins", m2.join(), "epoch 3 L()")
		m2.ack(3)
		r := m1.beat(2)
		if show(r) != "epoch 2 L(0_0)" && show(r) != "epoch 2 L(0_1)" {
			s.t.Fatalf("m1 on its interval: %s", show(r))
		}
		keep, move := "0_0", "0_1"
		if show(r) == "epoch 2 L(0_1)" {
			keep, move = move, keep
		}
		s.want("m1 after revoking", m1.ack(2, keep), "epoch 3")
		s.want("m2 on its interval", m2.beat(3), "epoch 3 L("+move+")")
		s.want("m2 acknowledges", m2.ack(3, move), "epoch 3")
		time.Sleep(1500 * time.Millisecond)
		s.want("m2 leaves", m2.ok(m2.request(-1)), "epoch -1")
		s.want("m1 on its interval", m1.beat(3), "epoch 4 L(0_0,0_1)")
	}},
	{"C18NoWarmUpsAreAssigned", func(s *stage) {
		if s.minor < 4 {
			return
		}
		in := s.source("in", 2)
		top := reading(in)
		top.Subtopologies[0].Changelogs = []InternalTopic{{Name: s.name("store-changelog"), Configs: map[string]string{"cleanup.policy": "compact"}}}
		s.quick("g")
		a, b := s.member("g", "a", top), s.member("g", "b", top)
		epoch, _ := a.settle(2)
		b.change = func(r *kmsg.StreamsGroupHeartbeatRequest) {
			if r.MemberEpoch != 0 {
				return
			}
			for p := range int32(2) {
				o := kmsg.NewTaskOffset()
				o.SubtopologyID, o.Partition, o.Offset = "0", p, 100
				r.TaskOffsets, r.TaskEndOffsets = append(r.TaskOffsets, o), append(r.TaskEndOffsets, o)
			}
		}
		r := b.join()
		for range 5 {
			if len(r.WarmupTasks) > 0 {
				s.t.Fatalf("a warm-up was assigned: %v", r.WarmupTasks)
			}
			a.beat(epoch)
			r = b.beat(r.MemberEpoch)
		}
		if got := show(a.ack(epoch, "0_0")); got == show(&kmsg.StreamsGroupHeartbeatResponse{MemberEpoch: epoch}) {
			s.t.Fatalf("the move did not go on without a warm-up: %s", got)
		}
	}},
	{"ADeadlineOfTheAcknowledgementRemoves", func(s *stage) {
		top := reading(s.source("in", 2))
		s.quick("g")
		a, b := s.member("g", "a", top), s.member("g", "b", top)
		a.rebalance = 1000
		epoch, _ := a.settle(2)
		b.join()
		a.beat(epoch) // asks to give one up
		for range 100 {
			time.Sleep(400 * time.Millisecond)
			if r := a.send(a.request(epoch)); r.ErrorCode == 25 {
				return
			}
		}
		s.t.Fatal("a member that gives nothing up stays in the group")
	}},
}

func runScenarios(t *testing.T, with func(t *testing.T, run func(s *stage))) {
	for _, sc := range slices.Concat(scenarios, memberScenarios, lostScenarios) {
		t.Run(sc.name, func(t *testing.T) { with(t, sc.run) })
	}
}
