package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/leader"
	"github.com/ottla/ottla/ottlatest"
)

// leadCluster is a cluster in memory, by its bootstrap addresses.
func leadCluster(t *testing.T) string {
	return strings.Join(ottlatest.New(t, ottlatest.Config{}).Bootstrap(), ",")
}

// eventsOf reads the lines of --events.
func eventsOf(t *testing.T, text string) (kinds []string, byKind map[string]leadEvent) {
	t.Helper()
	byKind = map[string]leadEvent{}
	for line := range strings.Lines(text) {
		var e leadEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Event == "" || e.At.IsZero() || e.Role == "" || e.Member == "" {
			t.Fatalf("line %q: %v", line, err)
		}
		kinds = append(kinds, e.Event)
		byKind[e.Event] = e
	}
	return kinds, byKind
}

func TestLeadRunsItsCommandAndPassesItsStatusOn(t *testing.T) {
	b := leadCluster(t)
	events := filepath.Join(t.TempDir(), "events")
	res := ottla(t, "-b", b, "lead", "nightly", "--member", "m1", "--events", events, "--", "sh", "-c", "echo $OTTLA_ROLE $OTTLA_MEMBER $OTTLA_TERM $OTTLA_TOKEN; exit 7")
	if res.status != 7 || res.stderr != "" {
		t.Fatalf("status %d\n%s", res.status, res.stderr)
	}
	text, err := os.ReadFile(events)
	if err != nil {
		t.Fatal(err)
	}
	kinds, by := eventsOf(t, string(text))
	if got := strings.Join(kinds, " "); got != "registered acquired child_started child_exited resigned" {
		t.Errorf("events %s", got)
	}
	won := by["acquired"]
	if want := "nightly m1 " + strconv.FormatInt(*won.Term, 10) + " " + won.Token + "\n"; res.stdout != want {
		t.Errorf("the command saw %q, want %q", res.stdout, want)
	}
	if s := by["child_exited"].Status; s == nil || *s != 7 {
		t.Errorf("child_exited has status %v", s)
	}
	if res := ottla(t, "-b", b, "lead", "nightly", "--", "sh", "-c", "kill -9 $$"); res.status != 128+9 {
		t.Errorf("of a command that a signal ended the status is %d", res.status)
	}
	if res := ottla(t, "-b", b, "lead", "nightly", "--", "/no/such/file"); res.status != 1 || !strings.Contains(res.stderr, "/no/such/file") {
		t.Errorf("of a command that cannot be started: status %d\n%s", res.status, res.stderr)
	}
}

func TestLeadRefusesWhatCannotBe(t *testing.T) {
	for _, args := range [][]string{
		{"lead"}, {"lead", "r"}, {"lead", "--", "true"}, {"lead", "r", "x", "--", "true"}, {"lead", "r", "--"},
		{"lead", "r", "--lease", "10s", "--renew", "10s", "--", "true"}, {"lead", "r", "--grace", "6s", "--", "true"},
		{"lead", "r", "--lease", "-1s", "--", "true"}, {"leader"}, {"leader", "a", "b"}, {"leader", "--list", "a"},
	} {
		b := "127.0.0.1:1"
		if len(args) > 3 {
			b = leadCluster(t)
		}
		if res := ottla(t, append([]string{"-b", b}, args...)...); res.status != statusUsage || strings.Count(res.stderr, "ottla: ") != 1 {
			t.Errorf("%q: status %d\n%s", args, res.status, res.stderr)
		}
	}
}

func TestLeadOnOneBrokerNeedsFewerReplicas(t *testing.T) {
	b := strings.Join(ottlatest.New(t, ottlatest.Config{Brokers: 1}).Bootstrap(), ",")
	if res := ottla(t, "-b", b, "lead", "r", "--", "echo", "led"); res.status != 1 || res.stdout != "" || !strings.Contains(res.stderr, "`ottla lead --replicas`") {
		t.Errorf("status %d\n%s", res.status, res.stderr)
	}
	if res := ottla(t, "-b", b, "lead", "r", "--replicas", "1", "--", "echo", "led"); res.status != 0 || res.stdout != "led\n" {
		t.Errorf("status %d\n%s", res.status, res.stderr)
	}
}

// holding is a running `lead`, whose command tells its pid on stdout.
type holding struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	child  int
}

