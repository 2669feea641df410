package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// programs are the commands of the module, the server first.
var programs = []string{"coredns", "safebrowsing"}

// target is a machine that programs are built for, in the words of Go. arm is GOARM or "".
type target struct{ os, arch, arm string }

func (t target) String() string {
	if t.arm == "" {
		return t.os + "/" + t.arch
	}
	return t.os + "/" + t.arch + "/" + t.arm
}

// readTargets returns the targets of a file such as .ci/sizes: the first word of each line,
// but for those with a build tag, such as linux/mipsle+router: archives have the whole server.
// only are those to return, separated by commas; "" are all.
func readTargets(path, only string) (all []target, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, " ")
		if !strings.Contains(name, "+") {
			names = append(names, name)
		}
	}
	wanted := names
	if only != "" {
		wanted = strings.Split(only, ",")
	}
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%q is none of the targets %s", name, strings.Join(names, ", "))
		}
		parts := append(strings.Split(name, "/"), "")
		all = append(all, target{parts[0], parts[1], parts[2]})
	}
	return all, nil
}

// binary returns the path of a program that was built.
func (r *release) binary(t target, program string) string {
	return filepath.Join(r.work, strings.ReplaceAll(t.String(), "/", "_"), program)
}

// tags returns the build tags of a target. Routers have little flash, and no Redis.
func (t target) tags() string {
	if t.arch == "mipsle" {
		return "noredis"
	}
	return ""
}

// build builds the programs: static, stripped, and without the path of this machine.
func (r *release) build(t target) error {
	out, err := filepath.Abs(r.binary(t, ""))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	const stamp = "-X github.com/coredns-safebrowsing/safebrowsing/internal/version.stamped="
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", t.tags(), "-ldflags", "-s -w "+stamp+r.version, "-o", out+"/", "./cmd/...")
	build.Dir = r.source
	build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0", "GOMIPS=softfloat",
		"GOOS="+t.os, "GOARCH="+t.arch, "GOARM="+cmp.Or(t.arm, "7"))
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, text)
	}
	return nil
}
