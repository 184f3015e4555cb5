package floor

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// exceptions are the breaches that stand for the time being, each with its
// reason. The list may only shrink: an entry that nothing breaks any more fails.
var exceptions = map[string]string{}

func TestTheModuleKeepsItsRules(t *testing.T) {
	breaches, err := check(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, b := range breaches {
		if exceptions[b.key()] != "" {
			used[b.key()] = true
			continue
		}
		t.Error(b)
	}
	for k := range exceptions {
		if !used[k] {
			t.Errorf("exception %q is not needed any more: delete it", k)
		}
	}
}

func TestTheModuleIsRead(t *testing.T) {
	files, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(files, func(f *file) bool { return f.path == "internal/task/task.go" }) {
		t.Fatal("internal/task/task.go was not read, so nothing was checked")
	}
}

// repeat makes a function body of n statements.
func repeat(n int, stmt string) string { return strings.Repeat("\t"+stmt+"\n", n) }

func fields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\tF%d int\n", i)
	}
	return b.String()
}

// TestEachRuleCanFail shows for every rule a module that breaks it, and that
// the same module without the breach passes.
func TestEachRuleCanFail(t *testing.T) {
	cases := []struct {
		name, path, good, bad, rule string
	}{
		{"upward import", "kafka/a.go", "package kafka\n", "package kafka\n\nimport _ \"github.com/ottla/ottla/cluster\"\n", "imports"},
		{"import between producer and consumer", "producer/a.go", "package producer\n\nimport _ \"github.com/ottla/ottla/cluster\"\n", "package producer\n\nimport _ \"github.com/ottla/ottla/consumer\"\n", "imports"},
		{"library imports a test package", "cluster/a.go", "package cluster\n", "package cluster\n\nimport _ \"github.com/ottla/ottla/internal/memnet\"\n", "imports"},
		{"the command imports the front door", "internal/cli/a.go", "package cli\n\nimport _ \"github.com/ottla/ottla/ottlatest\"\n", "package cli\n\nimport _ \"github.com/ottla/ottla\"\n", "imports"},
		{"package on no floor", "extra/a.go", "package extra\n", "package extra\n\nimport _ \"github.com/ottla/ottla/kafka\"\n", "imports"},
		{"unknown dependency", "cluster/a.go", "package cluster\n", "package cluster\n\nimport _ \"example.com/x\"\n", "imports"},
		{"kgo outside of tests", "cluster/a.go", "package cluster\n", "package cluster\n\nimport _ \"github.com/twmb/franz-go/pkg/kgo\"\n", "imports"},
		{"pure package imports net", "record/a.go", "package record\n", "package record\n\nimport _ \"net\"\n", "purity"},
		{"pure package reads the clock", "record/a.go", "package record\n\nimport \"time\"\n\nvar _ = time.Second\n", "package record\n\nimport \"time\"\n\nvar _ = time.Now\n", "purity"},
		{"pure package uses global randomness", "record/a.go", "package record\n\nimport \"math/rand/v2\"\n\nvar _ = rand.New\n", "package record\n\nimport \"math/rand/v2\"\n\nvar _ = rand.IntN\n", "purity"},
		{"pure package has a channel", "record/a.go", "package record\n", "package record\n\nfunc f(c chan int) {}\n", "purity"},
		{"pure package selects", "record/a.go", "package record\n", "package record\n\nfunc f() {\n\tselect {}\n}\n", "purity"},
		{"go statement", "cluster/a.go", "package cluster\n", "package cluster\n\nfunc f() {\n\tgo f()\n}\n", "go"},
		{"package name", "cluster/a.go", "package cluster\n", "package util\n", "names"},
		{"Get prefix", "cluster/a.go", "package cluster\n", "package cluster\n\n// GetIt is.\nfunc GetIt() {}\n", "names"},
		{"undocumented function", "cluster/a.go", "package cluster\n\n// F is.\nfunc F() {}\n", "package cluster\n\nfunc F() {}\n", "docs"},
		{"undocumented type", "cluster/a.go", "package cluster\n\n// T is.\ntype T int\n", "package cluster\n\ntype T int\n", "docs"},
		{"init function", "cluster/a.go", "package cluster\n", "package cluster\n\nfunc init() {}\n", "init"},
		{"package state", "cluster/a.go", "package cluster\n", "package cluster\n\nvar n int\n", "variables"},
		{"written table", "cluster/a.go", "package cluster\n\nvar m = map[int]int{}\n", "package cluster\n\nvar m = map[int]int{}\n\nfunc f() {\n\tm[1] = 2\n}\n", "variables"},
		{"long file", "cluster/a.go", "package cluster\n" + strings.Repeat("//\n", 100), "package cluster\n" + strings.Repeat("//\n", maxFileLines), "size"},
		{"long test", "cluster/a_test.go", "package cluster\n" + strings.Repeat("//\n", maxFileLines), "package cluster\n" + strings.Repeat("//\n", maxTestFileLines), "size"},
		{"long function", "cluster/a.go", "package cluster\n\nfunc f() {\n" + repeat(10, "f()") + "}\n", "package cluster\n\nfunc f() {\n" + repeat(maxFuncLines, "f()") + "}\n", "size"},
		{"nesting", "cluster/a.go", "package cluster\n\nfunc f() {\n\tfor {\n\t\tfor {\n\t\t\tfor {\n\t\t\t}\n\t\t}\n\t}\n}\n", "package cluster\n\nfunc f() {\n\tfor {\n\t\tfor {\n\t\t\tfor {\n\t\t\t\tfor {\n\t\t\t\t}\n\t\t\t}\n\t\t}\n\t}\n}\n", "nesting"},
		{"parameters", "cluster/a.go", "package cluster\n\nfunc f(a, b, c, d, e int) {}\n", "package cluster\n\nfunc f(a, b, c, d, e, g int) {}\n", "parameters"},
		{"two bools", "cluster/a.go", "package cluster\n\nfunc f(a bool) {}\n", "package cluster\n\nfunc f(a, b bool) {}\n", "parameters"},
		{"fields", "cluster/a.go", "package cluster\n\ntype t struct {\n" + fields(maxFields) + "}\n", "package cluster\n\ntype t struct {\n" + fields(maxFields+1) + "}\n", "fields"},
		{"two mutexes", "cluster/a.go", "package cluster\n\nimport \"sync\"\n\ntype t struct {\n\ta sync.Mutex\n}\n", "package cluster\n\nimport \"sync\"\n\ntype t struct {\n\ta, b sync.Mutex\n}\n", "fields"},
		{"methods", "cluster/a.go", "package cluster\n\ntype t int\n", "package cluster\n\ntype t int\n" + methodsOf(maxMethods+1), "methods"},
		{"long median", "cluster/a.go", "package cluster\n", "package cluster\n" + strings.Repeat("//\n", medianFileLines+1), "size"},
		{"many long functions", "cluster/a.go", "package cluster\n\nfunc f() {\n}\n\nfunc g() {\n}\n", "package cluster\n\nfunc f() {\n" + repeat(longFuncLines, "f()") + "}\n\nfunc g() {\n" + repeat(longFuncLines, "f()") + "}\n", "size"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if b := checkOne(t, c.path, c.good); len(b) > 0 {
				t.Errorf("the good form breaks %v", b)
			}
			if b := checkOne(t, c.path, c.bad); !slices.ContainsFunc(b, func(b breach) bool { return b.rule == c.rule }) {
				t.Errorf("the bad form passes the rule %q: %v", c.rule, b)
			}
		})
	}
}

func methodsOf(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\nfunc (t) m%d() {}\n", i)
	}
	return b.String()
}

func checkOne(t *testing.T, path, src string) []breach {
	t.Helper()
	b, err := check(fstest.MapFS{path: {Data: []byte(src)}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A variable whose name an import path happens to end with is no package.
func TestImportedIsExact(t *testing.T) {
	src := `package p

import (
	"math/rand/v2"
	"net/http/view"
	clock "time"
)
`
	f, err := parse(fstest.MapFS{"record/a.go": {Data: []byte(src)}}, "record/a.go")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"rand": "math/rand/v2", "view": "net/http/view", "clock": "time",
		"d": "", "nd": "", "v2": "", "http": "", "time": "", "": "",
	} {
		if got := f.imported(name); got != want {
			t.Errorf("%q stands for %q, want %q", name, got, want)
		}
	}
}
