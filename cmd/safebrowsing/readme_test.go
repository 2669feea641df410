package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The commands of the README exist, with their flags: each is asked for its help.
func TestCommandsOfTheReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^(?:go run \./cmd/)?safebrowsing ([^#\n]+)`).FindAllStringSubmatch(string(text), -1)
	if len(commands) < 6 {
		t.Fatalf("found %d commands in the README, want more", len(commands))
	}
	for _, m := range commands {
		if strings.HasPrefix(m[1], "[ZONES") {
			continue // the syntax of the plugin
		}
		line, _, _ := strings.Cut(m[1], " <")
		words := strings.Fields(line)
		c := command()
		c.Writer, c.ErrWriter = new(lockedBuffer), new(lockedBuffer)
		sub := c.Command(words[0])
		if sub == nil {
			t.Errorf("there is no command %s", words[0])
			continue
		}
		args := []string{"safebrowsing", words[0]}
		for i, word := range words[1:] { // without names, which help would take for a topic
			if strings.HasPrefix(word, "-") && word != "-" || takesValue(sub, words[i]) {
				args = append(args, word)
			}
		}
		if err := c.Run(t.Context(), append(args, "-h")); err != nil {
			t.Errorf("safebrowsing %s: %v", m[1], err)
		}
	}
}
