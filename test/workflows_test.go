package test

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

func workflows(t *testing.T) map[string]string {
	t.Helper()
	paths, err := fs.Glob(repository, ".github/workflows/*.yml")
	if err != nil || len(paths) < 4 {
		t.Fatalf("Expected workflows, got %q: %v", paths, err)
	}
	all := make(map[string]string)
	for _, path := range paths {
		text, err := fs.ReadFile(repository, path)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = string(text)
	}
	return all
}

// A tag of an action can be moved to other code, which then has the token of the job. See
// GitHub's page "Secure use reference", Using third-party actions.
func TestActionsOfTheWorkflowsArePinned(t *testing.T) {
	pinned := regexp.MustCompile(`^[a-z-]+/[a-z-]+@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+$`)
	of := make(map[string]string)
	for path, text := range workflows(t) {
		for _, m := range regexp.MustCompile(`(?m)uses: (.*)$`).FindAllStringSubmatch(text, -1) {
			action, _, _ := strings.Cut(m[1], "@")
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s: Expected OWNER/NAME@COMMIT # VERSION, got %s", path, m[1])
			}
			if before := of[action]; before != "" && before != m[1] {
				t.Errorf("Expected one version of %s, got %s and %s", action, before, m[1])
			}
			of[action] = m[1]
		}
	}
	if len(of) < 6 {
		t.Errorf("Expected to find the actions, got %q", of)
	}
}

// A job may write what it is for, and others may only read.
func TestWorkflowsMayOnlyReadUnlessAJobSaysMore(t *testing.T) {
	writes := map[string][]string{
		".github/workflows/release.yml": {"contents", "packages", "id-token", "attestations"},
		".github/workflows/pages.yml":   {"pages", "id-token"},
	}
	for path, text := range workflows(t) {
		if !strings.Contains(text, "\npermissions:\n  contents: read\njobs:\n") && !strings.Contains(text, "\npermissions:\n  contents: read\nconcurrency:\n") {
			t.Errorf("%s: Expected contents: read to be the only permission of the workflow", path)
		}
		var got []string
		for _, m := range regexp.MustCompile(`(?m)^ +([a-z-]+): write`).FindAllStringSubmatch(text, -1) {
			got = append(got, m[1])
		}
		if want := writes[path]; strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: Expected jobs to write %q, got %q", path, want, got)
		}
	}
}
