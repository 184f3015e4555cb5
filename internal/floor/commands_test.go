package floor

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ottla/ottla/internal/cli"
)

var (
	shellBlock = regexp.MustCompile("(?s)```(?:sh|console)\n(.*?)```")
	inlineCode = regexp.MustCompile("`([^`\n]+)`")
	// ottlaCall is a call of the command and up to two words behind its name.
	ottlaCall  = regexp.MustCompile(`(?:^|[\s(|;&"])(?:ottla|go run \./cmd/ottla) ([a-z]+)(?: ([a-z]+))?`)
	makeCall   = regexp.MustCompile(`(?:^|[\s;&])make ([a-z][a-z-]*)`)
	scriptCall = regexp.MustCompile(`(?:^|[\s("])(scripts/[a-z]+)(?: ([a-z]+))?`)
)

// shown is every line of shell that a page shows, in a block or in its text.
func shown(page string) []string {
	var lines []string
	for _, m := range shellBlock.FindAllStringSubmatch(page, -1) {
		lines = append(lines, strings.Split(m[1], "\n")...)
	}
	for _, m := range inlineCode.FindAllStringSubmatch(shellBlock.ReplaceAllString(page, ""), -1) {
		lines = append(lines, m[1])
	}
	return lines
}

// helpOf is what the command says about some of its words, "" if it does not
// know them.
func helpOf(words ...string) string {
	var out strings.Builder
	if cli.Run(context.Background(), append(words, "--help"), strings.NewReader(""), &out, io.Discard) != 0 {
		return ""
	}
	if !strings.Contains(out.String(), "ottla "+strings.Join(words, " ")) {
		return "" // the help of what stands above it
	}
	return out.String()
}

// missingCommands says which commands, targets and scripts of a page do not
// exist, and how many it shows.
func missingCommands(page, makefile string, scripts map[string]string) (missing []string, n int) {
	for _, line := range shown(page) {
		for _, m := range ottlaCall.FindAllStringSubmatch(line, -1) {
			n++
			help := helpOf(m[1])
			family := strings.Contains(help, "Commands:")
			if help == "" || family && m[2] != "" && helpOf(m[1], m[2]) == "" {
				missing = append(missing, fmt.Sprintf("ottla %s %s", m[1], m[2]))
			}
		}
		for _, m := range makeCall.FindAllStringSubmatch(line, -1) {
			n++
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				missing = append(missing, "make "+m[1])
			}
		}
		for _, m := range scriptCall.FindAllStringSubmatch(line, -1) {
			n++
			if text, ok := scripts[m[1]]; !ok || m[2] != "" && !strings.Contains(text, m[2]) {
				missing = append(missing, m[1]+" "+m[2])
			}
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing), n
}

// readScripts is the text of every script, with that of the program behind
// scripts/kafka.
func readScripts(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	paths, err := filepath.Glob("../../scripts/*")
	if err != nil || len(paths) == 0 {
		t.Fatalf("scripts: %v, %v", paths, err)
	}
	for _, p := range paths {
		out["scripts/"+filepath.Base(p)] = readAll(t, p)
	}
	programs, err := filepath.Glob("../../internal/realkafka/kafkactl/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		out["scripts/kafka"] += readAll(t, p)
	}
	return out
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEveryCommandThatTheDocsShowExists follows the pages as a newcomer would:
// a command, a make target or a script that they name must be there.
func TestEveryCommandThatTheDocsShowExists(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, scripts := readAll(t, "../../Makefile"), readScripts(t)
	for _, p := range append(pages, "../../README.md", "../../CONTRIBUTING.md") {
		missing, n := missingCommands(readAll(t, p), makefile, scripts)
		if len(missing) > 0 {
			t.Errorf("%s shows what does not exist: %s", p, strings.Join(missing, ", "))
		}
		if n == 0 && strings.HasSuffix(p, "README.md") {
			t.Error("the README shows no command, so nothing was checked")
		}
	}
}

func TestACommandThatDoesNotExistIsFound(t *testing.T) {
	page := "`ottla topics list` and `ottla topics lst`, `ottla consume t`, `ottla no`\n```sh\ngo run ./cmd/ottla demo; make test && make tset\nscripts/kafka up\n" +
		"scripts/none\n$ x | ottla lead r -- true\n```\n"
	missing, n := missingCommands(page, "\ntest:\n", map[string]string{"scripts/kafka": "up"})
	if want := []string{"make tset", "ottla no ", "ottla topics lst", "scripts/none "}; !slices.Equal(missing, want) || n != 10 {
		t.Errorf("%q of %d", missing, n)
	}
}
