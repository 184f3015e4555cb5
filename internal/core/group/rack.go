package group

import (
	"slices"
	"strings"
)

// Racks are the racks of the replicas of each partition, by topic (KIP-881).
// Partitions and replicas whose rack is not known are left empty.
type Racks map[string][][]string

// sets are the racks as sorted sets, nil for nil.
func (r Racks) sets() Racks {
	if r == nil {
		return nil
	}
	out := make(Racks, len(r))
	for topic, of := range r {
		out[topic] = make([][]string, len(of))
		for p, racks := range of {
			set := slices.DeleteFunc(slices.Clone(racks), func(rack string) bool { return rack == "" })
			slices.Sort(set)
			out[topic][p] = slices.Compact(set)
		}
	}
	return out
}

// of are the racks of a partition.
func (r Racks) of(topic string, partition int32) []string {
	if of := r[topic]; int(partition) < len(of) {
		return of[partition]
	}
	return nil
}

// OnRacks tells the leader of a group where replicas are, before [Machine.OnCounts].
// Without it, plans do not look at racks.
func (m *Machine) OnRacks(racks Racks) {
	if c, ok := m.proto.(*classic); ok {
		c.racks = racks
	}
}

// near reports whether a member may read from its own rack; one without a rack is
// as near to everything.
func near(rack string, racks []string) bool { return rack == "" || slices.Contains(racks, rack) }

// racked says for which topics racks make a difference to range: some user
// stands where some replicas are, but not everything is everywhere.
func (in *input) racked(topic int) bool {
	var of []string
	for p := range in.counts[topic] {
		of = append(of, in.racks.of(in.topics[topic], p)...)
	}
	slices.Sort(of)
	of = slices.Compact(of)
	if !slices.ContainsFunc(in.users[topic], func(m int) bool { return slices.Contains(of, in.members[m].Rack) }) {
		return false
	}
	for p := range in.counts[topic] {
		if len(in.racks.of(in.topics[topic], p)) != len(of) {
			return true
		}
	}
	return false
}

// ranging is the division of one topic by range, under way.
type ranging struct {
	topic int
	free  []int32     // partitions, rising
	got   map[int]int // by member
	each  int
	extra int // members that may still get one more
}

// room is how many more partitions a member may get.
func (r *ranging) room(m int) int {
	n := r.each - r.got[m]
	if r.extra > 0 {
		n++
	}
	return max(n, 0)
}

// take gives partitions to a member.
func (in *input) take(plan Plan, r *ranging, m int, ps ...int32) {
	for _, p := range ps {
		in.give(plan, m, r.topic, p)
	}
	r.got[m] += len(ps)
	if len(ps) > 0 && r.got[m] > r.each {
		r.extra--
	}
	r.free = slices.DeleteFunc(r.free, func(p int32) bool { return slices.Contains(ps, p) })
}

// run gives each member of a topic, in order, the first free partitions that may
// be its.
func (in *input) run(plan Plan, r *ranging, may func(m int, p int32) bool) {
	for _, m := range in.users[r.topic] {
		var ps []int32
		for _, p := range r.free {
			if len(ps) < r.room(m) && may(m, p) {
				ps = append(ps, p)
			}
		}
		in.take(plan, r, m, ps...)
	}
}

func (in *input) nearTo(topic int) func(m int, p int32) bool {
	return func(m int, p int32) bool { return near(in.members[m].Rack, in.racks.of(in.topics[topic], p)) }
}

// byRange gives each member of a topic a run of its partitions; with racks, first
// those that are near. Topics with the same members and as many partitions stay
// together, partition by partition.
func (in *input) byRange() Plan {
	plan := in.emptyPlan()
	all := make([]*ranging, len(in.topics))
	racked := false
	for t, n := range in.counts {
		all[t] = &ranging{topic: t, got: map[int]int{}, each: int(n) / len(in.users[t]), extra: int(n) % len(in.users[t])}
		for p := range n {
			all[t].free = append(all[t].free, p)
		}
		racked = racked || in.racks != nil && in.racked(t)
	}
	if racked {
		for _, group := range in.together() {
			in.rangeNear(plan, all, group)
		}
	}
	for _, r := range all {
		in.run(plan, r, func(int, int32) bool { return true })
	}
	return plan
}

// together are the topics with the same members and as many partitions.
func (in *input) together() (groups [][]int) {
	for t := range in.topics {
		i := slices.IndexFunc(groups, func(g []int) bool {
			return in.counts[g[0]] == in.counts[t] && slices.Equal(in.users[g[0]], in.users[t])
		})
		if i < 0 {
			groups = append(groups, []int{t})
			continue
		}
		groups[i] = append(groups[i], t)
	}
	return groups
}

// rangeNear gives members what is near to them, of topics that stay together.
func (in *input) rangeNear(plan Plan, all []*ranging, group []int) {
	if len(group) == 1 {
		if in.racked(group[0]) {
			in.run(plan, all[group[0]], in.nearTo(group[0]))
		}
		return
	}
	for p := range in.counts[group[0]] {
		for _, m := range in.users[group[0]] {
			if slices.ContainsFunc(group, func(t int) bool { return all[t].room(m) == 0 || !in.nearTo(t)(m, p) }) {
				continue
			}
			for _, t := range group {
				in.take(plan, all[t], m, p)
			}
			break
		}
	}
}

// kind is a set of partitions of a topic that are alike: their replicas are in
// the same racks.
type kind struct {
	topic      int
	racks      []string
	partitions []int32
}

// kinds are those of all topics, one for each topic without racks.
func (in *input) kinds() (ks []kind) {
	for t, n := range in.counts {
		at := map[string]int{}
		for p := range n {
			racks := in.racks.of(in.topics[t], p)
			name := strings.Join(racks, "\x00")
			i, ok := at[name]
			if !ok {
				i = len(ks)
				at[name] = i
				ks = append(ks, kind{topic: t, racks: racks})
			}
			ks[i].partitions = append(ks[i].partitions, p)
		}
	}
	return ks
}
