package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// find returns what a file of the repository has instead of the group of a pattern.
func find(t *testing.T, name, pattern string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?m)" + pattern).FindSubmatch(text)
	if m == nil {
		t.Fatalf("Expected %s to have %s", name, pattern)
	}
	return string(m[1])
}

// The changelog, OpenWrt's recipe, a build without a tag, and this commit's tag if it has one
// agree on the newest release.
func TestTheVersionIsTheSameEverywhere(t *testing.T) {
	newest := find(t, "CHANGELOG.md", `^## (\d+\.\d+\.\d+)$`)
	for name, pattern := range map[string]string{
		"deploy/openwrt/Makefile":              `^PKG_VERSION:=(.*)$`,
		"internal/say/version.go":              `^const development = "(.*)"$`,
		"deploy/kubernetes/kustomization.yaml": `^    newTag: (.*)$`,
		"deploy/helm/values.yaml":              `^  tag: (.*)-cluster$`,
	} {
		if got := find(t, name, pattern); got != newest {
			t.Errorf("%s has version %s, and the newest release of CHANGELOG.md is %s", name, got, newest)
		}
	}
	out, err := exec.Command("git", "-C", "../..", "tag", "--points-at", "HEAD", "--list", "v*").Output()
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal("git does not tell the tags of this commit: ", err)
	case err != nil: // the sources without their history
		t.Skip("git does not tell the tags of this commit: ", err)
	}
	for _, tag := range strings.Fields(string(out)) {
		if _, err := notes("../..", tag); err != nil {
			t.Error(err)
		}
		if !strings.Contains(tag, "-") && tag != "v"+newest {
			t.Errorf("The tag of this commit is %s, and the newest release of CHANGELOG.md is %s", tag, newest)
		}
	}
}
