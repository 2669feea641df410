package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	routerMemory = 64 // MiB, of the memory cgroup
	routerLimit  = 40 // MiB, of GOMEMLIMIT, as in deploy/openwrt
	smallLimit   = 30 // MiB, of GOMEMLIMIT, as docs/network.md advises for 64 MB
	routerSettle = time.Second
)

// routerSizes are the entries of all lists together.
var routerSizes = []int{100_000, 500_000, 1_000_000, 2_000_000, 4_000_000}

// box is a memory cgroup for one server.
type box struct {
	program, dir string
	limit        int // MiB, of GOMEMLIMIT
}

// newBox makes a cgroup of version 1 or 2, for which the bench has to be root.
func newBox(program, name string, memLimit int) (*box, error) {
	top, limit := "/sys/fs/cgroup", "memory.max"
	if _, err := os.Stat(filepath.Join(top, "memory")); err == nil {
		top, limit = filepath.Join(top, "memory"), "memory.limit_in_bytes"
	}
	x := &box{program, filepath.Join(top, name), memLimit}
	if err := os.Mkdir(x.dir, 0o755); err != nil {
		return nil, err
	}
	return x, os.WriteFile(filepath.Join(x.dir, limit), fmt.Append(nil, routerMemory<<20), 0o644)
}

// command starts the server in the cgroup: the shell enters it and becomes the server.
func (x *box) command(conf string) *exec.Cmd {
	c := exec.Command("sh", "-c", `echo $$ >"$1/cgroup.procs" && exec "$2" -conf "$3"`, "sh", x.dir, x.program, conf)
	c.Env = append(environment(), fmt.Sprintf("GOMEMLIMIT=%dMiB", x.limit))
	return c
}

// routers measures the server for routers in a memory cgroup: idle, and at the peak of a full
// update that replaces lists of the same size. All sizes are measured at once, since it takes up
// to a minute until a server asks for lists.
func (b *bench) routers(ctx context.Context) error {
	program, err := b.buildRouter(ctx)
	if err != nil {
		return err
	}
	var specs []spec
	var catalogs []*catalog
	for _, entries := range routerSizes {
		c, s, err := b.routerSpec(ctx, program, entries)
		if err != nil {
			return err
		}
		defer os.Remove(s.box.dir) // after the end of the server
		catalogs, specs = append(catalogs, c), append(specs, s)
	}
	servers, stop, err := b.startAll(ctx, specs...)
	if err != nil {
		return err
	}
	defer stop()
	time.Sleep(settle)
	for i, v := range servers {
		idle, err := memoryOf(v.proc)
		if err != nil {
			return err
		}
		if err := awaitReplaced(ctx, v, catalogs[i]); err != nil {
			return fmt.Errorf("%s: %w\n%s", v.name, err, v.output())
		}
		m, err := memoryOf(v.proc)
		if err != nil {
			return fmt.Errorf("%s: %w: was it killed for its memory?\n%s", v.name, err, v.output())
		}
		b.add(row{fmt.Sprintf("router, %s entries, resident idle, and at the peak of a full update, MiB", count(routerSizes[i])),
			fmt.Sprintf("%.1f", idle.now), fmt.Sprintf("%.1f", m.peak), "", fmt.Sprintf("< %d", routerMemory)})
	}
	b.note("Routers: a memory cgroup of %d MiB, GOMEMLIMIT=%dMiB. Both columns are with the plugin: idle, peak.", routerMemory, routerLimit)
	return nil
}

// routerTags are the build tags of the server of the package of OpenWrt.
const routerTags = "router,grpcnotrace"

// buildRouter builds the server as the package of OpenWrt has it, and returns its path.
func (b *bench) buildRouter(ctx context.Context) (program string, err error) {
	dir := filepath.Join(b.dir, "router")
	return filepath.Join(dir, "coredns"), buildPrograms(ctx, dir, "-tags", routerTags, "./cmd/coredns")
}

// routerSpec has lists of entries in all that are due soon, once.
func (b *bench) routerSpec(ctx context.Context, program string, entries int) (*catalog, spec, error) {
	c := &catalog{waits: []time.Duration{time.Second, neverDue}, news: make(chan time.Time, 16)}
	for _, seed := range []uint64{firstSeed, secondSeed} {
		g, err := b.generation(entries, seed)
		if err != nil {
			return nil, spec{}, err
		}
		c.generations = append(c.generations, g)
	}
	name := fmt.Sprintf("router-%d", entries)
	f, err := b.fill(ctx, name, entries, c)
	if err != nil {
		return nil, spec{}, err
	}
	<-c.news // fill's
	x, err := newBox(program, fmt.Sprintf("safebrowsing-bench-%d-%d", os.Getpid(), entries), routerLimit)
	if err != nil {
		return nil, spec{}, fmt.Errorf("a memory cgroup: %w", err)
	}
	return c, spec{name: name, folder: f, tail: "hosts {\n\t\t192.0.2.1 www.example.net\n\t}", box: x}, nil
}

// awaitReplaced waits until a server has asked for lists, and has written each to its folder,
// which it does before it publishes them.
func awaitReplaced(ctx context.Context, v *server, c *catalog) error {
	var asked time.Time
	select {
	case asked = <-c.news:
	case <-v.ended:
		return errors.New("it has ended")
	case <-time.After(untilContact + startLimit):
		return errors.New("it has not asked for lists")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for end := time.Now().Add(startLimit); time.Now().Before(end); time.Sleep(routerSettle) {
		if written, err := writtenSince(v.folder.dir, asked); err != nil || written == len(listNames()) {
			time.Sleep(routerSettle)
			return err
		}
	}
	return errors.New("it has not taken the lists")
}

// writtenSince counts the files of lists that are newer than a moment.
func writtenSince(dir string, asked time.Time) (n int, err error) {
	for _, name := range listNames() {
		info, err := os.Stat(filepath.Join(dir, name+".list"))
		if err != nil {
			return 0, err
		}
		if info.ModTime().After(asked) {
			n++
		}
	}
	return n, nil
}

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
