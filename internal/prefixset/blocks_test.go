package prefixset

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

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
	for n, most := range map[int]float64{4_000_000: 1.6, 8_000_000: 1.5} {
		set := setOfPacked(strides(41, n), n)
		testkit.Between(t, fmt.Sprint("bytes of each of ", n), float64(set.Bytes())/float64(n), 0, most)
		testkit.Between(t, "with what is reserved", float64(cap(set.four.Load().buf))/float64(n), 0, 1.01*most)
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
			put(map[bool]uint32{true: 1}[i == 0 || x>>low != rest[i-1]>>low])
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
		most := 3 << bucketBits / 8 << (maxLow - low) // more entries would make the builder use fewer low bits
		for _, n := range []int{1, most / 2, most} {
			all := clustered(r, min(n, 3000))
			all = all[:min(n, len(all))]
			b := newBlocksBuilderWith(low, len(all))
			for rest := all; len(rest) > 0; {
				piece := rest[:min(1+r.IntN(200), len(rest))]
				testkit.Equal(t, "bytes that are added", b.add(packed(piece)), 4*len(piece))
				rest = rest[len(piece):]
			}
			p := b.close()
			same := bytes.Equal(p.buf[:len(p.buf)-slack], plainBlocks(all, low))
			testkit.Equal(t, "low bits, entries, coded as they should be", []any{p.low, p.n, same}, []any{low, len(all), true})
		}
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
		for i := range 256 {
			prefix := [4]byte{7, 7, byte(i / 64), byte(i % 64)}
			want := scanUnder(entries, prefix)
			testkit.Equal(t, fmt.Sprintf("under %x of %d entries", prefix, len(entries)), set.Under(prefix, len(entries)+1), want)
			testkit.Equal(t, "entries, at most 1", len(set.Under(prefix, 1)), min(1, len(want)))
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

func TestPauseLeavesHalfOfACoreToOthers(t *testing.T) {
	for _, test := range []struct {
		name  string
		cores int
		sets  int           // that are read together, each with a Pause of its own
		each  time.Duration // of work on lookEvery bytes, or on bytes
		least float64       // part of the time that is slept
		most  float64
		piece time.Duration // the longest work without a pause
		bytes int
	}{
		{"quick work", 1, 1, 10 * time.Microsecond, 0.45, 0.55, 2 * pauseEvery, 0},
		{"slow work", 1, 1, 200 * time.Microsecond, 0.45, 0.55, 2 * pauseEvery, 0},
		{"very slow work", 1, 1, 900 * time.Microsecond, 0.45, 0.55, time.Millisecond, 0},
		{"three sets", 1, 3, 100 * time.Microsecond, 0.45, 0.55, 3 * pauseEvery, 0},
		{"work that waits", 1, 1, time.Second, 0, 0.01, time.Second, 0},
		{"two cores", 2, 1, 200 * time.Microsecond, 0, 0, time.Hour, 0},
		{"few bytes in all", 1, 1, 200 * time.Microsecond, 0, 0, time.Hour, lookEvery / 2001},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(test.cores))
			synctest.Test(t, func(t *testing.T) {
				pauses := make([]Pause, test.sets)
				var slept, piece, longest time.Duration
				begun := time.Now()
				for i := range 2_000 {
					time.Sleep(test.each)
					piece += test.each
					before := time.Now()
					(*Pause)(nil).After(1 << 30) // does not sleep
					pauses[i%test.sets].After(cmp.Or(test.bytes, lookEvery))
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
					addChanged(t, fmt.Sprintf("%d, %s, a change in %d, capacity %d", n, name, every, capacity), old, every, capacity, r)
				}
			}
		}
	}
}

// addChanged adds old after some changes, one in every/2 numbers on average, with AddOf where that may be, and each run twice.
func addChanged(t *testing.T, name string, old []uint32, every, capacity int, r *rand.Rand) {
	from := setOfNumbers(old)
	plain, quick, shift := NewBuilder(capacity), NewBuilder(capacity), from.four.Load().low+bucketBits
	for first := 0; first < len(old); {
		end := min(len(old), first+1+r.IntN(min(every, 1000)))
		for up := r.IntN(2) == 0; up && end < len(old) && old[end]>>shift == old[end-1]>>shift; {
			end++ // a block begins with the change
		}
		entries := packed(old[first:end])
		testkit.Must(t, errors.Join(plain.Add(entries, 4), quick.AddOf(from, first, entries, 4)))
		testkit.Is(t, name, quick.AddOf(from, end-1, entries[len(entries)-4:], 4), ErrOrder)
		testkit.Is(t, name, quick.AddOf(from, first, entries, 4), ErrOrder)
		switch first = end; {
		case first == len(old) || every > 1000: // no change
		case r.IntN(2) == 0:
			first++
		case old[first-1]+1 < old[first]:
			other := packed([]uint32{old[first-1] + 1 + r.Uint32N(old[first]-old[first-1]-1)})
			testkit.Must(t, errors.Join(plain.Add(other, 4), quick.Add(other, 4)))
		}
	}
	testkit.Equal(t, name+": the sets are the same", bytes.Equal(writtenForm(t, quick.Set()), writtenForm(t, plain.Set())), true)
}

// Most of a set with few changes is copied, not coded again.
func TestAddOfCopiesWholeBlocks(t *testing.T) {
	old := randomPrefixes(74, 60_000)
	from := setOfNumbers(old).four.Load().blocks
	b := newBlocksBuilder(len(old))
	blocks, first := 0, 0
	for run := range slices.Chunk(packed(old), 4000) {
		b.reserve(len(run) / 4)
		if begin, end, ok := b.wholeBlocks(from, first, run); ok {
			blocks += end - begin
		}
		b.addOf(from, first, run)
		first += len(run) / 4
	}
	testkit.Between(t, "blocks that are copied", blocks, blockCount(from.low)*8/10, blockCount(from.low))
}

// addedOf returns a set that is made of another one, run by run.
func addedOf(t testing.TB, set *Set) *Set {
	b, runs, first := NewBuilder(0), set.Runs(), 0
	for run, width := runs.Next(); width > 0; run, width = runs.Next() {
		testkit.Must(t, b.AddOf(set, first, run, width))
		first += len(run) / width
	}
	return b.Set()
}