func hold(t *testing.T, b, lease string, args ...string) *holding {
	t.Helper()
	h := &holding{}
	h.cmd = run{args: append(append([]string{"-b", b, "lead", "nightly", "--lease", lease}, args...), "--", "sh", "-c", "echo $$; exec sleep 600")}.command(t)
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.cmd.Stderr = &h.stderr
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if h.child, _ = strconv.Atoi(strings.TrimSpace(line)); err != nil || h.child == 0 {
		t.Fatalf("%q, %v", line, err)
	}
	t.Cleanup(func() { _ = syscall.Kill(h.child, syscall.SIGKILL) })
	return h
}

// gone waits until a process does not exist, or only as a zombie.
func gone(t *testing.T, pid int) {
	t.Helper()
	for range 3000 {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("process %d is still there", pid)
}

// Nobody reads the events, through a FIFO that is full, or that nobody has
// opened yet: the command runs and its status is passed on all the same.
func TestLeadNeverWaitsForWhoReadsItsEvents(t *testing.T) {
	b := leadCluster(t)
	for _, open := range []bool{true, false} {
		t.Run(fmt.Sprintf("a reader %v", open), func(t *testing.T) {
			fifo := filepath.Join(t.TempDir(), "events")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			if open {
				fd, err := syscall.Open(fifo, syscall.O_RDWR|syscall.O_NONBLOCK, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer syscall.Close(fd)
				for err == nil {
					_, err = syscall.Write(fd, []byte("\n"))
				}
			}
			cmd := run{args: []string{"-b", b, "lead", "r", "--events", fifo, "--", "sh", "-c", "exit 7"}}.command(t)
			stuck := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
			defer stuck.Stop()
			_ = cmd.Run()
			if got := cmd.ProcessState.ExitCode(); got != 7 {
				t.Errorf("status %d", got)
			}
		})
	}
}

// Taking guard.watch out makes the first part fail, the end of guard.obey the
// second.
func TestLeadsCommandNeverOutlivesTheLeadership(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("needs /proc to see whether a process is there")
	}
	b := leadCluster(t)
	stopped := hold(t, b, "3s", "--once", "--member", "stopped")
	if err := stopped.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	gone(t, stopped.child)                           // although ottla does not run
	killed := hold(t, b, "2m", "--member", "killed") // its deadline is far
	if err := stopped.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_ = stopped.cmd.Wait()
	if got := stopped.cmd.ProcessState.ExitCode(); got != statusLost || !strings.Contains(stopped.stderr.String(), "superseded by killed") {
		t.Errorf("after it was stopped for longer than the lease: status %d\n%s", got, stopped.stderr.String())
	}
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(t, killed.child)
	_ = killed.cmd.Wait()
}

// parent is a process's parent.
func parent(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Skip("needs /proc to see whose child a process is")
	}
	_, rest, _ := strings.Cut(string(status), "\nPPid:")
	line, _, _ := strings.Cut(rest, "\n")
	ppid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || ppid < 2 {
		t.Fatalf("the parent of %d: %q, %v", pid, line, err)
	}
	return ppid
}

// The watchdog is killed. Mutations: follow does not kill the group, of which a
// worker is left then; the system does not kill the command, where `lead` cannot.
func TestLeadsCommandDiesWithItsWatchdog(t *testing.T) {
	b := leadCluster(t)
	cmd := run{args: []string{"-b", b, "lead", "workers", "--", "sh", "-c", "sleep 600 & echo $$ $!; wait"}}.command(t)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	var shell, worker int
	if _, err := fmt.Sscan(line, &shell, &worker); err != nil {
		t.Fatal(line, err)
	}
	t.Cleanup(func() { _ = syscall.Kill(worker, syscall.SIGKILL) })
	if err := syscall.Kill(parent(t, shell), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, worker)
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != statusFailed || !strings.Contains(stderr.String(), "watchdog") {
		t.Errorf("status %d\n%s", got, stderr.String())
	}

	h := hold(t, b, "2m")
	if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(parent(t, h.child), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, h.child)
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}

// underWatchdog runs a command under a watchdog alone, and returns what it wrote
// and what the watchdog reported last. After its first line it gets the later orders.
func underWatchdog(t *testing.T, script string, first watchOrder, later ...watchOrder) (wrote string, last watchReport) {
	t.Helper()
	ordersIn, ordersOut, err1 := os.Pipe()
	reportsIn, reportsOut, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	orders := json.NewEncoder(ordersOut)
	_ = orders.Encode(first)
	cmd := run{args: []string{watchdogName, "--", "sh", "-c", script}}.command(t)
	cmd.ExtraFiles = []*os.File{ordersIn, reportsOut}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reportsOut.Close()
	r := bufio.NewReader(out)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(line, err)
	}
	for _, o := range later {
		_ = orders.Encode(o)
	}
	rest, _ := io.ReadAll(r)
	reports := json.NewDecoder(reportsIn)
	for reports.Decode(&last) == nil {
	}
	_ = cmd.Wait()
	for _, f := range []*os.File{ordersIn, ordersOut, reportsIn} {
		f.Close()
	}
	return string(rest), last
}

