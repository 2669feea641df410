package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

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
			b.add(row{fmt.Sprintf("%s, ours and %s: CPU a query, µs", load.name, name), c.cpu[0].spread("%.2f"), c.cpu[i+1].spread("%.2f"), c.cpu[i+1].ratios(c.cpu[0]).times(), ""})
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
