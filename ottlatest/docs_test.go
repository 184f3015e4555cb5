package ottlatest

import (
	"os"
	"strings"
	"testing"
)

// TestEverySnippetOfThePageIsInAnExample keeps docs/ottlatest.md compiled:
// each block of Go there is, line for line and apart from indentation, a part
// of example_test.go.
func TestEverySnippetOfThePageIsInAnExample(t *testing.T) {
	page, err := os.ReadFile("../docs/ottlatest.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) < 4 {
		t.Fatalf("%d blocks of Go found", len(blocks))
	}
	for _, b := range blocks {
		code, _, _ := strings.Cut(b, "```")
		if !strings.Contains(flat(string(examples)), flat(code)) {
			t.Errorf("not in example_test.go:\n%s", code)
		}
	}
}

// flat is text without indentation.
func flat(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}
