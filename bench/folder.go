package main

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// folder is a db folder with lists in it, and the endpoint that they came from.
type folder struct {
	dir, endpoint string
	entries       int
}

// neverDue is a minimum wait that no bench outlives.
const neverDue = 24 * time.Hour

// seeds of the generations of lists.
const (
	firstSeed  = 1
	secondSeed = 2
)

// scene returns the folder with all entries, and a name server that the caller closes.
func (b *bench) scene(ctx context.Context) (*folder, *nameServer, error) {
	f, err := b.folder(ctx, b.entries)
	if err != nil {
		return nil, nil, err
	}
	ns, err := newNameServer()
	return f, ns, err
}

// folder returns the folder with lists of entries in all that are not due. It is
// filled when it is first asked for.
func (b *bench) folder(ctx context.Context, entries int) (*folder, error) {
	if f := b.folders[entries]; f != nil {
		return f, nil
	}
	g, err := b.generation(entries, firstSeed)
	if err != nil {
		return nil, err
	}
	f, err := b.fill(ctx, fmt.Sprintf("lists-%d", entries), entries, &catalog{
		generations: []generation{g}, waits: []time.Duration{neverDue},
	})
	if err == nil {
		b.folders[entries] = f
	}
	return f, err
}

// fill offers a catalog and lets the command line fetch it into a folder, which
// leaves a schedule as well.
func (b *bench) fill(ctx context.Context, name string, entries int, c *catalog) (*folder, error) {
	f := &folder{dir: filepath.Join(b.dir, name), endpoint: b.google.offer(name, c), entries: entries}
	b.say("lists of %s entries, by safebrowsing update", count(entries))
	cmd := exec.CommandContext(ctx, b.safebrowsing, "update", "-now",
		"-db", f.dir, "-endpoint", f.endpoint, "-lists", strings.Join(listNames(), ","))
	cmd.Env = environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("filling a folder: %w\n%s", err, out)
	}
	return f, nil
}

// generation returns lists of entries in all, made when they are first asked
// for, and notes which names collide with them.
func (b *bench) generation(entries int, seed uint64) (generation, error) {
	key := generationKey{entries, seed}
	if g, ok := b.generations[key]; ok {
		return g, nil
	}
	collided := make(map[int]bool)
	g, err := newGeneration(entries, seed, b.asked, func(a askedPrefix) {
		collided[a.name] = true
		b.collides[a.name] = true
	})
	if err == nil {
		b.generations[key], b.collisions[key] = g, slices.Sorted(maps.Keys(collided))
	}
	return g, err
}

type generationKey struct {
	entries int
	seed    uint64
}

// clean returns the names that collide with no list made so far.
func (b *bench) clean() (names []string) {
	for i, name := range b.names {
		if !b.collides[i] {
			names = append(names, name)
		}
	}
	return names
}
