package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// threatLists are the lists of the server, each with its part of all entries,
// in percent.
var threatLists = []struct {
	name string
	part int
}{{"se-4b", 70}, {"mw-4b", 15}, {"uws-4b", 10}, {"uwsa-4b", 5}}

func listNames() (all []string) {
	for _, l := range threatLists {
		all = append(all, l.name)
	}
	return all
}

// generation is one version of all lists.
type generation struct {
	version []byte
	lists   map[string][]byte // by name: the encoded message, without the minimum wait
}

// newGeneration makes lists of entries random prefixes in all. met is called
// with the asked prefixes that are among them.
func newGeneration(entries int, seed uint64, asked []askedPrefix, met func(askedPrefix)) (generation, error) {
	g := generation{version: []byte{byte(seed)}, lists: make(map[string][]byte)}
	for i, l := range threatLists {
		values := randomPrefixes(entries*l.part/100, rand.New(rand.NewPCG(seed, uint64(i))))
		meet(values, asked, met)
		sum := checksum(values)
		message, err := proto.Marshal(&sbv5.HashList{
			Name: l.name, Version: g.version, Sha256Checksum: sum[:],
			CompressedAdditions: &sbv5.HashList_AdditionsFourBytes{AdditionsFourBytes: protocoltest.EncodeRice32(values)},
		})
		if err != nil {
			return g, err
		}
		g.lists[l.name] = message
	}
	return g, nil
}

// randomPrefixes returns n ascending different values whose gaps are as in
// hashes: exponential, with the mean that fills the whole range.
func randomPrefixes(n int, chance *rand.Rand) []uint32 {
	gaps := make([]float64, n+1)
	sum := 0.0
	for i := range gaps {
		gaps[i] = chance.ExpFloat64()
		sum += gaps[i]
	}
	free := float64(1<<32) - float64(n+1) // a gap is at least 1, whatever is drawn
	values := make([]uint32, n)
	at := 0.0
	for i := range values {
		at += gaps[i]
		values[i] = uint32(at/sum*free) + uint32(i)
	}
	return values
}

// checksum returns the SHA-256 of the values, four bytes big-endian each.
func checksum(values []uint32) (sum [sha256.Size]byte) {
	hash := sha256.New()
	block := make([]byte, 0, 1<<16)
	for _, v := range values {
		if block = binary.BigEndian.AppendUint32(block, v); len(block) == cap(block) {
			hash.Write(block)
			block = block[:0]
		}
	}
	hash.Write(block)
	hash.Sum(sum[:0])
	return sum
}

// askedPrefix is a prefix that a query for a name looks for in the lists.
type askedPrefix struct {
	value uint32
	name  int // number of the name
}

// askedPrefixes returns the prefixes of all expressions of the names, ascending.
func askedPrefixes(names []string) (all []askedPrefix) {
	for i, name := range names {
		for _, expression := range lookup.FromQname(name + ".").Expressions() {
			hash := lookup.HashExpression(expression)
			all = append(all, askedPrefix{binary.BigEndian.Uint32(hash[:]), i})
		}
	}
	slices.SortFunc(all, func(a, b askedPrefix) int { return cmp.Compare(a.value, b.value) })
	return all
}

// meet calls met with each of asked that is among values; both ascend.
func meet(values []uint32, asked []askedPrefix, met func(askedPrefix)) {
	for _, v := range values {
		for len(asked) > 0 && asked[0].value < v {
			asked = asked[1:]
		}
		for len(asked) > 0 && asked[0].value == v {
			met(asked[0])
			asked = asked[1:]
		}
	}
}

// folder is a db folder with lists in it, and the endpoint that they came from.
type folder struct {
	dir, endpoint string
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
	f := &folder{dir: filepath.Join(b.dir, name), endpoint: b.google.offer(name, c)}
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
