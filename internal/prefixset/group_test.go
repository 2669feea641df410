package prefixset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// joinSets are sets that share some entries, to be joined.
func joinSets(t testing.TB, r *rand.Rand, sizes ...int) (sets []*Set, entries [][]string) {
	t.Helper()
	var pool [][]byte
	for _, n := range sizes {
		of := randomEntries(r, 4, n, len(sets)%3 == 2)
		for _, e := range pool {
			if r.IntN(20) == 0 {
				of = append(of, e)
			}
		}
		of = ascending(of)
		pool = append(pool, of...)
		sets = append(sets, buildSet(t, len(of), of))
		entries = append(entries, textsOf(of))
	}
	return sets, entries
}

func textsOf(entries [][]byte) (texts []string) {
	for _, e := range entries {
		texts = append(texts, string(e))
	}
	return texts
}

// entriesIn returns the entries of a set, of four bytes each.
func entriesIn(t testing.TB, s *Set) []string {
	t.Helper()
	raw, err := io.ReadAll(s.Reader())
	testkit.Must(t, err)
	return textsOf(slices.Collect(slices.Chunk(raw, 4)))
}

func wantEntries(t testing.TB, sets []*Set, want [][]string) {
	t.Helper()
	for i, s := range sets {
		same := slices.Equal(entriesIn(t, s), want[i]) && slices.Equal(entriesIn(t, addedOf(t, s)), want[i])
		testkit.Equal(t, fmt.Sprintf("set %d: Len, the same entries, also if added again", i), []any{s.Len(), same}, []any{len(want[i]), true})
	}
}

func TestJoinedSetsAreTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	for name, sizes := range map[string][]int{
		"one": {1000}, "two": {3000, 10}, "four": {7000, 1500, 1000, 500}, "the largest last": {10, 200, 20_000},
		"six": {100, 100, 100, 100, 100, 100}, "an empty one": {500, 0, 200}, "all empty": {0, 0}, "none": {},
		"more than can be joined": slices.Repeat([]int{50}, maxJoined+1), "many": slices.Repeat([]int{2}, maxJoined),
	} {
		t.Run(name, func(t *testing.T) {
			sets, entries := joinSets(t, r, sizes...)
			apart := NewGroup(sets, -1, nil)
			written := func() (all [][]byte) {
				for _, s := range sets {
					all = append(all, writtenForm(t, s))
				}
				return all
			}
			before, joined := written(), apart.Join(nil)
			if again := NewGroup(sets, -1, nil).Join(nil); len(again.four) != len(joined.four) || len(again.four) == 1 && again.four[0].blocks != joined.four[0].blocks {
				t.Error("joined sets are joined once more")
			}
			wantEntries(t, sets, entries)
			testkit.Equal(t, "the files as before", slices.EqualFunc(written(), before, bytes.Equal), true)
			checkGroups(t, r, sets, entries, apart, joined, NewGroup(sets, 1<<20, nil))
		})
	}
}

// checkGroups asks groups of sets, and each set, about entries, neighbours and others. A filter may let more through.
func checkGroups(t *testing.T, r *rand.Rand, sets []*Set, entries [][]string, groups ...*Group) {
	t.Helper()
	all := slices.Concat(entries...)
	slices.Sort(all)
	for range 2_000 {
		hashes := make([][32]byte, r.IntN(AtOnce+1))
		var want uint
		for i := range hashes {
			x := r.Uint32()
			if kind := r.IntN(3); kind > 0 && len(all) > 0 {
				x = binary.BigEndian.Uint32([]byte(all[r.IntN(len(all))])) + uint32(kind-1)
			}
			binary.BigEndian.PutUint32(hashes[i][:], x)
			if _, ok := slices.BinarySearch(all, string(hashes[i][:4])); ok {
				want |= 1 << i
			}
			for j, s := range sets {
				if _, ok := slices.BinarySearch(entries[j], string(hashes[i][:4])); s.Contains(&hashes[i]) != ok {
					t.Fatalf("set %d: %x: got %v, want %v", j, hashes[i][:4], !ok, ok)
				}
			}
		}
		for i, g := range groups {
			if got := Suspects(g, hashes); got != want && (!g.filtered || got&want != want) {
				t.Fatalf("group %d: %x: got %b, want %b", i, hashes, got, want)
			}
		}
	}
}

