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
var programs = []string{"coredns", "safebrowsing", "safebrowsing-relay"}

// target is what programs are built for: a machine in the words of Go, with GOARM or "", and the build
// tag, or "".
type target struct{ os, arch, arm, tag string }

// String returns the machine.
func (t target) String() string {
	if t.arm == "" {
		return t.os + "/" + t.arch
	}
	return t.os + "/" + t.arch + "/" + t.arm
}

// readTargets returns the targets of a file such as deploy/release/sizes, which have a build tag there, as
// linux/mipsle+router has, or none: the first word of each line, without the tag. only are those
// to return, separated by commas, with the tag or, for both kinds, without; "" are all.
func readTargets(path, only, tag string) (all []target, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var known []string
	for line := range strings.Lines(string(text)) {
		whole, _, _ := strings.Cut(line, " ")
		name, tagged, _ := strings.Cut(whole, "+")
		known = append(known, name, whole)
		wanted := func(one string) bool { return one == name || one == whole }
		if tagged != tag || only != "" && !slices.ContainsFunc(strings.Split(only, ","), wanted) {
			continue
		}
		parts := append(strings.Split(name, "/"), "")
		all = append(all, target{parts[0], parts[1], parts[2], tag})
	}
	for name := range strings.SplitSeq(only, ",") {
		if only != "" && !slices.Contains(known, name) {
			slices.Sort(known)
			return nil, fmt.Errorf("%q is none of the targets %s", name, strings.Join(slices.Compact(known), ", "))
		}
	}
	return all, nil
}

// binary returns the path of a program that was built.
func (r *release) binary(t target, program string) string {
	return filepath.Join(r.work, strings.ReplaceAll(t.String(), "/", "_")+t.tag, program)
}

// build builds the programs.
func (r *release) build(t target) error {
	folder := r.binary(t, "")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return r.goBuild(t, folder+"/", "./cmd/...")
}

// goBuild builds packages: static, stripped, without the path of this machine, and for processors that the
// environment does not choose.
func (r *release) goBuild(t target, to, packages string) error {
	out, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	if strings.HasSuffix(to, "/") {
		out += "/"
	}
	workspace := "off"
	if t.tag == routerTag {
		if workspace, err = filepath.Abs(filepath.Join(r.source, "deploy/openwrt/go.work")); err != nil {
			return err
		}
	}
	const stamp = "-X github.com/coredns-safebrowsing/safebrowsing/internal/say.stamped="
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace,"+t.tag, "-ldflags", "-s -w "+stamp+r.version, "-o", out, packages)
	build.Dir = r.source
	build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK="+workspace, "CGO_ENABLED=0", "GOMIPS=softfloat", "GOAMD64=v1", "GOARM64=v8.0", "GO386=sse2",
		"GOOS="+t.os, "GOARCH="+t.arch, "GOARM="+cmp.Or(t.arm, "7"))
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, text)
	}
	return nil
}
