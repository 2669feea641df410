package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Whatever is away is said in a line of its own, with what to do; and nothing else is.
func TestThePublishCheckSaysWhatIsMissing(t *testing.T) {
	const tag = "v1.2.3"
	files := map[string]string{
		"LICENSE": "x", "SECURITY.md": "x", "CODE_OF_CONDUCT.md": "x", "go.mod": "module example.org/owner/name\n", "CHANGELOG.md": "# Changelog\n\n## 1.2.3\n\n* All.\n",
		".github/workflows/release.yml": "a: ${{ secrets.GITHUB_TOKEN }}\nb: ${{ secrets.REGISTRY_TOKEN }}\n",
	}
	answers := map[string]string{
		"git ls-remote --exit-code https://example.org/owner/name HEAD": "1234 HEAD", "git status --porcelain": "", "git tag --points-at HEAD": "v1.2.3-rc.1\n" + tag,
		"git verify-tag " + tag: "", ".ci/toolchain -newest": "", "gh secret list --json name --jq .[].name": "REGISTRY_TOKEN",
		"gh api repos/{owner}/{repo}/pages --jq .build_type": "workflow",
	}
	for away, missing := range map[string][]string{
		"":                        nil,
		"LICENSE":                 {"LICENSE"},
		"CODE_OF_CONDUCT.md":      {"CODE_OF_CONDUCT.md"},
		"CHANGELOG.md":            {"changes of " + tag},
		"git ls-remote":           {"repository https://example.org/owner/name"},
		"git status":              {"no change without a commit"},
		"git tag":                 {"tag " + tag + " of this commit"},
		"git verify-tag":          {"signature of the tag"},
		".ci/toolchain":           {"newest patch of Go"},
		"gh secret":               {"secret REGISTRY_TOKEN"},
		"gh api":                  {"web site"},
		"MINISIGN_KEY_FILE":       {"key of minisign"},
		".github/workflows":       {"workflows"},
		"gh secret, gh api":       {"secret REGISTRY_TOKEN", "web site"},
		"git tag, git verify-tag": {"tag " + tag + " of this commit", "signature of the tag"},
	} {
		t.Run(away, func(t *testing.T) {
			gone := func(what string) bool {
				return slices.ContainsFunc(strings.Split(away, ", "), func(part string) bool {
					return what == part || strings.HasPrefix(what, part+" ") || strings.HasPrefix(what, part+"/")
				})
			}
			source := t.TempDir()
			for name, text := range files {
				if gone(name) {
					continue
				}
				write(t, filepath.Join(source, name), text)
			}
			var out strings.Builder
			complete := publishCheck(&out, source, tag, surroundings{
				env: func(name string) string {
					if gone(name) {
						return ""
					}
					return "set"
				},
				run: func(name string, args ...string) (string, error) {
					command := strings.Join(append([]string{name}, args...), " ")
					answer, known := answers[command]
					if !known {
						t.Errorf("Not expected: %s", command)
					}
					if gone(command) {
						return "", errors.New("failed")
					}
					return answer, nil
				},
			})
			if complete != (missing == nil) {
				t.Errorf("It says that all is there: %v", complete)
			}
			if n := strings.Count(out.String(), "missing  "); n != len(missing) {
				t.Errorf("%d lines, want one for each of %q:\n%s", n, missing, &out)
			}
			for _, what := range missing {
				if !strings.Contains(out.String(), "missing  "+what+": ") {
					t.Errorf("Nothing about %s:\n%s", what, &out)
				}
			}
		})
	}
}

// find returns what a file of the repository has instead of the group of a pattern.
func find(t *testing.T, name, pattern string) string {
	t.Helper()
	m := regexp.MustCompile("(?m)" + pattern).FindStringSubmatch(read(t, filepath.Join("../..", name)))
	if m == nil {
		t.Fatalf("Expected %s to have %s", name, pattern)
	}
	return m[1]
}

// The changelog, OpenWrt's recipe, a build without a tag, and this commit's tag if it has one agree on the newest release.
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
	for _, page := range []string{"README.md", "docs/install.md", "docs/network.md"} { // commands to copy
		for _, m := range regexp.MustCompile(`coredns-safebrowsing[:_](\d+\.\d+\.\d+)`).FindAllStringSubmatch(read(t, filepath.Join("../..", page)), -1) {
			if m[1] != newest {
				t.Errorf("%s has %s, and the newest release of CHANGELOG.md is %s", page, m[0], newest)
			}
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

// The programs of both units tell systemd that they have started. Without a bound of our own, a disk that takes more than systemd's 90
// seconds would fail the start, and the next one, too. A small system has a shell, and perhaps no program kill: procps has it.
func TestUnitsWaitUntilTheirProgramsServe(t *testing.T) {
	units, err := filepath.Glob("../systemd/*.service")
	if err != nil || len(units) < 2 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		text := read(t, unit)
		for _, line := range []string{"Type=notify", "TimeoutStartSec=10min"} {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("%s has no %s", unit, line)
			}
		}
		if !regexp.MustCompile(`(?m)^RestrictAddressFamilies=.*\bAF_UNIX\b`).MatchString(text) {
			t.Errorf("%s cannot reach the socket of systemd", unit)
		}
		for _, m := range regexp.MustCompile(`(?m)^ExecReload=[-+!@:|]*(\S+)`).FindAllStringSubmatch(text, -1) {
			if !slices.Contains([]string{"/bin/sh", "/usr/bin/coredns-safebrowsing", "/usr/bin/safebrowsing"}, m[1]) {
				t.Errorf("A reload of %s needs %s", unit, m[1])
			}
		}
	}
}
