package test

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// CONTRIBUTING.md lists what is removed on the day version 4 ends. The list is all that is version
// 4's alone, and no other file of the programs or of the test server needs it.
func TestTheListOfVersion4IsWhole(t *testing.T) {
	page, err := fs.ReadFile(repository, "CONTRIBUTING.md")
	testkit.Must(t, err)
	_, list, _ := strings.Cut(string(page), "\n## When version 4 has ended\n")
	_, list, _ = strings.Cut(list, "\n~~~ txt\n")
	list, _, _ = strings.Cut(list, "~~~")
	listed := strings.Fields(list)
	const generated = "internal/protocol/pb/sbv4"
	var own []string
	err = fs.WalkDir(repository, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && file == ".git" {
				return fs.SkipDir
			}
			return err
		}
		if strings.HasSuffix(file, "v4.go") || strings.HasSuffix(file, "v4_test.go") || path.Dir(file) == generated {
			own = append(own, file)
			return nil
		}
		if path.Ext(file) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(repository, file)
		if err == nil && strings.Contains(string(text), generated+"\"\n") {
			t.Errorf("%s imports %s: move what needs it into a file whose name ends in v4", file, generated)
		}
		return err
	})
	testkit.Must(t, err)
	slices.Sort(listed)
	slices.Sort(own)
	if !slices.Equal(listed, own) {
		t.Errorf("CONTRIBUTING.md lists %q, and version 4 has %q", listed, own)
	}
}
