package test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The table of docs/reliability.md has a row for each fuzz target, and no other.
func TestEachFuzzTargetHasItsRow(t *testing.T) {
	var targets, rows []string
	err := fs.WalkDir(repository, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(repository, name)
		for _, m := range regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`).FindAllSubmatch(text, -1) {
			targets = append(targets, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\| (Fuzz\w+) `).FindAllStringSubmatch(documents(t)["docs/reliability.md"], -1) {
		rows = append(rows, m[1])
	}
	slices.Sort(targets)
	slices.Sort(rows)
	if len(rows) < 20 || !slices.Equal(targets, rows) {
		t.Errorf("Expected a row for each of\n%q, got\n%q", targets, rows)
	}
}
