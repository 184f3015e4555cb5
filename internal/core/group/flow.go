package group

import (
	"slices"

	"github.com/ottla/ottla/kafka"
)

// flow is a division of partitions in numbers: how many of each topic each
// member gets. It is a flow from topics to members to one sink, whose cost is
// convex: a division is best if no cycle of single steps makes it cheaper.
type flow struct {
	in      *input
	edges   []edge
	ofTopic [][]int // edges by topic
	ofMem   [][]int // edges by member
	load    []int64 // of each member
	big     int64   // weight of balance against moves
	left    int     // steps that may still be taken
}

// edge is what one member gets of one topic.
type edge struct {
	topic, member int
	n             int64 // partitions given
	owned         int64 // partitions that the member owned
}

// maxSteps bounds the search for huge groups of mixed subscriptions: beyond it
// a plan is still valid and close to balanced.
const maxSteps = 400_000_000

func newFlow(in *input) *flow {
	f := &flow{
		in: in, left: maxSteps, load: make([]int64, len(in.members)),
		ofTopic: make([][]int, len(in.topics)), ofMem: make([][]int, len(in.members)),
	}
	for t, users := range in.users {
		f.big += int64(in.counts[t])
		for _, m := range users {
			f.ofTopic[t] = append(f.ofTopic[t], len(f.edges))
			f.ofMem[m] = append(f.ofMem[m], len(f.edges))
			f.edges = append(f.edges, edge{topic: t, member: m})
		}
	}
	f.big = 2*f.big + 2
	return f
}

// start keeps what is owned, gives the rest to the least loaded, and evens
// out what one step can.
func (f *flow) start() {
	left := slices.Clone(f.in.counts)
	for m, tps := range f.in.owned {
		for _, tp := range tps {
			e := f.edge(f.in.index[tp.Topic], m)
			if e == nil {
				continue
			}
			e.owned++
			e.n++
			f.load[m]++
			left[e.topic]--
		}
	}
	for t := range left {
		for range left[t] {
			f.add(f.least(t), 1)
		}
	}
	for m := range f.ofMem {
		for f.evenOut(m) {
		}
	}
}

// edge is the edge of a topic and a member, nil if that does not subscribe.
func (f *flow) edge(topic, member int) *edge {
	i, ok := slices.BinarySearchFunc(f.ofTopic[topic], member, func(e, m int) int { return f.edges[e].member - m })
	if !ok {
		return nil
	}
	return &f.edges[f.ofTopic[topic][i]]
}

func (f *flow) add(edge int, n int64) {
	e := &f.edges[edge]
	e.n += n
	f.load[e.member] += n
}

// least is the edge of a topic to its least loaded member.
func (f *flow) least(topic int) int {
	best := f.ofTopic[topic][0]
	for _, e := range f.ofTopic[topic] {
		if f.load[f.edges[e].member] < f.load[f.edges[best].member] {
			best = e
		}
	}
	return best
}

// evenOut gives one partition of an overloaded member to the least loaded one
// of its topic, if that helps.
func (f *flow) evenOut(m int) bool {
	for _, from := range f.ofMem[m] {
		if f.edges[from].n == 0 {
			continue
		}
		f.left -= len(f.ofTopic[f.edges[from].topic])
		to := f.least(f.edges[from].topic)
		if f.load[f.edges[to].member] < f.load[m]-1 && f.left > 0 {
			f.add(from, -1)
			f.add(to, 1)
			return true
		}
	}
	return false
}

// more is the cost in moves of giving one more along an edge, less that of
// giving one less.
func (e *edge) more() int64 {
	if e.n < e.owned {
		return -1
	}
	return 0
}

func (e *edge) less() int64 {
	if e.n <= e.owned {
		return 1
	}
	return 0
}

// improve follows cycles that make the division cheaper until there is none.
func (f *flow) improve() {
	for f.left > 0 {
		s := newSearch(f)
		if !s.run() {
			return
		}
	}
}

