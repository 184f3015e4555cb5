package floor

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/ottla/ottla"

// floors says on which floor each package stands, by its path in the module.
// Imports point to a lower floor only.
var floors = map[string]int{
	"kafka":                 0,
	"record/compress":       1,
	"record":                1,
	"internal/core/retry":   1,
	"internal/core/conn":    2,
	"internal/core/meta":    2,
	"internal/core/produce": 2,
	"internal/core/fetch":   2,
	"internal/core/group":   2,
	"internal/core/streams": 2,
	"internal/core/lead":    2,
	"internal/task":         3,
	"internal/benchmark":    3,
	"internal/netconn":      4,
	"cluster":               5,
	"producer":              6,
	"consumer":              6,
	"admin":                 6,
	"streams":               7,
	"leader":                7,
	"transact":              7,
	"":                      8,
	"internal/cli":          9,
	"cmd/ottla":             10,
}

// beside holds the packages that stand beside the floors: they serve tests and
// programs of the project. ottlatest is public, and the command runs it too.
var beside = []string{"ottlatest", "internal/memnet", "internal/sim", "internal/model", "internal/realkafka", "internal/transcript", "internal/floor", "scripts"}

// sameFloor holds the imports between packages of one floor that are meant.
var sameFloor = map[string]string{"record": "record/compress"}

// outside says which packages of other modules each part may import. Tests may
// import anything.
var outside = map[string][]string{
	"github.com/twmb/franz-go/pkg/kmsg":  {"*"},
	"github.com/twmb/franz-go/pkg/kerr":  {"*"},
	"github.com/twmb/franz-go/pkg/sasl":  {"*"},
	"github.com/klauspost/compress":      {"record/compress"},
	"github.com/pierrec/lz4/v4":          {"record/compress"},
	"github.com/spf13/cobra":             {"internal/cli"},
	"github.com/spf13/pflag":             {"internal/cli"},
	"github.com/twmb/franz-go/pkg/kfake": {"ottlatest"},
}

// impure lists what a package of floors 0 to 2 may not import.
var impure = []string{"net", "os", "sync", "sync/atomic", "context", "log", "log/slog", "crypto/rand", "syscall", "runtime"}

// impureCalls lists the functions that read the clock or shared randomness.
// The constructors of math/rand/v2 stay allowed: they take their source.
var impureCalls = map[string][]string{
	"time": {"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"},
}

// randConstructors are the names of math/rand/v2 that use no global state.
var randConstructors = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "PCG", "ChaCha8", "Zipf"}

// breach is one rule broken in one place.
type breach struct {
	rule  string
	where string
	what  string
}

func (b breach) String() string { return b.where + ": " + b.what + " (" + b.rule + ")" }

// key names the breach in the list of exceptions, without line numbers.
func (b breach) key() string { return b.rule + " " + b.where }

func isBeside(pkg string) bool {
	for _, b := range beside {
		if pkg == b || strings.HasPrefix(pkg, b+"/") {
			return true
		}
	}
	return false
}

// checkImports holds the floors and the list of dependencies.
func checkImports(f *file) []breach {
	if f.test {
		return nil
	}
	var out []breach
	for _, spec := range f.syntax.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if what := importBreach(f.pkg, path); what != "" {
			out = append(out, breach{"imports", f.path, what})
		}
	}
	return out
}

func importBreach(pkg, path string) string {
	if path != module && !strings.HasPrefix(path, module+"/") {
		return outsideBreach(pkg, path)
	}
	to := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	if isBeside(pkg) {
		return ""
	}
	if isBeside(to) {
		if to == "ottlatest" && pkg == "internal/cli" {
			return ""
		}
		return "imports " + to + ", which is for tests"
	}
	from, ok := floors[pkg]
	if !ok {
		return "package stands on no floor"
	}
	target, ok := floors[to]
	if !ok {
		return "imports " + to + ", which stands on no floor"
	}
	if to == "" {
		return "imports the front door, which is for users"
	}
	if beneath, ok := sameFloor[pkg]; target < from || ok && beneath == to {
		return ""
	}
	return fmt.Sprintf("imports %q of floor %d from floor %d", to, target, from)
}

func outsideBreach(pkg, path string) string {
	first, _, _ := strings.Cut(path, "/")
	if !strings.Contains(first, ".") {
		return ""
	}
	for prefix, users := range outside {
		if path != prefix && !strings.HasPrefix(path, prefix+"/") {
			continue
		}
		if slices.Contains(users, "*") || slices.Contains(users, pkg) {
			return ""
		}
		return "imports " + path + ", which is not for this package"
	}
	return "imports " + path + ", which is not a dependency of the project"
}

// checkPurity keeps floors 0 to 2 free of sockets, clocks, goroutines, locks
// and global randomness.
func checkPurity(f *file) []breach {
	floor, known := floors[f.pkg]
	if f.test || !known || floor > 2 {
		return nil
	}
	var out []breach
	add := func(n ast.Node, what string) { out = append(out, breach{"purity", f.at(n), what}) }
	for _, spec := range f.syntax.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if slices.Contains(impure, path) {
			add(spec, "imports "+path)
		}
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if what := impureNode(f, n); what != "" {
			add(n, what)
		}
		return true
	})
	return out
}

func impureNode(f *file, n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "go statement"
	case *ast.SelectStmt:
		return "select statement"
	case *ast.ChanType:
		return "channel"
	case *ast.SendStmt:
		return "channel send"
	case *ast.SelectorExpr:
		x, ok := n.X.(*ast.Ident)
		if !ok {
			return ""
		}
		path := f.imported(x.Name)
		if slices.Contains(impureCalls[path], n.Sel.Name) {
			return "uses " + path + "." + n.Sel.Name
		}
		if (path == "math/rand/v2" || path == "math/rand") && !slices.Contains(randConstructors, n.Sel.Name) {
			return "uses global " + path + "." + n.Sel.Name
		}
	}
	return ""
}

// checkGo keeps the go statement in internal/task.
func checkGo(f *file) []breach {
	if f.test || f.pkg == "internal/task" || isBeside(f.pkg) {
		return nil
	}
	var out []breach
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok {
			out = append(out, breach{"go", f.at(g), "go statement outside of internal/task"})
		}
		return true
	})
	return out
}
