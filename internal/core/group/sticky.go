package group

import (
	"slices"
	"strings"
)

// stickyEqual divides partitions where everybody subscribes to the same topics:
// each member keeps what it owned up to its share, and what is left is dealt out
// in turn. Shares differ by one at most, and no plan with such shares moves less.
func (in *input) stickyEqual() Plan {
	plan := in.emptyPlan()
	if len(in.members) == 0 {
		return plan
	}
	low, larger := in.total/len(in.members), in.total%len(in.members)
	byID := make([]int, len(in.members))
	for i := range byID {
		byID[i] = i
	}
	slices.SortFunc(byID, func(a, b int) int { return strings.Compare(in.members[a].ID, in.members[b].ID) })

	kept := make([]bool, in.total)
	var below, full []int // members that may get more, in order
	for _, m := range byID {
		keep := in.owned[m]
		switch {
		case len(keep) > low && larger > 0:
			keep = keep[:low+1]
			larger--
		case len(keep) >= low:
			keep = keep[:low]
			full = append(full, m)
		default:
			below = append(below, m)
		}
		for _, tp := range keep {
			kept[in.number(tp)] = true
		}
		plan[in.members[m].ID] = slices.Clone(keep)
	}
	in.deal(plan, kept, dealing{low: low, larger: larger, below: below, full: full})
	return plan
}

// dealing says who may still get partitions.
type dealing struct {
	low    int   // the smaller share
	larger int   // how many members may have one more
	below  []int // members below the smaller share
	full   []int // members that have it
	turn   int   // of below
}

// next is the member that gets the next partition.
func (d *dealing) next(in *input, plan Plan) int {
	if len(d.below) == 0 {
		slices.SortFunc(d.full, func(a, b int) int { return strings.Compare(in.members[a].ID, in.members[b].ID) })
		m := d.full[0]
		d.full = d.full[1:]
		return m
	}
	if d.turn >= len(d.below) {
		d.turn = 0
	}
	m := d.below[d.turn]
	if len(plan[in.members[m].ID])+1 >= d.low {
		d.below = slices.Delete(d.below, d.turn, d.turn+1)
		d.full = append(d.full, m)
	} else {
		d.turn++
	}
	return m
}

// deal gives what nobody kept to those that may get more, in turn.
func (in *input) deal(plan Plan, kept []bool, d dealing) {
	for t, n := range in.counts {
		for p := range n {
			if !kept[in.before[t]+int(p)] {
				in.give(plan, d.next(in, plan), t, p)
			}
		}
	}
}

// stickyMixed divides partitions where subscriptions differ. The partitions of a
// topic are alike but for who owned them, so it looks for the numbers of
// partitions of each topic that each member gets: first the squares of the
// members' loads are to be as small as possible in sum, then as many partitions
// as possible stay. See flow.
func (in *input) stickyMixed() Plan {
	f := newFlow(in)
	f.start()
	f.improve()
	return f.plan()
}
