package test

import (
	"io/fs"
	"regexp"
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
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):(.*)$`).FindAllStringSubmatch(string(makefile), -1) {
		tasks[m[1]] = true
		if !strings.HasPrefix(m[2], " ## ") {
			t.Errorf("Expected %s to have a line for make help, got %q", m[1], m[2])
		}
	}
	tried := 0
	for name, text := range documents(t) {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z]+(?:-[a-z]+)*)").FindAllStringSubmatch(text, -1) {
			if tried++; !tasks[m[1]] {
				t.Errorf("%s: expected a task %s in the Makefile", name, m[1])
			}
		}
	}
	if tried < 3 {
		t.Errorf("Expected the documents to name tasks, got %d", tried)
	}
}

// The recipes name files that exist: rooms are moved. Names of tests: TestNamesOfTestsInTheDocumentsExist.
func TestRecipesNameWhatExists(t *testing.T) {
	_, recipes, ok := strings.Cut(documents(t)["CONTRIBUTING.md"], "\n## Recipes\n")
	if !ok {
		t.Fatal("Expected recipes")
	}
	tried := 0
	for _, m := range regexp.MustCompile("`([a-zA-Z_./]+\\.go|\\.ci/[a-z]+)`").FindAllStringSubmatch(recipes, -1) {
		tried++
		if _, err := fs.Stat(repository, m[1]); err != nil {
			t.Errorf("Expected a file, got %v", err)
		}
	}
	if tried < 12 {
		t.Errorf("Expected the recipes to name files and tests, got %d", tried)
	}
}
