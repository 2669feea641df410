package main

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// file is a file of a package, unchanged.
type file struct {
	path string
	text []byte
	set  *token.FileSet
	tree *ast.File
	info *types.Info // of the whole package
}

// pkg is a package whose types are known.
type pkg struct {
	dir     string
	set     *token.FileSet
	files   []*file // without tests
	imports types.Importer
}

// load reads the package in a folder.
func load(dir string) (*pkg, error) {
	names, err := goList("-f", "{{range .GoFiles}}{{.}}\n{{end}}", "./"+dir)
	if err != nil {
		return nil, err
	}
	p := &pkg{dir: dir, set: token.NewFileSet()}
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	for _, name := range names {
		f := &file{path: filepath.Join(dir, name), set: p.set, info: info}
		if f.text, err = os.ReadFile(f.path); err != nil {
			return nil, err
		}
		if f.tree, err = parser.ParseFile(p.set, f.path, f.text, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		p.files = append(p.files, f)
	}
	compiled, err := goList("-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./"+dir)
	if err != nil {
		return nil, err
	}
	exports := make(map[string]string)
	for _, line := range compiled {
		path, export, _ := strings.Cut(line, " ")
		exports[path] = export
	}
	p.imports = importer.ForCompiler(p.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return p, p.check(info, nil, nil)
}

// check returns an error if the package does not compile with tree in the place of
// instead. It notes the types in info.
func (p *pkg) check(info *types.Info, instead *file, tree *ast.File) error {
	var trees []*ast.File
	for _, f := range p.files {
		if f == instead {
			trees = append(trees, tree)
		} else {
			trees = append(trees, f.tree)
		}
	}
	config := types.Config{Importer: p.imports}
	_, err := config.Check(p.dir, p.set, trees, info)
	return err
}

// compiles reports whether the package compiles with a change.
func (p *pkg) compiles(c change) bool {
	tree, err := parser.ParseFile(p.set, c.file.path, c.source(c.file.all()), parser.SkipObjectResolution)
	return err == nil && p.check(nil, c.file, tree) == nil
}

// all is the whole file.
func (f *file) all() span { return span{0, len(f.text)} }

func (f *file) span(from, to token.Pos) span {
	return span{f.set.Position(from).Offset, f.set.Position(to).Offset}
}

// source returns the text of a node.
func (f *file) source(n ast.Node) string {
	part := f.span(n.Pos(), n.End())
	return string(f.text[part.from:part.to])
}

// goList returns the lines that go list prints.
func goList(args ...string) ([]string, error) {
	command := exec.Command("go", append([]string{"list"}, args...)...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}
