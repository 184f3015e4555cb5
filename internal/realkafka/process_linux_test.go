package realkafka

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ottla/ottla/internal/task"
)

// fakeWorld is a world in which jars are there and java is a script: what is
// tested is what happens around the brokers.
func fakeWorld(t *testing.T, broker string) {
	t.Helper()
	path := world(t)
	t.Setenv("TMPDIR", t.TempDir())
	program(t, path, "mvn", goodMaven)
	program(t, path, "java", `for a; do last=$a; done
case "$*" in
*-version*) `+java17+`;;
*StorageTool*) for a; do case $a in */server.properties) /bin/mkdir -p "${a%/*}/data";; esac; done;;
*) `+broker+`;;
esac`)
}

// endless is a broker that runs and serves nothing.
const endless = `while :; do /bin/sleep 0.05; done`

func TestTakenPortsAreTriedAgainWithOthers(t *testing.T) {
	fakeWorld(t, `/bin/cat "$last" >>"$OTTLA_TEST_RUNS.ports"; echo 'Socket server failed to bind to 127.0.0.1:1: Address already in use.'; exit 1`)
	var said strings.Builder
	_, err := launch(t.Context(), home{dir: t.TempDir(), name: "x", output: &said}, Options{Version: "4.4.0"})
	if !errors.Is(err, errPortTaken) {
		t.Fatalf("launch gives %v", err)
	}
	text, err := os.ReadFile(os.Getenv("OTTLA_TEST_RUNS") + ".ports")
	if err != nil {
		t.Fatal(err)
	}
	ports := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "advertised.listeners=") {
			ports[line] = true
		}
	}
	if len(ports) != startTries {
		t.Errorf("tried with %d different ports, want %d: %v", len(ports), startTries, ports)
	}
	if n := strings.Count(said.String(), "starting again with others"); n != startTries-1 {
		t.Errorf("said so %d times: %s", n, said.String())
	}
}

func TestBrokerThatDiesIsReportedWithItsReasonAndItsLog(t *testing.T) {
	fakeWorld(t, `echo 'ERROR Exiting: the reason'; i=0; while [ $i -lt 80 ]; do echo "INFO line $i"; i=$((i+1)); done; exit 1`)
	_, err := launch(t.Context(), home{dir: t.TempDir(), name: "x", output: io.Discard}, Options{Version: "4.4.0"})
	for _, want := range []string{"broker 1 ended: ERROR Exiting: the reason", "INFO line 79", "INFO line 30", "broker.log"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "INFO line 29\n") {
		t.Errorf("more than the last %d lines: %v", logTail, err)
	}
}

func TestInterruptedUpLeavesNothingRunning(t *testing.T) {
	fakeWorld(t, `echo $$ >"$OTTLA_TEST_RUNS.new"; /bin/mv "$OTTLA_TEST_RUNS.new" "$OTTLA_TEST_RUNS.pid"; `+endless)
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	go func() {
		for !exists(os.Getenv("OTTLA_TEST_RUNS")+".pid") && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel(interrupted)
	}()
	_, err := Up(ctx, "x", Options{Version: "4.4.0"}, nil)
	if !errors.Is(err, interrupted) {
		t.Fatalf("Up gives %v", err)
	}
	text, err := os.ReadFile(os.Getenv("OTTLA_TEST_RUNS") + ".pid")
	must(t, err)
	if pid := strings.TrimSpace(string(text)); len(commandLine(pid)) > 0 {
		t.Errorf("the broker (pid %s) still runs", pid)
	}
	if names := Names(); len(names) > 0 {
		t.Errorf("names left: %v", names)
	}
}

