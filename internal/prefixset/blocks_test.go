package prefixset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// strides returns n ascending entries of four bytes, fast: with random strides over the whole range.
func strides(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	entries := make([]byte, 0, 4*n)
	for x, most := uint32(0), uint32(2*((1<<32-1<<24)/uint64(n))); len(entries) < 4*n; x += 1 + r.Uint32N(most) {
		entries = binary.BigEndian.AppendUint32(entries, x)
	}
	return entries
}

// TestBytesAPrefix pins the memory of large lists.
func TestBytesAPrefix(t *testing.T) {
	for _, tt := range []struct {
		n    int
		most float64 // bytes a prefix
	}{{4_000_000, 1.6}, {8_000_000, 1.5}} {
		set := setOfPacked(strides(41, tt.n), tt.n)
		got := float64(set.Bytes()) / float64(tt.n)
		if held := float64(cap(set.four.Load().buf)) / float64(tt.n); got > tt.most || held > 1.01*tt.most {
			t.Errorf("%d prefixes: %.3f bytes each, %.3f with what is reserved, want %.1f", tt.n, got, held, tt.most)
		}
	}
}

// plainBlocks is directory and stream of ascending numbers, bit by bit from what the comment of blocks says.
func plainBlocks(all []uint32, low uint) []byte {
	buf := make([]byte, blocksBytes(low, len(all)))
	at := 8 * streamStart(low)
	put := func(bit uint32) {
		buf[at/8] |= byte(bit&1) << (at % 8)
		at++
	}
	rest := all
	for block := range blockCount(low) {
		record := buf[recordBytes*block:]
		binary.LittleEndian.PutUint32(record, uint32(len(all)-len(rest)))
		n := 0
		for n < len(rest) && rest[n]>>low>>bucketBits == uint32(block) {
			bucket := rest[n] >> low % (1 << bucketBits)
			record[4+bucket/8] |= 1 << (bucket % 8)
			n++
		}
		for i, x := range rest[:n] {
			if i == 0 || x>>low != rest[i-1]>>low {
				put(1)
			} else {
				put(0)
			}
		}
		for _, x := range rest[:n] {
			for bit := range low {
				put(x >> bit)
			}
		}
		rest = rest[n:]
	}
	binary.LittleEndian.PutUint32(buf[recordBytes*blockCount(low):], uint32(len(all)))
	return buf
}

// clustered returns about n ascending numbers, so that blocks have from no entry to several hundred.
func clustered(r *rand.Rand, n int) (all []uint32) {
	for len(all) < n {
		x := r.Uint32()
		all = append(all, x)
		for range r.IntN(2) * r.IntN(300) {
			x += 1 + r.Uint32N(1<<r.IntN(14))
			all = append(all, x)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestBlocksHaveTheFormThatTheirCommentGives(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 62))
	for low := uint(7); low <= maxLow; low++ {
		t.Run(fmt.Sprintf("%d low bits", low), func(t *testing.T) {
			most := 3 << bucketBits / 8 << (maxLow - low) // more entries would make the builder use fewer low bits
			for _, n := range []int{1, most / 2, most} {
				all := clustered(r, min(n, 3000))
				all = all[:min(n, len(all))]
				b := newBlocksBuilderWith(low, len(all))
				for rest := all; len(rest) > 0; {
					piece := rest[:min(1+r.IntN(200), len(rest))]
					if taken := b.add(packed(piece)); taken != 4*len(piece) {
						t.Fatalf("%d bytes of %d are added", taken, 4*len(piece))
					}
					rest = rest[len(piece):]
				}
				p := b.close()
				if want := plainBlocks(all, low); p.low != low || p.n != len(all) || !bytes.Equal(p.buf[:len(p.buf)-slack], want) {
					t.Errorf("%d entries are not coded as they should be", len(all))
				}
			}
		})
	}
}

// The entries are few enough to collide, and some sets are large enough for an index of two leading bytes.
func TestUnderFindsWhatAScanFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 300, chunkEntries + 5000} {
		var entries [][]byte
		for range size {
			e := make([]byte, []int{4, 5, 8, 32}[random.IntN(4)])
			for i := range e {
				e[i] = byte(random.Uint32())
			}
			if random.IntN(2) == 0 {
				copy(e, []byte{7, 7, byte(random.IntN(4)), byte(random.IntN(64))})
			}
			entries = append(entries, e)
		}
		entries = ascending(entries)
		set := buildSet(t, len(entries), entries)
		for third := range byte(4) {
			for fourth := range byte(64) {
				prefix := [4]byte{7, 7, third, fourth}
				want := scanUnder(entries, prefix)
				if got := set.Under(prefix, len(entries)+1); !slices.EqualFunc(got, want, bytes.Equal) {
					t.Fatalf("of %d entries under %x: %x, want %x", len(entries), prefix, got, want)
				}
				if got := set.Under(prefix, 1); len(got) != min(1, len(want)) {
					t.Fatalf("%d entries, want at most 1", len(got))
				}
			}
		}
	}
}

