package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

// Each command line of the documents has flags that the program knows.
func TestCommandsOfTheDocuments(t *testing.T) {
	line := regexp.MustCompile("(?m)(?:^|`|/usr/bin/)safebrowsing-relay ((?:-|doctor )[^`#\n]*)")
	found := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*/*.md"} {
		documents, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range documents {
			for _, m := range line.FindAllStringSubmatch(read(t, name), -1) {
				c, words := command(), strings.Fields(m[1])
				if words[0] == "doctor" {
					c = c.Command("doctor")
				}
				for _, word := range words {
					flag := strings.TrimLeft(word, "-")
					if word != flag && !slices.ContainsFunc(c.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), flag) }) {
						t.Errorf("%s: safebrowsing-relay %s: there is no flag %s", name, m[1], word)
					}
				}
				found++
			}
		}
	}
	if found < 6 {
		t.Errorf("found %d command lines", found)
	}
}
