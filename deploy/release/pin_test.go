package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// go.mod alone says with which Go a release is built: the go command reads it there wherever it
// may fetch another Go, and setup-go reads it, too.
func TestTheGoOfAReleaseIsPinnedInOneFile(t *testing.T) {
	pinned := find(t, "go.mod", `^toolchain go(1\.\d+)\.\d+$`)
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("Expected workflows, got %v", err)
	}
	for _, name := range append(files, "../image/Dockerfile") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`golang:([0-9.]+)`).FindAllStringSubmatch(string(text), -1) {
			if m[1] != pinned {
				t.Errorf("%s builds by the image golang:%s, and go.mod pins Go %s", name, m[1], pinned)
			}
		}
		if images, allowed := strings.Count(string(text), "golang:"), len(regexp.MustCompile(`GOTOOLCHAIN(: |=)auto`).FindAll(text, -1)); images != allowed {
			t.Errorf("%s has %d images of Go, and %d of them may fetch the Go of go.mod (GOTOOLCHAIN auto)", name, images, allowed)
		}
		setups, fromFile := strings.Count(string(text), "actions/setup-go@"), strings.Count(string(text), "go-version-file: go.mod")
		if setups != fromFile || strings.Contains(string(text), "go-version:") {
			t.Errorf("%s installs Go %d times, %d of them as go.mod says", name, setups, fromFile)
		}
	}
}

// Before anything is published the workflow looks at the programs as they are in the files of
// the release, and does not pass where it could not look.
func TestAReleaseLooksAtItsProgramsBeforeItIsPublished(t *testing.T) {
	raw, err := os.ReadFile("../../.github/workflows/release.yml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	at := -1
	for _, step := range []string{"MUST_LOOK=1 .ci/toolchain -newest", "-notes \"$VERSION\" >notes.md", "make release", "MUST_LOOK=1 .ci/released", "cosign sign-blob", "docker login", "gh release create"} {
		i := strings.Index(text, step)
		if i <= at {
			t.Errorf("Expected %q after the steps before it", step)
		}
		at = i
	}
	if !strings.Contains(text, "vars.REGISTRY || 'ghcr.io'") {
		t.Error("Expected a registry without the variable REGISTRY")
	}
}

// A small system has a shell, and perhaps no program kill: procps has it.
func TestAReloadOfTheUnitNeedsAShellOnly(t *testing.T) {
	text, err := os.ReadFile("../systemd/coredns-safebrowsing.service")
	if err != nil {
		t.Fatal(err)
	}
	reloads := regexp.MustCompile(`(?m)^ExecReload=[-+!@:|]*(\S+)`).FindAllStringSubmatch(string(text), -1)
	if len(reloads) == 0 {
		t.Error("Expected a reload")
	}
	for _, m := range reloads {
		if m[1] != "/bin/sh" && m[1] != "/usr/bin/coredns-safebrowsing" && m[1] != "/usr/bin/safebrowsing" {
			t.Errorf("A reload needs %s", m[1])
		}
	}
}

// The programs of both units tell systemd that they have started. Without a bound of our own, a disk that
// takes more than systemd's 90 seconds would fail the start, and the next one, too.
func TestUnitsWaitUntilTheirProgramsServe(t *testing.T) {
	units, err := filepath.Glob("../systemd/*.service")
	if err != nil || len(units) < 2 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"Type=notify", "TimeoutStartSec=10min"} {
			if !strings.Contains(string(text), "\n"+line+"\n") {
				t.Errorf("%s has no %s", unit, line)
			}
		}
		if !regexp.MustCompile(`(?m)^RestrictAddressFamilies=.*\bAF_UNIX\b`).Match(text) {
			t.Errorf("%s cannot reach the socket of systemd", unit)
		}
	}
}
