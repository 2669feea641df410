package prefixset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// randomEntries returns at most n distinct ascending entries. Clustered ones share their first bytes.
func randomEntries(r *rand.Rand, width, n int, clustered bool) [][]byte {
	entries := make([][]byte, n)
	for i := range entries {
		entry := make([]byte, 0, width+8)
		for len(entry) < width {
			entry = binary.BigEndian.AppendUint64(entry, r.Uint64())
		}
		entry = entry[:width]
		if clustered {
			copy(entry, []byte{0xab, 0xcd, 0xef}[:1+r.IntN(3)])
		}
		entries[i] = entry
	}
	return ascending(entries)
}

// buildSet makes a set of ascending entries, of any widths. capacity chooses the index of those of four bytes.
func buildSet(t testing.TB, capacity int, entries [][]byte) *Set {
	t.Helper()
	b := NewBuilder(capacity)
	for _, e := range entries {
		testkit.Must(t, b.Add(e, len(e)))
	}
	return b.Set()
}

// ascending sorts entries, and leaves each one in once.
func ascending(entries [][]byte) [][]byte {
	slices.SortFunc(entries, bytes.Compare)
	return slices.CompactFunc(entries, bytes.Equal)
}

// padded returns a hash that begins with entry. What follows must not matter.
func padded(entry []byte, filler byte) *[32]byte {
	hash := [32]byte(bytes.Repeat([]byte{filler}, maxWidth))
	copy(hash[:], entry)
	return &hash
}

// eachSet runs a test for sets of every width, size and index, with the least and the greatest entry.
func eachSet(t *testing.T, sizes []int, run func(t *testing.T, set *Set, width int, entries [][]byte, r *rand.Rand)) {
	for _, width := range []int{4, 5, 8, 16, 32} {
		for _, size := range sizes {
			for _, capacity := range []int{0, 1000, 100_000} {
				for _, clustered := range []bool{false, true} {
					name := fmt.Sprintf("width %d, size %d, capacity %d, clustered %v", width, size, capacity, clustered)
					t.Run(name, func(t *testing.T) {
						r := rand.New(rand.NewPCG(uint64(width), uint64(size)))
						entries := randomEntries(r, width, size, clustered)
						if size >= 255 {
							entries = slices.Insert(entries, 0, make([]byte, width))
							entries = append(entries, bytes.Repeat([]byte{0xff}, width))
						}
						run(t, buildSet(t, capacity, entries), width, entries, r)
					})
				}
			}
		}
	}
}

func TestContainsEqualsLinearScan(t *testing.T) {
	eachSet(t, []int{0, 1, 2, 255, 600}, func(t *testing.T, set *Set, width int, entries [][]byte, r *rand.Rand) {
		testkit.Equal(t, "Len", set.Len(), len(entries))
		near := randomEntries(r, width, 100, true)
		near = append(near, make([]byte, width), bytes.Repeat([]byte{0xff}, width))
		for _, e := range entries {
			if !set.Contains(padded(e, 0)) || !set.Contains(padded(e, 0xff)) {
				t.Fatalf("%x is not found", e)
			}
			for _, bit := range []byte{1, 0x80} { // near misses
				miss := slices.Clone(e)
				miss[width-1] ^= bit
				near = append(near, miss)
			}
			first := slices.Clone(e)
			first[0] ^= 1
			near = append(near, first)
		}
		for _, e := range near {
			if got, want := set.Contains(padded(e, 0x55)), slices.ContainsFunc(entries, func(held []byte) bool { return bytes.Equal(held, e) }); got != want {
				t.Fatalf("Contains(%x) = %v, want %v", e, got, want)
			}
		}
	})
}

func TestLargeSetsEqualMaps(t *testing.T) {
	testkit.Long(t)
	r := rand.New(rand.NewPCG(7, 8))
	for _, size := range []int{chunkEntries - 1, chunkEntries, 200_000} {
		for _, width := range []int{4, 8} {
			entries := randomEntries(r, width, size, false)
			set := buildSet(t, size, entries)
			for _, e := range entries {
				miss := slices.Clone(e)
				miss[width-1] ^= 1
				_, held := slices.BinarySearchFunc(entries, miss, bytes.Compare)
				if !set.Contains(padded(e, 0)) || set.Contains(padded(miss, 0)) != held {
					t.Fatalf("width %d, size %d: %x is not found, or %x is: %v", width, size, e, miss, !held)
				}
			}
			testkit.Between(t, "bytes", set.Bytes(), 0, 256<<10+8+len(entries)*(width-1))
		}
	}
}

