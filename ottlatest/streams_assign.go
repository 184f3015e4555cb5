package ottlatest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	core "github.com/ottla/ottla/internal/core/streams"
)

// minus is what a holds and b does not, by role.
func minus(a, b core.Tasks) core.Tasks {
	sub := func(x, y []core.TaskID) []core.TaskID {
		return slices.DeleteFunc(slices.Clone(x), func(id core.TaskID) bool { return slices.Contains(y, id) })
	}
	return core.Tasks{Active: sub(a.Active, b.Active), Standby: sub(a.Standby, b.Standby), Warmup: sub(a.Warmup, b.Warmup)}
}

// plus is a and b together.
func plus(a, b core.Tasks) core.Tasks {
	return core.Tasks{
		Active: slices.Concat(a.Active, b.Active), Standby: slices.Concat(a.Standby, b.Standby), Warmup: slices.Concat(a.Warmup, b.Warmup),
	}.Clone()
}

// meets reports whether two sets share a task in any role.
func meets(a, b core.Tasks) bool {
	for _, l := range [][]core.TaskID{a.Active, a.Standby, a.Warmup} {
		for _, id := range l {
			if _, ok := b.Role(id); ok {
				return true
			}
		}
	}
	return false
}

// reconcile brings a member nearer to its target, and reports whether what it
// holds changed. A move takes two steps: the member gives up what it should not
// have and says so, then it gets what is free.
func (g *streamsGroup) reconcile(now time.Time, m *streamsMember, owned core.Tasks, given bool) bool {
	before := m.held
	if !m.until.IsZero() {
		if !given || meets(m.pending, owned) {
			return false
		}
		m.pending, m.until = core.Tasks{}, time.Time{}
		m.raise(m.pendingEpoch)
	}
	target := g.target[m.id]
	gone := minus(m.held, target)
	m.held = minus(m.held, gone)
	if !gone.IsEmpty() && (!given || meets(gone, owned)) {
		m.pending, m.pendingEpoch, m.until = gone, g.assigned, now.Add(m.rebalance)
	} else { // nothing to give up, or the lists lack it already
		m.raise(max(1, g.assigned))
		m.held = plus(m.held, g.free(m, minus(target, m.held)))
	}
	changed := !m.held.Equal(before)
	if changed && m.endpoint != nil {
		g.endpoints++
	}
	return changed
}

func (m *streamsMember) raise(epoch int32) {
	if epoch > m.epoch {
		m.previous, m.epoch = m.epoch, epoch
	}
}

// free is what a member may have now of what it should get: an active task that
// no process runs, and that its own process has in no other role; a standby or
// warm-up that its own process has in no role.
func (g *streamsGroup) free(m *streamsMember, wanted core.Tasks) core.Tasks {
	held := func(id core.TaskID, active bool) bool {
		for _, o := range g.members {
			all := plus(o.held, o.pending)
			if role, ok := all.Role(id); ok && (o.process == m.process || active && role == core.Active) {
				return true
			}
		}
		return false
	}
	pick := func(ts []core.TaskID, active bool) []core.TaskID {
		return slices.DeleteFunc(slices.Clone(ts), func(id core.TaskID) bool { return held(id, active) })
	}
	return core.Tasks{Active: pick(wanted.Active, true), Standby: pick(wanted.Standby, false), Warmup: pick(wanted.Warmup, false)}
}

// replan makes a new target if the group changed and nothing holds that up.
func (g *streamsGroup) replan(now time.Time, blocked bool) {
	if shape := g.shapeNow(blocked); shape != g.shape {
		if g.shape != "" {
			g.bump()
		}
		g.shape = shape
	}
	if g.assigned == g.epoch || now.Before(g.delayed) {
		return
	}
	if !blocked && !g.lastPlan.IsZero() && now.Before(g.lastPlan.Add(g.settings.AssignmentInterval)) {
		return
	}
	g.assigned, g.lastPlan = g.epoch, now
	if blocked {
		g.target = map[string]core.Tasks{}
		return
	}
	g.target = g.assign()
}

// shapeNow is what an assignment depends on beside the members.
func (g *streamsGroup) shapeNow(blocked bool) string {
	s := fmt.Sprintf("%v %d", blocked, g.settings.Standbys)
	for _, sub := range g.plan.Subtopologies {
		s += fmt.Sprintf(" %s:%d", sub.ID, g.tasks(sub))
	}
	return s
}

// tasks is the number of tasks of a subtopology: the largest number of
// partitions of what it reads.
func (g *streamsGroup) tasks(sub core.Subtopology) int {
	n := 0
	for _, t := range sub.Sources {
		n = max(n, g.counts(t))
	}
	for _, t := range sub.Repartitions {
		n = max(n, g.counts(t.Name))
	}
	return n
}

