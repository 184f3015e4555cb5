package floor

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// file is one parsed Go file of the module.
type file struct {
	path   string // relative to the module, with slashes
	pkg    string // folder, "" for the root
	test   bool
	lines  int
	fset   *token.FileSet
	syntax *ast.File
}

// at is the position of n as "path:line".
func (f *file) at(n ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.fset.Position(n.Pos()).Line)
}

// span is the number of lines of n.
func (f *file) span(n ast.Node) int {
	return f.fset.Position(n.End()).Line - f.fset.Position(n.Pos()).Line + 1
}

// imported is the import path that name stands for in the file, "" if none.
func (f *file) imported(name string) string {
	for _, s := range f.syntax.Imports {
		p, _ := strconv.Unquote(s.Path.Value)
		switch {
		case s.Name != nil && s.Name.Name == name:
			return p
		case s.Name == nil && baseName(p) == name:
			return p
		}
	}
	return ""
}

// majorVersion is the last element of the path of a module's later versions.
var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// baseName is the name that a package most likely has by its import path.
func baseName(p string) string {
	if base := path.Base(p); !majorVersion.MatchString(base) {
		return base
	}
	return path.Base(path.Dir(p))
}

// load parses every Go file below fsys, without folders that are modules of
// their own or hold test data.
func load(fsys fs.FS) ([]*file, error) {
	var out []*file
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p == "." {
				return nil
			}
			_, statErr := fs.Stat(fsys, p+"/go.mod")
			if statErr == nil || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parse(fsys, p)
		if err == nil {
			out = append(out, f)
		}
		return err
	})
	return out, err
}

func parse(fsys fs.FS, p string) (*file, error) {
	src, err := fs.ReadFile(fsys, p)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, p, src, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	pkg := path.Dir(p)
	if pkg == "." {
		pkg = ""
	}
	return &file{
		path: p, pkg: pkg, test: strings.HasSuffix(p, "_test.go"),
		lines: strings.Count(string(src), "\n"), fset: fset, syntax: syntax,
	}, nil
}

// check runs every rule over the files below fsys.
func check(fsys fs.FS) ([]breach, error) {
	files, err := load(fsys)
	if err != nil {
		return nil, err
	}
	var out []breach
	for _, f := range files {
		out = append(out, checkImports(f)...)
		out = append(out, checkPurity(f)...)
		out = append(out, checkGo(f)...)
		out = append(out, checkNames(f)...)
		out = append(out, checkFileSize(f)...)
		out = append(out, checkDeclSizes(f)...)
	}
	out = append(out, checkVariables(files)...)
	out = append(out, checkTotals(files)...)
	slices.SortFunc(out, func(a, b breach) int { return cmp.Compare(a.String(), b.String()) })
	return out, nil
}
