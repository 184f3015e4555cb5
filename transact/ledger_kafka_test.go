//go:build kafka

package transact

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ottla/ottla/kafka"
)

// tenure is the time from a member's assigned callback for a partition to the
// end of its ownership, in ms.
type tenure struct {
	member   string
	from, to int64
	until    string // what ended it
}

// tenures are a member's, by partition: as its callbacks say, and at most until
// it was killed, or paused for so long that others may have taken its place. What
// was lost has no end that the member knew in time: it counts up to the last
// record that it handled.
func (a *actor) tenures() map[int32][]tenure {
	a.mu.Lock()
	defer a.mu.Unlock()
	open, done, seen := map[int32]int64{}, map[int32][]tenure{}, map[int32]int64{}
	began := int64(math.MaxInt64) // the rebalance
	end := func(p int32, at int64, until string) {
		if from, ok := open[p]; ok {
			to, why := a.cut(from, at)
			done[p] = append(done[p], tenure{a.name, from, to, cmp.Or(why, until)})
			delete(open, p)
		}
	}
	for _, r := range a.reports {
		switch r.Name {
		case rebalancing:
			began = r.Timestamp
		case joined:
			began = math.MaxInt64
		}
		for _, s := range r.Partitions {
			switch p := s.Partition; r.Name {
			case assigned:
				open[p], seen[p] = r.Timestamp, r.Timestamp
			case handled:
				seen[p] = r.Timestamp
			case revoked:
				if longest := revocation.Milliseconds(); r.Timestamp-longest > began {
					end(p, began+longest, "overran")
				}
				end(p, r.Timestamp, "revoked")
			case lost:
				end(p, min(seen[p], r.Timestamp), "lost")
			}
		}
		switch r.Name {
		case revoked:
			began = math.MaxInt64
		case finished:
			for p := range open {
				end(p, r.Timestamp, "closed")
			}
		}
	}
	for p := range open {
		end(p, math.MaxInt64, "open")
	}
	return done
}

// cut is the end of a tenure that would last from and to.
func (a *actor) cut(from, to int64) (int64, string) {
	for _, p := range a.pauses {
		if p[1]-p[0] > session.Milliseconds()/2 && p[0] >= from && p[0] < to {
			return p[0], "paused"
		}
	}
	if a.killed > 0 && a.killed < to {
		return a.killed, "killed"
	}
	return to, ""
}

// oneOwner holds that no partition had two owners at a time, and that nobody
// handled what it did not own.
func (g *troupe) oneOwner() {
	g.t.Helper()
	all, ends := map[int32][]tenure{}, map[string]int{}
	for _, a := range g.members {
		mine := a.tenures()
		for p, ts := range mine {
			all[p] = append(all[p], ts...)
			for _, t := range ts {
				ends[t.until]++
			}
		}
		a.strayed(g.t, mine)
	}
	for p, ts := range all {
		slices.SortFunc(ts, func(a, b tenure) int { return cmp.Compare(a.from, b.from) })
		for i := 1; i < len(ts); i++ {
			if ts[i].from < ts[i-1].to {
				g.t.Errorf("partition %d of %s has two owners: %+v and %+v", p, g.part.Group, ts[i-1], ts[i])
			}
		}
	}
	g.t.Logf("%s: %d members, ends of ownership: %v", g.part.Group, len(g.members), ends)
	for _, a := range g.members {
		for _, r := range a.reports {
			if r.Name == lost {
				g.t.Logf("%s lost partitions: %s", a.name, r.Error)
			}
		}
		if a.java {
			g.t.Logf("%s: %d reports, the last line: %s", a.name, len(a.reports), a.last)
		}
	}
}

// strayed finds what a member handled without owning it, as far as it could know.
func (a *actor) strayed(t *testing.T, mine map[int32][]tenure) {
	for _, r := range a.reports {
		for _, s := range r.Partitions {
			if r.Name != handled || slices.ContainsFunc(mine[s.Partition], func(o tenure) bool {
				return r.Timestamp >= o.from && (r.Timestamp <= o.to || o.until == "paused" || o.until == "killed")
			}) {
				continue
			}
			t.Errorf("%s handled %d to %d of partition %d at %d, and owns it in %+v", a.name, s.MinOffset, s.MaxOffset, s.Partition, r.Timestamp, mine[s.Partition])
			return
		}
	}
}

// coverage is up to where all of each partition was handled, and how many records
// again: after a member of ottla had them (false), or one in Java.
func (g *troupe) coverage() (upTo map[int32]kafka.Offset, again map[bool]int) {
	type turn struct {
		at   int64
		java bool
		stretch
	}
	var turns []turn
	for _, a := range g.members {
		a.mu.Lock()
		for _, r := range a.reports {
			for _, s := range r.Partitions {
				if r.Name == handled {
					turns = append(turns, turn{r.Timestamp, a.java, s})
				}
			}
		}
		a.mu.Unlock()
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	first := map[int32]map[kafka.Offset]bool{}
	upTo, again = map[int32]kafka.Offset{}, map[bool]int{}
	for _, u := range turns {
		of := first[u.Partition]
		if of == nil {
			of = map[kafka.Offset]bool{}
			first[u.Partition] = of
		}
		for o := u.MinOffset; o <= u.MaxOffset; o++ {
			if java, twice := of[o]; twice {
				again[java]++
				continue
			}
			of[o] = u.java
		}
		for at, ok := upTo[u.Partition], true; ok; at++ {
			upTo[u.Partition] = at
			_, ok = of[at]
		}
	}
	return upTo, again
}

// uncovered is a partition of which not everything was handled.
type uncovered struct {
	partition int32
	group     string
	upTo, end kafka.Offset
}

func (u *uncovered) Error() string {
	return fmt.Sprintf("partition %d of %s is handled up to %d of %d", u.partition, u.group, u.upTo, u.end)
}

// covers is nil if everything below the ends was handled.
func (g *troupe) covers(ends map[int32]kafka.Offset) *uncovered {
	upTo, _ := g.coverage()
	for p, end := range ends {
		if upTo[p] < end {
			return &uncovered{p, g.part.Group, upTo[p], end}
		}
	}
	return nil
}

// tell logs what every member said of a partition, and what else it wrote.
func (g *troupe) tell(partition int32) {
	for _, a := range g.members {
		a.mu.Lock()
		var text strings.Builder
		fmt.Fprintf(&text, "%s: lives %v, asked to end %v, killed at %d, paused %v\n", a.name, a.lives(), a.asked, a.killed, a.pauses)
		for _, r := range a.reports {
			of := slices.DeleteFunc(slices.Clone(r.Partitions), func(s stretch) bool { return s.Partition != partition })
			if len(of) > 0 || len(r.Partitions) == 0 && r.Name != "offsets_committed" { // which Java tells ten times a second
				fmt.Fprintln(&text, r.Timestamp, r.Name, of, r.Error)
			}
		}
		a.mu.Unlock()
		g.t.Logf("%s%s", text.String(), tail(a.log.String()))
	}
}
