package floor

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// The limits of the house. Files of tests may be longer.
const (
	maxFileLines     = 800
	maxTestFileLines = 1200
	medianFileLines  = 200
	maxFuncLines     = 100
	longFuncLines    = 60
	maxLongFuncs     = 0.03 // share of functions above longFuncLines
	maxNesting       = 3
	maxParams        = 5
	maxFields        = 20
	maxConfigFields  = 30
	maxMethods       = 30
)

func checkFileSize(f *file) []breach {
	limit := maxFileLines
	if f.test {
		limit = maxTestFileLines
	}
	if f.lines > limit {
		return []breach{{"size", f.path, fmt.Sprintf("%d lines, the limit is %d", f.lines, limit)}}
	}
	return nil
}

// checkDeclSizes holds the limits of functions and structs.
func checkDeclSizes(f *file) []breach {
	if f.test {
		return nil
	}
	var out []breach
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			out = append(out, funcSize(f, n)...)
		case *ast.TypeSpec:
			if st, ok := n.Type.(*ast.StructType); ok {
				out = append(out, structSize(f, n.Name.Name, st)...)
			}
		}
		return true
	})
	return out
}

func funcSize(f *file, d *ast.FuncDecl) []breach {
	var out []breach
	where := f.path + " " + funcName(d)
	if n := f.span(d); n > maxFuncLines {
		out = append(out, breach{"size", where, fmt.Sprintf("%d lines, the limit is %d", n, maxFuncLines)})
	}
	if d.Body != nil {
		if n := nesting(d.Body); n > maxNesting {
			out = append(out, breach{"nesting", where, fmt.Sprintf("nesting %d, the limit is %d", n, maxNesting)})
		}
	}
	params, bools := 0, 0
	for _, p := range d.Type.Params.List {
		n := max(1, len(p.Names))
		params += n
		if id, ok := p.Type.(*ast.Ident); ok && id.Name == "bool" {
			bools += n
		}
	}
	if params > maxParams {
		out = append(out, breach{"parameters", where, fmt.Sprintf("%d parameters, the limit is %d", params, maxParams)})
	}
	if bools > 1 {
		out = append(out, breach{"parameters", where, "two bool parameters"})
	}
	return out
}

func structSize(f *file, name string, st *ast.StructType) []breach {
	var out []breach
	where := f.path + " " + name
	limit := maxFields
	if strings.HasSuffix(name, "Config") || name == "Options" {
		limit = maxConfigFields
	}
	fields, mutexes := 0, 0
	for _, fl := range st.Fields.List {
		n := max(1, len(fl.Names))
		fields += n
		if sel, ok := fl.Type.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Mutex" || sel.Sel.Name == "RWMutex") {
			mutexes += n
		}
	}
	if fields > limit {
		out = append(out, breach{"fields", where, fmt.Sprintf("%d fields, the limit is %d", fields, limit)})
	}
	if mutexes > 1 {
		out = append(out, breach{"fields", where, "more than one mutex"})
	}
	return out
}

// nesting is the depth of control statements below n. An else-if does not add
// to it, and a function literal starts anew.
func nesting(n ast.Node) int {
	deepest := 0
	var walk func(n ast.Node, depth int)
	walk = func(n ast.Node, depth int) {
		ast.Inspect(n, func(c ast.Node) bool {
			if c == n || c == nil {
				return true
			}
			switch c := c.(type) {
			case *ast.FuncLit:
				walk(c.Body, 0)
				return false
			case *ast.IfStmt:
				at := depth + 1
				if parent, ok := n.(*ast.IfStmt); ok && parent.Else == c {
					at = depth
				}
				deepest = max(deepest, at)
				walk(c, at)
				return false
			case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
				deepest = max(deepest, depth+1)
				walk(c, depth+1)
				return false
			}
			return true
		})
	}
	walk(n, 0)
	return deepest
}

// checkTotals holds the limits over the whole module.
func checkTotals(files []*file) []breach {
	var out []breach
	var lines []int
	funcs, long := 0, 0
	methods := map[string]int{}
	for _, f := range files {
		if f.test {
			continue
		}
		lines = append(lines, f.lines)
		for _, d := range f.syntax.Decls {
			fd, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			funcs++
			if f.span(fd) > longFuncLines {
				long++
			}
			if fd.Recv != nil {
				methods[f.pkg+" "+receiver(fd)]++
			}
		}
	}
	slices.Sort(lines)
	if len(lines) > 0 && lines[len(lines)/2] >= medianFileLines {
		out = append(out, breach{"size", "module", fmt.Sprintf("median file has %d lines, the limit is %d", lines[len(lines)/2], medianFileLines)})
	}
	if funcs > 0 && float64(long) > maxLongFuncs*float64(funcs) && long > 1 {
		out = append(out, breach{"size", "module", fmt.Sprintf("%d of %d functions are longer than %d lines", long, funcs, longFuncLines)})
	}
	for t, n := range methods {
		if n > maxMethods {
			out = append(out, breach{"methods", t, fmt.Sprintf("%d methods, the limit is %d", n, maxMethods)})
		}
	}
	return out
}

func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	return receiver(d) + "." + d.Name.Name
}

func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return "?"
		}
	}
}
