//go:build kafka

package transact

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ottla/ottla/internal/realkafka"
)

// session is the session timeout of the members of chaos.
const session = 8 * time.Second

// troupe is the members of one group, each in a process of its own, and what
// they reported.
type troupe struct {
	t       *testing.T
	part    part   // of the members of ottla
	java    string // arguments of those in Java, by spaces; the class first
	members []*actor
	made    int
}

// actor is one member.
type actor struct {
	name string
	java bool
	p    *realkafka.Program
	log  notes  // stderr
	role string // transactional id, so that the next one takes it over

	mu      sync.Mutex
	reports []report
	last    string     // line
	pauses  [][2]int64 // ms
	killed  int64      // when it was killed, 0 = not
	asked   bool       // to end
	resume  *time.Timer
}

// notes is what a program wrote, which may still be writing.
type notes struct {
	mu   sync.Mutex
	text strings.Builder
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

func millis() int64 { return time.Now().UnixMilli() }

// join starts a member of ottla or one in Java.
func (g *troupe) join(java bool) *actor {
	g.t.Helper()
	g.made++
	a := &actor{name: fmt.Sprintf("%s %d", map[bool]string{false: "ottla", true: "java"}[java], g.made), java: java}
	a.role = g.role(java)
	p := g.part
	p.TransactionalID = a.role
	text, err := json.Marshal(p)
	if err != nil {
		g.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), partVariable+"="+string(text))
	if java {
		args := strings.Fields(strings.ReplaceAll(g.java, "ROLE", a.role))
		if cmd, err = broker.ToolCommand(context.Background(), args[0], args[1:]...); err != nil {
			g.t.Fatal(err)
		}
	}
	cmd.Stderr = &a.log
	if a.p, err = broker.Launch(cmd, a.hear); err != nil {
		g.t.Fatal(err)
	}
	g.members = append(g.members, a)
	return a
}

// role is a transactional id that no living member has.
func (g *troupe) role(java bool) string {
	for i := 0; ; i++ {
		role := fmt.Sprintf("%s-%v-%d", g.part.Group, java, i)
		if !slices.ContainsFunc(g.members, func(a *actor) bool { return a.role == role && a.lives() }) {
			return role
		}
	}
}

func (a *actor) hear(line string) {
	var r report
	told := json.Unmarshal([]byte(line), &r) == nil && r.Name != ""
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = line
	if told {
		a.reports = append(a.reports, r)
	}
}

func (a *actor) lives() bool {
	select {
	case <-a.p.Done():
		return false
	default:
		return true
	}
}

// living are the members that run, or those of one kind.
func (g *troupe) living(kinds ...bool) (as []*actor) {
	for _, a := range g.members {
		if a.lives() && !a.ending() && (len(kinds) == 0 || slices.Contains(kinds, a.java)) {
			as = append(as, a)
		}
	}
	return as
}

func (a *actor) ending() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// stop asks a member to end in order. One of ottla is waited for until it listens:
// a process that has just begun would be ended by the signal itself.
func (a *actor) stop() {
	for !a.java && a.lives() && !a.has(func(r report) bool { return r.Name == listening }) {
		time.Sleep(10 * time.Millisecond)
	}
	a.mu.Lock()
	a.asked = true
	a.mu.Unlock()
	a.wake()
	a.p.Stop()
}

func (a *actor) kill() {
	a.mu.Lock()
	a.asked, a.killed = true, millis()
	a.mu.Unlock()
	a.p.Kill()
}

// pause has a member stand still for a time.
func (a *actor) pause(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.resume != nil {
		return
	}
	a.pauses = append(a.pauses, [2]int64{millis(), 0})
	a.p.Pause()
	a.resume = time.AfterFunc(d, a.wake)
}

func (a *actor) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.resume != nil {
		a.resume.Stop()
		a.resume = nil
		a.pauses[len(a.pauses)-1][1] = millis()
		a.p.Resume()
	}
}

// ended waits for the end of members that were asked for it, and holds that
// those of ottla ended well; those in Java may not.
func (g *troupe) ended(ctx context.Context) {
	g.t.Helper()
	for _, a := range g.members {
		if !a.ending() {
			continue
		}
		select {
		case <-a.p.Done():
		case <-ctx.Done():
			a.p.Kill()
			a.mu.Lock()
			last := a.reports[max(0, len(a.reports)-3):]
			a.mu.Unlock()
			g.t.Errorf("%s does not end: %v\n%s", a.name, last, tail(a.log.String()))
			continue
		}
		if err := a.p.Err(); err != nil && a.killed == 0 && !a.java {
			g.t.Errorf("%s ended with %v\n%s", a.name, err, tail(a.log.String()))
		}
	}
}

// fell are the members that ended by themselves: an error, if they are ottla's.
func (g *troupe) fell() {
	for _, a := range g.members {
		if a.lives() || a.ending() {
			continue
		}
		a.mu.Lock()
		a.asked = true
		last := a.reports[max(0, len(a.reports)-1):]
		if len(last) > 0 {
			a.killed = last[0].Timestamp // what it owned then may be another's at once
		}
		a.mu.Unlock()
		if !a.java {
			g.t.Errorf("%s ended by itself: %v\n%s", a.name, last, tail(a.log.String()))
		}
	}
}

func tail(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-25):], "\n")
}

// has reports whether a report of a member satisfies f.
func (a *actor) has(f func(r report) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.reports, f)
}
