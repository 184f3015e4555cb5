package streams

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestM62TasksAndTheirText(t *testing.T) {
	for _, id := range []TaskID{{"0", 3}, {"a_b", 12}, {"10", 0}} {
		got, err := ParseTaskID(id.String())
		if err != nil || got != id {
			t.Errorf("%v: %v, %v", id, got, err)
		}
	}
	want(t, TaskID{"0", 3}.String(), "0_3")
	for _, s := range []string{"", "0", "_3", "0_", "0_-1", "0_x", "0_99999999999"} {
		var te *TaskError
		if _, err := ParseTaskID(s); !errors.As(err, &te) {
			t.Errorf("%q: %v", s, err)
		}
	}
	ids := []TaskID{{"2", 0}, {"10", 1}, {"10", 0}, {"1", 5}}
	slices.SortFunc(ids, TaskID.Compare)
	want(t, Tasks{Active: ids}.String(), "A[1_5 10_0 10_1 2_0] S[] W[]")
	want(t, Active.String()+Standby.String()+Warmup.String(), "activestandbywarmup")
}

func reconcile(t *testing.T, table *TaskTable, u Update, steps ...Transition) {
	t.Helper()
	got, err := table.Reconcile(u)
	if err != nil || !slices.Equal(got, steps) {
		t.Fatalf("%v, %v; want %v", got, err, steps)
	}
}

func TestM65_M66_M67TheTableGivesTheSteps(t *testing.T) {
	a, b, c := TaskID{"0", 0}, TaskID{"0", 1}, TaskID{"10", 0}
	var table TaskTable
	want(t, len(table.Assignments()), 0)
	reconcile(t, &table, Update{Active: []TaskID{b, a}, Standby: []TaskID{c}},
		Transition{Added, a, Active, Active}, Transition{Added, b, Active, Active}, Transition{Added, c, Standby, Standby})
	if r, ok := table.Role(c); !ok || r != Standby {
		t.Error("the role of c")
	}
	want(t, table.Tasks().String(), "A[0_0 0_1] S[10_0] W[]")
	as := table.Assignments()
	want(t, as[0].Task.String()+as[1].Task.String()+as[2].Task.String(), "0_00_110_0")
	t.Run("M67 an equal update gives nothing", func(t *testing.T) { reconcile(t, &table, table.Tasks().Update()) })
	t.Run("M66 a nil role keeps its tasks, an empty one revokes them", func(t *testing.T) {
		reconcile(t, &table, Update{Standby: []TaskID{}}, Transition{Removed, c, Standby, Standby})
		want(t, table.Tasks().String(), "A[0_0 0_1] S[] W[]")
	})
	t.Run("M67 removals and changes first, then additions", func(t *testing.T) {
		reconcile(t, &table, Update{Active: []TaskID{b}, Warmup: []TaskID{c, a}},
			Transition{RoleChanged, a, Active, Warmup}, Transition{Added, c, Warmup, Warmup})
		reconcile(t, &table, Update{Active: []TaskID{a}, Warmup: []TaskID{}},
			Transition{RoleChanged, a, Warmup, Active}, Transition{Removed, b, Active, Active}, Transition{Removed, c, Warmup, Warmup})
	})
	t.Run("M68 conflicts and nonsense change nothing", func(t *testing.T) {
		var ce *ConflictError
		if _, err := table.Reconcile(Update{Standby: []TaskID{a}}); !errors.As(err, &ce) || ce.Task != a || ce.First != Active {
			t.Errorf("against a kept role: %v", err)
		}
		if _, err := table.Reconcile(Update{Active: []TaskID{b, b}}); !errors.As(err, &ce) {
			t.Errorf("twice in a role: %v", err)
		}
		var te *TaskError
		for _, id := range []TaskID{{"", 0}, {" ", 0}, {"0", -1}} {
			if _, err := table.Reconcile(Update{Active: []TaskID{id}}); !errors.As(err, &te) {
				t.Errorf("M64 %v: %v", id, err)
			}
		}
		want(t, table.Tasks().String(), "A[0_0] S[] W[]")
		reconcile(t, &table, Update{Active: []TaskID{}}, Transition{Removed, a, Active, Active})
	})
}

func TestM69TheOrderOfAnUpdateHasNoEffect(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var u Update
		for p := range int32(6) {
			id := TaskID{string(rune('0' + rng.IntN(3))), p}
			l := []*[]TaskID{&u.Active, &u.Standby, &u.Warmup}[rng.IntN(3)]
			*l = append(*l, id)
		}
		var x, y TaskTable
		first, err := x.Reconcile(u)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range [][]TaskID{u.Active, u.Standby, u.Warmup} {
			rng.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
		}
		second, err := y.Reconcile(u)
		if err != nil || !slices.Equal(first, second) {
			t.Fatalf("%v, then %v, %v", first, second, err)
		}
	}
}

func TestM64AnEntryWithoutPartitionsMeansNothing(t *testing.T) {
	es := appendTasks([]TaskID{{"0", 1}})
	es = append(es, es[0])
	es[1].SubtopologyID, es[1].Partitions = "1", nil
	want(t, len(readTasks(es)), 1)
	if readTasks(nil) != nil || readTasks(es[:0]) == nil {
		t.Error("null and empty are not kept apart")
	}
}
