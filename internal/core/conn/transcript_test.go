package conn

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// begin is where the clock of every transcript starts.
var begin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// transcripts runs every file of a directory in testdata, each with a machine
// of its own: the file's name says what it holds.
func transcripts(t *testing.T, dir string, machine func() func(t *testing.T, cmd []string) string) {
	t.Helper()
	files, err := os.ReadDir("testdata/" + dir)
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, f := range files {
		name, _ := strings.CutSuffix(f.Name(), ".txt")
		t.Run(name, func(t *testing.T) {
			do := machine()
			transcript(t, dir+"/"+f.Name(), func(cmd []string) string { return do(t, cmd) })
		})
	}
}

// transcript runs a file of steps: a line that does not begin with two spaces
// is a command, and the indented lines below it are what it gave. With -update
// they are rewritten.
func transcript(t *testing.T, name string, do func(cmd []string) string) {
	t.Helper()
	path := "testdata/" + name
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	steps := 0
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "  "):
		case line == "", strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
		default:
			out.WriteString(line + "\n")
			steps++
			for part := range strings.Lines(do(strings.Fields(line))) {
				out.WriteString("  " + strings.TrimRight(part, "\n") + "\n")
			}
		}
	}
	if steps == 0 {
		t.Fatalf("%s holds no step", path)
	}
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if out.String() != string(data) {
		t.Errorf("%s: the machine says something else:\n%s", path, diff(string(data), out.String()))
	}
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
			return strings.Join(w[max(0, i-3):i], "\n") + "\n- " + a + "\n+ " + b
		}
	}
	return ""
}

// at is the time of a command like "+1.5s", an offset from begin.
func at(t *testing.T, s string) time.Time {
	t.Helper()
	d, err := time.ParseDuration(strings.TrimPrefix(s, "+"))
	if err != nil {
		t.Fatal(err)
	}
	return begin.Add(d)
}

// since is a time as an offset from begin, "never" for none.
func since(when time.Time) string {
	if when.IsZero() {
		return "never"
	}
	return "+" + when.Sub(begin).String()
}