func scanUnder(entries [][]byte, prefix [4]byte) (found [][]byte) {
	for _, e := range entries {
		if bytes.Equal(e, prefix[:]) {
			return [][]byte{e}
		}
		if bytes.HasPrefix(e, prefix[:]) {
			found = append(found, e)
		}
	}
	return found
}

// onCores gives the rest of a test this many cores.
func onCores(t *testing.T, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

func TestPauseLeavesHalfOfACoreToOthers(t *testing.T) {
	for _, test := range []struct {
		name  string
		cores int
		sets  int           // that are read together, each with a Pause of its own
		each  time.Duration // of work on lookEvery bytes
		least float64       // part of the time that is slept
		most  float64
		piece time.Duration // the longest work without a pause
	}{
		{"quick work", 1, 1, 10 * time.Microsecond, 0.45, 0.55, 2 * pauseEvery},
		{"slow work", 1, 1, 200 * time.Microsecond, 0.45, 0.55, 2 * pauseEvery},
		{"very slow work", 1, 1, 900 * time.Microsecond, 0.45, 0.55, time.Millisecond},
		{"three sets", 1, 3, 100 * time.Microsecond, 0.45, 0.55, 3 * pauseEvery},
		{"work that waits", 1, 1, time.Second, 0, 0.01, time.Second},
		{"two cores", 2, 1, 200 * time.Microsecond, 0, 0, time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			onCores(t, test.cores)
			synctest.Test(t, func(t *testing.T) {
				pauses := make([]Pause, test.sets)
				var slept, piece, longest time.Duration
				begun := time.Now()
				for i := range 2_000 {
					time.Sleep(test.each)
					piece += test.each
					before := time.Now()
					pauses[i%test.sets].After(lookEvery)
					if now := time.Since(before); now > 0 {
						slept, piece = slept+now, 0
					}
					longest = max(longest, piece)
				}
				testkit.Between(t, "part of the time that is slept", float64(slept)/float64(time.Since(begun)), test.least, test.most)
				testkit.Between(t, "work without a pause", longest, 0, test.piece)
			})
		})
	}
}

func TestPauseOfFewBytesAndANilPauseDoNotSleep(t *testing.T) {
	onCores(t, 1)
	synctest.Test(t, func(t *testing.T) {
		var pause Pause
		var none *Pause
		begun := time.Now()
		for range 100 {
			pause.After(lookEvery / 101)
			none.After(1 << 30)
		}
		testkit.Equal(t, "slept", time.Since(begun), 0)
	})
}

func TestCopyWithPausesCopiesAll(t *testing.T) {
	for _, size := range []int{0, 1, 1<<16 - 1, 1 << 16, 1<<16 + 1, 300_000} {
		src := bytes.Repeat([]byte("abcdefg"), size/7+1)[:size]
		dst := make([]byte, size+1)
		new(Pause).copy(dst, src)
		if !bytes.Equal(dst[:size], src) || dst[size] != 0 {
			t.Errorf("%d bytes are not copied", size)
		}
	}
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

// addChanged adds what is left of old after some changes, with AddOf where that may be. A number is left out, or another one
// comes between, after every/2 of old on average.
func addChanged(t *testing.T, old []uint32, every, capacity int, r *rand.Rand) {
	from := setOfNumbers(old)
	plain, quick, shift := NewBuilder(capacity), NewBuilder(capacity), from.four.Load().low+bucketBits
	for first := 0; first < len(old); {
		end := min(len(old), first+1+r.IntN(min(every, 1000)))
		for up := r.IntN(2) == 0; up && end < len(old) && old[end]>>shift == old[end-1]>>shift; {
			end++ // a block begins with the change
		}
		entries := packed(old[first:end])
		testkit.Must(t, errors.Join(plain.Add(entries, 4), quick.AddOf(from, first, entries, 4)))
		switch first = end; {
		case first == len(old) || every > 1000: // no change
		case r.IntN(2) == 0:
			first++
		case old[first-1]+1 < old[first]:
			other := packed([]uint32{old[first-1] + 1 + r.Uint32N(old[first]-old[first-1]-1)})
			testkit.Must(t, errors.Join(plain.Add(other, 4), quick.Add(other, 4)))
		}
	}
	if got, want := quick.Set(), plain.Set(); !bytes.Equal(writtenForm(t, got), writtenForm(t, want)) {
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
		testkit.Must(t, errors.Join(b.AddOf(from, 0, packed(old[:500]), 4), b.AddOf(from, 500, packed(old[500:1000]), 4)))
		testkit.Is(t, again, b.AddOf(from, again, packed(old[again:again+500]), 4), ErrOrder)
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
	mixed := buildSet(t, 0, mixedEntries(rand.New(rand.NewPCG(78, 79)), 4000, 4, 5))
	for name, set := range map[string]*Set{"joined": joined, "mixed widths": mixed, "empty": {}} {
		b := NewBuilder(0)
		runs, first := set.Runs(), 0
		for run, width := runs.Next(); width > 0; run, width = runs.Next() {
			testkit.Must(t, b.AddOf(set, first, run, width))
			first += len(run) / width
		}
		want, _ := io.ReadAll(set.Reader())
		if got, _ := io.ReadAll(b.Set().Reader()); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of entries, want %d", name, len(got), len(want))
		}
	}
}
