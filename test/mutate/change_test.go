package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// packageOf returns a package of one file that imports nothing.
func packageOf(t *testing.T, source string) *pkg {
	p := &pkg{dir: ".", set: token.NewFileSet()}
	tree, err := parser.ParseFile(p.set, "a.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	p.files = []*file{{"a.go", []byte(source), p.set, tree, info}}
	if err := p.check(info, nil, nil); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestChangesOfAFile(t *testing.T) {
	p := packageOf(t, `package a

const most = 7

func f(n int) (m int) {
	if n < 2 {
		m = min(n, 7)
		print(m)
	}
	s := "a" + "b"
	return m + len(s)
}
`)
	var got []string
	for _, c := range p.files[0].changes() {
		got = append(got, c.String())
		if changed := c.source(c.file.all()); changed == string(c.file.text) || p.compiles(c) == strings.Contains(c.String(), "10:") {
			t.Errorf("%s: compiles: %t", c, p.compiles(c))
		}
	}
	want := []string{
		"a.go:3:14: 7 becomes 8", "a.go:6:5: n < 2 becomes !(n < 2)", "a.go:6:7: < becomes <=", "a.go:6:9: 2 becomes 3",
		"a.go:7:3: m = min(n, 7) becomes if false { m = min(n, 7) }", "a.go:8:3: print(m) becomes if false { print(m) }", "a.go:7:7: min becomes max",
		"a.go:7:14: 7 becomes 8", "a.go:10:11: + becomes -", "a.go:11:11: + becomes -",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

func TestChangesAreSwitched(t *testing.T) {
	const first = "package a\n\nvar chosenChange int\n\n"
	tests := []struct {
		name, source, want string
		without            int // changes that have no switch
	}{
		{"expression", "var n = 1\nvar b = n+1 > 2", "var n = 1\nvar b = func() bool { if chosenChange == 1 { return n+1 >= 2 } else if chosenChange == 4 { return n+1 > 3 } else " +
			"{ return func() int { if chosenChange == 2 { return n-1 } else if chosenChange == 3 { return n+2 } else { return n+1 } }() > 2 } }()", 1},
		{"condition", "func f(b bool) { if b { return } }", "func f(b bool) { if func() bool { if chosenChange == 1 { return !(b) } else { return b } }() { return } }", 0},
		{"statement", "func f(n int) { n = 2 }", "func f(n int) { if chosenChange == 1 { if false { n = 2 } } else if chosenChange == 2 { n = 3 } else { n = 2 } }", 0},
		{"declaration", "func f() int { n := 2; return n }", "func f() int { n := func() int { if chosenChange == 1 { return 3 } else { return 2 } }(); return n }", 0},
		{"length of an array", "var a = func() (a [2]int) { return a }()", "var a = func() (a [2]int) { return a }()", 1},
		{"constant", "const c = 2", "const c = 2", 1},
		{"place whose address counts", "func f(a *[2]struct{ n int }) *int { return &a[0].n }",
			"func f(a *[2]struct{ n int }) *int { if chosenChange == 1 { return &a[1].n } else { return &a[0].n } }", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := packageOf(t, first+tt.source)
			f, numbered, without := p.files[0], make(map[int]change), 0
			for _, c := range f.changes() {
				if c.where == (scope{}) {
					without++
				} else {
					numbered[len(numbered)+1] = c
				}
			}
			got := f.switched(numbered)
			if got != first+tt.want || without != tt.without {
				t.Errorf("%d without a switch, want %d; got\n%s, want\n%s", without, tt.without, got, first+tt.want)
			}
			packageOf(t, got)
		})
	}
}

// All files that are changed by default exist.
func TestTheFilesExist(t *testing.T) {
	for _, file := range files {
		if _, err := os.Stat(filepath.Join("..", "..", file)); err != nil {
			t.Error(err)
		}
	}
}

func TestTestsThatReachAChange(t *testing.T) {
	const profile = "mode: set\nexample.com/p/a.go:3.10,5.20 2 1\nexample.com/p/a.go:5.20,7.3 1 0\nexample.com/p/b.go:5.20,7.3 1 1\n"
	test := timedTest{blocks: parseProfile(profile)}
	for _, tt := range []struct {
		name, file   string
		line, column int
		want         bool
	}{
		{"first byte of a block that ran", "p/a.go", 3, 10, true},
		{"inside it", "p/a.go", 4, 1, true},
		{"its last byte", "p/a.go", 5, 19, true},
		{"first byte of a block that did not run", "p/a.go", 5, 20, false},
		{"its last byte", "p/a.go", 7, 2, false},
		{"the same place in another file", "p/b.go", 5, 20, true},
		{"before all blocks", "p/a.go", 3, 9, true},
		{"behind all blocks", "p/a.go", 7, 3, true},
	} {
		if got := test.reaches(change{file: &file{path: tt.file}, line: tt.line, column: tt.column}); got != tt.want {
			t.Errorf("%s: reaches = %t, want %t", tt.name, got, tt.want)
		}
	}
}
