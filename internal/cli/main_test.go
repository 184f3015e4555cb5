package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// built is the command, built when a test first runs it.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	status := runTests(m)
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(status)
}

// builtCommand is the file of the command.
func builtCommand(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "ottla-cli"); built.err != nil {
			return
		}
		build := exec.Command("go", append(buildFlags(), "-o", filepath.Join(built.dir, "ottla"), "../../cmd/ottla")...)
		if out, err := build.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("building the command: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "ottla")
}

// result is what one run of the command gave.
type result struct {
	status         int
	stdout, stderr string
}

// run is one run of the built command to come.
type run struct {
	args  []string
	env   []string // NAME=VALUE
	stdin string
}

// cleanEnv is the environment without anything that ottla reads. With the race
// detector a program would sleep for a second at its end by default.
func cleanEnv() []string {
	env := []string{"GORACE=atexit_sleep_ms=0"}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "OTTLA_") && !strings.HasPrefix(e, "NO_COLOR=") {
			env = append(env, e)
		}
	}
	return env
}

// command prepares the process; it is killed if it outlives what a test may take.
func (r run) command(t *testing.T) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, builtCommand(t), r.args...)
	cmd.Env = append(cleanEnv(), r.env...)
	cmd.Stdin = strings.NewReader(r.stdin)
	return cmd
}

// do runs the command to its end.
func (r run) do(t *testing.T) result {
	t.Helper()
	cmd := r.command(t)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	res := result{status: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("ottla %v: %v", r.args, err)
	}
	return res
}

// ottla runs the built command without input.
func ottla(t *testing.T, args ...string) result {
	t.Helper()
	return run{args: args}.do(t)
}

// want checks the status, and that stderr is one line that holds all texts.
func (r result) wantError(t *testing.T, status int, texts ...string) {
	t.Helper()
	if r.status != status || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "ottla: ") {
		t.Errorf("status %d, want %d and one line; stderr:\n%s\nstdout:\n%s", r.status, status, r.stderr, r.stdout)
	}
	for _, text := range texts {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("%q is missing in:\n%s", text, r.stderr)
		}
	}
}

// want checks a run that went well and said nothing on stderr.
func (r result) want(t *testing.T, stdout string) {
	t.Helper()
	r.wantDone(t)
	if r.stdout != stdout {
		t.Errorf("stdout:\n%s\nwant:\n%s", r.stdout, stdout)
	}
}

// wantStatus checks the status.
func (r result) wantStatus(t *testing.T, status int) {
	t.Helper()
	if r.status != status {
		t.Errorf("status %d, want %d; stderr:\n%s", r.status, status, r.stderr)
	}
}

// wantDone checks a run that went well and said nothing on stderr.
func (r result) wantDone(t *testing.T) {
	t.Helper()
	if r.status != 0 || r.stderr != "" {
		t.Fatalf("status %d, stderr:\n%s", r.status, r.stderr)
	}
}

// process is a command that runs.
type process struct {
	cmd       *exec.Cmd
	stdin     io.WriteCloser
	stdout    *bufio.Reader
	stderr    bytes.Buffer
	bootstrap string // of startBroker
	drained   bytes.Buffer
}

// start runs the command beside the test. Its input stays open.
func (r run) start(t *testing.T) *process {
	t.Helper()
	p := &process{cmd: r.command(t)}
	p.cmd.Stdin = nil
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewReader(out)
	p.cmd.Stderr = &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// line reads one line of stdout.
func (p *process) line(t *testing.T) string {
	t.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		p.cmd.Wait()
		t.Fatalf("%q, %v; stderr:\n%s", line, err, p.stderr.String())
	}
	return strings.TrimSuffix(line, "\n")
}

// signal sends a signal.
func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// wait reads the rest and waits for the end.
func (p *process) wait(t *testing.T) result {
	t.Helper()
	if _, err := io.Copy(&p.drained, p.stdout); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	return result{status: p.cmd.ProcessState.ExitCode(), stdout: p.drained.String(), stderr: p.stderr.String()}
}

// stop ends a process by SIGTERM.
func (p *process) stop(t *testing.T) result {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	return p.wait(t)
}

// startBroker runs `ottla broker` until the test ends.
func startBroker(t *testing.T, args ...string) *process {
	t.Helper()
	p := run{args: append([]string{"broker", "--port", "0"}, args...)}.start(t)
	line := p.line(t)
	var ok bool
	if p.bootstrap, ok = strings.CutPrefix(line, "bootstrap: "); !ok {
		t.Fatalf("the broker said %q", line)
	}
	return p
}
