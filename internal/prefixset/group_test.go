package prefixset

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

// joinSets are sets of all kinds, to be joined: they share some entries, and one has wide ones.
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
		slices.SortFunc(of, bytes.Compare)
		of = slices.CompactFunc(of, bytes.Equal)
		pool = append(pool, of...)
		sets = append(sets, buildSet(t, 4, len(of), of))
		var texts []string
		for _, e := range of {
			texts = append(texts, string(e))
		}
		entries = append(entries, texts)
	}
	return sets, entries
}

func entriesIn(t testing.TB, s *Set) []string {
	t.Helper()
	raw, err := io.ReadAll(s.Reader())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for ; len(raw) > 0; raw = raw[4:] {
		all = append(all, string(raw[:4]))
	}
	return all
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
			apart := NewGroup(sets, nil)
			var written []string
			for _, s := range sets {
				var b bytes.Buffer
				s.WriteTo(&b)
				written = append(written, b.String())
			}
			joined := apart.Join(nil)
			if again := NewGroup(sets, nil).Join(nil); len(again.four) != len(joined.four) || len(again.four) == 1 && again.four[0].blocks != joined.four[0].blocks {
				t.Error("joined sets are joined once more")
			}
			for i, s := range sets {
				if got := entriesIn(t, s); !slices.Equal(got, entries[i]) || s.Len() != len(got) {
					t.Errorf("set %d: %d entries of length %d, want %d", i, len(got), s.Len(), len(entries[i]))
				}
				var b bytes.Buffer
				if _, err := s.WriteTo(&b); err != nil || b.String() != written[i] {
					t.Errorf("set %d: another file than before, %v", i, err)
				}
			}
			checkGroups(t, r, sets, entries, apart, joined)
		})
	}
}

// checkGroups asks groups of sets, and each set, about entries, neighbours and others.
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
			if got := Suspects(g, hashes); got != want {
				t.Fatalf("group %d: %x: got %b, want %b", i, hashes, got, want)
			}
		}
	}
}

func TestGroupAsksLongerEntriesToo(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 34))
	long := randomEntries(r, 8, 2000, false)
	mixed := NewBuilder(0)
	for _, e := range long {
		width := 4
		if e[7]%2 == 0 {
			width = 8
		}
		if err := mixed.Add(e[:width], width); err != nil {
			t.Fatal(err)
		}
	}
	sets := []*Set{mixed.Set(), buildSet(t, 4, 500, randomEntries(r, 4, 500, false)), buildSet(t, 32, 0, randomEntries(r, 32, 100, false))}
	apart := NewGroup(sets, new(Pause))
	joined := apart.Join(new(Pause))
	if joined == apart || len(joined.four) != 1 {
		t.Fatal("the sets are not joined")
	}
	for name, g := range map[string]*Group{"apart": apart, "joined": joined} {
		for _, s := range sets {
			runs := s.Runs()
			for entries, width := runs.Next(); width > 0; entries, width = runs.Next() {
				for ; len(entries) > 0; entries = entries[width:] {
					if hash := padded(entries[:width], 0x5a); Suspects(g, [][32]byte{*hash}) != 1 || !s.Contains(hash) {
						t.Fatalf("%s: %x is not found", name, entries[:width])
					}
				}
			}
		}
	}
}

