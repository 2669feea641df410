package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// What a router is flooded with. floodedEntries are what docs/network.md advises for 64 MB.
const (
	floodedEntries = 500_000
	floodedRate    = 5_000 // queries a second of one client
	floodedLength  = 10 * time.Second
	besidesRate    = 200 // queries a second for clean names
)

// routerFloods measures the server for routers in a memory cgroup while one client floods it
// with suspected names and the Safe Browsing server answers no search: the peak of its memory,
// and how many queries of others for clean names stay without an answer.
func (b *bench) routerFloods(ctx context.Context) error {
	program, err := b.buildRouter(ctx)
	if err != nil {
		return err
	}
	ns, err := newNameServer()
	if err != nil {
		return err
	}
	defer ns.close()
	for _, flood := range []struct {
		what  string
		names func(suspected string) []string
	}{
		{"one suspected name", func(suspected string) []string { return []string{suspected} }},
		{"subdomains of one suspected name", subdomainsOf},
	} {
		if err := b.routerFlood(ctx, program, fmt.Sprintf(forwarding, ns.address), flood.what, flood.names); err != nil {
			return err
		}
	}
	b.note("Floods of routers: a memory cgroup of %d MiB, GOMEMLIMIT=%dMiB, %d queries a second for %s from one client, no search is answered, %d queries a second for clean names. Both columns are with the plugin.",
		routerMemory, smallLimit, floodedRate, floodedLength, besidesRate)
	return nil
}

func subdomainsOf(suspected string) (all []string) {
	for n := range 10_000 {
		all = append(all, fmt.Sprintf("c%d.%s", n, suspected))
	}
	return all
}

func (b *bench) routerFlood(ctx context.Context, program, tail, what string, flood func(string) []string) error {
	g, err := b.generation(floodedEntries, firstSeed)
	if err != nil {
		return err
	}
	collided := b.collisions[generationKey{floodedEntries, firstSeed}]
	if len(collided) == 0 {
		return errors.New("no name collides: raise -names")
	}
	c := &catalog{generations: []generation{g}, waits: []time.Duration{neverDue}, hangs: true}
	name := "router-" + strings.ReplaceAll(what, " ", "-")
	f, err := b.fill(ctx, name, floodedEntries, c)
	if err != nil {
		return err
	}
	x, err := newBox(program, fmt.Sprintf("safebrowsing-bench-%d-%s", os.Getpid(), name), smallLimit)
	if err != nil {
		return fmt.Errorf("a memory cgroup: %w", err)
	}
	defer os.Remove(x.dir) // after the end of the server
	v, err := b.start(ctx, spec{name: name, folder: f, tail: tail, box: x})
	if err != nil {
		return err
	}
	defer v.stop()
	time.Sleep(settle)
	idle, err := memoryOf(v.proc)
	if err != nil {
		return err
	}
	b.say("flood of %s", what)
	clean, err := v.flooded(ctx, flood(b.names[collided[0]]), b.clean())
	if err != nil {
		return err
	}
	peak := "killed"
	if m, err := memoryOf(v.proc); err == nil {
		peak = fmt.Sprintf("%.1f", m.peak)
	}
	_, missing := latencies(clean)
	label := "router, flood for " + what
	b.add(row{label + ": resident idle, and at the peak, MiB", fmt.Sprintf("%.1f", idle.now), peak, "", fmt.Sprintf("< %d", routerMemory)})
	b.add(row{label + ": clean queries, and those without an answer", fmt.Sprint(len(clean)), fmt.Sprint(missing), "", "0"})
	return nil
}

// flooded asks for the names of a flood and for clean ones at the same time, and returns what
// became of the clean ones.
func (v *server) flooded(ctx context.Context, flood, clean []string) (besides []shot, err error) {
	var failed error
	var flooding sync.WaitGroup
	flooding.Go(func() { _, failed = shoot(ctx, v.address(), flood, floodedRate, floodedLength) })
	besides, err = shoot(ctx, v.address(), clean, besidesRate, floodedLength)
	flooding.Wait()
	return besides, errors.Join(err, failed)
}
