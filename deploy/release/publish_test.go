package main

import (
	"errors"
	"os"
	"path/filepath"
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
		"gh secret, and gh api":   {"secret REGISTRY_TOKEN", "web site"},
		"git tag, git verify-tag": {"tag " + tag + " of this commit", "signature of the tag"},
	} {
		t.Run(away, func(t *testing.T) {
			gone := func(what string) bool {
				for part := range strings.FieldsFuncSeq(strings.ReplaceAll(away, " and", ""), func(r rune) bool { return r == ',' }) {
					if part = strings.TrimSpace(part); what == part || strings.HasPrefix(what, part+" ") || strings.HasPrefix(what, part+"/") {
						return true
					}
				}
				return false
			}
			source := t.TempDir()
			for name, text := range files {
				if gone(name) {
					continue
				}
				path := filepath.Join(source, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
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