// mixedEntries returns at most n distinct ascending entries of the widths. Many begin with a whole other entry.
func mixedEntries(r *rand.Rand, n int, widths ...int) [][]byte {
	var entries [][]byte
	for i := range n {
		width := widths[r.IntN(len(widths))]
		entry := randomEntries(r, width, 1, r.IntN(2) == 0)[0]
		if i > 0 && r.IntN(2) == 0 {
			copy(entry, entries[r.IntN(i)])
		}
		entries = append(entries, entry)
	}
	return ascending(entries)
}

// shortestMatch is what Match should return.
func shortestMatch(entries [][]byte, hash *[32]byte) (width int) {
	for _, e := range entries {
		if bytes.HasPrefix(hash[:], e) && (width == 0 || len(e) < width) {
			width = len(e)
		}
	}
	return width
}

func TestMixedSetsMatchTheShortestEntryAndYieldAllInOrder(t *testing.T) {
	for _, widths := range [][]int{{4}, {4, 5}, {4, 32}, {5, 8, 31}, {4, 5, 6, 7, 8, 9, 16, 31, 32}} {
		for _, size := range []int{0, 1, 2, 10, 800, 4000} {
			t.Run(fmt.Sprintf("%d of widths %d", size, widths), func(t *testing.T) {
				entries := mixedEntries(rand.New(rand.NewPCG(21, uint64(size))), size, widths...)
				set := buildSet(t, 0, entries)
				checkMatch(t, set, entries)
				checkRuns(t, set, entries)
				checkRuns(t, addedOf(t, set), entries)
			})
		}
	}
}

func checkMatch(t *testing.T, set *Set, entries [][]byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(23, 24))
	for i := range min(2*len(entries), 500) {
		hash := padded(randomEntries(r, 32, 1, true)[0], 0)
		if i%2 == 0 {
			copy(hash[:], entries[r.IntN(len(entries))])
		}
		want := shortestMatch(entries, hash)
		if got := set.Match(hash); got != want || set.Contains(hash) != (want != 0) {
			t.Fatalf("Match(%x) = %d, want %d", hash, got, want)
		}
	}
}

func checkRuns(t *testing.T, set *Set, entries [][]byte) {
	t.Helper()
	runs, rest, ofWidth := set.Runs(), entries, make(map[int]int)
	for run, width := runs.Next(); width > 0; run, width = runs.Next() {
		if len(run) == 0 || len(run)%width != 0 || len(run)/width > 1024 {
			t.Fatalf("a run of %d bytes of width %d", len(run), width)
		}
		for e := range slices.Chunk(run, width) {
			if len(rest) == 0 || !bytes.Equal(rest[0], e) {
				t.Fatalf("got %x, want the next of %d entries", e, len(rest))
			}
			rest = rest[1:]
			ofWidth[width]++
		}
	}
	run, width := runs.Next()
	testkit.Equal(t, "a run after the end, and entries that are missing", []int{len(run), width, len(rest)}, []int{0, 0, 0})
	for width := 3; width <= 33; width++ {
		testkit.Equal(t, width, set.LenOf(width), ofWidth[width])
	}
}

// FuzzBuilder adds what the bytes say: a width, a number of entries, and these.
func FuzzBuilder(f *testing.F) {
	f.Add([]byte("\x04\x02aaaabbbb\x05\x01ccccc"))
	f.Add([]byte("\x04\x02aaaabbbb\x04\x01aaaa"))
	f.Add([]byte("\x08\x01aaaaaaaa\x04\x01bbbb\x20\x01bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"))
	f.Add([]byte("\x04\x04\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x01\x00\xff\xff\xff\xff\x03\x01aaa\x00\x00\xfc\x01\x04\x00"))
	r := rand.New(rand.NewPCG(25, 26))
	for range 500 { // each entry is like the one before, but for a byte or its width
		last := []byte("\x00aaa")
		var orders []byte
		for range 1 + r.IntN(4) {
			width, n := []int{3, 4, 4, 5, 5, 32, 33}[r.IntN(7)], r.IntN(4)
			orders = append(orders, byte(width), byte(n))
			for range n {
				last = append(last, make([]byte, 33)...)[:width]
				if r.IntN(4) > 0 {
					last[r.IntN(width)] += "\x01\x80\xff"[r.IntN(3)]
				}
				orders = append(orders, last...)
			}
		}
		f.Add(orders[:len(orders)-r.IntN(9)/8])
	}
	f.Fuzz(func(t *testing.T, orders []byte) {
		b := NewBuilder(len(orders))
		var want [][]byte
		for len(orders) >= 2 {
			width, n := int(int8(orders[0]))%40, int(orders[1])
			entries := orders[2:min(2+max(width, 0)*n, len(orders))]
			orders = orders[2+len(entries):]
			whole := width >= minWidth && width <= maxWidth && len(entries)%width == 0
			ok := whole
			for rest := entries; ok && len(rest) > 0; rest = rest[width:] {
				if ok = len(want) == 0 || bytes.Compare(want[len(want)-1], rest[:width]) < 0; ok {
					want = append(want, rest[:width])
				}
			}
			if err := b.Add(entries, width); (err == nil) != ok || errors.Is(err, ErrOrder) != (whole && !ok) {
				t.Fatalf("adding %x of width %d: %v, want an error: %v", entries, width, err, !ok)
			}
		}
		set := b.Set()
		if got, _ := io.ReadAll(set.Reader()); !bytes.Equal(got, bytes.Join(want, nil)) || set.Len() != len(want) {
			t.Fatalf("the set holds %x, want %x", got, want)
		}
		for _, e := range want {
			for _, filler := range []byte{0, 0xff} {
				hash := padded(e, filler)
				testkit.Equal(t, fmt.Sprintf("Match(%x)", hash), set.Match(hash), shortestMatch(want, hash))
			}
		}
	})
}

