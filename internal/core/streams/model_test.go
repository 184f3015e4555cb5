package streams

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// modelCoordinator is what a coordinator does with one member while others come
// and go: it takes tasks away in two steps and gives free ones.
type modelCoordinator struct {
	t        testing.TB
	rng      *rand.Rand
	joined   bool
	epoch    int32 // of the member
	previous int32
	group    int32
	assigned map[TaskID]bool // counted as held
	pending  map[TaskID]bool // to be given up
	others   map[TaskID]bool // held by another member
	wanted   map[TaskID]bool // target of the member
	holds    func(TaskID) bool
	interval int32 // of heartbeats, in milliseconds
}

var modelTasks = []TaskID{{"0", 0}, {"0", 1}, {"0", 2}, {"1", 0}}

// rebalance makes another target.
func (c *modelCoordinator) rebalance() {
	c.group++
	c.wanted = map[TaskID]bool{}
	for _, id := range modelTasks {
		if c.rng.IntN(2) == 0 {
			c.wanted[id] = true
		}
	}
	for id := range c.others { // the other member gives up at once
		if c.wanted[id] {
			delete(c.others, id)
		}
	}
}

// release gives a task that the member gave up to another. This is what all is
// about: the owner must have stopped it.
func (c *modelCoordinator) release(id TaskID) {
	if c.joined && c.holds(id) {
		c.t.Fatalf("task %v goes to another member while the owner runs it", id)
	}
	if !c.wanted[id] {
		c.others[id] = true
	}
}

// expire ends the member's session. What it runs then is the zombie that commits
// are fenced for.
func (c *modelCoordinator) expire() {
	c.joined = false
	for _, m := range []map[TaskID]bool{c.assigned, c.pending} {
		for id := range m {
			c.others[id] = true
		}
	}
	c.assigned, c.pending = map[TaskID]bool{}, map[TaskID]bool{}
}

func (c *modelCoordinator) handle(q *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
	lists, given := carriedTasks(q)
	resp := answerOf(0)
	resp.HeartbeatIntervalMillis = c.interval
	switch {
	case q.MemberEpoch == 0:
		for id := range c.pending {
			c.release(id)
		}
		c.pending = map[TaskID]bool{}
		if !c.joined {
			c.joined, c.assigned = true, map[TaskID]bool{}
			c.group++
			c.epoch, c.previous = c.group, 0
		}
		c.reconcile()
		resp.MemberEpoch = c.epoch
		return withTarget(resp, setOf(c.assigned))
	case !c.joined:
		resp.ErrorCode = 25
		return resp
	case q.MemberEpoch != c.epoch && !(q.MemberEpoch == c.previous && given && c.contains(lists)):
		resp.ErrorCode = 110
		return resp
	}
	before := setOf(c.assigned)
	if len(c.pending) > 0 && given && !c.stillHolds(lists) {
		for id := range c.pending {
			c.release(id)
		}
		c.pending = map[TaskID]bool{}
		c.previous, c.epoch = c.epoch, c.group
	}
	if len(c.pending) == 0 {
		c.reconcile()
		if given && len(c.pending) > 0 && !c.stillHolds(lists) { // it has given them up already
			for id := range c.pending {
				c.release(id)
			}
			c.pending = map[TaskID]bool{}
			c.reconcile()
		}
	}
	resp.MemberEpoch = c.epoch
	if after := setOf(c.assigned); !after.Equal(before) {
		return withTarget(resp, after)
	}
	return resp
}

func (c *modelCoordinator) contains(t Tasks) bool {
	return !slices.ContainsFunc(t.Active, func(id TaskID) bool { return !c.assigned[id] })
}

func (c *modelCoordinator) stillHolds(t Tasks) bool {
	return slices.ContainsFunc(t.Active, func(id TaskID) bool { return c.pending[id] })
}

func (c *modelCoordinator) reconcile() {
	for id := range c.assigned {
		if !c.wanted[id] {
			c.pending[id] = true
			delete(c.assigned, id)
		}
	}
	if len(c.pending) > 0 {
		return
	}
	if c.epoch != c.group {
		c.previous, c.epoch = c.epoch, c.group
	}
	for id := range c.wanted {
		if !c.others[id] {
			c.assigned[id] = true
		}
	}
}

