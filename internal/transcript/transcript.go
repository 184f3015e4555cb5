// Package transcript plays scripts against a state machine in tests and
// compares what the machine says with what the script holds.
//
// A line that begins without two spaces is a command; the indented lines below
// it are what it gave. Empty lines and those that begin with # are kept. Run
// the test with -update to rewrite what the machine says, and read the diff.
package transcript

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// Run plays every file that glob names below testdata, as a subtest with the
// file's name, each with a machine of its own. The function that machine
// returns carries out one command and gives the lines that it says.
func Run(t *testing.T, glob string, machine func(t *testing.T) func(cmd []string) string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", glob))
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts at testdata/%s: %v", glob, err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(data), machine(t))
			switch {
			case got == string(data):
			case *update:
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("%s: the machine says something else:\n%s", path, diff(string(data), got))
			}
		})
	}
}

// play is the script with what the machine says to each command.
func play(t *testing.T, script string, do func(cmd []string) string) string {
	var out strings.Builder
	steps := 0
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue
		}
		out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		steps++
		for part := range strings.Lines(do(strings.Fields(line))) {
			out.WriteString("  " + strings.TrimRight(part, "\n") + "\n")
		}
	}
	if steps == 0 {
		t.Fatal("the transcript holds no command")
	}
	return out.String()
}

// diff shows the lines around the first difference.
func diff(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		a, b := "", ""
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return strings.Join(w[max(0, i-3):min(i, len(w))], "\n") + "\n- " + a + "\n+ " + b
		}
	}
	return ""
}
