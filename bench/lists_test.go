package main

import (
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

func TestRandomPrefixesAscendOverTheWholeRange(t *testing.T) {
	const n = 100_000
	values := randomPrefixes(n, rand.New(rand.NewPCG(1, 2)))
	for i := range n - 1 {
		if values[i] >= values[i+1] {
			t.Fatalf("value %d is %d, the next is %d", i, values[i], values[i+1])
		}
	}
	if len(values) != n || values[0] > 1<<22 || values[n-1] < 1<<32-1<<22 {
		t.Errorf("%d values from %d to %d", len(values), values[0], values[n-1])
	}
}

func TestCollisionsAreFound(t *testing.T) {
	asked := askedPrefixes([]string{"www.example.co.uk", "b.example.org"})
	if len(asked) != 4 {
		t.Fatalf("%d expressions, want the name and its domain of both", len(asked))
	}
	values := []uint32{asked[0].value - 1, asked[1].value, asked[1].value + 1, asked[3].value}
	var met []askedPrefix
	meet(values, asked, func(a askedPrefix) { met = append(met, a) })
	if want := []askedPrefix{asked[1], asked[3]}; !slices.Equal(met, want) {
		t.Errorf("met %v, want %v", met, want)
	}
}

func TestAGenerationHoldsAllLists(t *testing.T) {
	g, err := newGeneration(1000, 3, nil, nil)
	if err != nil || len(g.lists) != len(threatLists) {
		t.Fatalf("%d lists, %v", len(g.lists), err)
	}
	var list sbv5.HashList
	if err := proto.Unmarshal(g.lists["se-4b"], &list); err != nil || list.GetAdditionsFourBytes().GetEntriesCount() != 699 {
		t.Errorf("%v, %v", &list, err)
	}
}
