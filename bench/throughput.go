package main

import (
	"context"
	"fmt"
)

// contest is servers that take turns at being flooded. The first is the one
// without the plugin, that the others are held against.
type contest struct {
	servers []*server
	cpu     []sample // us a query, by server
	rate    []sample // queries a second, by server
}

// flood lets the servers take turns, after each has answered all names once. The
// servers of one contest run together: one that is not asked does nothing.
func (b *bench) flood(ctx context.Context, clientCores string, rounds int, specs ...spec) (*contest, error) {
	servers, stop, err := b.startAll(ctx, specs...)
	if err != nil {
		return nil, err
	}
	defer stop()
	return b.floodServers(ctx, clientCores, rounds, servers)
}

// floodServers is flood with servers that run already.
func (b *bench) floodServers(ctx context.Context, clientCores string, rounds int, servers []*server) (*contest, error) {
	c := &contest{servers: servers, cpu: make([]sample, len(servers)), rate: make([]sample, len(servers))}
	for _, v := range servers {
		if _, err := b.dnsperf(ctx, clientCores, v, 0); err != nil {
			return nil, err
		}
	}
	for round := range rounds {
		for _, i := range order(round, len(servers)) {
			t, err := b.measure(ctx, clientCores, servers[i])
			if err != nil {
				return nil, err
			}
			c.cpu[i], c.rate[i] = append(c.cpu[i], t.cpu), append(c.rate[i], t.rate)
		}
	}
	return c, nil
}

// contestants are the server without the plugin, the one with it, and a control.
func (b *bench) contestants(f *folder, tail string) []spec {
	return []spec{
		{name: "stock", tail: tail, cores: b.serverCore},
		{name: "plugin", folder: f, tail: tail, cores: b.serverCore},
		{name: "control", tail: "any\n\t" + tail, cores: b.serverCore},
	}
}

// controlRow tells what a plugin costs that does nothing but pass the query on:
// any, to queries of another type than ANY. One more plugin in the chain makes
// the stack deeper, and where it then has to grow once more, which depends on the
// plugins behind, that alone is microseconds.
func (b *bench) controlRow(what string, c *contest) {
	b.add(row{what + "; control, any instead of the plugin: CPU a query, µs",
		c.cpu[0].spread("%.2f"), c.cpu[2].spread("%.2f"), c.cpu[2].ratios(c.cpu[0]).times(), ""})
}

// floodRows adds the rows that hold server i of a contest against the first.
func (b *bench) floodRows(what string, c *contest, i int, bar string) {
	cpu := c.cpu[i].ratios(c.cpu[0])
	b.add(row{what + ": CPU a query, µs", c.cpu[0].spread("%.2f"), c.cpu[i].spread("%.2f"), cpu.times(), bar})
	b.add(row{what + ": queries per core-second", c.cpu[0].inverse(1e6).spread("%.0f"), c.cpu[i].inverse(1e6).spread("%.0f"),
		cpu.inverse(1).times(), ""})
	b.add(row{what + ": queries a second", c.rate[0].spread("%.0f"), c.rate[i].spread("%.0f"), c.rate[i].ratios(c.rate[0]).times(), ""})
}

// cleanPath measures names in no list, with template behind the plugin.
func (b *bench) cleanPath(ctx context.Context) error {
	f, err := b.folder(ctx, b.entries)
	if err != nil {
		return err
	}
	b.say("clean path, template: %d rounds", b.rounds)
	c, err := b.flood(ctx, b.clientCore, b.rounds, b.contestants(f, template)...)
	if err != nil {
		return err
	}
	b.floodRows("template", c, 1, "CPU × 1.05, goal × 1.03")
	b.controlRow("template", c)
	return nil
}

// forwarding measures names in no list, with cache and forward behind the plugin.
func (b *bench) forwarding(ctx context.Context) error {
	f, ns, err := b.scene(ctx)
	if err != nil {
		return err
	}
	defer ns.close()
	tail := fmt.Sprintf(forwarding, ns.address)
	specs := b.contestants(f, tail)
	b.say("clean path, cache and forward: %d rounds", b.rounds)
	c, err := b.flood(ctx, b.clientCore, b.rounds, specs...)
	if err != nil {
		return err
	}
	b.floodRows("cache, forward", c, 1, "CPU × 1.03")
	b.controlRow("cache, forward", c)
	return nil
}

// scaleRounds is how many rounds each number of cores gets.
const scaleRounds = 2

// scale measures the clean path on one core and, if there are two, on both, which
// the load then shares.
func (b *bench) scale(ctx context.Context) error {
	f, err := b.folder(ctx, b.entries)
	if err != nil {
		return err
	}
	cases := []struct{ what, server, client string }{{"1 core", b.serverCore, b.clientCore}}
	if b.serverCore != "" {
		cases = append(cases, struct{ what, server, client string }{"2 cores, shared with the load", b.allCores(), b.allCores()})
	}
	for _, s := range cases {
		b.say("template on %s", s.what)
		c, err := b.flood(ctx, s.client, scaleRounds,
			spec{name: "stock", tail: template, cores: s.server},
			spec{name: "plugin", folder: f, tail: template, cores: s.server})
		if err != nil {
			return err
		}
		b.add(row{"template, server on " + s.what + ": queries a second",
			c.rate[0].spread("%.0f"), c.rate[1].spread("%.0f"), c.rate[1].ratios(c.rate[0]).times(), ""})
	}
	return nil
}

// allCores are the cores of the servers and of the load together, for taskset.
func (b *bench) allCores() string {
	if b.serverCore == "" {
		return ""
	}
	return b.serverCore + "," + b.clientCore
}
