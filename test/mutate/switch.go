package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// To compile takes longer than to run the tests. So all changes of a package that can be
// chosen while a program runs are compiled together, each with a number. The variable
// chosenChange of the package is the number of the change that counts.

// changedVariable is the environment variable that sets the number.
const changedVariable = "MUTATE_CHANGE"

// switchFile is added to the package.
const switchFile = `package %s

import (
	"os"
	"strconv"
)

var chosenChange, _ = strconv.Atoi(os.Getenv("` + changedVariable + `"))
`

// scope is the smallest part of a file around a change that can be there twice. The zero
// scope says that there is none: such a change needs a compilation of its own.
type scope struct {
	span
	kind string // the type of an expression, or "" for a statement
}

// scopeOf returns the scope of the last node of a path from the root.
func (f *file) scopeOf(path []ast.Node) scope {
	for i := len(path) - 1; i > 0; i-- {
		n, parent := path[i], path[i-1]
		if _, ok := parent.(*ast.ArrayType); ok {
			return scope{} // the length is part of a type
		}
		if s, ok := n.(ast.Stmt); ok {
			if simple(s) && inList(s, parent) {
				return scope{f.span(n.Pos(), n.End()), ""}
			}
			continue
		}
		e, ok := n.(ast.Expr)
		if !ok || !choosable(e, parent) {
			continue
		}
		if t := f.info.Types[e]; t.IsValue() && (t.Value == nil || defines(parent)) {
			if _, several := t.Type.(*types.Tuple); !several {
				return scope{f.span(n.Pos(), n.End()), types.TypeString(types.Default(t.Type), f.qualify)}
			}
		}
	}
	return scope{}
}

// qualify writes the name of a package before that of a type.
func (f *file) qualify(p *types.Package) string {
	if p.Name() == f.tree.Name.Name {
		return ""
	}
	return p.Name()
}

// simple reports whether a statement can be in both branches of an if statement.
func simple(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.ReturnStmt, *ast.GoStmt, *ast.DeferStmt, *ast.SendStmt:
		return true
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	}
	return false
}

// inList reports whether a statement is one of a block.
func inList(s ast.Stmt, parent ast.Node) bool {
	switch parent := parent.(type) {
	case *ast.BlockStmt:
		return true
	case *ast.CaseClause:
		return true
	case *ast.CommClause:
		return parent.Comm != s
	}
	return false
}

// choosable reports whether a function call can stand for an expression. It cannot if the
// program needs the address of the expression.
func choosable(e ast.Expr, parent ast.Node) bool {
	if s, ok := parent.(*ast.IfStmt); ok && s.Cond == e {
		return true
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return true
	case *ast.CallExpr:
		switch parent.(type) {
		case *ast.GoStmt, *ast.DeferStmt, *ast.ExprStmt:
			return false
		}
		return true
	case *ast.UnaryExpr:
		return e.Op != token.AND
	case *ast.BasicLit, *ast.Ident:
		return defines(parent)
	}
	return false
}

// defines reports whether n is a short declaration of a single variable.
func defines(n ast.Node) bool {
	s, ok := n.(*ast.AssignStmt)
	return ok && s.Tok == token.DEFINE && len(s.Rhs) == 1 && len(s.Lhs) == 1
}

// switched returns the text of a file with all changes, each of which has a scope. The
// keys are the numbers of the changes.
func (f *file) switched(changes map[int]change) string {
	byScope := make(map[scope][]int)
	for number, c := range changes {
		byScope[c.where] = append(byScope[c.where], number)
	}
	for _, numbers := range byScope {
		slices.Sort(numbers)
	}
	return f.render(span{0, len(f.text)}, byScope, changes)
}

// render returns a part of the file, with switches for the scopes inside it.
func (f *file) render(part span, byScope map[scope][]int, changes map[int]change) string {
	var out strings.Builder
	at := part.from
	for at < part.to {
		next, ok := outermost(byScope, span{at, part.to})
		if !ok {
			break
		}
		out.Write(f.text[at:next.from])
		numbers := byScope[next]
		delete(byScope, next)
		out.WriteString(next.choose(numbers, changes, f.render(next.span, byScope, changes)))
		at = next.to
	}
	out.Write(f.text[at:part.to])
	return out.String()
}

// outermost returns the first scope within a part. Of several that begin there it is the
// longest.
func outermost(byScope map[scope][]int, part span) (first scope, ok bool) {
	for s := range byScope {
		if s.from < part.from || s.to > part.to {
			continue
		}
		if !ok || s.from < first.from || s.from == first.from && s.to > first.to {
			first, ok = s, true
		}
	}
	return first, ok
}

// choose returns a piece of program that chooses between changes and the original.
func (s scope) choose(numbers []int, changes map[int]change, original string) string {
	var out strings.Builder
	if s.kind != "" {
		fmt.Fprintf(&out, "func() %s { ", s.kind)
	}
	for _, number := range numbers {
		text := changes[number].source(s.span)
		if s.kind != "" {
			text = "return " + text
		}
		fmt.Fprintf(&out, "if chosenChange == %d { %s } else ", number, text)
	}
	if s.kind == "" {
		return out.String() + "{ " + original + " }"
	}
	return out.String() + "{ return " + original + " } }()"
}
