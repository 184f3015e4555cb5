package streams

import (
	"maps"
	"slices"
)

// TransitionKind is what a transition does to a task.
type TransitionKind uint8

const (
	Removed     TransitionKind = iota // the task is given up; From is its role
	RoleChanged                       // the task stays, as To instead of From
	Added                             // the task is new; To is its role
)

// String is the kind in words.
func (k TransitionKind) String() string {
	if int(k) < 3 {
		return [...]string{"removed", "role changed", "added"}[k]
	}
	return "unknown"
}

// Transition is one step from a set of tasks to another.
type Transition struct {
	Kind     TransitionKind
	Task     TaskID
	From, To Role
}

// TaskTable is the tasks that a program runs. It starts empty, starts nothing
// and knows no member: the zero value is ready. It is not safe for concurrent
// use.
type TaskTable struct{ tasks map[TaskID]Role }

// Reconcile takes an update over and answers what changes by it: removals and
// changes of role first, then additions, each in canonical order, nothing if
// nothing changes. Lists of the update that are nil keep their role. An update
// that makes no sense, a [*TaskError] or [*ConflictError], changes nothing.
//
// The owner of a member passes Target.Update() of the newest snapshot, since it
// may have skipped some.
func (t *TaskTable) Reconcile(u Update) ([]Transition, error) {
	next := t.Tasks()
	for r, ts := range (Tasks(u)).lists() {
		if ts != nil {
			*next.role(Role(r)) = ts
		}
	}
	if err := next.check(); err != nil {
		return nil, err
	}
	wanted := next.index()
	var gone, added []Transition
	for id, from := range t.tasks {
		switch to, keep := wanted[id]; {
		case !keep:
			gone = append(gone, Transition{Kind: Removed, Task: id, From: from, To: from})
		case to != from:
			gone = append(gone, Transition{Kind: RoleChanged, Task: id, From: from, To: to})
		}
	}
	for id, to := range wanted {
		if _, had := t.tasks[id]; !had {
			added = append(added, Transition{Kind: Added, Task: id, From: to, To: to})
		}
	}
	byTask := func(a, b Transition) int { return a.Task.Compare(b.Task) }
	slices.SortFunc(gone, byTask)
	slices.SortFunc(added, byTask)
	t.tasks = wanted
	return append(gone, added...), nil
}

// index is t by task.
func (t Tasks) index() map[TaskID]Role {
	out := make(map[TaskID]Role, t.Len())
	for r, ts := range t.lists() {
		for _, id := range ts {
			out[id] = Role(r)
		}
	}
	return out
}

// Assignments are the tasks of the table in canonical order.
func (t *TaskTable) Assignments() []Assignment {
	out := make([]Assignment, 0, len(t.tasks))
	for _, id := range slices.SortedFunc(maps.Keys(t.tasks), TaskID.Compare) {
		out = append(out, Assignment{id, t.tasks[id]})
	}
	return out
}

// Tasks are the tasks of the table, for an acknowledgement.
func (t *TaskTable) Tasks() Tasks {
	var out Tasks
	for _, a := range t.Assignments() {
		l := out.role(a.Role)
		*l = append(*l, a.Task)
	}
	return out
}

// Role is the role of a task; ok is false if the table does not have it.
func (t *TaskTable) Role(id TaskID) (role Role, ok bool) {
	role, ok = t.tasks[id]
	return role, ok
}
