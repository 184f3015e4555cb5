package group

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ottla/ottla/kafka"
)

// The names of the assignors, as groups agree on them.
const (
	Range             = "range"
	RoundRobin        = "roundrobin"
	Sticky            = "sticky"
	CooperativeSticky = "cooperative-sticky"
)

// Assignors lists the assignors that there are.
func Assignors() []string { return []string{CooperativeSticky, Sticky, RoundRobin, Range} }

// Cooperative reports whether a member keeps reading what stays with it while
// the group divides partitions by this assignor.
func Cooperative(assignor string) bool { return assignor == CooperativeSticky }

// Member is a member of the group as its leader sees it.
type Member struct {
	ID         string
	InstanceID string // of a static member
	Topics     []string
	Owned      []kafka.TopicPartition
	Generation int32  // as of when Owned holds
	Rack       string // empty if it has none
}

// Dropped counts what a leader left out of what members told it.
type Dropped struct {
	Blobs   int64 // subscriptions that cannot be read
	Members int64 // that came twice
	Claims  int64 // negative or unknown partitions, and those of two members at once
}

func (d *Dropped) add(more Dropped) {
	d.Blobs += more.Blobs
	d.Members += more.Members
	d.Claims += more.Claims
}

// Plan says which partitions each member gets. Every member is in it.
type Plan map[string][]kafka.TopicPartition

// layout is what there is to divide: how many partitions each topic that exists
// has, and, where plans look at racks, where their replicas are.
type layout struct {
	counts map[string]int32
	racks  Racks
}

// divide makes a plan for members with distinct ids. With racks, the order is
// balance, racks, stickiness (G16); roundrobin does not look at them.
func divide(assignor string, members []Member, of layout, dropped *Dropped) Plan {
	in := newInput(members, of.counts)
	in.racks = of.racks.sets()
	switch assignor {
	case Range:
		return in.byRange()
	case RoundRobin:
		return in.roundRobin()
	}
	in.takeClaims(dropped)
	var plan Plan
	if in.racks == nil && in.equal() {
		plan = in.stickyEqual()
	} else {
		plan = in.stickyMixed()
	}
	if assignor == CooperativeSticky {
		in.withhold(plan)
	}
	return plan
}

// input is a task for an assignor. Members and topics are numbered in order.
type input struct {
	members []Member // in Java's order: static ones first, by instance id, then by member id
	topics  []string // subscribed by somebody, existing, sorted
	counts  []int32  // by topic
	before  []int    // by topic: partitions of those before it
	total   int      // partitions
	racks   Racks    // nil = plans do not look at them; as sets
	subs    [][]int  // topics of each member, rising
	users   [][]int  // members of each topic, rising
	index   map[string]int
	owned   [][]kafka.TopicPartition // by member: claims that count
}

func newInput(members []Member, counts map[string]int32) *input {
	in := &input{members: slices.Clone(members), index: map[string]int{}}
	slices.SortFunc(in.members, compareMembers)
	for _, m := range in.members {
		for _, t := range m.Topics {
			if _, seen := in.index[t]; !seen && counts[t] > 0 {
				in.index[t] = 0
				in.topics = append(in.topics, t)
			}
		}
	}
	slices.Sort(in.topics)
	in.counts, in.before = make([]int32, len(in.topics)), make([]int, len(in.topics))
	in.users = make([][]int, len(in.topics))
	in.subs = make([][]int, len(in.members))
	for i, t := range in.topics {
		in.index[t], in.counts[i], in.before[i] = i, counts[t], in.total
		in.total += int(counts[t])
	}
	for m := range in.members {
		in.subs[m] = in.subscription(m)
		for _, t := range in.subs[m] {
			in.users[t] = append(in.users[t], m)
		}
	}
	return in
}

// subscription is what a member subscribes to, in most groups what the one before
// it does.
func (in *input) subscription(m int) (subs []int) {
	if m > 0 && slices.Equal(in.members[m].Topics, in.members[m-1].Topics) {
		return in.subs[m-1]
	}
	for _, t := range in.members[m].Topics {
		if i, ok := in.index[t]; ok {
			subs = append(subs, i)
		}
	}
	slices.Sort(subs)
	return slices.Compact(subs)
}

