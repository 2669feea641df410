package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// surroundings is what is outside of the sources when something is to be published.
type surroundings struct {
	run func(name string, args ...string) (string, error) // a command, in the top directory
	env func(name string) string
}

// around returns the surroundings of a repository.
func around(source string) surroundings {
	return surroundings{env: os.Getenv, run: func(name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "MUST_LOOK=1") // what nobody could look at is not there
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}}
}

// secretsOfGitHub are those that GitHub itself gives to a workflow.
var secretsOfGitHub = []string{"GITHUB_TOKEN"}

// publishCheck writes line by line what a release of a tag needs from outside, and whether it is there. It changes nothing. It
// reports whether all is there.
func publishCheck(out io.Writer, source, tag string, s surroundings) bool {
	complete := true
	line := func(ok bool, what, cure string) {
		if ok {
			fmt.Fprintf(out, "ok       %s\n", what)
			return
		}
		complete = false
		fmt.Fprintf(out, "missing  %s: %s\n", what, cure)
	}
	for _, name := range []string{"LICENSE", "SECURITY.md", "CODE_OF_CONDUCT.md"} {
		_, err := os.Stat(filepath.Join(source, name))
		line(err == nil, name, "write it")
	}
	_, err := notes(source, tag)
	line(err == nil, "changes of "+tag, fmt.Sprint(err))
	path := modulePath(source)
	remote := "https://" + path
	_, err = s.run("git", "ls-remote", "--exit-code", remote, "HEAD")
	line(err == nil, "repository "+remote, "create the organisation and the repository, or there is no network; its path is the module's, and must not change later")
	changes, err := s.run("git", "status", "--porcelain")
	line(err == nil && changes == "", "no change without a commit", "commit all")
	at, err := s.run("git", "tag", "--points-at", "HEAD")
	line(err == nil && slices.Contains(strings.Fields(at), tag), "tag "+tag+" of this commit", "git tag -s "+tag)
	_, err = s.run("git", "verify-tag", tag)
	line(err == nil, "signature of the tag", "git needs user.signingkey, and the tag a signature")
	_, err = s.run(".ci/toolchain")
	line(err == nil, "newest patch of Go", "MUST_LOOK=1 .ci/toolchain says which, or that it cannot be known here")
	line(s.env("MINISIGN_KEY_FILE") != "", "key of minisign", "set MINISIGN_KEY_FILE, or users have the signature of the workflow only")
	secrets, err := secretsOf(source)
	line(err == nil, "workflows", fmt.Sprint(err))
	have, _ := s.run("gh", "secret", "list", "--json", "name", "--jq", ".[].name")
	for _, name := range secrets {
		line(slices.Contains(strings.Fields(have), name), "secret "+name, "gh secret set "+name)
	}
	build, _ := s.run("gh", "api", "repos/{owner}/{repo}/pages", "--jq", ".build_type")
	line(build == "workflow", "web site", `in the settings of the repository, "Pages" needs the source "GitHub Actions"`)
	return complete
}

// modulePath returns the path of the module in source, "" if there is none.
func modulePath(source string) string {
	text, _ := os.ReadFile(filepath.Join(source, "go.mod"))
	if m := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return ""
}

// secretsOf returns the secrets that the workflows name, which somebody has to set.
func secretsOf(source string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(source, ".github/workflows/*.yml"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no workflows", source)
	}
	for _, file := range files {
		text, failed := os.ReadFile(file)
		if failed != nil {
			return nil, failed
		}
		for _, m := range regexp.MustCompile(`(?i)\bsecrets\.(\w+)`).FindAllSubmatch(text, -1) {
			names = append(names, strings.ToUpper(string(m[1])))
		}
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return slices.Contains(secretsOfGitHub, name) })
	return names, err
}
