package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// change replaces a few bytes of a file.
type change struct {
	file         *file
	line, column int
	span         // the bytes that are replaced
	text         string
	where        scope // where a switch can choose between the change and the original
}

// span is a range of bytes of a file.
type span struct{ from, to int }

// String returns the place and both texts, in one line.
func (c change) String() string {
	one := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	return fmt.Sprintf("%s:%d:%d: %s becomes %s", c.file.path, c.line, c.column, one(string(c.file.text[c.from:c.to])), one(c.text))
}

// source returns a part of the changed file. The part holds the change.
func (c change) source(part span) string {
	return string(slices.Concat(c.file.text[part.from:c.from], []byte(c.text), c.file.text[c.to:part.to]))
}

// operators are replaced by their neighbours.
var operators = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR, token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.SHL: token.SHR, token.SHR: token.SHL,
	token.LAND: token.LOR, token.LOR: token.LAND,
}

// words are replaced by their opposites.
var words = map[string]string{"min": "max", "max": "min", "true": "false", "false": "true", "Before": "After", "After": "Before"}

// changes returns all changes of the file, in its order.
func (f *file) changes() (all []change) {
	ast.PreorderStack(f.tree, nil, func(n ast.Node, parents []ast.Node) bool {
		replace := func(from, to token.Pos, text string, path ...ast.Node) {
			place := f.set.Position(from)
			all = append(all, change{f, place.Line, place.Column, f.span(from, to), text, f.scopeOf(slices.Concat(parents, path))})
		}
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BinaryExpr:
			if other, ok := operators[n.Op]; ok {
				replace(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other.String(), n)
			}
		case *ast.IfStmt:
			replace(n.Cond.Pos(), n.Cond.End(), "!("+f.source(n.Cond)+")", n, n.Cond)
		case *ast.BasicLit:
			if number, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
				replace(n.Pos(), n.End(), strconv.FormatInt(number+1, 10), n)
			}
		case *ast.Ident:
			if other, ok := words[n.Name]; ok {
				replace(n.Pos(), n.End(), other, n)
			}
		case *ast.BlockStmt:
			for _, s := range n.List {
				if removable(s) { // the variables in it stay used
					replace(s.Pos(), s.End(), "if false { "+f.source(s)+" }", n, s)
				}
			}
		}
		return true
	})
	return all
}

// removable reports whether a block may do without a statement.
func removable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt:
		return true
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	}
	return false
}
