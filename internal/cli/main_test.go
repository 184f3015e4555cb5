package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// binary is the command, built once by TestMain.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ottla-cli")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "ottla")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/ottla")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the command: %v\n%s", err, out)
		return 1
	}
	return runTests(m)
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

// cleanEnv is the environment without anything that ottla reads.
func cleanEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "OTTLA_") && !strings.HasPrefix(e, "NO_COLOR=") {
			env = append(env, e)
		}
	}
	return env
}

// command prepares the process; it is killed if it outlives the test's time.
func (r run) command(t *testing.T) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, r.args...)
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

// wantDone checks a run that went well and said nothing on stderr.
func (r result) wantDone(t *testing.T) {
	t.Helper()
	if r.status != 0 || r.stderr != "" {
		t.Fatalf("status %d, stderr:\n%s", r.status, r.stderr)
	}
}
