package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// commandLines returns the command lines of safebrowsing in a document, in its blocks and in
// its text, without the name of the program and without comments. It skips stanzas of a
// Corefile.
func commandLines(text string) (lines []string) {
	block := regexp.MustCompile(`(?m)^(?:sudo -u \S+ )?(?:go run \./cmd/|source <\()?safebrowsing ([a-z][^#\n]*)`)
	inline := regexp.MustCompile("`safebrowsing ([a-z][^`]*)`")
	for _, m := range append(block.FindAllStringSubmatch(text, -1), inline.FindAllStringSubmatch(text, -1)...) {
		lines = append(lines, strings.TrimRight(strings.TrimSpace(m[1]), ")"))
	}
	return lines
}

// TestCommandsOfTheDocuments asks each command of README and docs for its help,
// with its flags: it fails if the command or a flag does not exist.
func TestCommandsOfTheDocuments(t *testing.T) {
	root := filepath.Join("..", "..")
	var documents []string
	for _, pattern := range []string{"*.md", "docs/*.md", "bench/*.md", "test/*.md", "deploy/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		testkit.Must(t, err)
		documents = append(documents, found...)
	}
	seen := make(map[string]bool)
	for _, name := range documents {
		text, err := os.ReadFile(name)
		testkit.Must(t, err)
		for _, line := range commandLines(string(text)) {
			command := strings.Fields(line)[0]
			if filepath.Base(name) == "CHANGELOG.md" && (command == testserver().Name || command == relay().Name) {
				continue // which earlier versions had
			}
			seen[command] = true
			if err := helpOf(t, line); err != "" {
				t.Errorf("%s: safebrowsing %s: %s", name, line, err)
			}
		}
	}
	for _, c := range command().Commands {
		if !c.Hidden && !seen[c.Name] {
			t.Errorf("Expected safebrowsing %s in the documents", c.Name)
		}
	}
}

// helpOf asks a command for its help with the flags of a command line. It returns an error if
// the command or a flag does not exist.
func helpOf(t *testing.T, line string) (trouble string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " <")
	words := strings.Fields(line)
	c := command()
	c.Writer, c.ErrWriter = new(testkit.Output), new(testkit.Output)
	sub := c.Command(words[0])
	if sub == nil {
		return "there is no such command"
	}
	args := []string{"safebrowsing", words[0]}
	for i, word := range words[1:] { // without names, which help would take for a topic
		if strings.HasPrefix(word, "-") && word != "-" || takesValue(sub, words[i]) {
			args = append(args, word)
		}
	}
	if err := c.Run(t.Context(), append(args, "-h")); err != nil {
		return err.Error()
	}
	return ""
}
