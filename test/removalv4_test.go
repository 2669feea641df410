package test

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/version-4.md lists what goes on the day version 4 ends. The list is all that is version
// 4's alone, and no other file of the programs or of the test server needs it.
func TestTheListOfVersion4IsWhole(t *testing.T) {
	page, err := fs.ReadFile(repository, "docs/version-4.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "\n~~~ txt\n")
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
		if strings.HasSuffix(file, "v4.go") || strings.HasSuffix(file, "v4_test.go") || path.Dir(file) == generated || file == "docs/version-4.md" {
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
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(listed)
	slices.Sort(own)
	if !slices.Equal(listed, own) {
		t.Errorf("docs/version-4.md lists %q, and version 4 has %q", listed, own)
	}
}

// The lines that change are as the commands in docs/version-4.md expect them.
func TestTheLinesOfVersion4AreWhereTheCommandsLook(t *testing.T) {
	for file, lines := range map[string][]string{
		"internal/protocol/dialect.go":        {`DialectV4, //`, `{DialectV5, DialectV4, DialectWebRisk}`},
		"internal/protocoltest/fault.go":      {`V4 +FaultV4$`, ` && f\.V4\.shownBy\(q\)`},
		"internal/protocoltest/server.go":     {`v4 +serverV4$`},
		"internal/protocoltest/referee.go":    {`v4 +refereeV4$`, `v4 +backoffsV4$`, `r\.v4\.clientStarted`, `r\.v4\.clientLostState`},
		"internal/protocoltest/refereekey.go": {`r\.v4\.as`},
		"test/arrows_test.go":                 {` "internal/protocol/pb/sbv4",`},
		"README.md":                           {"v5\\|v4\\|webrisk", " or `v4`, see \\[Version 4\\]\\(docs/version-4.md\\)", `\), \[Version 4\]\(docs/version-4.md\),`},
		"deploy/coredns.io/safebrowsing.md":   {`v5\|v4\|webrisk`},
	} {
		text, err := fs.ReadFile(repository, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if n := len(regexp.MustCompile("(?m)"+line).FindAll(text, -1)); n != 1 {
				t.Errorf("%s has %d lines with %s, want 1", file, n, line)
			}
		}
	}
}
