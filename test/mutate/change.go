package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
)

// change replaces a few bytes of a file.
type change struct {
	file     string
	line     int
	whole    []byte // of the file, unchanged
	from, to int    // of the bytes that are replaced
	text     string // in their place
}

// String returns the place and both texts, in one line.
func (c change) String() string {
	one := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	return fmt.Sprintf("%s:%d: %s becomes %s", c.file, c.line, one(string(c.whole[c.from:c.to])), one(c.text))
}

// source returns the changed file.
func (c change) source() []byte {
	return slices.Concat(c.whole[:c.from], []byte(c.text), c.whole[c.to:])
}

// operators are replaced by their neighbours.
var operators = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR, token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.SHL: token.SHR, token.SHR: token.SHL,
	token.LAND: token.LOR, token.LOR: token.LAND,
}

// words are replaced by their opposites.
var words = map[string]string{"min": "max", "max": "min", "true": "false", "false": "true", "Before": "After", "After": "Before"}

// changesOf returns all changes of a file, in its order.
func changesOf(file string) (all []change, err error) {
	whole, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, whole, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	replace := func(from, to token.Pos, text string) {
		place := set.Position(from)
		all = append(all, change{file, place.Line, whole, place.Offset, set.Position(to).Offset, text})
	}
	text := func(n ast.Node) string {
		return string(whole[set.Position(n.Pos()).Offset:set.Position(n.End()).Offset])
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BinaryExpr:
			if other, ok := operators[n.Op]; ok {
				replace(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other.String())
			}
		case *ast.IfStmt:
			replace(n.Cond.Pos(), n.Cond.End(), "!("+text(n.Cond)+")")
		case *ast.BasicLit:
			if number, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
				replace(n.Pos(), n.End(), strconv.FormatInt(number+1, 10))
			}
		case *ast.Ident:
			if other, ok := words[n.Name]; ok {
				replace(n.Pos(), n.End(), other)
			}
		case *ast.BlockStmt:
			for _, s := range n.List {
				if removable(s) {
					replace(s.Pos(), s.End(), "_ = 0")
				}
			}
		}
		return true
	})
	return all, nil
}

// removable reports whether a block may do without a statement and still compile.
func removable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt:
		return true
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	}
	return false
}