// Two equal sets have all entries in common, and three sets may have them in seven combinations.
func TestEntriesOfSeveralSetsAreInEachOfThem(t *testing.T) {
	r := rand.New(rand.NewPCG(35, 36))
	all := randomEntries(r, 4, 5000, false)
	some := [3][][]byte{}
	for _, e := range all {
		for i, in := 0, 1+r.IntN(7); i < 3; i++ {
			if in>>i&1 != 0 {
				some[i] = append(some[i], e)
			}
		}
	}
	var sets []*Set
	for _, entries := range [][][]byte{all, some[0], all, some[1], some[2]} {
		sets = append(sets, buildSet(t, 4, len(entries), entries))
	}
	if g := NewGroup(sets, nil).Join(nil); g.four[0].blocks.len() != len(all) {
		t.Errorf("%d entries in all, want each once: %d", g.four[0].blocks.len(), len(all))
	}
	for i, want := range [][][]byte{all, some[0], all, some[1], some[2]} {
		got := entriesIn(t, sets[i])
		if same := slices.EqualFunc(got, want, func(s string, b []byte) bool { return s == string(b) }); !same {
			t.Errorf("set %d has %d entries, want %d", i, len(got), len(want))
		}
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
	for _, b := range builders {
		sets = append(sets, b.Set())
	}
	g := NewGroup(sets, nil)
	if g.Join(nil) != g {
		t.Fatal("the sets are joined")
	}
	for _, s := range sets {
		for _, e := range entriesIn(t, s) {
			if Suspects(g, [][32]byte{*padded([]byte(e), 1)}) != 1 {
				t.Fatalf("%x is not found", e)
			}
		}
	}
}

// While sets are joined, queries use them, and an updater reads them.
func TestSetsAreUsedWhileTheyAreJoined(t *testing.T) {
	r := rand.New(rand.NewPCG(39, 40))
	sets, entries := joinSets(t, r, 20_000, 5000, 300)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			n := i % len(sets)
			e := entries[n][i%len(entries[n])]
			if !sets[n].Contains(padded([]byte(e), 7)) {
				t.Errorf("set %d does not hold %x", n, e)
				return
			}
			if i%1000 == 0 && !slices.Equal(entriesIn(t, sets[n]), entries[n]) {
				t.Errorf("set %d has other entries", n)
				return
			}
		}
	}()
	for _, some := range [][]*Set{sets, sets[:2], sets[1:], {sets[2]}, sets} {
		NewGroup(some, nil).Join(nil)
		runtime.GC() // memory that only the sets before used is given back
	}
	close(stop)
	<-done
}

func TestJoinedSetsTakeNoMoreMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	var sets []*Set
	for _, n := range []int{140_000, 30_000, 20_000, 10_000} {
		sets = append(sets, buildSet(t, 4, n, randomEntries(r, 4, n, false)))
	}
	apart := NewGroup(sets, nil)
	before := apart.Bytes()
	apart.Join(nil)
	if after := apart.Bytes(); after > before*26/25 {
		t.Errorf("%d bytes apart, %d joined", before, after)
	}
}

func TestSuspectsDoesNotAllocate(t *testing.T) {
	sets, _ := joinSets(t, rand.New(rand.NewPCG(43, 44)), 1000, 1000)
	hashes := make([][32]byte, AtOnce)
	apart := NewGroup(sets, nil)
	for _, g := range []*Group{nil, {}, apart, apart.Join(nil)} {
		if n := testing.AllocsPerRun(100, func() { Suspects(g, hashes) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
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
			slices.SortFunc(entries, bytes.Compare)
			entries = slices.CompactFunc(entries, bytes.Equal)
			sets = append(sets, buildSet(t, 4, len(entries), entries))
			var texts []string
			for _, e := range entries {
				texts = append(texts, string(e))
			}
			want = append(want, texts)
		}
		apart := NewGroup(sets, nil)
		joined := apart.Join(nil)
		for i, s := range sets {
			if got := entriesIn(t, s); !slices.Equal(got, want[i]) {
				t.Fatalf("set %d: got %x, want %x", i, got, want[i])
			}
		}
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

// The forms that the sets had before are given back: otherwise joined sets would take twice their
// memory.
func TestJoinGivesBackWhatTheSetsTook(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 46))
	outside := func() int64 {
		limitOfMemory.mu.Lock()
		defer limitOfMemory.mu.Unlock()
		return limitOfMemory.outside
	}
	var sets []*Set
	for range 4 {
		sets = append(sets, buildSet(t, 4, 100_000, randomEntries(r, 4, 100_000, false)))
	}
	collect()
	before := outside()
	joined := NewGroup(sets, nil).Join(nil)
	most := before + int64(joined.Bytes())/10
	for deadline := time.Now().Add(20 * time.Second); outside() > most; collect() {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes outside of the heap, want at most %d", outside(), most)
		}
	}
	runtime.KeepAlive(sets)
}
