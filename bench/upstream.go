package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const coreDNS = "github.com/coredns/coredns"

// buildUpstream builds the release of CoreDNS that ours is built on, as upstream builds it, and
// returns its path and version: all plugins of its plugin.cfg, the versions of its own go.mod,
// and the flags of its Makefile. Its modules come from the network, if they are not there yet.
// The toolchain is ours: what differs is not Go.
func (b *bench) buildUpstream(ctx context.Context) (program, version string, err error) {
	dir, err := moduleDir(ctx)
	if err != nil {
		return "", "", err
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", coreDNS)
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		return "", "", fmt.Errorf("finding the version of CoreDNS: %w", err)
	}
	version = strings.TrimSpace(string(out))
	b.say("building CoreDNS %s as upstream does, which takes minutes the first time", version)
	build := exec.CommandContext(ctx, "go", "install", "-tags", "grpcnotrace",
		"-ldflags", "-s -w -X "+coreDNS+"/coremain.GitCommit="+version, coreDNS+"@"+version)
	build.Dir = b.dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+filepath.Join(b.dir, "upstream"))
	if out, err := build.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("building CoreDNS %s: %w\n%s", version, err, out)
	}
	return filepath.Join(b.dir, "upstream", "coredns"), version, nil
}

// step is what the server gains by, and what turns it off.
type step struct {
	name string
	env  []string
}

// steps are held against upstream's CoreDNS one by one. With GOGC the server leaves the pace of the
// collector alone, and GODEBUG the size of new stacks.
var steps = []step{
	{name: "all"},
	{name: "without the pace", env: []string{"GOGC=100"}},
	{name: "without the stacks", env: []string{"GODEBUG=adaptivestackstart=0"}},
	{name: "without both", env: []string{"GOGC=100", "GODEBUG=adaptivestackstart=0"}},
}

// upstream holds our server with the plugin, and with 10 million entries, against upstream's
// CoreDNS without it: the goal is to be the faster one.
func (b *bench) upstream(ctx context.Context) error {
	program, version, err := b.buildUpstream(ctx)
	if err != nil {
		return err
	}
	f, ns, err := b.scene(ctx)
	if err != nil {
		return err
	}
	defer ns.close()
	for _, load := range []struct{ what, tail string }{
		{"template", template}, {"cache, forward", fmt.Sprintf(forwarding, ns.address)},
	} {
		specs := []spec{{name: "upstream's", program: program, tail: load.tail, cores: b.serverCore}}
		for _, s := range steps {
			specs = append(specs, spec{name: s.name, env: s.env, folder: f, tail: load.tail, cores: b.serverCore})
		}
		b.say("against upstream's CoreDNS, %s: %d rounds", load.what, b.rounds)
		if err := b.against(ctx, fmt.Sprintf("CoreDNS %s, %s", version, load.what), specs); err != nil {
			return err
		}
	}
	return nil
}

// against measures the steps under one load. The first of the specs is upstream's.
func (b *bench) against(ctx context.Context, what string, specs []spec) error {
	servers, stop, err := b.startAll(ctx, specs...)
	if err != nil {
		return err
	}
	defer stop()
	c, err := b.floodServers(ctx, b.clientCore, b.rounds, servers)
	if err != nil {
		return err
	}
	b.floodRows(what, c, "CPU × 0.85")
	for i := 2; i < len(specs); i++ {
		b.compare(what+"; "+specs[i].name+": CPU a query, µs", "%.2f", c.cpu[0], c.cpu[i], "")
	}
	theirs, err := memoryOf(servers[0].proc)
	ours, failed := memoryOf(servers[1].proc)
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	b.add(row{what + ": resident after the flood, MiB", fmt.Sprintf("%.1f", theirs.now), fmt.Sprintf("%.1f", ours.now), fmt.Sprintf("%+.1f", ours.now-theirs.now), ""})
	return b.percentiles(ctx, what, servers[:2])
}

// builds holds ours against other builds of cmd/coredns, under each of three loads. It
// tells what a change gains that is not in this repository, such as one of CoreDNS.
func (b *bench) builds(ctx context.Context) error {
	f, ns, err := b.scene(ctx)
	if err != nil {
		return err
	}
	defer ns.close()
	names := slices.Sorted(maps.Keys(b.buildPaths))
	for _, load := range loads {
		tail := strings.ReplaceAll(load.tail, "%s", ns.address)
		specs := []spec{{name: "ours", folder: f, tail: tail, cores: b.serverCore}}
		for _, name := range names {
			specs = append(specs, spec{name: name, program: b.buildPaths[name], folder: f, tail: tail, cores: b.serverCore})
		}
		b.say("other builds, %s: %d rounds", load.name, b.rounds)
		c, err := b.flood(ctx, b.clientCore, b.rounds, specs...)
		if err != nil {
			return err
		}
		for i, name := range names {
			b.compare(fmt.Sprintf("%s, ours and %s: CPU a query, µs", load.name, name), "%.2f", c.cpu[0], c.cpu[i+1], "")
		}
	}
	return nil
}

// buildPaths are the programs of other builds by name, a flag.Value of NAME=PATH.
type buildPaths map[string]string

// String implements flag.Value.
func (p buildPaths) String() string { return fmt.Sprint(map[string]string(p)) }

// Set implements flag.Value.
func (p buildPaths) Set(value string) error {
	name, path, _ := strings.Cut(value, "=")
	if name == "" || path == "" {
		return fmt.Errorf("%q is not NAME=PATH", value)
	}
	p[name] = path
	return nil
}

// loads are a server that answers by itself, one that forwards nearly every query, and one that
// has nearly every answer in its cache. All have the plugins that most Corefiles have. %s is the
// address of the name server.
var loads = []struct{ name, tail string }{
	{"template", "prometheus 127.0.0.1:0\n\terrors\n\t" + template},
	{"cache, forward", "prometheus 127.0.0.1:0\n\terrors\n\t" + forwarding},
	{"cached", "prometheus 127.0.0.1:0\n\terrors\n\tcache {\n\t\tsuccess 262144\n\t}\n\tforward . %s"},
}
