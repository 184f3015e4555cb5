package floor

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// snippetImports are the packages that a snippet may use without importing them.
var snippetImports = map[string]string{
	"fmt": "fmt", "context": "context", "time": "time", "net": "net", "errors": "errors", "log": "log", "os": "os",
	"tls": "crypto/tls", "slog": "log/slog", "testing": "testing", "synctest": "testing/synctest", "strings": "strings",
	"signal": "os/signal", "syscall": "syscall",
	"ottla": module, "cluster": module + "/cluster", "producer": module + "/producer", "consumer": module + "/consumer",
	"kafka": module + "/kafka", "ottlatest": module + "/ottlatest", "record": module + "/record", "transact": module + "/transact",
	"admin": module + "/admin", "leader": module + "/leader", "streams": module + "/streams",
	"kmsg": "github.com/twmb/franz-go/pkg/kmsg", "kerr": "github.com/twmb/franz-go/pkg/kerr",
	"sasl": "github.com/twmb/franz-go/pkg/sasl", "plain": "github.com/twmb/franz-go/pkg/sasl/plain",
	"scram": "github.com/twmb/franz-go/pkg/sasl/scram", "oauth": "github.com/twmb/franz-go/pkg/sasl/oauth",
}

var (
	goBlock   = regexp.MustCompile("(?s)```go\n(.*?)```")
	qualifier = regexp.MustCompile(`\b([a-z]+)\.[A-Z]`)
)

// snippets lists the Go blocks of a page that are no part of an example, each
// as a whole file.
func snippets(page, examples string) []string {
	var out []string
	for _, m := range goBlock.FindAllStringSubmatch(page, -1) {
		if !strings.Contains(examples, unindented(m[1])) {
			out = append(out, wholeFile(m[1]))
		}
	}
	return out
}

// unindented is code without white space at the ends of its lines.
func unindented(code string) string {
	lines := strings.Split(strings.TrimSpace(code), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "\n")
}

// exampleCode is the text of every example of the module, which tests compile
// and run.
func exampleCode(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, pattern := range []string{"../../example_test.go", "../../*/example_test.go", "../../*/*/example_test.go"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			code, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString(unindented(string(code)) + "\n")
		}
	}
	return b.String()
}

// wholeFile wraps statements in a function that has a ctx and returns an error,
// and declarations in a file.
func wholeFile(code string) string {
	if strings.HasPrefix(code, "package ") {
		return code
	}
	var b strings.Builder
	b.WriteString("package snippet\n\n")
	seen := map[string]bool{}
	for _, m := range qualifier.FindAllStringSubmatch(code+" context.Context", -1) {
		declared := regexp.MustCompile(`(?m)^\s*(var )?` + m[1] + `(, \w+)? :?=`).MatchString(code)
		if path := snippetImports[m[1]]; path != "" && !seen[path] && !declared {
			seen[path] = true
			fmt.Fprintf(&b, "import %s %q\n", m[1], path)
		}
	}
	if strings.HasPrefix(code, "func ") || strings.HasPrefix(code, "type ") {
		return b.String() + "\nvar _ context.Context\n\n" + code
	}
	return b.String() + "\nfunc snippet(ctx context.Context) error {\n" + code + "\nreturn nil\n}\n\nvar _ = snippet\n"
}

// compile builds each file as a package of the module, without writing into it.
func compile(t *testing.T, files []string) error {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := map[string]map[string]string{"Replace": {}}
	args := []string{"build", "-overlay", filepath.Join(dir, "overlay.json")}
	for i, f := range files {
		path := filepath.Join(dir, fmt.Sprintf("snippet%d.go", i))
		if err := os.WriteFile(path, []byte(f), 0o600); err != nil {
			t.Fatal(err)
		}
		pkg := fmt.Sprintf("internal/floor/snippet%d", i)
		overlay["Replace"][filepath.Join(root, pkg, "main.go")] = path
		args = append(args, "./"+pkg)
	}
	raw, _ := json.Marshal(overlay)
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func TestEverySnippetOfTheDocsCompiles(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, blocks := exampleCode(t), 0
	var files []string
	for _, p := range append(pages, "../../README.md") {
		page, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		blocks += len(goBlock.FindAllString(string(page), -1))
		files = append(files, snippets(string(page), examples)...)
	}
	if blocks == 0 || len(examples) == 0 {
		t.Fatal("no snippet was found, so nothing was checked")
	}
	if err := compile(t, files); err != nil {
		t.Error(err)
	}
}

func TestASnippetThatDoesNotCompileIsFound(t *testing.T) {
	const good = "text\n\n```go\nn := kafka.TimestampOf(time.Now())\nfmt.Println(n)\n```\n"
	if err := compile(t, snippets(good, "")); err != nil {
		t.Errorf("a good snippet is refused: %v", err)
	}
	bad := strings.ReplaceAll(good, "TimestampOf", "TimestampAt")
	if err := compile(t, snippets(bad, "")); err == nil || !strings.Contains(err.Error(), "TimestampAt") {
		t.Errorf("a snippet that does not compile: %v", err)
	}
}

// link matches the relative links of a page.
var link = regexp.MustCompile(`\]\(([^):#]+)(#[^)]*)?\)`)

func TestEveryRelativeLinkOfTheDocsExists(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../../README.md", "../../CONTRIBUTING.md")
	found := 0
	for _, p := range pages {
		page, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(page), -1) {
			found++
			if _, err := os.Stat(filepath.Join(filepath.Dir(p), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", p, m[1])
			}
		}
	}
	if found == 0 {
		t.Fatal("no link was found, so nothing was checked")
	}
}

func TestTheReadmeIsShort(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(page), "\n"); n > 150 {
		t.Errorf("README.md has %d lines, the limit is 150", n)
	}
}
