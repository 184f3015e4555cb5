package streams

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TaskID names a task: one partition number of one subtopology.
type TaskID struct {
	Subtopology string
	Partition   int32
}

// String is the form that Kafka Streams prints, such as "0_3".
func (t TaskID) String() string { return t.Subtopology + "_" + strconv.Itoa(int(t.Partition)) }

// Compare orders by the text of the subtopology, then by partition.
func (t TaskID) Compare(o TaskID) int {
	if c := cmp.Compare(t.Subtopology, o.Subtopology); c != 0 {
		return c
	}
	return cmp.Compare(t.Partition, o.Partition)
}

// ParseTaskID reads the form of [TaskID.String]. Its error is a [*TaskError].
func ParseTaskID(s string) (TaskID, error) {
	i := strings.LastIndexByte(s, '_')
	if i < 0 {
		return TaskID{}, &TaskError{Subtopology: s, Partition: -1, Reason: "is not subtopology_partition"}
	}
	p, err := strconv.ParseInt(s[i+1:], 10, 32)
	if err != nil {
		return TaskID{}, &TaskError{Subtopology: s[:i], Partition: -1, Reason: strconv.Quote(s[i+1:]) + " is no partition"}
	}
	t := TaskID{s[:i], int32(p)}
	return t, t.check()
}

// check refuses what no broker assigns.
func (t TaskID) check() error {
	switch {
	case blank(t.Subtopology):
		return &TaskError{t.Subtopology, t.Partition, "has a blank subtopology"}
	case t.Partition < 0:
		return &TaskError{t.Subtopology, t.Partition, "has a negative partition"}
	}
	return nil
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// Role is how a member holds a task. The zero value is Active.
type Role uint8

const (
	Active  Role = iota // reads and processes
	Standby             // follows the changelogs only
	Warmup              // as Standby, to become active
)

const roles = 3

// String is "active", "standby" or "warmup".
func (r Role) String() string {
	if r < roles {
		return [...]string{"active", "standby", "warmup"}[r]
	}
	return "role " + strconv.Itoa(int(r))
}

// Assignment is one task and how it is held.
type Assignment struct {
	Task TaskID
	Role Role
}

// Tasks are complete: what is in none of the lists is not held. The zero value
// holds nothing.
type Tasks struct{ Active, Standby, Warmup []TaskID }

// Update are lists as a broker sends them: a nil one leaves its role as it is,
// an empty one takes everything of its role away.
type Update struct{ Active, Standby, Warmup []TaskID }

// Update is t as a complete update: no list is nil.
func (t Tasks) Update() Update {
	c := t.Clone()
	return Update{nonNil(c.Active), nonNil(c.Standby), nonNil(c.Warmup)}
}

func nonNil(ts []TaskID) []TaskID {
	if ts == nil {
		return []TaskID{}
	}
	return ts
}

// Clone is a copy that shares nothing, each list in canonical order; empty lists
// become nil.
func (t Tasks) Clone() Tasks {
	var out Tasks
	for r, ts := range t.lists() {
		if len(ts) == 0 {
			continue
		}
		c := slices.Clone(ts)
		slices.SortFunc(c, TaskID.Compare)
		*out.role(Role(r)) = c
	}
	return out
}

func (t Tasks) lists() [roles][]TaskID { return [roles][]TaskID{t.Active, t.Standby, t.Warmup} }

func (t *Tasks) role(r Role) *[]TaskID {
	return [roles]*[]TaskID{&t.Active, &t.Standby, &t.Warmup}[r]
}

// IsEmpty reports whether t holds nothing.
func (t Tasks) IsEmpty() bool { return len(t.Active)+len(t.Standby)+len(t.Warmup) == 0 }

// Len is how many tasks t holds.
func (t Tasks) Len() int { return len(t.Active) + len(t.Standby) + len(t.Warmup) }

// Role is how t holds a task.
func (t Tasks) Role(id TaskID) (Role, bool) {
	for r, ts := range t.lists() {
		if slices.Contains(ts, id) {
			return Role(r), true
		}
	}
	return 0, false
}

// Equal compares as sets: neither order nor nil matters.
func (t Tasks) Equal(o Tasks) bool {
	a, b := t.Clone(), o.Clone()
	return slices.Equal(a.Active, b.Active) && slices.Equal(a.Standby, b.Standby) && slices.Equal(a.Warmup, b.Warmup)
}

// String names the tasks by role, such as "A[0_0 0_1] S[] W[]".
func (t Tasks) String() string { return fmt.Sprintf("A%v S%v W%v", t.Active, t.Standby, t.Warmup) }

// check refuses a task that makes no sense, or stands twice in t.
func (t Tasks) check() error {
	seen := make(map[TaskID]Role, t.Len())
	for r, ts := range t.lists() {
		for _, id := range ts {
			if err := id.check(); err != nil {
				return err
			}
			if first, twice := seen[id]; twice {
				return &ConflictError{Task: id, First: first, Second: Role(r)}
			}
			seen[id] = Role(r)
		}
	}
	return nil
}

// union is t with the tasks of o that t does not hold in any role.
func (t Tasks) union(o Tasks) Tasks {
	out, holds := t.Clone(), t.index()
	for r, ts := range o.lists() {
		for _, id := range ts {
			if _, held := holds[id]; !held {
				l := out.role(Role(r))
				*l = append(*l, id)
			}
		}
	}
	return out.Clone()
}

// appendTasks writes a role's tasks as the wire has them: an entry for each
// subtopology, sorted, never nil.
func appendTasks(ts []TaskID) []kmsg.TaskIDs {
	out := []kmsg.TaskIDs{}
	for _, id := range ts {
		if n := len(out); n == 0 || out[n-1].SubtopologyID != id.Subtopology {
			e := kmsg.NewTaskIDs()
			e.SubtopologyID = id.Subtopology
			out = append(out, e)
		}
		e := &out[len(out)-1]
		e.Partitions = append(e.Partitions, id.Partition)
	}
	return out
}

// readTasks reads what appendTasks writes, in any order; nil stays nil.
func readTasks(es []kmsg.TaskIDs) []TaskID {
	if es == nil {
		return nil
	}
	out := []TaskID{}
	for _, e := range es {
		for _, p := range e.Partitions {
			out = append(out, TaskID{e.SubtopologyID, p})
		}
	}
	slices.SortFunc(out, TaskID.Compare)
	return out
}

// ReadAssignment is an assignment of StreamsGroupDescribe.
func ReadAssignment(a *kmsg.StreamsAssignment) Tasks {
	return Tasks{readTasks(a.ActiveTasks), readTasks(a.StandbyTasks), readTasks(a.WarmupTasks)}.Clone()
}
