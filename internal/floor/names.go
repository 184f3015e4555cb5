package floor

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

var bannedPackages = []string{"util", "utils", "common", "base", "types", "helpers", "helper", "misc"}

// checkNames holds the rules for names, documentation and package variables.
func checkNames(f *file) []breach {
	var out []breach
	if slices.Contains(bannedPackages, f.syntax.Name.Name) {
		out = append(out, breach{"names", f.path, "package name " + f.syntax.Name.Name})
	}
	if f.test {
		return out
	}
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			out = append(out, funcNames(f, d)...)
		case *ast.GenDecl:
			out = append(out, genDocs(f, d)...)
		}
	}
	return out
}

func funcNames(f *file, d *ast.FuncDecl) []breach {
	var out []breach
	name := d.Name.Name
	if name == "init" && d.Recv == nil {
		out = append(out, breach{"init", f.at(d), "init function"})
	}
	if strings.HasPrefix(name, "Get") && len(name) > 3 && name[3] >= 'A' && name[3] <= 'Z' && !interfaceNames[name] {
		out = append(out, breach{"names", f.at(d), name + " has a Get prefix"})
	}
	if d.Name.IsExported() && d.Doc == nil && receiverExported(d) && !interfaceNames[name] {
		out = append(out, breach{"docs", f.at(d), name + " has no doc comment"})
	}
	return out
}

// interfaceNames are methods whose meaning is their interface's: they need no
// comment of their own.
var interfaceNames = map[string]bool{
	"Error": true, "Unwrap": true, "Is": true, "String": true, "MayHaveHappened": true,
	"Key": true, "MaxVersion": true, "SetVersion": true, "GetVersion": true, "IsFlexible": true,
	"AppendTo": true, "ReadFrom": true, "ResponseKind": true, "RequestKind": true, "LogValue": true,
	"Read": true, "Write": true, "Close": true, "LocalAddr": true, "RemoteAddr": true,
	"SetDeadline": true, "SetReadDeadline": true, "SetWriteDeadline": true,
	"Len": true, "Less": true, "Swap": true,
}

func receiverExported(d *ast.FuncDecl) bool {
	return d.Recv == nil || ast.IsExported(receiver(d))
}

func genDocs(f *file, d *ast.GenDecl) []breach {
	var out []breach
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
				out = append(out, breach{"docs", f.at(s), s.Name.Name + " has no doc comment"})
			}
		case *ast.ValueSpec:
			grouped := d.Lparen.IsValid()
			documented := s.Doc != nil || s.Comment != nil || d.Doc != nil || grouped && d.Tok == token.CONST && s.Values == nil
			if s.Names[0].IsExported() && !documented {
				out = append(out, breach{"docs", f.at(s), s.Names[0].Name + " has no doc comment"})
			}
		}
	}
	return out
}

// checkVariables allows package variables that are errors or tables that
// nothing writes to.
func checkVariables(files []*file) []breach {
	written := map[string]bool{} // package + name
	for _, f := range files {
		for _, name := range writtenNames(f.syntax) {
			written[f.pkg+" "+name] = true
		}
	}
	var out []breach
	for _, f := range files {
		if f.test || isBeside(f.pkg) {
			continue
		}
		for _, d := range f.syntax.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				out = append(out, variableBreaches(f, s.(*ast.ValueSpec), written)...)
			}
		}
	}
	return out
}

func variableBreaches(f *file, s *ast.ValueSpec, written map[string]bool) []breach {
	var out []breach
	for _, n := range s.Names {
		switch {
		case n.Name == "_":
		case s.Values == nil:
			out = append(out, breach{"variables", f.at(s), "package variable " + n.Name + " is state"})
		case written[f.pkg+" "+n.Name]:
			out = append(out, breach{"variables", f.at(s), "package variable " + n.Name + " is written to"})
		}
	}
	return out
}

// writtenNames lists the package variables that a file assigns to, also through
// an index or a field, or takes the address of.
func writtenNames(syntax *ast.File) []string {
	top := map[any]bool{}
	for _, d := range syntax.Decls {
		if g, ok := d.(*ast.GenDecl); ok {
			for _, s := range g.Specs {
				top[s] = true
			}
		}
	}
	var out []string
	add := func(e ast.Expr) {
		if id := rootIdent(e); id != nil && (id.Obj == nil || top[id.Obj.Decl]) {
			out = append(out, id.Name)
		}
	}
	ast.Inspect(syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, l := range n.Lhs {
					add(l)
				}
			}
		case *ast.IncDecStmt:
			add(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				add(n.X)
			}
		}
		return true
	})
	return out
}

func rootIdent(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}