// atRest holds that the owner runs what it told, and what the coordinator counts,
// and that this is all that the member should have.
func (c *modelCoordinator) atRest(r *rig, runs Tasks) {
	should := map[TaskID]bool{}
	for id := range c.wanted {
		should[id] = !c.others[id]
	}
	maps.DeleteFunc(should, func(_ TaskID, free bool) bool { return !free })
	if r.ended || runs.Equal(setOf(should)) && runs.Equal(setOf(c.assigned)) && r.m.Owned().Equal(runs) && len(c.pending) == 0 {
		return
	}
	c.t.Fatalf("the owner runs %v and told %v, the coordinator counts %v, waits for %v, and wants %v",
		runs, r.m.Owned(), setOf(c.assigned), setOf(c.pending), setOf(should))
}

func setOf(m map[TaskID]bool) Tasks {
	var t Tasks
	for id := range m {
		t.Active = append(t.Active, id)
	}
	return t.Clone()
}

// play runs one random script and gives everything that the machine said.
func play(t *testing.T, seed uint64) string {
	rng := rand.New(rand.NewPCG(seed, 1))
	r := newRig(t, nil)
	runs := map[TaskID]bool{} // what the owner runs
	c := &modelCoordinator{
		t: t, rng: rng, assigned: map[TaskID]bool{}, pending: map[TaskID]bool{}, others: map[TaskID]bool{}, wanted: map[TaskID]bool{},
		holds: func(id TaskID) bool { return runs[id] }, interval: 5000,
	}
	if seed%2 == 1 {
		c.interval = 200 // shorter than the jitter of a describe: much happens before it
	}
	c.rebalance()
	var work *Snapshot // what the owner is about; newer ones wait
	done := uint64(0)
	owner := func() {
		if work == nil {
			if s := r.m.Snapshot(); s.Version > done {
				work = &s
			}
			return
		}
		s := *work
		work, done = nil, s.Version
		for id := range runs {
			if _, keep := s.Target.Role(id); s.Lost || !keep {
				delete(runs, id)
			}
		}
		held := s.Target
		if s.Lost {
			held = Tasks{}
		}
		if r.m.OnAcknowledge(r.now, s, held) == nil { // else a loss, or another owner, came between
			for _, id := range held.Active {
				if runs[id] = true; c.joined && c.others[id] {
					t.Fatalf("the owner begins with task %v, which another member has", id)
				}
			}
		}
	}
	step := func(faults bool) {
		if r.out == nil {
			if at := r.m.Deadline(); at.After(r.now) {
				r.now = at
			}
			r.step()
			return
		}
		id, q := r.out.ID, r.out.Req
		r.out = nil
		kind := 9
		if faults {
			kind = rng.IntN(12)
		}
		switch kind {
		case 0: // lost before the coordinator
			r.m.OnFailure(r.now, id, fmt.Errorf("lost"), false)
		case 1: // lost behind it
			c.handle(q)
			r.m.OnFailure(r.now, id, fmt.Errorf("lost"), false)
		case 2:
			resp := answerOf(0)
			resp.ErrorCode = []int16{14, 15, 16, -1}[rng.IntN(4)]
			r.m.OnAnswer(r.now, id, resp)
		default:
			resp := c.handle(q)
			resp.Version = q.Version
			r.m.OnAnswer(r.now, id, resp)
		}
		r.step()
	}
	describe := func() {
		if d := r.describe; d != nil {
			r.describe = nil
			r.m.OnDescribed(r.now, d.ID, setOf(c.assigned), c.joined, nil)
		}
	}
	trouble := func() {
		step(true)
		describe()
		if rng.IntN(2) == 0 {
			owner()
		}
		switch rng.IntN(8) {
		case 0:
			c.rebalance()
		case 1:
			c.expire()
		}
		r.step()
	}
	for range 8 {
		for range 15 {
			if r.ended {
				return strings.Join(r.lines, "\n")
			}
			trouble()
		}
		// without faults all comes to rest, also if the target goes on moving for a while
		for i := range 50 {
			if i < 6 && rng.IntN(3) == 0 {
				c.rebalance()
			}
			step(false)
			describe()
			owner()
			r.step()
		}
		c.atRest(r, setOf(runs))
	}
	return strings.Join(r.lines, "\n")
}

// Random answers, losses and owners against a model of the coordinator: no task
// moves while its owner runs it, and all comes to rest. The same script gives the
// same actions. It fails if the full set of a failure leaves out tasks that the
// owner has not taken over, if nulls follow a lost answer, if the describe for
// lost lists is left out, or if lists that are no news are not confirmed: they take
// back a task that only a lost answer gave.
func TestM70_P30RandomScriptsAgainstAModelCoordinator(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			if first, again := play(t, seed), play(t, seed); first != again {
				t.Error("the same script gives other actions")
			}
		})
	}
}
