//go:build kafka

package streams

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/realkafka"
)

// chaosEnv names the variable with the length of the run; without it the short
// form runs, which is one round.
const chaosEnv = "OTTLA_STREAMS_CHAOS"

const (
	chaosSession   = 6 * time.Second
	chaosTasks     = 40
	chaosMembers   = 5 // of each process
	chaosProcesses = 4
	chaosPatience  = 3 * time.Minute // for what a cluster and a machine under load may take
)

// chaos is processes with members, and what they told.
type chaos struct {
	t         *testing.T
	ctx       context.Context
	k         *realkafka.Cluster
	c         *cluster.Cluster
	rng       *rand.Rand
	pipe      *os.File // its end for the processes
	processes []*chaosProcess
	named     int
	first     string // how the first member of a process joins

	mu      sync.Mutex
	claims  *claims                  // guarded by mu
	joined  map[string]bool          // guarded by mu
	leaving map[string]*chaosProcess // guarded by mu
	ends    []string                 // of members that ended by themselves; guarded by mu
}

// chaosProcess is one process. Its members are those that it was told to run.
type chaosProcess struct {
	id      string
	prog    *realkafka.Program
	in      io.WriteCloser
	paused  bool
	members []string
}

// TestKafkaChaosMembersComeAndGo has twenty members in four processes on three
// brokers leave and join, be killed with their process, be paused past their
// session, and lose the broker that coordinates them. No task is ever held by two
// members at once, where a killed or paused one holds until its session ends; each
// time it gets quiet every task ends owned, and describe says what members believe.
func TestKafkaChaosMembersComeAndGo(t *testing.T) {
	minor := minorOf(t)
	length := time.Duration(0)
	if s := os.Getenv(chaosEnv); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", chaosEnv, err)
		}
	}
	x := newChaos(t, length, minor)
	x.settle()
	began := time.Now()
	rounds := 1
	for down := x.round(); time.Since(began) < length && !t.Failed(); rounds++ {
		if err := x.k.Restart(down); err != nil {
			t.Fatal(err)
		}
		down = x.round()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	t.Logf("%d rounds in %v: %v", rounds, time.Since(began).Round(time.Second), x.claims.seen)
	if x.claims.seen[lost] < rounds {
		t.Errorf("%d processes were paused for longer than a session, and %d members noticed", rounds, x.claims.seen[lost])
	}
}

func newChaos(t *testing.T, length time.Duration, minor int) *chaos {
	k := realkafka.Start(t, realkafka.Options{Brokers: 3, Props: map[string]string{
		"group.streams.session.timeout.ms": fmt.Sprint(chaosSession.Milliseconds()), "group.streams.heartbeat.interval.ms": "300",
		"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0",
		"group.streams.min.session.timeout.ms": "1000", "group.streams.min.heartbeat.interval.ms": "100",
	}})
	ctx, cancel := context.WithTimeout(context.Background(), length+3*chaosPatience)
	t.Cleanup(cancel)
	c, err := cluster.Connect(ctx, cluster.Config{Bootstrap: strings.Split(k.Bootstrap(), ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	createTopic(&stage{t: t, ctx: ctx, k: c}, "in", chaosTasks, 3)
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	x := &chaos{
		t: t, ctx: ctx, k: k, c: c, rng: rand.New(rand.NewPCG(seed, 0)), pipe: out,
		first: "static", claims: newClaims(chaosSession), joined: map[string]bool{}, leaving: map[string]*chaosProcess{},
	}
	if minor < 4 {
		x.first = "join" // no static members yet
	}
	var reader sync.WaitGroup
	reader.Go(func() { x.read(in) })
	t.Cleanup(func() {
		for _, p := range x.processes {
			p.kill()
		}
		out.Close()
		reader.Wait()
		in.Close()
	})
	for i := range chaosProcesses {
		p := &chaosProcess{id: fmt.Sprint(i)}
		x.processes = append(x.processes, p)
		x.start(p)
	}
	return x
}

// read takes what the processes tell.
func (x *chaos) read(in io.Reader) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			x.t.Errorf("%q: %v", lines.Text(), err)
			return
		}
		x.mu.Lock()
		x.claims.on(e)
		switch e.What {
		case told:
			x.joined[e.Member] = true
		case gone:
			delete(x.leaving, e.Member)
		case ended:
			x.ends = append(x.ends, e.Member+": "+e.Text)
		}
		x.mu.Unlock()
	}
}

// start starts a process with its members, the first of which is static where
// brokers have that.
func (x *chaos) start(p *chaosProcess) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+p.id+" "+x.k.Bootstrap())
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{x.pipe}
	var err error
	if p.in, err = cmd.StdinPipe(); err == nil {
		p.prog, err = x.k.Launch(cmd, func(line string) { x.t.Errorf("a member's process says %q", line) })
	}
	if err != nil {
		x.t.Fatal(err)
	}
	x.add(p, x.first)
	for len(p.members) < chaosMembers {
		x.add(p, "join")
	}
}

