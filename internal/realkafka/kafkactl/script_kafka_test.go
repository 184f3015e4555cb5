//go:build kafka

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// script runs scripts/kafka as a person does.
type script struct {
	t    *testing.T
	path string
}

// do wants the script to succeed and returns its stdout.
func (s script) do(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(s.path, args...)
	cmd.Stderr = s.t.Output()
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("scripts/kafka %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// fails wants a failure and returns what the script says.
func (s script) fails(args ...string) string {
	s.t.Helper()
	out, err := exec.Command(s.path, args...).CombinedOutput()
	if err == nil {
		s.t.Errorf("scripts/kafka %s succeeds: %s", strings.Join(args, " "), out)
	}
	return string(out)
}

// TestTheScript walks a secure broker through its life.
func TestTheScript(t *testing.T) {
	path, err := filepath.Abs("../../../scripts/kafka")
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Chdir(tmp) // it works from anywhere
	s := script{t, path}
	t.Cleanup(func() { _, _ = exec.Command(path, "down", "--all").CombinedOutput() })

	up := []string{"up", "--name", "it", "--secure", "-c", "log.retention.hours=7"}
	first := s.do(up...)
	bootstrap := regexp.MustCompile(`(?m)^bootstrap: (127\.0\.0\.1:\d+)\n\z`).FindStringSubmatch(first)
	if bootstrap == nil {
		t.Fatalf("the last line of up is not the bootstrap line: %q", first)
	}
	addr := bootstrap[1]
	if again := s.do(up...); again != first {
		t.Errorf("up is not idempotent: %q, then %q", first, again)
	}
	if said := s.fails("up", "--name", "it", "--brokers", "3"); !strings.Contains(said, "runs with other options") {
		t.Errorf("another cluster under the name: %s", said)
	}
	s.environment(addr)
	s.brokerLife(addr)

	if out := s.do("tool", "--name", "it", "TopicCommand", "--create", "--topic", "of-the-script"); !strings.Contains(out, "Created topic of-the-script") {
		t.Errorf("tool says %q", out)
	}
	if said := s.fails("tool", "--name", "it", "TopicCommand", "--nonsense"); said == "" {
		t.Error("a tool that fails says nothing")
	}
	if out := s.do("logs", "1", "--name", "it"); !strings.Contains(out, "KafkaRaftServer") {
		t.Errorf("the log does not look like one: %.200s", out)
	}
	s.do("down", "it")
	if conn, err := net.Dial("tcp4", addr); err == nil {
		_ = conn.Close()
		t.Error("the broker still listens after down")
	}
	if said := s.fails("status", "--name", "it"); !strings.Contains(said, "no such cluster") {
		t.Errorf("status after down: %s", said)
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "ottla-kafka-*", "named", "it")); len(left) > 0 {
		t.Errorf("down leaves %v", left)
	}
	s.do("down", "it")
}

// environment lets a shell evaluate env, and looks at what it has then.
func (s script) environment(addr string) {
	s.t.Helper()
	cmd := exec.Command("sh", "-c", `eval "$("$1" env it)"; env`, "sh", s.path)
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatal(err)
	}
	env := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[name] = value
	}
	if env["OTTLA_BOOTSTRAP"] != addr {
		s.t.Errorf("OTTLA_BOOTSTRAP is %q, want %q", env["OTTLA_BOOTSTRAP"], addr)
	}
	for _, name := range []string{"TLS", "MTLS", "SASL_PLAINTEXT", "SASL_SSL"} {
		conn, err := net.Dial("tcp4", env["OTTLA_BOOTSTRAP_"+name])
		if err != nil {
			s.t.Errorf("listener %s: %v", name, err)
			continue
		}
		_ = conn.Close()
	}
	for _, name := range []string{"OTTLA_CA", "OTTLA_CERT", "OTTLA_KEY"} {
		if _, err := os.Stat(env[name]); err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
	}
	if env["OTTLA_USER"] == "" || env["OTTLA_PASSWORD"] == "" {
		s.t.Error("no user or no password")
	}
}

// brokerLife pauses, kills and starts the broker.
func (s script) brokerLife(addr string) {
	s.t.Helper()
	state := func(want string) {
		s.t.Helper()
		if out := s.do("status", "--name", "it"); !strings.Contains(out, "broker 1  "+addr+"  "+want) {
			s.t.Errorf("status is %q, want %s", out, want)
		}
	}
	state("running")
	s.do("pause", "1", "--name", "it")
	state("paused")
	s.do("resume", "1", "--name", "it")
	s.do("kill", "1", "--name", "it")
	state("down")
	if said := s.fails("kill", "1", "--name", "it"); !strings.Contains(said, "is not running") {
		s.t.Errorf("a second kill says %q", said)
	}
	s.do("start", "1", "--name", "it")
	state("running")
	if said := s.fails("start", "1", "--name", "it"); !strings.Contains(said, "runs already") {
		s.t.Errorf("a second start says %q", said)
	}
}