// The filter takes six bits an entry.
func TestOnlyFewEntriesHaveAFilter(t *testing.T) {
	four, wide := buildSet(t, 0, randomEntries(rand.New(rand.NewPCG(51, 52)), 4, 640, false)), buildSet(t, 0, randomEntries(rand.New(rand.NewPCG(53, 54)), 8, 64, false))
	for _, test := range []struct {
		name               string
		sets               []*Set
		maxFiltered, words int
	}{
		{"as many as have one", []*Set{four}, 640, 60},
		{"one more", []*Set{four}, 639, 0},
		{"longer entries, too", []*Set{four, wide}, 640, 66},
		{"longer entries only", []*Set{four, wide}, 639, 6},
		{"none", nil, 0, 0},
	} {
		g := NewGroup(test.sets, test.maxFiltered, nil)
		testkit.Equal(t, test.name+": words", g.filter.words, test.words)
		testkit.Equal(t, test.name+": filter when joined", g.Join(nil).filter, g.filter)
	}
}

func TestGroupAsksLongerEntriesToo(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 34))
	mixed, four, wide := mixedEntries(r, 2000, 4, 8), randomEntries(r, 4, 500, false), randomEntries(r, 32, 100, false)
	sets := []*Set{buildSet(t, 0, mixed), buildSet(t, 500, four), buildSet(t, 0, wide)}
	filtered, apart := NewGroup(sets, 10_000, new(Pause)), NewGroup(sets, 0, new(Pause))
	testkit.Equal(t, "sets with a filter stay apart", filtered.Join(nil) == filtered, true)
	joined := apart.Join(new(Pause))
	if joined == apart || len(joined.four) != 1 {
		t.Fatal("the sets are not joined")
	}
	for name, g := range map[string]*Group{"filtered": filtered, "apart": apart, "joined": joined} {
		for _, s := range sets {
			runs := s.Runs()
			for entries, width := runs.Next(); width > 0; entries, width = runs.Next() {
				for e := range slices.Chunk(entries, width) {
					hash := padded(e, 0x5a)
					found := []bool{Suspects(g, [][32]byte{*hash}) == 1, s.Contains(hash)}
					testkit.Equal(t, fmt.Sprintf("%s: %x is found", name, e), found, []bool{true, true})
				}
			}
		}
	}
}

func TestFilterLetsFewThrough(t *testing.T) {
	for _, test := range []struct {
		entries, filters int
		most             float64
	}{
		{10, 2000, 0.065}, // in a single word
		{100, 500, 0.075},
		{10_000, 10, 0.075},
		{1 << 18, 1, 0.075}, // not at odds with powers of two
		{300_007, 1, 0.075},
	} {
		r := rand.New(rand.NewPCG(7, 8))
		asked, through := 0, 0
		for range test.filters {
			prefixes, f := randomPrefixes(r.Uint64(), test.entries), newFilter(test.entries)
			for _, p := range prefixes {
				f.addPrefix(p)
			}
			for range 300_000 / test.filters {
				p, hash := r.Uint32(), [32]byte{}
				binary.BigEndian.PutUint32(hash[:], p)
				if _, added := slices.BinarySearch(prefixes, p); !added {
					asked++
					through += int(filtered(f, [][32]byte{hash}))
				}
			}
		}
		testkit.Between(t, fmt.Sprint("part that gets through, of ", test.entries), float64(through)/float64(asked), 0, test.most)
	}
}

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
	testkit.Equal(t, "the sets stay apart", g.Join(nil) == g, true)
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
