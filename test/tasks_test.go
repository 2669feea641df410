package test

import (
	"io/fs"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each task that a document names is in the Makefile, with a line for "make help".
func TestTasksOfTheDocumentsExist(t *testing.T) {
	makefile, err := fs.ReadFile(repository, "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	tasks := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^([a-z]+):(.*)$`).FindAllStringSubmatch(string(makefile), -1) {
		tasks[m[1]] = true
		if !strings.HasPrefix(m[2], " ## ") {
			t.Errorf("Expected %s to have a line for make help, got %q", m[1], m[2])
		}
	}
	tried := 0
	for name, text := range documents(t) {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z]+)").FindAllStringSubmatch(text, -1) {
			if tried++; !tasks[m[1]] {
				t.Errorf("%s: expected a task %s in the Makefile", name, m[1])
			}
		}
	}
	if tried < 3 {
		t.Errorf("Expected the documents to name tasks, got %d", tried)
	}
}

// A module that CI does not look at is not vetted, and its go.mod goes stale.
func TestEachModuleIsCheckedByCI(t *testing.T) {
	script, err := fs.ReadFile(repository, ".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^modules="(.*)"$`).FindSubmatch(script)
	if m == nil {
		t.Fatal("Expected .ci/run to list the modules")
	}
	var want []string
	err = fs.WalkDir(repository, ".", func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.Name() == ".git" && d.IsDir() {
			return fs.SkipDir
		}
		if err == nil && d.Name() == "go.mod" {
			want = append(want, path.Dir(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(m[1]))
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("Expected the modules %q, got %q", want, got)
	}
}

// The recipes name files and tests that exist: rooms are moved.
func TestRecipesNameWhatExists(t *testing.T) {
	_, recipes, ok := strings.Cut(documents(t)["CONTRIBUTING.md"], "\n## Recipes\n")
	if !ok {
		t.Fatal("Expected recipes")
	}
	tried := 0
	for _, m := range regexp.MustCompile("`([a-zA-Z_./]+\\.go|\\.ci/[a-z]+|Test\\w+)`").FindAllStringSubmatch(recipes, -1) {
		tried++
		if !strings.HasPrefix(m[1], "Test") {
			if _, err := fs.Stat(repository, m[1]); err != nil {
				t.Errorf("Expected a file, got %v", err)
			}
			continue
		}
		found := false
		for _, dir := range []string{".", "internal/answer", "internal/config", "internal/engine", "internal/ownlist", "internal/block", "test", "updater"} {
			found = found || strings.Contains(testsOf(t, dir), "func "+m[1]+"(")
		}
		if !found {
			t.Errorf("Expected a test %s", m[1])
		}
	}
	if tried < 12 {
		t.Errorf("Expected the recipes to name files and tests, got %d", tried)
	}
}

func TestMakeHelpPrintsEachTask(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed")
	}
	out, err := exec.Command("make", "-s", "-C", "..").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, task := range []string{"build", "test", "lint", "fuzz", "bench", "demo", "man"} {
		if !regexp.MustCompile(`(?m)^` + task + ` +\S`).Match(out) {
			t.Errorf("Expected make to print %s, got\n%s", task, out)
		}
	}
}
