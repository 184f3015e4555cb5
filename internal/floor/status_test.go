package floor

import (
	"go/ast"
	"os"
	"regexp"
	"testing"
)

// testName matches the names of tests on docs/status.md.
var testName = regexp.MustCompile(`\b(Test|Fuzz|Example|Benchmark)[A-Z]\w*`)

func TestStatusNamesOnlyTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/status.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, f := range files {
		for _, d := range f.syntax.Decls {
			if fd, ok := d.(*ast.FuncDecl); ok && f.test {
				exists[fd.Name.Name] = true
			}
		}
	}
	names := testName.FindAllString(string(page), -1)
	if len(names) == 0 {
		t.Fatal("no test is named, so nothing was checked")
	}
	for _, n := range names {
		if !exists[n] {
			t.Errorf("docs/status.md names %s, which does not exist", n)
		}
	}
}