func TestWrittenSetsAreReadBack(t *testing.T) {
	eachSet(t, []int{0, 1, 2, 255}, func(t *testing.T, set *Set, _ int, entries [][]byte, _ *rand.Rand) {
		written := writtenForm(t, set)
		for name, r := range map[string]io.Reader{
			"at once":            bytes.NewReader(written),
			"one byte at a time": iotest.OneByteReader(bytes.NewReader(written)),
		} {
			got, err := Read(r, len(entries))
			testkit.Must(t, err)
			testkit.Equal(t, name, sameSet(got, set), true)
		}
	})
}

// fullDisk is a writer that fails after some writes.
type fullDisk struct{ writes, written int }

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.writes--; d.writes < 0 {
		return 0, io.ErrClosedPipe
	}
	d.written += len(p)
	return len(p), nil
}

func TestWriteErrorsAreReturned(t *testing.T) {
	set := buildSet(t, 1, [][]byte{[]byte("aaaa")})
	for writes := range 2 {
		disk := &fullDisk{writes: writes}
		n, err := set.WriteTo(disk)
		testkit.Is(t, "the writer's error", err, io.ErrClosedPipe)
		testkit.Equal(t, fmt.Sprintf("bytes in %d writes", writes), n, int64(disk.written))
	}
}

func TestSetsAboveTheLimitAreRefused(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	written := writtenForm(t, buildSet(t, 0, randomEntries(r, 4, 300, false)))
	for limit, ok := range map[int]bool{0: false, 299: false, 300: true, 301: true} {
		_, err := Read(bytes.NewReader(written), limit)
		testkit.Equal(t, fmt.Sprint("read up to ", limit), err == nil, ok)
	}
	// A lie about the size must not cost memory: the limit comes first.
	lie := binary.LittleEndian.AppendUint32([]byte{1, 32, 2}, 1<<31-1)
	_, err := Read(bytes.NewReader(lie), 1000)
	testkit.WantError(t, err, "2147483647 entries of one width, must be 1 to 1000")
}

func TestSetsThatContradictThemselvesAreRefused(t *testing.T) {
	four := writtenForm(t, buildSet(t, 2, [][]byte{[]byte("aaaa"), []byte("aaab")}))
	wide := writtenForm(t, buildSet(t, 2, [][]byte{[]byte("\x00aaaa"), []byte("bbbbb")}))
	const used, begins = 1 + partHead + 4, 1 + partHead + recordBytes + 4
	for _, tt := range []struct {
		name    string
		written []byte
		at      int
		to      byte
	}{
		{"a second width that is none", four, 0, 2},
		{"width below four", four, 1, 3},
		{"width above 32", wide, 1, 33},
		{"no width", wide, 1, 0},
		{"no entries", four, 3, 0},
		{"fewer entries than the directory says", four, 3, 1},
		{"more entries than the directory says", four, 3, 3},
		{"too few low bits", four, 2, 20},
		{"too many low bits", four, 2, maxLow + 1},
		{"entries before the first block", four, 1 + partHead, 1},
		{"more buckets than entries begin one", four, used, 0xff},
		{"no bucket", four, used + 'a'/2/8, 0},
		{"more entries begin a bucket than there are", four, begins, 3},
		{"the first entry begins no bucket", four, begins, 2},
		{"no indexed byte", wide, 2, 0},
		{"three indexed bytes", wide, 2, 3},
		{"fewer entries than the index says", wide, 3, 1},
		{"more entries than the index says", wide, 3, 3},
		{"entries before the first slot", wide, 7, 1},
		{"index that runs backwards", wide, 7 + 4*'b', 3},
		{"index that ends early", wide, 7 + 4*256, 1},
	} {
		damaged := append(slices.Clone(tt.written), make([]byte, 1<<20)...) // the bytes that a greater set would need
		damaged[tt.at] = tt.to
		_, err := Read(bytes.NewReader(damaged), 1000)
		testkit.Equal(t, tt.name+": damaged, refused", []bool{tt.written[tt.at] != tt.to, err != nil}, []bool{true, true})
	}
}

