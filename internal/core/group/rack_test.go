package group

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// far is how many partitions of a plan are read from another rack.
func far(members []Member, of layout, p Plan) (n int) {
	racks := of.racks.sets()
	for _, m := range members {
		for _, tp := range p[m.ID] {
			if !near(m.Rack, racks.of(tp.Topic, tp.Partition)) {
				n++
			}
		}
	}
	return n
}

// Of Java's assignors range and the sticky pair look at racks. The first two are
// to be equal, sticky no worse in balance, then racks, then stickiness. Mutations:
// topics that do not stay together; racks after moves.
func TestG16_G15WithRacksAssignorsAreAsGoodAsJavas(t *testing.T) {
	compared, better := map[string]int{}, 0
	for _, c := range readCases(t, "java-racks.jsonl.gz") {
		members, of := c.members(), layout{c.Topics, c.Racks}
		got := divide(c.Assignor, members, of, new(Dropped))
		java := Plan{}
		equal := true
		for id, names := range c.Result {
			java[id] = partitions(names)
			slices.SortFunc(got[id], kafka.TopicPartition.Compare)
			equal = equal && slices.Equal(got[id], java[id])
		}
		compared[c.Assignor]++
		gs, gm := score(members, got)
		js, jm := score(members, java)
		gf, jf := far(members, of, got), far(members, of, java)
		switch {
		case c.Assignor == Range || c.Assignor == RoundRobin:
			if !equal {
				t.Errorf("case %d %s: %v\nJava %v", c.Case, c.Assignor, got, java)
			}
		case c.Assignor == CooperativeSticky || unsubscribed(members, java):
		case gs > js || gs == js && (gf > jf || gf == jf && gm > jm):
			t.Errorf("case %d round %d: squares %d far %d moved %d, Java %d, %d and %d", c.Case, c.Round, gs, gf, gm, js, jf, jm)
		case gs < js || gf < jf || gm < jm:
			better++
		}
	}
	t.Logf("%v; sticky is better %d times", compared, better)
	if compared[Range] < 200 || compared[Sticky] < 300 {
		t.Errorf("%v", compared)
	}
}

// The mutation that fails it: any other order of the three.
func TestG16StickyIsBestInBalanceThenRacksThenStickiness(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 16))
		counts := map[string]int32{"a": int32(1 + rng.IntN(3)), "b": int32(1 + rng.IntN(3))}
		of := layout{counts, Racks{}}
		var free []kafka.TopicPartition
		for _, topic := range []string{"a", "b"} {
			for p := range counts[topic] {
				free = append(free, kafka.TopicPartition{Topic: topic, Partition: p})
				racks := []string{"x", "y", "z"}
				rng.Shuffle(3, func(i, j int) { racks[i], racks[j] = racks[j], racks[i] })
				of.racks[topic] = append(of.racks[topic], racks[:rng.IntN(3)])
			}
		}
		rng.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		var ms []Member
		for i := range 2 + rng.IntN(2) {
			m := Member{ID: "m" + strconv.Itoa(i), Generation: 4, Topics: []string{"a", "b"}[rng.IntN(2):], Rack: []string{"", "x", "y", "z"}[rng.IntN(4)]}
			for len(free) > 0 && rng.IntN(4) > 0 {
				m.Owned = append(m.Owned, free[0])
				free = free[1:]
			}
			ms = append(ms, m)
		}
		got := divide(Sticky, ms, of, new(Dropped))
		gs, gm := score(ms, got)
		want := bestWithRacks(ms, of)
		if have := [3]int{gs, far(ms, of, got), gm}; have != want {
			t.Fatalf("seed %d: squares, far and moved are %v, best is %v\n%+v %+v", seed, have, want, ms, of)
		}
	}
}

// bestWithRacks finds by trial of every division the smallest squares, then far,
// then moves.
func bestWithRacks(ms []Member, of layout) (best [3]int) {
	in := newInput(ms, of.counts)
	var tps []kafka.TopicPartition
	for t, n := range in.counts {
		for p := range n {
			tps = append(tps, kafka.TopicPartition{Topic: in.topics[t], Partition: p})
		}
	}
	best[0] = 1 << 30
	plan := Plan{}
	var try func(i int)
	try = func(i int) {
		if i == len(tps) {
			s, m := score(ms, plan)
			if one := [3]int{s, far(ms, of, plan), m}; slices.Compare(one[:], best[:]) < 0 {
				best = one
			}
			return
		}
		for _, m := range in.users[in.index[tps[i].Topic]] {
			id := in.members[m].ID
			plan[id] = append(plan[id], tps[i])
			try(i + 1)
			plan[id] = plan[id][:len(plan[id])-1]
		}
	}
	try(0)
	return best
}

// Off unless asked for: the leader plans with racks only where it was told them.
// Mutation: an OnRacks that does nothing.
func TestG16TheLeaderPlansWithTheRacksThatItWasTold(t *testing.T) {
	for _, told := range []bool{false, true} {
		now := time.Unix(0, 0)
		m := New(Config{Group: "g", Session: time.Minute, Heartbeat: time.Second, Rebalance: time.Minute, Assignors: []string{Range}, Rack: "x"}, nil)
		m.Subscribe(now, []string{"t"}, "")
		id := next[*Send](t, m, now).ID
		resp := kmsg.NewPtrJoinGroupResponse()
		name := Range
		resp.MemberID, resp.LeaderID, resp.Protocol, resp.Generation = "m1", "m1", &name, 1
		for _, one := range [][2]string{{"m1", "x"}, {"m2", "y"}} {
			lm := kmsg.NewJoinGroupResponseMember()
			lm.MemberID = one[0]
			lm.ProtocolMetadata = (&Subscription{Topics: []string{"t"}, Generation: NoGeneration, Rack: one[1]}).Append(nil)
			resp.Members = append(resp.Members, lm)
		}
		m.OnAnswer(now, id, resp, nil)
		next[*WatchCounts](t, m, now)
		if told {
			m.OnRacks(Racks{"t": {{"y"}, {"x"}}})
		}
		m.OnCounts(map[string]int32{"t": 2})
		sync := next[*Send](t, m, now).Req.(*kmsg.SyncGroupRequest)
		first, err := ParseAssignment(sync.GroupAssignment[0].MemberAssignment)
		want := map[bool]int32{false: 0, true: 1}[told]
		if err != nil || len(first) != 1 || first[0].Partition != want {
			t.Errorf("told %v: m1 gets %v, %v, want partition %d", told, first, err, want)
		}
	}
}

// next takes actions until one of a kind comes.
func next[A Action](t *testing.T, m *Machine, now time.Time) A {
	t.Helper()
	for {
		a, ok := m.Next(now)
		if !ok {
			t.Fatal("no such action")
		}
		if a, ok := a.(A); ok {
			return a
		}
	}
}
