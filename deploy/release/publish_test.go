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
		"git verify-tag " + tag: "", ".ci/toolchain": "", "gh secret list --json name --jq .[].name": "REGISTRY_TOKEN",
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
				if !gone(name) {
					write(t, filepath.Join(source, name), text)
				}
			}
			var out strings.Builder
			complete := publishCheck(&out, source, tag, surroundings{
				env: func(name string) string { return map[bool]string{false: "set"}[gone(name)] },
				run: func(name string, args ...string) (string, error) {
					command := strings.Join(append([]string{name}, args...), " ")
					answer, known := answers[command]
					equal(t, "it is expected: "+command, known, true)
					if gone(command) {
						return "", errors.New("failed")
					}
					return answer, nil
				},
			})
			equal(t, "all is there", complete, missing == nil)
			equal(t, "lines about what is missing", strings.Count(out.String(), "missing  "), len(missing))
			for _, what := range missing {
				has(t, away, &out, "missing  "+what+": ")
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
		equal(t, "the version in "+name+", and the newest of CHANGELOG.md", find(t, name, pattern), newest)
	}
	for _, page := range []string{"README.md", "docs/install.md", "docs/network.md"} { // commands to copy
		for _, m := range regexp.MustCompile(`coredns-safebrowsing[:_](\d+\.\d+\.\d+)`).FindAllStringSubmatch(read(t, filepath.Join("../..", page)), -1) {
			equal(t, "the version in "+page+", and the newest of CHANGELOG.md", m[1], newest)
		}
	}
	out, err := exec.Command("git", "-C", "../..", "tag", "--points-at", "HEAD", "--list", "v*").Output()
	if err != nil && os.Getenv("CI") == "" { // the sources without their history
		t.Skip("git does not tell the tags of this commit: ", err)
	}
	must(t, err)
	for _, tag := range strings.Fields(string(out)) {
		_, err := notes("../..", tag)
		must(t, err)
		if !strings.Contains(tag, "-") {
			equal(t, "the tag of this commit, and the newest release of CHANGELOG.md", tag, "v"+newest)
		}
	}
}

// The programs of both units tell systemd that they have started. Without a bound of our own, a disk that takes more than systemd's 90
// seconds would fail the start, and the next one, too. A small system has a shell, and perhaps no program kill: procps has it.
func TestUnitsWaitUntilTheirProgramsServe(t *testing.T) {
	units, _ := filepath.Glob("../systemd/*.service")
	equal(t, "units", len(units), 2)
	for _, unit := range units {
		text := read(t, unit)
		has(t, unit, text, "\nType=notify\n", "\nTimeoutStartSec=10min\n")
		socket := regexp.MustCompile(`(?m)^RestrictAddressFamilies=.*\bAF_UNIX\b`).MatchString(text)
		equal(t, unit+" can reach the socket of systemd", socket, true)
		for _, m := range regexp.MustCompile(`(?m)^ExecReload=[-+!@:|]*(\S+)`).FindAllStringSubmatch(text, -1) {
			has(t, unit+": programs that a reload may need", " /bin/sh /usr/bin/coredns-safebrowsing /usr/bin/safebrowsing ", " "+m[1]+" ")
		}
	}
}
