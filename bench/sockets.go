package main

import (
	"context"
	"errors"
	"fmt"
)

// socketCounts are the heads of server blocks with more sockets than one (multisocket): as many
// as cores, and twice as many on two cores.
var socketCounts = []string{"multisocket", "multisocket 4"}

// sockets holds our server with one socket against itself with more, all with all entries. The
// servers have all cores, which they share with the load: what more sockets are for does not
// happen on one core.
func (b *bench) sockets(ctx context.Context) error {
	f, ns, err := b.scene(ctx)
	if err != nil {
		return err
	}
	defer ns.close()
	for _, load := range []struct{ what, tail string }{
		{"template", template}, {"cache, forward", fmt.Sprintf(forwarding, ns.address)},
	} {
		specs := []spec{{name: "one socket", folder: f, tail: load.tail, cores: b.allCores()}}
		for _, head := range socketCounts {
			specs = append(specs, spec{name: head, folder: f, head: head + "\n\t", tail: load.tail, cores: b.allCores()})
		}
		b.say("sockets, %s: %d rounds", load.what, b.rounds)
		if err := b.socketsUnder(ctx, load.what, specs); err != nil {
			return err
		}
	}
	return nil
}

// socketsUnder measures one load. The first of the specs has one socket.
func (b *bench) socketsUnder(ctx context.Context, what string, specs []spec) error {
	servers, stop, err := b.startAll(ctx, specs...)
	if err != nil {
		return err
	}
	defer stop()
	c, err := b.floodServers(ctx, b.allCores(), b.rounds, servers)
	if err != nil {
		return err
	}
	one, err := memoryOf(servers[0].proc)
	for i := 1; i < len(specs); i++ {
		name := what + ", one socket and " + specs[i].name
		b.floodRows(name, c, i, "")
		many, failed := memoryOf(servers[i].proc)
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		b.add(row{name + ": resident after the flood, MiB", fmt.Sprintf("%.1f", one.now), fmt.Sprintf("%.1f", many.now), fmt.Sprintf("%+.1f", many.now-one.now), ""})
	}
	return b.percentiles(ctx, what+", one socket and "+specs[1].name, servers[:2])
}

// allCores are the cores of the servers and of the load together, for taskset.
func (b *bench) allCores() string {
	if b.serverCore == "" {
		return ""
	}
	return b.serverCore + "," + b.clientCore
}