// number is the place of a partition among all that there are, negative if it is
// none of them.
func (in *input) number(tp kafka.TopicPartition) int {
	t, ok := in.index[tp.Topic]
	if !ok || tp.Partition < 0 || tp.Partition >= in.counts[t] {
		return -1
	}
	return in.before[t] + int(tp.Partition)
}

// Who claims a partition, if it is not a member.
const (
	nobody  = -1
	several = -2
)

// unclaimed is a list of who claims each partition.
func (in *input) unclaimed() []int {
	return slices.Repeat([]int{nobody}, in.total)
}

func compareMembers(a, b Member) int {
	switch {
	case a.InstanceID != "" && b.InstanceID != "":
		return cmp.Or(strings.Compare(a.InstanceID, b.InstanceID), strings.Compare(a.ID, b.ID))
	case a.InstanceID != "":
		return -1
	case b.InstanceID != "":
		return 1
	}
	return strings.Compare(a.ID, b.ID)
}

// emptyPlan has every member, with nothing.
func (in *input) emptyPlan() Plan {
	p := make(Plan, len(in.members))
	for _, m := range in.members {
		p[m.ID] = nil
	}
	return p
}

func (in *input) give(p Plan, member, topic int, partition int32) {
	id := in.members[member].ID
	p[id] = append(p[id], kafka.TopicPartition{Topic: in.topics[topic], Partition: partition})
}

// roundRobin deals all partitions out in turn, past members without the topic.
func (in *input) roundRobin() Plan {
	plan := in.emptyPlan()
	turn := 0
	for t, users := range in.users {
		for p := range in.counts[t] {
			at, ok := slices.BinarySearch(users, turn)
			if !ok {
				at %= len(users)
			}
			in.give(plan, users[at], t, p)
			turn = (users[at] + 1) % len(in.members)
		}
	}
	return plan
}

// equal reports whether all members subscribe to the same topics.
func (in *input) equal() bool {
	for _, s := range in.subs {
		if len(s) != len(in.topics) {
			return false
		}
	}
	return true
}

// takeClaims finds what each member owns as of the newest generation of the
// group. What two members claim as of the same one counts for neither; older
// claims do not count (G13).
func (in *input) takeClaims(dropped *Dropped) {
	newest := NoGeneration
	for _, m := range in.members {
		if len(m.Owned) > 0 {
			newest = max(newest, m.Generation)
		}
	}
	in.owned = make([][]kafka.TopicPartition, len(in.members))
	owner := in.unclaimed()
	for i, m := range in.members {
		if m.Generation >= newest {
			in.claim(owner, i, dropped)
		}
	}
	for t, topic := range in.topics {
		for p := range in.counts[t] {
			if i := owner[in.before[t]+int(p)]; i >= 0 {
				in.owned[i] = append(in.owned[i], kafka.TopicPartition{Topic: topic, Partition: p})
			}
		}
	}
}

// claim enters what a member says to own.
func (in *input) claim(owner []int, member int, dropped *Dropped) {
	for _, tp := range in.members[member].Owned {
		n := in.number(tp)
		switch {
		case tp.Partition < 0:
			dropped.Claims++
		case n < 0:
		case owner[n] != nobody && owner[n] != member:
			dropped.Claims++
			owner[n] = several
		default:
			owner[n] = member
		}
	}
}

// withhold takes out of the plan what somebody other than the one that is to
// get it may still be reading, going by every claim, of any age (G14). Its owner
// gives it up in this round, and the next one gives it away.
func (in *input) withhold(plan Plan) {
	claimed := in.unclaimed()
	for i, m := range in.members {
		for _, tp := range m.Owned {
			switch n := in.number(tp); {
			case n < 0:
			case claimed[n] != nobody && claimed[n] != i:
				claimed[n] = several
			default:
				claimed[n] = i
			}
		}
	}
	for i, m := range in.members {
		plan[m.ID] = slices.DeleteFunc(plan[m.ID], func(tp kafka.TopicPartition) bool {
			who := claimed[in.number(tp)]
			_, mine := slices.BinarySearchFunc(in.owned[i], tp, kafka.TopicPartition.Compare)
			return who != nobody && who != i && !mine
		})
	}
}