// The stream of the last block would lie behind the end of the file, though no block alone has too many entries.
func TestBlocksThatTogetherHaveMoreEntriesThanTheSetAreRefused(t *testing.T) {
	const n = 1000
	low := lowBits(n)
	directory := make([]byte, blocksBytes(low, n))
	stream := directory[streamStart(low):]
	first := uint32(0)
	for block, entries := range []uint32{600, 390, 600} {
		r := directory[recordBytes*block:]
		binary.LittleEndian.PutUint32(r, first)
		r[4] = 1 // one bucket is used, and the first entry begins it
		begins := first * uint32(low+1)
		stream[begins/8] |= 1 << (begins % 8)
		first += entries
	}
	for block := 3; block < blockCount(low); block++ {
		binary.LittleEndian.PutUint32(directory[recordBytes*block:], first)
	}
	binary.LittleEndian.PutUint32(directory[recordBytes*blockCount(low):], n)
	written := binary.LittleEndian.AppendUint32([]byte{1, 4, byte(low)}, n)
	_, err := Read(bytes.NewReader(append(written, directory...)), n)
	testkit.Is(t, "more entries than the set has", err, errBlocks)
}

func TestDamagedSetsAreRefusedOrHarmless(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for _, width := range []int{4, 32} {
		written := writtenForm(t, buildSet(t, 0, randomEntries(r, width, 5, true)))
		for i := range written {
			_, err := Read(bytes.NewReader(written[:i]), 1000)
			testkit.Equal(t, fmt.Sprintf("width %d: %d of %d bytes are refused", width, i, len(written)), err != nil, true)
			others := []byte{0, 1, 2, 0xff}
			for bit := range 8 {
				others = append(others, written[i]^1<<bit)
			}
			for _, b := range others {
				damaged := slices.Clone(written)
				damaged[i] = b
				useSet(t, damaged)
			}
		}
	}
}

// useSet reads a set that may be damaged, and uses it if it was taken.
func useSet(t *testing.T, written []byte) {
	t.Helper()
	const limit = 1000
	set, err := Read(bytes.NewReader(written), limit)
	if err != nil {
		testkit.Equal(t, "a set with an error", set, nil)
		return
	}
	testkit.Between(t, "entries", set.Len(), 0, limit)
	for b := range 256 {
		set.Contains(padded(nil, byte(b)))
	}
	set.Contains(padded([]byte{0xab, 0xcd, 0xef, 0}, 0))
	entries, err := io.ReadAll(set.Reader())
	widths := set.Widths()
	if least := 4 * set.Len(); err != nil || len(entries) < least || len(widths) == 1 && len(entries) != set.Len()*widths[0] {
		t.Errorf("the reader yields %d bytes, %v, want %d entries of %d", len(entries), err, set.Len(), widths)
	}
	again, err := Read(bytes.NewReader(writtenForm(t, set)), limit)
	testkit.Must(t, err)
	testkit.Equal(t, "the set that is read back is the same", sameSet(again, set), true)
}

func writtenForm(t testing.TB, set *Set) []byte {
	t.Helper()
	var w bytes.Buffer
	n, err := set.WriteTo(&w)
	testkit.Equal(t, "WriteTo", []any{n, err}, []any{int64(w.Len()), nil})
	return w.Bytes()
}

// sameSet reports whether two sets are the same down to their form.
func sameSet(a, b *Set) bool {
	p, q := a.four.Load(), b.four.Load()
	if (p == nil) != (q == nil) || p != nil && (p.low != q.low || !bytes.Equal(p.buf, q.buf)) {
		return false
	}
	return slices.EqualFunc(a.wide, b.wide, func(a, b *wide) bool {
		return a.width == b.width && a.lead == b.lead && slices.Equal(a.index, b.index) && slices.EqualFunc(a.chunks, b.chunks, func(a, b *memory) bool { return bytes.Equal(a.bytes, b.bytes) })
	})
}

func FuzzRead(f *testing.F) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, width := range []int{4, 8, 32} {
		for _, size := range []int{0, 1, 40} {
			f.Add(writtenForm(f, buildSet(f, 0, randomEntries(r, width, size, true))))
		}
	}
	f.Add(writtenForm(f, buildSet(f, 0, mixedEntries(r, 200, 4, 5, 32))))
	f.Add(writtenForm(f, buildSet(f, 0, randomEntries(r, 4, 200, true))))
	f.Add(writtenForm(f, new(Set)))
	f.Add([]byte{1, 4, 2, 1, 0, 0, 0})
	f.Add([]byte{1, 4, 3, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, written []byte) { useSet(t, written) })
}
