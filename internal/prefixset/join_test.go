package prefixset

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// A server may send lists that cannot be joined. They stay as they are.
func TestSetsWithTooManyCombinationsStayApart(t *testing.T) {
	r := rand.New(rand.NewPCG(37, 38))
	builders := make([]*Builder, maxJoined)
	for i := range builders {
		builders[i] = NewBuilder(0)
	}
	for _, e := range randomEntries(r, 4, 3000, false) {
		for in, i := 1+r.IntN(1<<maxJoined-1), 0; i < maxJoined; i++ {
			if in>>i&1 != 0 {
				builders[i].Add(e, 4)
			}
		}
	}
	var sets []*Set
	var entries [][]string
	for i, b := range builders {
		sets = append(sets, b.Set())
		entries = append(entries, entriesIn(t, sets[i]))
	}
	g := NewGroup(sets, -1, nil)
	if g.Join(nil) != g {
		t.Fatal("the sets are joined")
	}
	checkGroups(t, r, sets, entries, g)
}

// An update replaces one list. The others are read from the form that they share.
func TestSetsAreJoinedAgainWithAnother(t *testing.T) {
	r := rand.New(rand.NewPCG(47, 48))
	sets, entries := joinSets(t, r, 5000, 3000, 800, 700, 30)
	NewGroup(sets, -1, nil).Join(nil)
	NewGroup(sets[1:3], -1, nil).Join(nil) // some of those that are joined
	for _, of := range [][]int{{0, 1, 2, 3}, {3, 4, 1}, {4}, {0, 4, 2}, {0, 1, 2, 3, 4}} {
		fresh, texts := joinSets(t, r, 2000)
		some, want := fresh, texts
		for _, i := range of {
			some, want = append(some, sets[i]), append(want, entries[i])
		}
		apart := NewGroup(some, -1, nil)
		joined := apart.Join(nil)
		all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(want...))))
		if len(joined.four) != 1 || joined.four[0].n > len(all) {
			t.Errorf("%v: %d parts, the first of %d entries, want at most %d", of, len(joined.four), joined.four[0].n, len(all))
		}
		wantEntries(t, some, want)
		checkGroups(t, r, some, want, joined)
	}
}

// Lists may shrink until they have a filter. Then those that an update leaves alone must not keep the entries of all.
func TestSetsPartAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(55, 56))
	sets, entries := joinSets(t, r, 5000, 300, 0)
	NewGroup(sets, -1, nil).Join(nil)
	few := NewGroup(sets[1:], 1000, nil)
	testkit.Equal(t, "sets with a filter stay apart", []bool{few.Join(nil) == few, few.Joins()}, []bool{true, false})
	f := sets[1].four.Load()
	testkit.Equal(t, "entries in memory, of the set alone", []any{f.blocks.n, f.of == nil}, []any{len(entries[1]), true})
	wantEntries(t, sets, entries)
	checkGroups(t, r, sets[1:], entries[1:], few)
}

// bench/README.md: these are the bytes of four lists, the largest with 70 % of all.
func TestJoinedSetsTakeFewBytes(t *testing.T) {
	for _, test := range []struct {
		name        string
		n           int
		maxFiltered int
		most        float64 // bytes an entry
	}{
		{"with a filter", 160_000, 1_000_000, 3.09},
		{"joined", 160_000, 0, 2.47},
		{"few with a filter", 10_000, 1_000_000, 3.6},
		{"few joined", 10_000, 0, 2.98},
	} {
		r := rand.New(rand.NewPCG(41, 42))
		var sets []*Set
		for _, percent := range []int{70, 15, 10, 5} {
			n := test.n / 100 * percent
			sets = append(sets, buildSet(t, n, randomEntries(r, 4, n, false)))
		}
		g := NewGroup(sets, test.maxFiltered, nil).Join(nil)
		testkit.Between(t, test.name+": bytes an entry", float64(g.Bytes()+8*g.filter.words)/float64(test.n), 0, test.most)
	}
}

func TestLookUpsDoNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(43, 44))
	sets, _ := joinSets(t, r, 1000, 1000)
	sets = append(sets, buildSet(t, 0, mixedEntries(r, 2000, 4, 5, 8, 32)))
	hashes := make([][32]byte, AtOnce)
	apart := NewGroup(sets, -1, nil)
	for _, g := range []*Group{nil, {}, NewGroup(sets, 5000, nil), apart, apart.Join(nil)} {
		testkit.Equal(t, "allocations", testing.AllocsPerRun(1000, func() {
			hashes[0][0]++
			hashes[0][1] += 7
			Suspects(g, hashes)
			sets[2].Match(&hashes[0])
			sets[2].Contains(&hashes[0])
		}), 0)
	}
}

// FuzzJoin joins three sets made of bytes, two for each entry, and asks about all entries.
func FuzzJoin(f *testing.F) {
	f.Add([]byte{}, []byte{1, 2}, []byte{1, 2, 3, 4})
	f.Add([]byte("abcdefgh"), []byte("abcd"), []byte("efgh"))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		var sets []*Set
		var want [][]string
		for _, raw := range [][]byte{a, b, c} {
			var entries [][]byte
			for ; len(raw) >= 2; raw = raw[2:] {
				entries = append(entries, []byte{raw[0], raw[0] % 2, raw[1] % 4, raw[1]})
			}
			entries = ascending(entries)
			sets, want = append(sets, buildSet(t, len(entries), entries)), append(want, textsOf(entries))
		}
		apart := NewGroup(sets, -1, nil)
		joined := apart.Join(nil)
		wantEntries(t, sets, want)
		for x := range uint32(1 << 10) {
			e := []byte{byte(x), byte(x) % 2, byte(x >> 8), byte(x>>8) * 5}
			for _, g := range []*Group{apart, joined} {
				held := slices.ContainsFunc(want, func(s []string) bool { return slices.Contains(s, string(e)) })
				if got := Suspects(g, [][32]byte{*padded(e, 9)}); (got == 1) != held {
					t.Fatalf("%x: got %b, want %v", e, got, held)
				}
			}
		}
	})
}

// The forms that the sets had before are given back: otherwise joined sets would take twice their memory.
func TestJoinGivesBackWhatTheSetsTook(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 46))
	outside := func() int64 {
		collect()
		limitOfMemory.mu.Lock()
		defer limitOfMemory.mu.Unlock()
		return limitOfMemory.outside
	}
	var sets []*Set
	for range 4 {
		sets = append(sets, buildSet(t, 100_000, randomEntries(r, 4, 100_000, false)))
	}
	before := outside()
	joined := NewGroup(sets, -1, nil).Join(nil)
	most := before + int64(joined.Bytes())/10
	testkit.Until(t, "no more bytes outside of the heap than before", func() bool { return outside() <= most })
	runtime.KeepAlive(sets)
}
