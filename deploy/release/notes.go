package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// unreleased is the heading of what the next release changes.
const unreleased = "Unreleased"

// notes returns what the changelog below source says about the version of a tag. A release
// candidate may have what is not released yet. It is an error if there is nothing.
func notes(source, tag string) (string, error) {
	v, err := semver.StrictNewVersion(strings.TrimPrefix(tag, "v"))
	if err != nil {
		return "", fmt.Errorf("%s is not a version such as v1.2.3: %w", tag, err)
	}
	changelog, err := os.ReadFile(filepath.Join(source, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	sections := make(map[string]string)
	for part := range strings.SplitSeq("\n"+string(changelog), "\n## ") {
		heading, text, _ := strings.Cut(part, "\n")
		sections[strings.TrimSpace(heading)] = strings.TrimSpace(text)
	}
	text := sections[v.String()]
	if text == "" && v.Prerelease() != "" {
		text = sections[unreleased]
	}
	if text == "" {
		return "", fmt.Errorf("CHANGELOG.md has nothing below the heading %q: write there what %s changes", "## "+v.String(), tag)
	}
	return text + "\n", nil
}
