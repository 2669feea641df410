package prefixset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

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
	if err != nil || !sameSet(again, set) {
		t.Errorf("the set is not read back: %v", err)
	}
}

func writtenForm(t testing.TB, set *Set) []byte {
	t.Helper()
	var w bytes.Buffer
	n, err := set.WriteTo(&w)
	if err != nil || n != int64(w.Len()) {
		t.Fatalf("WriteTo = %d, %v, want %d", n, err, w.Len())
	}
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
