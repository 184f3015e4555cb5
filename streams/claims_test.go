package streams

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// event is what a member of the chaos tells of itself. The events of all
// processes stand in the order in which they happened.
type event struct {
	At     int64 // Unix nanoseconds
	Sent   int64 // of a beat: when its heartbeat was sent
	Member string
	What   string   // one of the below
	Tasks  []string // of a hold
	Text   string   // of an end
}

// What an event tells.
const (
	told   = "joined"
	beaten = "beat" // a heartbeat was sent at Sent, and accepted since
	holds  = "hold" // the owner holds Tasks from now on: what it gave up is told before the acknowledgement, what is new after it
	lost   = "lost"
	gone   = "left" // Leave returned
	ended  = "end"  // the member ended by itself
)

// claims judges the events: who holds which task. A claim lives while the last
// accepted heartbeat of its member was sent less than a session ago, for until
// then no coordinator ends the session: so the claims of killed and paused members
// end by themselves.
type claims struct {
	session time.Duration
	beat    map[string]int64
	held    map[string][]string // by member
	holders map[string][]string // by task
	double  []string
	story   []string       // of the first task that was held twice
	recent  []event        // the newest ones
	seen    map[string]int // events by kind
}

const recentEvents = 4000

func newClaims(session time.Duration) *claims {
	return &claims{session: session, beat: map[string]int64{}, held: map[string][]string{}, holders: map[string][]string{}, seen: map[string]int{}}
}

// on takes the next event.
func (c *claims) on(e event) {
	c.seen[e.What]++
	if c.recent = append(c.recent, e); len(c.recent) > 2*recentEvents {
		c.recent = slices.Delete(c.recent, 0, recentEvents)
	}
	switch e.What {
	case beaten:
		c.beat[e.Member] = max(c.beat[e.Member], e.Sent)
	case holds:
		for _, task := range c.held[e.Member] {
			c.holders[task] = slices.DeleteFunc(c.holders[task], func(m string) bool { return m == e.Member })
		}
		c.held[e.Member] = e.Tasks
		for _, task := range e.Tasks {
			c.holders[task] = append(c.holders[task], e.Member)
		}
	default:
		return
	}
	for _, task := range c.held[e.Member] {
		live := c.live(task, e.At)
		what := fmt.Sprintf("%s by %s", task, strings.Join(live, " and "))
		if len(live) > 1 && !slices.Contains(c.double, what) {
			c.double = append(c.double, what)
			c.tell(live)
		}
	}
}

// tell keeps what members told before a task was held twice.
func (c *claims) tell(members []string) {
	if c.story != nil {
		return
	}
	for _, e := range c.recent {
		if slices.Contains(members, e.Member) {
			c.story = append(c.story, fmt.Sprintf("%s %s %s %v", time.Unix(0, e.At).UTC().Format("04:05.000"), e.Member, e.What, e.Tasks))
		}
	}
	c.story = c.story[max(0, len(c.story)-200):]
}

// live are the members whose claim on a task lives at an instant.
func (c *claims) live(task string, at int64) []string {
	var out []string
	for _, m := range c.holders[task] {
		if at-c.beat[m] < int64(c.session) {
			out = append(out, m)
		}
	}
	slices.Sort(out)
	return out
}

// owned is how many tasks have exactly one living holder, and the members that
// hold any.
func (c *claims) owned(at int64) (tasks int, members map[string][]string) {
	members = map[string][]string{}
	for _, task := range slices.Sorted(maps.Keys(c.holders)) {
		if live := c.live(task, at); len(live) == 1 {
			tasks++
			members[live[0]] = append(members[live[0]], task)
		}
	}
	return tasks, members
}

// The judge of the chaos finds what it is there for: without that its silence
// means nothing.
func TestClaimsFindATaskWithTwoHolders(t *testing.T) {
	const second = int64(time.Second)
	hold := func(at int64, member string, tasks ...string) event {
		return event{At: at, Member: member, What: holds, Tasks: tasks}
	}
	beat := func(at int64, member string) event { return event{At: at, Sent: at, Member: member, What: beaten} }
	late := func(sent, at int64, member string) event {
		return event{At: at, Sent: sent, Member: member, What: beaten}
	}
	for _, c := range []struct {
		name   string
		events []event
		double int
	}{
		{"one after the other", []event{beat(0, "a"), beat(0, "b"), hold(1, "a", "0_0", "0_1"), hold(2, "a", "0_0"), hold(3, "b", "0_1")}, 0},
		{"both at once", []event{beat(0, "a"), beat(0, "b"), hold(1, "a", "0_0"), hold(2, "b", "0_0")}, 1},
		{"the first is dead, but not for a session", []event{beat(0, "a"), hold(1, "a", "0_0"), beat(5*second, "b"), hold(5*second, "b", "0_0")}, 1},
		{"the first is dead for a session", []event{beat(0, "a"), hold(1, "a", "0_0"), beat(6*second, "b"), hold(6*second, "b", "0_0")}, 0},
		{"a dead one acknowledges", []event{beat(0, "a"), beat(7*second, "b"), hold(7*second, "b", "0_0"), hold(7*second, "a", "0_0")}, 0},
		{"a paused one reads an answer of before", []event{
			beat(0, "a"), hold(1, "a", "0_0"), beat(8*second, "b"), hold(8*second, "b", "0_0"), late(second, 9*second, "a"),
		}, 0},
		{"a dead one acknowledges and lives again", []event{
			beat(0, "a"), beat(7*second, "b"), hold(7*second, "b", "0_0"), hold(7*second, "a", "0_0"), beat(8*second, "a"),
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := newClaims(6 * time.Second)
			for _, e := range c.events {
				cl.on(e)
			}
			if len(cl.double) != c.double {
				t.Errorf("found %q, want %d", cl.double, c.double)
			}
		})
	}
	cl := newClaims(6 * time.Second)
	cl.on(beat(0, "a"))
	cl.on(hold(1, "a", "0_0", "0_1"))
	if n, by := cl.owned(second); n != 2 || len(by["a"]) != 2 {
		t.Errorf("%d owned, by %v", n, by)
	}
	if n, _ := cl.owned(6 * second); n != 0 {
		t.Errorf("%d owned by the dead", n)
	}
}