// add has a process run another member.
func (x *chaos) add(p *chaosProcess, verb string) {
	x.named++
	name := fmt.Sprintf("m%d-of-%s", x.named, p.id)
	p.members = append(p.members, name)
	fmt.Fprintln(p.in, verb, name)
}

// leave has a member leave that is not static: those keep their tasks.
func (x *chaos) leave(p *chaosProcess) {
	i := 1 + x.rng.IntN(len(p.members)-1)
	name := p.members[i]
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.joined[name] {
		x.leaving[name] = p
		p.members = slices.Delete(p.members, i, i+1)
		fmt.Fprintln(p.in, "leave", name)
	}
}

// kill ends a process as no member expects.
func (p *chaosProcess) kill() {
	if p.prog != nil {
		p.prog.Kill()
		<-p.prog.Done()
		p.in.Close()
	}
}

// round lets everything happen once, in an order that leaves each its effect: a
// coordinator that takes over gives every session anew. It returns the broker
// that it killed.
func (x *chaos) round() int {
	order := x.rng.Perm(len(x.processes))
	paused, killed := x.processes[order[0]], x.processes[order[1]]
	paused.prog.Pause()
	paused.paused = true
	x.churn(time.Second)
	killed.kill()
	x.mu.Lock()
	maps.DeleteFunc(x.leaving, func(_ string, p *chaosProcess) bool { return p == killed })
	x.mu.Unlock()
	killed.members = nil
	x.churn(x.upTo(time.Second))
	x.start(killed)
	x.churn(chaosSession + x.upTo(2*time.Second))
	paused.prog.Resume()
	paused.paused = false
	x.churn(time.Second + x.upTo(2*time.Second))
	b, err := x.c.Coordinator(x.ctx, cluster.GroupCoordinator, chaosGroup)
	if err == nil {
		err = x.k.Kill(int(b.ID))
	}
	if err != nil {
		x.t.Fatal(err)
	}
	x.churn(3 * time.Second)
	x.settle()
	return int(b.ID)
}

func (x *chaos) upTo(d time.Duration) time.Duration { return time.Duration(x.rng.Int64N(int64(d))) }

// churn has members leave and others join for a time.
func (x *chaos) churn(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		p := x.processes[x.rng.IntN(len(x.processes))]
		switch {
		case p.paused || len(p.members) == 0:
		case len(p.members) < chaosMembers:
			x.add(p, "join")
		default:
			x.leave(p)
		}
	}
}

// settle waits until all members are there, every task has one holder, and
// describe says the same; and fails for what is wrong by then.
func (x *chaos) settle() {
	x.t.Helper()
	for _, p := range x.processes {
		for len(p.members) < chaosMembers {
			x.add(p, "join")
		}
	}
	why := "it was not looked at"
	for end := time.Now().Add(chaosPatience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if why = x.unsettled(); why == "" {
			break
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if why != "" {
		x.t.Errorf("it never settled: %s", why)
	}
	if len(x.claims.double) > 0 {
		x.t.Errorf("held by two members at once: %q\n%s", x.claims.double, strings.Join(x.claims.story, "\n"))
	}
	if len(x.ends) > 0 {
		x.t.Errorf("members ended by themselves: %q", x.ends)
	}
}

// unsettled is what is not as it should be.
func (x *chaos) unsettled() string {
	g, err := Describe(x.ctx, x.c, chaosGroup, DescribeOptions{})
	if err != nil {
		return err.Error()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	n, by := x.claims.owned(time.Now().UnixNano())
	switch {
	case len(x.leaving) > 0:
		return fmt.Sprintf("%d members are leaving", len(x.leaving))
	case n != chaosTasks:
		return fmt.Sprintf("%d of %d tasks are owned", n, chaosTasks)
	case g.State != "Stable" || len(g.Members) != chaosMembers*chaosProcesses:
		return fmt.Sprintf("describe says %s with %d members", g.State, len(g.Members))
	}
	for _, m := range g.Members {
		var theirs []string
		for _, id := range m.Tasks.Active {
			theirs = append(theirs, id.String())
		}
		slices.Sort(theirs)
		if !slices.Equal(theirs, by[m.ID]) {
			return fmt.Sprintf("describe says that %s has %v, it believes %v", m.ID, theirs, by[m.ID])
		}
		if !x.runs(m.ID) {
			return fmt.Sprintf("describe names %s, which is gone", m.ID)
		}
	}
	return ""
}

// runs reports whether a process was told to run a member.
func (x *chaos) runs(member string) bool {
	return slices.ContainsFunc(x.processes, func(p *chaosProcess) bool { return slices.Contains(p.members, member) })
}
