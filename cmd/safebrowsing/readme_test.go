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
		c := command()
		c.Writer, c.ErrWriter = new(lockedBuffer), new(lockedBuffer)
		args := append([]string{"safebrowsing"}, strings.Fields(m[1])...)
		if last := len(args) - 1; !strings.HasPrefix(args[last], "-") && !strings.HasPrefix(args[last-1], "-") {
			args = args[:last] // a name, which help would take for a topic
		}
		if err := c.Run(t.Context(), append(args, "-h")); err != nil {
			t.Errorf("safebrowsing %s: %v", m[1], err)
		}
	}
}
