package cli

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestUsageErrorsAreOneLineAndStatus2(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"reqest", "did you mean request?"},
		{"--nope", "unknown flag: --nope"},
		{"request --lst", "did you mean --list?"},
		{"request", "ottla: request: API is missing"},
		{"topics", "ottla: topics needs one of"},
		{"topics lst", `unknown command "lst" of topics`},
		{"produce", "ottla: produce: TOPIC is missing"},
		{"consume", "ottla: consume: TOPIC is missing"},
		{"lead", "ottla: lead: ROLE is missing"},
		{"topics create x -p many", `"-p, --partitions" flag: invalid syntax;`},
		{"topics create x -p 99999999999", `"-p, --partitions" flag: value out of range;`},
		{"topics create x -p 0", "-p 0: at least one"},
		{"topics create x -r -2", "-r -2: at least one"},
		{"brokers -b a:b:c", `"a:b:c" is not HOST:PORT`},
		{"brokers -b [::1", `"[::1" is not HOST:PORT`},
		{"brokers -b [x:y]:9092", `"[x:y]:9092" is not HOST:PORT`},
		{"broker --brokers 100000000", "--brokers 100000000: 1 to"},
		{"broker --brokers 0", "--brokers 0: 1 to"},
		{"broker --port 65535 --brokers 3", "ports 65535 to 65537 do not exist"},
		{"broker --port -1", "--port -1: "},
		{"broker --partitions 0", "--partitions 0: 1 to"},
		{"broker --partitions 1000000000", "--partitions 1000000000: 1 to"},
		{"request Metadata {} {}", `unexpected argument "{}"`},
		{"request --schema Metdata", "did you mean Metadata"},
		{"request --list -o xml", "text or json"},
		{"completion tcsh", "bash, zsh, fish"},
		{"completion", "SHELL is missing"},
		{"version --timeout 0s", "above zero"},
		{"version --timeout soon", "invalid argument"},
		{"help nothing", `unknown command "nothing"`},
	} {
		t.Run(c.line, func(t *testing.T) {
			res := ottla(t, strings.Fields(c.line)...)
			res.wantError(t, 2)
			if !strings.Contains(strings.ReplaceAll(res.stderr, "bash, zsh and fish", "bash, zsh, fish"), c.want) {
				t.Errorf("%q is missing in %s", c.want, res.stderr)
			}
			if res.stdout != "" {
				t.Errorf("stdout: %s", res.stdout)
			}
		})
	}
}

func TestHelpGoesToStdout(t *testing.T) {
	for _, line := range []string{"", "help", "--help", "help request", "request --help"} {
		res := ottla(t, strings.Fields(line)...)
		res.wantDone(t)
		if !strings.Contains(res.stdout, "Usage:") {
			t.Errorf("ottla %s:\n%s", line, res.stdout)
		}
	}
}

// everyCommand lists the commands that can be run.
func everyCommand(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, c := range cmd.Commands() {
		if c.HasSubCommands() {
			all = append(all, everyCommand(c)...)
		} else if c.IsAvailableCommand() {
			all = append(all, c)
		}
	}
	return all
}

func testRoot() *cobra.Command {
	return (&app{stdout: newPrinter(io.Discard), notes: newNotes(io.Discard)}).root()
}

func TestEveryCommandHasTwoExamplesAndExplainsItself(t *testing.T) {
	for _, c := range everyCommand(testRoot()) {
		if n := len(examplesOf(c)); n < 2 {
			t.Errorf("%s has %d examples", c.CommandPath(), n)
		}
		if c.Short == "" {
			t.Errorf("%s has no short text", c.CommandPath())
		}
	}
}

// examplesOf lists the command lines of the examples of c.
func examplesOf(c *cobra.Command) []string {
	var lines []string
	for line := range strings.Lines(c.Example) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestCompletionsAreScripts(t *testing.T) {
	for shell, want := range map[string]string{"bash": "__start_ottla", "zsh": "#compdef ottla", "fish": "complete -c ottla"} {
		res := ottla(t, "completion", shell)
		res.wantDone(t)
		if !strings.Contains(res.stdout, want) {
			t.Errorf("%s: %q is missing", shell, want)
		}
		if path, err := exec.LookPath(shell); err == nil {
			check := exec.Command(path, "-n")
			check.Stdin = strings.NewReader(res.stdout)
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s -n: %v\n%s", shell, err, out)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	res := ottla(t, "version")
	res.wantDone(t)
	if !strings.HasPrefix(res.stdout, "ottla ") || strings.Count(res.stdout, "\n") != 1 {
		t.Error(res.stdout)
	}
	var v buildVersion
	if err := json.Unmarshal([]byte(ottla(t, "version", "-o", "json").stdout), &v); err != nil || v.Go == "" || v.MaxAPI < 92 {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestListsInAPipeAreTabSeparatedWithoutHeads(t *testing.T) {
	res := ottla(t, "request", "--list")
	res.wantDone(t)
	first, _, _ := strings.Cut(res.stdout, "\n")
	if !strings.HasPrefix(first, "0\tProduce\t") {
		t.Errorf("first line %q", first)
	}
	var all []api
	if err := json.Unmarshal([]byte(ottla(t, "request", "--list", "-o", "json").stdout), &all); err != nil || all[0].Name != "Produce" {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestAClosedPipeEndsWithStatus0AndNoMessage(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd := run{args: []string{"request", "--list"}}.command(t)
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = w, &stderr
	if err := cmd.Run(); err != nil || stderr.String() != "" {
		t.Errorf("%v: %s", err, stderr.String())
	}
	w.Close()
}

func TestAFullDiskIsAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full on this system")
	}
	defer full.Close()
	cmd := run{args: []string{"request", "--list"}}.command(t)
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = full, &stderr
	err = cmd.Run()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "writing the output: ") {
		t.Errorf("%v: %s", err, stderr.String())
	}
}