// search looks for a cycle of negative cost (Bellman and Ford). Nodes are the
// members, then the topics, then the sink.
type search struct {
	f    *flow
	dist []int64
	from []step
	mark []int
}

// step is how a node was reached.
type step struct {
	node int // -1: it was not
	edge int // -1: between a member and the sink
}

func newSearch(f *flow) *search {
	n := len(f.in.members) + len(f.in.topics) + 1
	s := &search{f: f, dist: make([]int64, n), from: make([]step, n), mark: make([]int, n)}
	for i := range s.from {
		s.from[i] = step{-1, -1}
	}
	return s
}

// run reports whether it found a cycle, and follows it.
func (s *search) run() bool {
	for s.pass() {
		if node := s.cycle(); node >= 0 {
			s.follow(node)
			return true
		}
		if s.f.left <= 0 {
			return false
		}
	}
	return false
}

// pass relaxes every step once and reports whether something got cheaper.
func (s *search) pass() bool {
	f, members := s.f, len(s.f.in.members)
	sink := len(s.dist) - 1
	f.left -= 2 * (len(f.edges) + members)
	cheaper := false
	relax := func(from, to, edge int, cost int64) {
		if d := s.dist[from] + cost; d < s.dist[to] {
			s.dist[to], s.from[to] = d, step{from, edge}
			cheaper = true
		}
	}
	for i := range f.edges {
		e := &f.edges[i]
		relax(members+e.topic, e.member, i, e.more())
		if e.n > 0 {
			relax(e.member, members+e.topic, i, e.less())
		}
	}
	for m, load := range f.load {
		relax(m, sink, -1, f.big*(2*load+1))
		if load > 0 {
			relax(sink, m, -1, -f.big*(2*load-1))
		}
	}
	return cheaper
}

// cycle is a node of a cycle among the steps taken, -1 if there is none. The
// cost of such a cycle is always negative.
func (s *search) cycle() int {
	clear(s.mark)
	for i := range s.from {
		n := i
		for n >= 0 && s.mark[n] == 0 {
			s.mark[n] = i + 1
			n = s.from[n].node
		}
		if n >= 0 && s.mark[n] == i+1 {
			return n
		}
	}
	return -1
}

// follow takes every step of the cycle.
func (s *search) follow(node int) {
	members := len(s.f.in.members)
	for n := node; ; {
		st := s.from[n]
		if st.edge >= 0 {
			if n < members { // topic to member: one more
				s.f.add(st.edge, 1)
			} else {
				s.f.add(st.edge, -1)
			}
		}
		if n = st.node; n == node {
			return
		}
	}
}

// plan names the partitions: members keep of a topic what they owned, lowest
// first, up to their number, and get the rest in order.
func (f *flow) plan() Plan {
	plan := f.in.emptyPlan()
	taken := make([][]bool, len(f.in.counts))
	for t, n := range f.in.counts {
		taken[t] = make([]bool, n)
	}
	for m, tps := range f.in.owned {
		for _, tp := range tps {
			t := f.in.index[tp.Topic]
			if e := f.edge(t, m); e != nil && e.n > 0 {
				f.in.give(plan, m, t, tp.Partition)
				taken[t][tp.Partition] = true
				e.n--
			}
		}
	}
	for t := range f.ofTopic {
		f.giveRest(plan, t, taken[t])
	}
	for _, tps := range plan {
		slices.SortFunc(tps, kafka.TopicPartition.Compare)
	}
	return plan
}

// giveRest gives the partitions of a topic that nobody kept.
func (f *flow) giveRest(plan Plan, topic int, taken []bool) {
	i := 0
	for p := range taken {
		if taken[p] {
			continue
		}
		for f.edges[f.ofTopic[topic][i]].n == 0 {
			i++
		}
		e := &f.edges[f.ofTopic[topic][i]]
		f.in.give(plan, e.member, topic, int32(p))
		e.n--
	}
}