// Mutation: obey takes no deadline.
func TestLeadMovesTheDeadlineOfItsCommand(t *testing.T) {
	hour := watchOrder{Deadline: bootClock() + time.Hour}
	wrote, last := underWatchdog(t, "echo; exec sleep 60", hour, watchOrder{Deadline: bootClock()})
	if wrote != "" || last.Signal != int(syscall.SIGKILL) || !last.Ended {
		t.Errorf("at a deadline that was moved to now it wrote %q and ended %+v", wrote, last)
	}
}

// Mutation: obey does not note that the group was asked to end.
func TestLeadLeavesAGroupThatWasAskedToEndItsGrace(t *testing.T) {
	hour := watchOrder{Deadline: bootClock() + time.Hour}
	const script = `sh -c 'trap "" TERM; echo; sleep 3; echo tidied' & wait`
	if wrote, last := underWatchdog(t, script, hour, watchOrder{Signal: syscall.SIGTERM}); wrote != "tidied\n" || last.Signal != int(syscall.SIGTERM) {
		t.Errorf("it wrote %q and ended %+v", wrote, last)
	}
}

// What `lead` tells the watchdog is the end of the leadership and the grace, and
// nothing once that is over. Mutations: another time; a look at Left is missing.
func TestLeadTellsTheWatchdogTheEndOfTheLeadership(t *testing.T) {
	cl, err := cluster.Connect(t.Context(), ottlatest.New(t, ottlatest.Config{}).ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	e, err := leader.Open(cl, leader.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	term, err := e.Campaign(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, w := &leadRunner{grace: 3 * time.Second}, &watched{orders: out}
	least := bootClock() + term.Left()
	r.extend(term, w)
	most := bootClock() + term.Left() + time.Second // renewed meanwhile at the earliest 10 s later
	_ = term.Resign(t.Context())
	r.extend(term, w)
	out.Close()
	var orders []watchOrder
	for d := json.NewDecoder(in); ; {
		var o watchOrder
		if d.Decode(&o) != nil {
			break
		}
		orders = append(orders, o)
	}
	if len(orders) != 1 || orders[0].Deadline < least+r.grace-time.Second || orders[0].Deadline > most+r.grace {
		t.Errorf("orders %+v, of a leadership that ends between %v and %v", orders, least, most)
	}
}

func TestLeadForwardsASignalAndHandsOver(t *testing.T) {
	b := leadCluster(t)
	h := hold(t, b, "30s")
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = h.cmd.Wait()
	if got := h.cmd.ProcessState.ExitCode(); got != 128+int(syscall.SIGTERM) {
		t.Errorf("status %d\n%s", got, h.stderr.String())
	}
	var d describedRole
	res := ottla(t, "-b", b, "leader", "nightly", "-o", "json")
	if err := json.Unmarshal([]byte(res.stdout), &d); err != nil || d.Leader != nil || d.Verdict != "vacant" {
		t.Errorf("after it: %s %v", res.stdout, err)
	}
}

// Without guard.outlast the worker is alive when the role is another's already.
func TestLeadHandsOverOnlyWhenTheWholeGroupIsGone(t *testing.T) {
	b := leadCluster(t)
	start := func(script string) (*exec.Cmd, int) {
		cmd := run{args: []string{"-b", b, "lead", "nightly", "--lease", "6s", "--", "sh", "-c", script}}.command(t)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = nil
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		_, _ = io.WriteString(in, "go on\n")
		worker, _ := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || worker == 0 {
			t.Fatalf("%q, %v", line, err)
		}
		t.Cleanup(func() { _ = syscall.Kill(worker, syscall.SIGKILL) })
		return cmd, worker
	}
	const stubborn = `sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done'`
	for _, c := range []struct {
		name, script string
		signal       syscall.Signal // 0: the command ends by itself
		status       int
	}{
		{"signalled", stubborn + "; true", syscall.SIGTERM, 128 + int(syscall.SIGTERM)},
		{"ended", stubborn + " & read line; exit 7", 0, 7},
	} {
		cmd, worker := start(c.script)
		if c.signal != 0 {
			_ = cmd.Process.Signal(c.signal)
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != c.status {
			t.Errorf("%s: status %d, want %d", c.name, got, c.status)
		}
		if err := syscall.Kill(worker, 0); err != syscall.ESRCH {
			t.Errorf("%s: the command's worker is still there after ottla has ended: %v", c.name, err)
		}
	}
}

// A command that held the watchdog's pipes would keep `lead` from seeing that
// the watchdog is gone.
func TestLeadKeepsItsPipesFromTheCommand(t *testing.T) {
	res := ottla(t, "-b", leadCluster(t), "lead", "nightly", "--", "sh", "-c", "(: <&3) 2>/dev/null && echo orders; (: >&4) 2>/dev/null && echo reports; true")
	if res.status != 0 || res.stdout != "" {
		t.Errorf("status %d, the command has %q\n%s", res.status, res.stdout, res.stderr)
	}
}

func TestLeadStartsNothingFromTheDeadlineOn(t *testing.T) {
	for _, c := range []struct {
		deadline time.Duration
		runs     bool
	}{{bootClock(), false}, {bootClock() + time.Hour, true}} {
		ordersIn, ordersOut, err1 := os.Pipe()
		reportsIn, reportsOut, err2 := os.Pipe()
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if err := json.NewEncoder(ordersOut).Encode(watchOrder{Deadline: c.deadline}); err != nil {
			t.Fatal(err)
		}
		cmd := run{args: []string{watchdogName, "--", "echo", "ran"}}.command(t)
		cmd.ExtraFiles = []*os.File{ordersIn, reportsOut}
		out, _ := cmd.Output()
		reportsOut.Close()
		reports, err := io.ReadAll(reportsIn)
		if ran := string(out) == "ran\n"; ran != c.runs || err != nil || strings.Contains(string(reports), "the lease is over") == c.runs {
			t.Errorf("deadline %v: ran %t, it reports %s %v", c.deadline, ran, reports, err)
		}
		for _, f := range []*os.File{ordersIn, ordersOut, reportsIn} {
			f.Close()
		}
	}
}

// An order that waits for room keeps the lock that kill needs.
func TestLeadWaitsForNoWatchdogThatStandsStill(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	for err == nil { // until it is full
		_ = out.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = out.Write([]byte{'\n'})
	}
	_ = out.SetWriteDeadline(time.Time{})
	w := &watched{orders: out}
	done := make(chan struct{})
	go func() {
		w.extend(time.Hour)
		w.kill()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("an order waits for the watchdog")
	}
}

func TestLeaderShowsWhoLeads(t *testing.T) {
	b := leadCluster(t)
	res := ottla(t, "-b", b, "leader", "nightly", "-o", "json")
	if want := `{"role":"nightly","leader":null,"term":null,"token":null,"since":null,"lease_left_ms":null,"verdict":"vacant","roster":[]}` + "\n"; res.status != 0 || res.stdout != want {
		t.Errorf("of a role that nobody ever led: status %d\n%s%s", res.status, res.stdout, res.stderr)
	}
	if res := ottla(t, "-b", b, "topics", "list"); strings.Contains(res.stdout, "__coordination_state") {
		t.Error("looking at a role makes the topic")
	}
	h := hold(t, b, "30s", "--member", "m1")
	var d describedRole
	res = ottla(t, "-b", b, "leader", "nightly", "-o", "json")
	if err := json.Unmarshal([]byte(res.stdout), &d); err != nil || d.Leader == nil || *d.Leader != "m1" || d.Verdict != "authoritative" || *d.LeaseLeft <= 0 || len(d.Roster) != 1 {
		t.Errorf("%s %v", res.stdout, err)
	}
	if res := ottla(t, "-b", b, "lead", "nightly", "--lease", "30s", "--wait", "300ms", "--", "true"); res.status != statusNotWon || !strings.Contains(res.stderr, "m1 leads in term") {
		t.Errorf("a second one: status %d\n%s", res.status, res.stderr)
	}
	if res := ottla(t, "-b", b, "leader", "--list"); !strings.HasPrefix(res.stdout, "nightly\tm1\t") {
		t.Errorf("the list is %q", res.stdout)
	}
	watch := run{args: []string{"-b", b, "leader", "nightly", "--watch", "-o", "json"}}.command(t)
	out, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	next := func() (d describedRole) {
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &d) != nil {
			t.Fatalf("line %q, %v", lines.Text(), lines.Err())
		}
		return d
	}
	if d := next(); d.Leader == nil || *d.Leader != "m1" {
		t.Errorf("the first line has %+v", d)
	}
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for d := next(); d.Leader != nil || d.Verdict != "vacant"; d = next() {
	}
	_ = h.cmd.Wait()
	if err := watch.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = watch.Wait()
	if got := watch.ProcessState.ExitCode(); got != statusInterrupted {
		t.Errorf("the watch ends with %d", got)
	}
}
