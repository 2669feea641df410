package prefixset

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
)

// change takes some numbers out of old and puts others in: the share of each is 1 in every. It returns what comes out
// as pieces, in order. A piece of old has the index of its first number there, another one has -1.
func change(r *rand.Rand, old []uint32, every int) (pieces [][]uint32, firsts []int) {
	from := 0
	end := func(i int) {
		if from < i {
			pieces, firsts = append(pieces, old[from:i]), append(firsts, from)
		}
		from = i
	}
	for i, x := range old {
		switch {
		case r.IntN(every) == 0: // out
			end(i)
			from = i + 1
		case r.IntN(every) == 0: // another one in before it
			end(i)
			if i > 0 && old[i-1]+1 < x {
				pieces, firsts = append(pieces, []uint32{old[i-1] + 1 + r.Uint32N(x-old[i-1]-1)}), append(firsts, -1)
			}
		case r.IntN(200) == 0: // a new piece without a change
			end(i)
		}
	}
	end(len(old))
	return pieces, firsts
}

func TestAddOfMakesTheSetThatAddMakes(t *testing.T) {
	r := rand.New(rand.NewPCG(71, 72))
	sizes := []int{1, 300, 5000, 60_000}
	if testing.Short() {
		sizes = sizes[:3]
	}
	for _, n := range sizes {
		for name, old := range map[string][]uint32{"spread": randomPrefixes(73, n), "clustered": clustered(r, n)} {
			for _, every := range []int{10, 100, 1000, 1 << 30} {
				for _, capacity := range []int{0, n / 4, n, 20 * n} {
					t.Run(fmt.Sprintf("%d, %s, a change in %d, capacity %d", n, name, every, capacity), func(t *testing.T) {
						addChanged(t, old, every, capacity, r)
					})
				}
			}
		}
	}
}

// addChanged adds what change makes of old, with AddOf where that may be.
func addChanged(t *testing.T, old []uint32, every, capacity int, r *rand.Rand) {
	from := setOfNumbers(old)
	pieces, firsts := change(r, old, every)
	plain, quick := NewBuilder(capacity), NewBuilder(capacity)
	for i, piece := range pieces {
		must(t, plain.Add(packed(piece), 4))
		err := error(nil)
		if firsts[i] < 0 {
			err = quick.Add(packed(piece), 4)
		} else {
			err = quick.AddOf(from, firsts[i], packed(piece), 4)
		}
		must(t, err)
	}
	if got, want := quick.Set(), plain.Set(); len(pieces) > 0 && !bytes.Equal(writtenForm(t, got), writtenForm(t, want)) {
		t.Errorf("sets of %d and %d entries differ", got.Len(), want.Len())
	}
}

// Most of a set with few changes is copied, not coded again.
func TestAddOfCopiesWholeBlocks(t *testing.T) {
	old := randomPrefixes(74, 60_000)
	from := setOfNumbers(old).four.Load().blocks
	b := newBlocksBuilder(len(old))
	blocks := 0
	for first := 0; first < len(old); first += 1000 {
		entries := packed(old[first:min(first+1000, len(old))])
		b.reserve(len(entries) / 4)
		if begin, end, ok := b.wholeBlocks(from, first, entries); ok {
			blocks += end - begin
		}
		b.addOf(from, first, entries)
	}
	if all := blockCount(from.low); blocks < all*8/10 {
		t.Errorf("%d of %d blocks are copied, want at least 80 %%", blocks, all)
	}
}

func TestAddOfRefusesWhatIsOutOfOrder(t *testing.T) {
	old := randomPrefixes(75, 10_000)
	from := setOfNumbers(old)
	for _, again := range []int{999, 998, 500, 0} {
		b := NewBuilder(len(old))
		must(t, errors.Join(b.AddOf(from, 0, packed(old[:500]), 4), b.AddOf(from, 500, packed(old[500:1000]), 4)))
		if err := b.AddOf(from, again, packed(old[again:again+500]), 4); !errors.Is(err, ErrOrder) {
			t.Errorf("entries from %d on, after 1000: %v, want ErrOrder", again, err)
		}
		if got, _ := io.ReadAll(b.Set().Reader()); !bytes.Equal(got, packed(old[:1000])) {
			t.Errorf("the set has %d entries after the error, want 1000", len(got)/4)
		}
	}
}

// Entries of other widths, and of sets that share memory, are coded again.
func TestAddOfTakesEntriesOfAnySet(t *testing.T) {
	numbers := randomPrefixes(76, 4000)
	joined := setOfNumbers(numbers)
	other := setOfNumbers(slices.DeleteFunc(randomPrefixes(77, 4000), func(x uint32) bool {
		_, ok := slices.BinarySearch(numbers, x)
		return ok
	}))
	NewGroup([]*Set{joined, other}, 0, nil).Join(nil)
	if joined.four.Load().of == nil {
		t.Fatal("the set shares no memory")
	}
	mixed := mixedSet(t, mixedEntries(rand.New(rand.NewPCG(78, 79)), 4000, 4, 5))
	for name, set := range map[string]*Set{"joined": joined, "mixed widths": mixed, "empty": {}} {
		b := NewBuilder(0)
		runs, first := set.Runs(), 0
		for run, width := runs.Next(); width > 0; run, width = runs.Next() {
			must(t, b.AddOf(set, first, run, width))
			first += len(run) / width
		}
		want, _ := io.ReadAll(set.Reader())
		if got, _ := io.ReadAll(b.Set().Reader()); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of entries, want %d", name, len(got), len(want))
		}
	}
}