// running is a cluster on disk whose broker has the pid of a process that runs,
// and is that broker or not.
func running(t *testing.T, thatBroker bool) (*Cluster, *node) {
	t.Helper()
	fakeWorld(t, endless)
	h := namedHome("x", nil)
	s, _ := drawn(t, Options{Version: "4.4.0"})
	n := s.Nodes[0]
	n.Dir = filepath.Join(h.dir, "broker-1")
	must(t, os.MkdirAll(n.Dir, 0o755))
	last := n.config()
	if !thatBroker {
		last = "/another/server.properties"
	}
	tasks := task.New(context.Background())
	pid, err := jvm{java: "java", args: []string{"kafka.Kafka", last}, log: n.log(), dir: n.Dir}.start(tasks, false)
	must(t, err)
	t.Cleanup(func() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_ = tasks.Wait()
	})
	n.Pid, s.Ready = pid, true
	must(t, s.save(h.dir))
	c, err := Find("x", nil)
	must(t, err)
	return c, c.state.Nodes[0]
}

// TestPidOfAnotherProgramIsLeftAlone: after a reboot or a crash the pid of a
// broker belongs to somebody else.
func TestPidOfAnotherProgramIsLeftAlone(t *testing.T) {
	c, n := running(t, false)
	pid := strconv.Itoa(n.Pid)
	if s := c.Status()[0]; s.State != "down" || s.Pid != 0 {
		t.Errorf("status %+v, want it down", s)
	}
	for name, do := range map[string]func(int) error{"kill": c.Kill, "stop": c.Stop, "pause": c.Pause, "resume": c.Resume} {
		if err := do(1); err == nil || !strings.Contains(err.Error(), "broker 1 is not running") {
			t.Errorf("%s gives %v", name, err)
		}
	}
	must(t, Down(t.Context(), "x", nil))
	if len(commandLine(pid)) == 0 {
		t.Error("the other program was killed")
	}
	if exists(c.dir) {
		t.Error("the folder is still there")
	}
	if err := Down(t.Context(), "x", nil); !errors.Is(err, ErrNoCluster) {
		t.Errorf("a second down gives %v", err)
	}
}

func TestDeadPidsAreForgottenBeforeAStart(t *testing.T) {
	c, n := running(t, false)
	if err := c.state.stillRuns(); err == nil {
		t.Error("a started broker that is gone is not noticed")
	}
	c.state.forgetDead()
	if err := c.state.stillRuns(); err != nil || n.Pid != 0 {
		t.Errorf("pid %d, %v", n.Pid, err)
	}
}

func TestBrokerIsKnownAgainByItsCommandLine(t *testing.T) {
	c, n := running(t, true)
	if s := c.Status()[0]; s.State != "running" || s.Pid != n.Pid {
		t.Fatalf("status %+v", s)
	}
	must(t, c.Pause(1))
	waitState(t, c, "paused")
	must(t, c.Resume(1))
	waitState(t, c, "running")
	must(t, c.Kill(1))
	waitState(t, c, "down")
	again, err := Find("x", nil)
	must(t, err)
	if again.state.Nodes[0].Pid != 0 {
		t.Error("the state still has the pid of the killed broker")
	}
	if err := c.Kill(2); err == nil || !strings.Contains(err.Error(), "no broker 2") {
		t.Errorf("killing broker 2 gives %v", err)
	}
}

func waitState(t *testing.T, c *Cluster, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stopWithin)
	defer cancel()
	must(t, poll(ctx, time.Millisecond, func() error {
		if s := c.Status()[0]; s.State != want {
			return errors.New("the broker is " + s.State + ", not " + want)
		}
		return nil
	}))
}

func TestLostPortIsAnErrorThatSaysSo(t *testing.T) {
	c, n := running(t, true)
	must(t, c.Kill(1))
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	n.Ports[Plaintext] = l.Addr().(*net.TCPAddr).Port
	err = c.Restart(1)
	if !errors.Is(err, errPortTaken) || !strings.Contains(err.Error(), l.Addr().String()) || !strings.Contains(err.Error(), "down and up again") {
		t.Errorf("restart gives %v", err)
	}
}