// all are the tasks of the group, and those of them that have state.
func (g *streamsGroup) all() (tasks []core.TaskID, stateful map[core.TaskID]bool) {
	stateful = map[core.TaskID]bool{}
	for _, sub := range g.plan.Subtopologies {
		for p := range g.tasks(sub) {
			id := core.TaskID{Subtopology: sub.ID, Partition: int32(p)}
			tasks = append(tasks, id)
			stateful[id] = len(sub.Changelogs) > 0
		}
	}
	slices.SortFunc(tasks, core.TaskID.Compare)
	return tasks, stateful
}

// assign is a sticky assignment: members keep their active tasks as far as the
// numbers are even, the others go where offsets of them were reported, else to
// the member with the fewest.
func (g *streamsGroup) assign() map[string]core.Tasks {
	tasks, stateful := g.all()
	ids := sortedKeys(g.members)
	out := map[string]core.Tasks{}
	if len(ids) == 0 {
		return out
	}
	base, extra := len(tasks)/len(ids), len(tasks)%len(ids)
	var open []core.TaskID
	for _, id := range tasks {
		owner := g.activeHolder(id)
		t := out[owner]
		switch {
		case owner == "" || len(t.Active) > base || len(t.Active) == base && extra == 0:
			open = append(open, id)
			continue
		case len(t.Active) == base:
			extra--
		}
		t.Active = append(t.Active, id)
		out[owner] = t
	}
	for _, id := range open {
		to := slices.MinFunc(ids, func(a, b string) int {
			if c := cmp.Compare(len(out[a].Active), len(out[b].Active)); c != 0 {
				return c
			}
			return cmp.Compare(g.reported(b, id), g.reported(a, id))
		})
		t := out[to]
		t.Active = append(t.Active, id)
		out[to] = t
	}
	g.assignStandbys(ids, tasks, stateful, out)
	return out
}

// activeHolder is the member that had a task active in the last target.
func (g *streamsGroup) activeHolder(id core.TaskID) string {
	for _, m := range sortedKeys(g.target) {
		if g.members[m] != nil && slices.Contains(g.target[m].Active, id) {
			return m
		}
	}
	return ""
}

// reported is 1 if a member reported an offset of a task.
func (g *streamsGroup) reported(member string, id core.TaskID) int {
	for _, o := range g.members[member].offsets {
		if o.SubtopologyID == id.Subtopology && o.Partition == id.Partition {
			return 1
		}
	}
	return 0
}

// assignStandbys adds standbys to tasks with state, and the warm-ups that a test
// asked for: never two roles of a task in one process.
func (g *streamsGroup) assignStandbys(ids []string, tasks []core.TaskID, stateful map[core.TaskID]bool, out map[string]core.Tasks) {
	inProcess := func(member string, id core.TaskID) bool {
		return slices.ContainsFunc(ids, func(o string) bool {
			_, has := out[o].Role(id)
			return has && g.members[o].process == g.members[member].process
		})
	}
	for _, id := range tasks {
		for range g.settings.Standbys {
			free := slices.DeleteFunc(slices.Clone(ids), func(m string) bool { return inProcess(m, id) })
			if !stateful[id] || len(free) == 0 {
				break
			}
			to := slices.MinFunc(free, func(a, b string) int {
				if c := cmp.Compare(g.standsBy(b, id), g.standsBy(a, id)); c != 0 {
					return c
				}
				return cmp.Compare(out[a].Len(), out[b].Len())
			})
			t := out[to]
			t.Standby = append(t.Standby, id)
			out[to] = t
		}
		if to := g.warmups[id]; g.members[to] != nil && !inProcess(to, id) {
			t := out[to]
			t.Warmup = append(t.Warmup, id)
			out[to] = t
		}
	}
}

func (g *streamsGroup) standsBy(member string, id core.TaskID) int {
	if slices.Contains(g.target[member].Standby, id) {
		return 1
	}
	return 0
}

// problems are the statuses of topics that are missing or do not fit. With make
// set missing internal topics are created; they are there at the next look.
func (g *streamsGroup) problems(make bool) []kmsg.StreamsGroupHeartbeatResponseStatus {
	for _, sub := range g.plan.Subtopologies {
		for _, t := range sub.Sources {
			if g.counts(t) == 0 {
				return []kmsg.StreamsGroupHeartbeatResponseStatus{status(1, "Source topics "+t+" are missing.")}
			}
		}
	}
	for _, sub := range g.plan.Subtopologies {
		for _, group := range sub.CopartitionGroups {
			if s := g.copartitioned(sub, group); s != nil {
				return s
			}
		}
	}
	return g.internalTopics(make)
}

// copartitioned checks that external topics of a group have as many partitions.
func (g *streamsGroup) copartitioned(sub core.Subtopology, group []string) []kmsg.StreamsGroupHeartbeatResponseStatus {
	want := 0
	for _, t := range group {
		if !slices.Contains(sub.Sources, t) {
			continue
		}
		n := g.counts(t)
		if want != 0 && n != want {
			return []kmsg.StreamsGroupHeartbeatResponseStatus{status(2, fmt.Sprintf("Following topics do not have the same number of partitions: %v", group))}
		}
		want = n
	}
	return nil
}
