package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ottla/ottla/ottlatest"
)

// docExample is a command line of the reference page and what follows it.
type docExample struct{ line, output string }

// docExamples reads the console blocks of a page.
func docExamples(t *testing.T, page string) []docExample {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []docExample
	for i, part := range strings.Split(string(text), "```") {
		block, isConsole := strings.CutPrefix(part, "console\n")
		if i%2 == 0 || !isConsole {
			continue
		}
		for line := range strings.Lines(block) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				found = append(found, docExample{line: strings.TrimSpace(command)})
			} else {
				found[len(found)-1].output += line
			}
		}
	}
	return found
}

func TestTheReferencePagesExamplesRunAndPrintWhatItSays(t *testing.T) {
	t.Parallel()
	e := newEmbedded(t, ottlatest.Config{})
	examples := docExamples(t, "../../docs/cli.md")
	if len(examples) < 20 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, x := range examples {
		cmd := exec.Command("sh", "-c", x.line)
		cmd.Env = append(append(cleanEnv(), e.env()...), "PATH="+filepath.Dir(builtCommand(t))+":/usr/local/bin:/usr/bin:/bin", "LC_ALL=C")
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil || stdout.String() != x.output || stderr.String() != "" {
			t.Errorf("$ %s\n%v\n%swant\n%sstderr: %s", x.line, err, stdout.String(), x.output, stderr.String())
		}
	}
}

func TestTheReferencePageNamesEveryCommandAndFlag(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, name := range propertyNames() {
		if !strings.HasPrefix(name, "ssl.") && !strings.Contains(page, "`"+name+"`") {
			t.Errorf("property %s is not on the page", name)
		}
	}
	for _, c := range everyCommand(testRoot()) {
		name := strings.TrimPrefix(c.CommandPath(), "ottla ")
		if name != "help" && !strings.Contains(page, name) {
			t.Errorf("command %s is not on the page", name)
		}
		for _, f := range flagNames(c) {
			long, short := "--"+f, "-"+shorthand(c, f)
			if f != "help" && !strings.Contains(page, long) && (short == "-" || !strings.Contains(page, "`"+short) && !strings.Contains(page, " "+short+" ") && !strings.Contains(page, "["+short+" ")) {
				t.Errorf("flag %s (%s) of %s is not on the page", long, short, name)
			}
		}
	}
}

func shorthand(c interface {
	Flags() *pflag.FlagSet
	InheritedFlags() *pflag.FlagSet
}, name string,
) string {
	for _, fs := range []*pflag.FlagSet{c.Flags(), c.InheritedFlags()} {
		if f := fs.Lookup(name); f != nil && f.Shorthand != "" {
			return f.Shorthand
		}
	}
	return ""
}