func TestUpRefusesAnotherClusterUnderTheName(t *testing.T) {
	c, n := running(t, true)
	_, err := Up(t.Context(), "x", Options{Version: "4.4.0", Brokers: 3}, nil)
	if err == nil || !strings.Contains(err.Error(), "runs with other options") {
		t.Errorf("up gives %v", err)
	}
	must(t, n.signal(signalStop))
	waitState(t, c, "paused")
	if _, err := Up(t.Context(), "x", Options{Version: "4.4.0"}, nil); err == nil || !strings.Contains(err.Error(), "is paused") {
		t.Errorf("up with a paused broker gives %v", err)
	}
	for _, bad := range []string{"", "../x", "a b", "-x"} {
		if _, err := Up(t.Context(), bad, Options{}, nil); err == nil || !strings.Contains(err.Error(), "is no name") {
			t.Errorf("the name %q gives %v", bad, err)
		}
	}
}

// TestSweepTakesFoldersOfTheDeadOnly: a test process that was killed leaves its
// folder, and nobody holds its lock.
func TestSweepTakesFoldersOfTheDeadOnly(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	living, err := newSession(t.Context())
	must(t, err)
	dead := filepath.Join(tempDir(), "test-dead")
	must(t, os.MkdirAll(dead, 0o755))
	must(t, os.WriteFile(filepath.Join(dead, "owner.lock"), nil, 0o644))
	second, err := newSession(t.Context())
	must(t, err)
	if exists(dead) || !exists(living.dir) || !exists(second.dir) {
		t.Errorf("dead %v, living %v and %v", exists(dead), exists(living.dir), exists(second.dir))
	}
	living.end(false)
	second.end(false)
	if left, _ := filepath.Glob(filepath.Join(tempDir(), "test-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestOneProcessRunsThreeBrokersAtATime(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	turn, err := takeTurn(t.Context())
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	again, err := takeTurn(ctx)
	if again != nil || err != nil {
		t.Errorf("the same process does not get its turn again: %v %v", again, err)
	}
	must(t, turn.write("somebody else"))
	if _, err := takeTurn(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another process gets a turn that is taken: %v", err)
	}
	turn.release()
}

// TestChildDiesWithItsParent lets a process start a child and kills the process.
func TestChildDiesWithItsParent(t *testing.T) {
	if dir := os.Getenv("OTTLA_TEST_PARENT"); dir != "" {
		pid, err := jvm{java: "/bin/sleep", args: []string{"1000"}, log: filepath.Join(dir, "log"), dir: dir}.start(task.New(context.Background()), false)
		must(t, err)
		_, _ = os.Stdout.WriteString(strconv.Itoa(pid) + "\n")
		select {}
	}
	if childAttr(false).Pdeathsig == 0 {
		t.Fatal("children of this system do not die with their parent")
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestChildDiesWithItsParent$")
	parent.Env = append(os.Environ(), "OTTLA_TEST_PARENT="+t.TempDir())
	out, err := parent.StdoutPipe()
	must(t, err)
	must(t, parent.Start())
	t.Cleanup(func() { _ = parent.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	pid := strings.TrimSpace(line)
	if len(commandLine(pid)) == 0 {
		t.Fatalf("the child %q does not run", pid)
	}
	must(t, parent.Process.Kill())
	_ = parent.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), stopWithin)
	defer cancel()
	must(t, poll(ctx, time.Millisecond, func() error {
		if len(commandLine(pid)) > 0 {
			return errors.New("the child outlives its parent")
		}
		return nil
	}))
}

// A broker's command line is long. One that could be read in part while the
// process ends would be taken for another program's, and the broker for gone
// although it still listens.
func TestACommandLineIsReadWholeOrNotAtAll(t *testing.T) {
	long := strings.Repeat("x", 12<<10)
	for range 50 {
		cmd := exec.Command("sh", "-c", "read line", long, "end")
		stdin, err := cmd.StdinPipe()
		must(t, err)
		must(t, cmd.Start())
		pid := strconv.Itoa(cmd.Process.Pid)
		seen := 0
		must(t, stdin.Close())
		for args := commandLine(pid); len(args) > 0; args = commandLine(pid) {
			seen++
			if args[len(args)-1] != "end" {
				t.Fatalf("look %d shows %d arguments, the last of %d bytes", seen, len(args), len(args[len(args)-1]))
			}
		}
		_ = cmd.Wait()
	}
}
