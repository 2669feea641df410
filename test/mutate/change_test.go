package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestChangesOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.go")
	source := "package a\n\nimport \"fmt\"\n\nfunc f(n int) (m int) {\n\tif n < 2 {\n\t\tm = min(n, 7)\n\t\tfmt.Println(m)\n\t}\n\treturn m\n}\n"
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	changes, err := changesOf(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, c.String()[len(file)+1:])
		if _, err := parser.ParseFile(token.NewFileSet(), file, c.source(), 0); err != nil || string(c.source()) == source {
			t.Errorf("%s: %v", c, err)
		}
	}
	want := []string{
		"6: n < 2 becomes !(n < 2)", "6: < becomes <=", "6: 2 becomes 3", "7: m = min(n, 7) becomes _ = 0",
		"8: fmt.Println(m) becomes _ = 0", "7: min becomes max", "7: 7 becomes 8",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// All files that are changed by default are there, and each has changes.
func TestTheFilesExist(t *testing.T) {
	for _, file := range files {
		if changes, err := changesOf(filepath.Join("..", "..", file)); err != nil || len(changes) == 0 {
			t.Errorf("%s: %d changes, %v", file, len(changes), err)
		}
	}
}
