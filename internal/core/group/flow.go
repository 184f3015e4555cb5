package group

import (
	"slices"

	"github.com/ottla/ottla/kafka"
)

// flow is a division of partitions in numbers: how many of each kind each
// member gets. It is a flow from kinds to members to one sink, whose cost is
// convex: a division is best if no cycle of single steps makes it cheaper.
type flow struct {
	in     *input
	kinds  []kind
	kindOf map[kafka.TopicPartition]int
	edges  []edge
	ofKind [][]int // edges by kind
	ofMem  [][]int // edges by member
	load   []int64 // of each member
	far    int64   // weight of racks against moves
	big    int64   // weight of balance against racks
	left   int     // steps that may still be taken
}

// edge is what one member gets of one kind of partitions.
type edge struct {
	kind, member int
	n            int64 // partitions given
	owned        int64 // partitions that the member owned
	far          int64 // cost of each that its replicas are in other racks
}

// maxSteps bounds the search for huge groups of mixed subscriptions: beyond it
// a plan is still valid and close to balanced.
const maxSteps = 400_000_000

func newFlow(in *input) *flow {
	f := &flow{
		in: in, left: maxSteps, load: make([]int64, len(in.members)), kinds: in.kinds(),
		kindOf: map[kafka.TopicPartition]int{}, ofMem: make([][]int, len(in.members)),
	}
	f.ofKind = make([][]int, len(f.kinds))
	total := int64(0)
	for k, of := range f.kinds {
		total += int64(len(of.partitions))
		for _, p := range of.partitions {
			f.kindOf[kafka.TopicPartition{Topic: in.topics[of.topic], Partition: p}] = k
		}
	}
	f.far = 2*total + 2
	f.big = f.far
	if in.racks != nil {
		f.big *= f.far
	}
	for k, of := range f.kinds {
		for _, m := range in.users[of.topic] {
			e := edge{kind: k, member: m}
			if in.racks != nil && !near(in.members[m].Rack, of.racks) {
				e.far = f.far
			}
			f.ofKind[k] = append(f.ofKind[k], len(f.edges))
			f.ofMem[m] = append(f.ofMem[m], len(f.edges))
			f.edges = append(f.edges, e)
		}
	}
	return f
}

// start keeps what is owned, gives the rest to the least loaded, and evens
// out what one step can.
func (f *flow) start() {
	left := make([]int, len(f.kinds))
	for k, of := range f.kinds {
		left[k] = len(of.partitions)
	}
	for m, tps := range f.in.owned {
		for _, tp := range tps {
			e := f.edge(f.kindOf[tp], m)
			if e == nil {
				continue
			}
			e.owned++
			e.n++
			f.load[m]++
			left[e.kind]--
		}
	}
	for k := range left {
		for range left[k] {
			f.add(f.least(k), 1)
		}
	}
	for m := range f.ofMem {
		for f.evenOut(m) {
		}
	}
}

// edge is the edge of a kind and a member, nil if that does not subscribe.
func (f *flow) edge(kind, member int) *edge {
	i, ok := slices.BinarySearchFunc(f.ofKind[kind], member, func(e, m int) int { return f.edges[e].member - m })
	if !ok {
		return nil
	}
	return &f.edges[f.ofKind[kind][i]]
}

func (f *flow) add(edge int, n int64) {
	e := &f.edges[edge]
	e.n += n
	f.load[e.member] += n
}

// least is the edge of a kind to its least loaded member.
func (f *flow) least(kind int) int {
	best := f.ofKind[kind][0]
	for _, e := range f.ofKind[kind] {
		if f.load[f.edges[e].member] < f.load[f.edges[best].member] {
			best = e
		}
	}
	return best
}

// evenOut gives one partition of an overloaded member to the least loaded one
// of its kind, if that helps.
func (f *flow) evenOut(m int) bool {
	for _, from := range f.ofMem[m] {
		if f.edges[from].n == 0 {
			continue
		}
		f.left -= len(f.ofKind[f.edges[from].kind])
		to := f.least(f.edges[from].kind)
		if f.load[f.edges[to].member] < f.load[m]-1 && f.left > 0 {
			f.add(from, -1)
			f.add(to, 1)
			return true
		}
	}
	return false
}

// more is the cost in racks and moves of giving one more along an edge, less that
// of giving one less.
func (e *edge) more() int64 {
	if e.n < e.owned {
		return e.far - 1
	}
	return e.far
}

func (e *edge) less() int64 {
	if e.n <= e.owned {
		return 1 - e.far
	}
	return -e.far
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
// members, then the kinds, then the sink.
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
	n := len(f.in.members) + len(f.kinds) + 1
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
		relax(members+e.kind, e.member, i, e.more())
		if e.n > 0 {
			relax(e.member, members+e.kind, i, e.less())
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
			if n < members { // kind to member: one more
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

// plan names the partitions: members keep of a kind what they owned, lowest
// first, up to their number, and get the rest in order.
func (f *flow) plan() Plan {
	plan := f.in.emptyPlan()
	taken := map[kafka.TopicPartition]bool{}
	for m, tps := range f.in.owned {
		for _, tp := range tps {
			k := f.kindOf[tp]
			if e := f.edge(k, m); e != nil && e.n > 0 {
				f.in.give(plan, m, f.kinds[k].topic, tp.Partition)
				taken[tp] = true
				e.n--
			}
		}
	}
	for k := range f.kinds {
		f.giveRest(plan, k, taken)
	}
	for _, tps := range plan {
		slices.SortFunc(tps, kafka.TopicPartition.Compare)
	}
	return plan
}

// giveRest gives the partitions of a kind that nobody kept.
func (f *flow) giveRest(plan Plan, kind int, taken map[kafka.TopicPartition]bool) {
	i, of := 0, f.kinds[kind]
	for _, p := range of.partitions {
		if taken[kafka.TopicPartition{Topic: f.in.topics[of.topic], Partition: p}] {
			continue
		}
		for f.edges[f.ofKind[kind][i]].n == 0 {
			i++
		}
		e := &f.edges[f.ofKind[kind][i]]
		f.in.give(plan, e.member, of.topic, p)
		e.n--
	}
}
