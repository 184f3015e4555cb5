package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ottla/ottla/internal/realkafka"
)

func TestArguments(t *testing.T) {
	none := realkafka.Options{}
	cases := []struct {
		line string
		want flags
		rest []string
	}{
		{"up", flags{options: realkafka.Options{Brokers: 1}}, nil},
		{"up --brokers 3 --version 3.9.2 --name x --secure --feature transaction.version=1 --feature group.version=0 -c a.b=c=d -c e=",
			flags{name: "x", options: realkafka.Options{Brokers: 3, Version: "3.9.2", Secure: true,
				Features: map[string]int{"transaction.version": 1, "group.version": 0}, Props: map[string]string{"a.b": "c=d", "e": ""}}}, nil},
		{"kill 2 --name x", flags{name: "x", options: none}, []string{"2"}},
		{"kill --name=x 2", flags{name: "x", options: none}, []string{"2"}},
		{"down --all", flags{all: true, options: none}, nil},
		{"down x", flags{options: none}, []string{"x"}},
		{"fetch 3.9.2 --warm", flags{warm: true, options: none}, []string{"3.9.2"}},
		{"tool --name x TopicCommand --list --name y", flags{name: "x", options: none}, []string{"TopicCommand", "--list", "--name", "y"}},
	}
	for _, c := range cases {
		t.Run(c.line, func(t *testing.T) {
			words := strings.Fields(c.line)
			got, rest, err := parse(words[0], commands()[words[0]], words[1:])
			if err != nil {
				t.Fatal(err)
			}
			if len(got.options.Features) == 0 {
				got.options.Features = nil
			}
			if len(got.options.Props) == 0 {
				got.options.Props = nil
			}
			if d := cmp.Diff(c.want, got, cmp.AllowUnexported(flags{})); d != "" {
				t.Errorf("flags (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.rest, rest); d != "" {
				t.Errorf("arguments (-want +got):\n%s", d)
			}
		})
	}
}

// TestMistakesAreUsageErrors runs whole invocations, which must not start
// anything.
func TestMistakesAreUsageErrors(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	cases := []struct {
		line, want string
		status     int
	}{
		{"fly", `there is no command "fly"`, statusUsage},
		{"up --brokers x", "invalid value", statusUsage},
		{"up --broker 3", "flag provided but not defined: -broker", statusUsage},
		{"up now", `"now" is one argument too many`, statusUsage},
		{"up --feature transaction.version", "want name=level", statusUsage},
		{"up --feature transaction.version=x", "want name=level", statusUsage},
		{"up -c x", "want name=value", statusUsage},
		{"kill", "an argument is missing", statusUsage},
		{"kill one", `"one" is not the number of a broker`, statusUsage},
		{"kill 1 2", `"2" is one argument too many`, statusUsage},
		{"tool", "an argument is missing", statusUsage},
		{"kill 1", "there is no such cluster", statusFailed},
		{"env", "bring one up first", statusFailed},
		{"status", "no cluster is up", statusFailed},
		{"logs 1 --name x", `as "x"`, statusFailed},
		{"up --brokers 2", "1 or 3 brokers, not 2", statusFailed},
		{"up --version latest", "is not a release of Apache Kafka", statusFailed},
		{"up --name ../x", "is no name for a cluster", statusFailed},
		{"fetch nothing", "is not a release of Apache Kafka", statusFailed},
		{"down x", `no cluster "x" is up`, statusDone},
		{"down --all", "", statusDone},
	}
	for _, c := range cases {
		t.Run(c.line, func(t *testing.T) {
			var out, errOut bytes.Buffer
			status := run(t.Context(), strings.Fields(c.line), strings.NewReader(""), &out, &errOut)
			if status != c.status || !strings.Contains(errOut.String(), c.want) {
				t.Errorf("status %d and %q, want %d and %q", status, errOut.String(), c.status, c.want)
			}
			if out.Len() > 0 {
				t.Errorf("wrote to stdout: %s", out.String())
			}
		})
	}
}

func TestHelpNamesEveryCommand(t *testing.T) {
	for _, args := range [][]string{nil, {"help"}, {"--help"}} {
		var out bytes.Buffer
		if status := run(t.Context(), args, nil, &out, nil); status != statusDone {
			t.Errorf("%v: status %d", args, status)
		}
		for name := range commands() {
			if !strings.Contains(out.String(), " "+name+" ") {
				t.Errorf("%v does not name %s", args, name)
			}
		}
	}
}

func TestQuoteIsReadBackByAShell(t *testing.T) {
	if got, want := quote("/tmp/it's here"), `'/tmp/it'\''s here'`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
