package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"

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
