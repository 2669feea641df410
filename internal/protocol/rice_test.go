package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

var widths = []int{4, 8, 16, 32}

// parseRiceVector reads a line of the file of vectors.
func parseRiceVector(t *testing.T, fields []string) (coded rice, want []byte) {
	t.Helper()
	coded = rice{first: limbs(unhex(t, fields[1])), data: unhex(t, strings.TrimPrefix(fields[4], "-"))}
	_, err := fmt.Sscan(strings.Join([]string{fields[0], fields[2], fields[3]}, " "), &coded.width, &coded.parameter, &coded.count)
	testkit.Must(t, err)
	return coded, unhex(t, strings.Join(fields[5:], ""))
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	testkit.Must(t, err)
	return b
}

// limbs is the integer that is written big-endian in b.
func limbs(b []byte) (v [4]uint64) {
	var whole [32]byte
	copy(whole[32-len(b):], b)
	for i := range v {
		v[i] = binary.BigEndian.Uint64(whole[24-8*i:])
	}
	return v
}

// decodeRice checks and decodes.
func decodeRice(r rice) ([]byte, error) {
	if err := r.check(parametersV5(r.width)); err != nil {
		return nil, err
	}
	return io.ReadAll(r.reader())
}

// wantDecoded checks what a coding is decoded to.
func wantDecoded(t *testing.T, what string, coded rice, want []byte) {
	t.Helper()
	got, err := decodeRice(coded)
	testkit.Is(t, what, err, nil)
	testkit.Equal(t, what, hex.EncodeToString(got), hex.EncodeToString(want))
}

func TestRiceDecodesThePublishedExamples(t *testing.T) {
	vectors := 0
	for line := range strings.Lines(testkit.Read(t, "../../testdata/protocol/rice.txt")) {
		text, _, _ := strings.Cut(line, "#")
		if fields := strings.Fields(text); len(fields) > 0 {
			coded, want := parseRiceVector(t, fields)
			wantDecoded(t, text, coded, want)
			vectors++
		}
	}
	testkit.Between(t, "vectors", vectors, 1, 1000)
}

func TestRiceAcceptsParametersWithinBoundsOnly(t *testing.T) {
	for _, width := range widths {
		least, greatest := int32(8*width-29), int32(8*width-2)
		for parameter, want := range map[int32]error{
			math.MinInt32: updater.ErrMalformed, -1: updater.ErrMalformed, 0: updater.ErrMalformed, least - 1: updater.ErrMalformed, least: nil,
			greatest: nil, greatest + 1: updater.ErrMalformed, int32(8 * width): updater.ErrMalformed, math.MaxInt32: updater.ErrMalformed,
		} {
			_, err := decodeRice(rice{width: width, parameter: parameter, count: 1, data: make([]byte, 64)})
			testkit.Is(t, fmt.Sprintf("width %d, parameter %d", width, parameter), err, want)
		}
	}
}

func TestRiceRejectsWhatCannotBe(t *testing.T) {
	most := limbs(bytes.Repeat([]byte{0xff}, 32))
	tests := map[string]rice{
		"a negative count":                                {width: 4, parameter: 3, count: -1},
		"the least count there is":                        {width: 4, parameter: 3, count: math.MinInt32, data: make([]byte, 10)},
		"differences without data":                        {width: 4, parameter: 3, count: 1},
		"more differences than there are bits for":        {width: 4, parameter: 3, count: 3, data: make([]byte, 1)},
		"a count that lies by far":                        {width: 4, parameter: 30, count: math.MaxInt32, data: make([]byte, 1000)},
		"a remainder that is cut":                         {width: 4, parameter: 3, count: 2, data: []byte{0b0111_0111}},
		"a quotient that is cut":                          {width: 4, parameter: 3, count: 2, data: []byte{0b1111_0111}},
		"nothing left for the last difference":            {width: 4, parameter: 3, count: 3, data: []byte{0b0000_1111, 0b1111_1000}},
		"a quotient that is one too large":                {width: 4, parameter: 30, count: 1, data: []byte{0x0f, 0, 0, 0, 0}},
		"the greatest quotient over a first value of one": {width: 4, first: [4]uint64{1}, parameter: 30, count: 1, data: []byte{0xf7, 0xff, 0xff, 0xff, 0x03}},
		"a sum over 32 bits":                              {width: 4, first: [4]uint64{math.MaxUint32}, parameter: 3, count: 1, data: []byte{2}},
	}
	for width, k := range map[int]int{8: 35, 16: 99, 32: 227} {
		sum := rice{width: width, first: most, parameter: int32(k), count: 1, data: append([]byte{2}, make([]byte, k/8)...)}
		remainder := rice{width: width, parameter: int32(k), count: 1, data: append([]byte{0x1f}, make([]byte, k/8)...)}
		quotient := rice{width: width, parameter: int32(8*width - 2), count: 1, data: append([]byte{0x0f}, make([]byte, width+1)...)}
		maps.Copy(tests, map[string]rice{
			fmt.Sprintf("a sum over %d bytes", width): sum, fmt.Sprintf("a remainder of %d bytes that is cut", width): remainder,
			fmt.Sprintf("too large a quotient of %d bytes", width): quotient,
		})
	}
	for name, coded := range tests {
		_, err := decodeRice(coded)
		testkit.Is(t, name, err, updater.ErrMalformed)
	}
}

// A run of ones must be given up at the greatest quotient that makes sense, not at its end.
func TestRiceGivesUpALongRunOfOnesSoon(t *testing.T) {
	for _, width := range widths {
		r := rice{width: width, parameter: int32(8*width - 2), count: 1, data: bytes.Repeat([]byte{0xff}, 1<<20)}
		reader := r.reader()
		_, err := io.ReadAll(reader)
		testkit.Is(t, width, err, updater.ErrMalformed)
		testkit.Between(t, fmt.Sprintf("width %d: bytes of ones that were looked at", width), 1<<20-len(reader.data), 0, 16)
	}
}

func TestRiceIgnoresWhatDoesNotMatter(t *testing.T) {
	eleven := []byte{0, 0, 0, 10, 0, 0, 0, 11}
	one := []byte{0, 0, 0, 10}
	for _, test := range []struct {
		name  string
		coded rice
		want  []byte
	}{
		{"zeros left over", rice{width: 4, first: [4]uint64{10}, parameter: 3, count: 1, data: append([]byte{2}, make([]byte, 100)...)}, eleven},
		{"ones left over", rice{width: 4, first: [4]uint64{10}, parameter: 3, count: 1, data: []byte{0xf2, 0xff, 0xff}}, eleven},
		{"any parameter for one integer", rice{width: 4, first: [4]uint64{10}, parameter: -77}, one},
		{"a large parameter for one integer", rice{width: 4, first: [4]uint64{10}, parameter: 1000}, one},
		{"any data for one integer", rice{width: 4, first: [4]uint64{10}, parameter: 3, data: []byte{0xff, 0xff}}, one},
	} {
		wantDecoded(t, test.name, test.coded, test.want)
	}
}

// randomEntries returns n entries, ascending, each once; with extremes the least and the greatest are among them.
func randomEntries(rng *rand.Rand, width, n int, extremes bool) [][]byte {
	var all [][]byte
	if extremes {
		all = append(all, make([]byte, width), bytes.Repeat([]byte{0xff}, width))
	}
	for range n {
		e := make([]byte, width)
		for i := range e {
			e[i] = byte(rng.Uint32())
		}
		if rng.IntN(3) == 0 && len(all) > 0 { // close to another: small differences
			copy(e[:width-1], all[rng.IntN(len(all))])
		}
		all = append(all, e)
	}
	slices.SortFunc(all, bytes.Compare)
	return slices.CompactFunc(all, bytes.Equal)
}

// readOdd reads all with buffers of changing sizes, most of them no multiple of an integer.
func readOdd(r io.Reader, width int, rng *rand.Rand) (all []byte, err error) {
	for {
		buf := make([]byte, width+rng.IntN(5*width))
		n, err := r.Read(buf)
		all = append(all, buf[:n]...)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

// plainRice codes differences bit by bit, and returns the integers too. It stops before the first integer that exceeds 32 bits.
func plainRice(first uint32, k uint, differences []uint64) (coded rice, integers []byte) {
	coded = rice{width: 4, first: [4]uint64{uint64(first)}, parameter: int32(k)}
	bits := 0
	put := func(bit uint64) {
		if bits%8 == 0 {
			coded.data = append(coded.data, 0)
		}
		coded.data[bits/8] |= byte(bit&1) << (bits % 8)
		bits++
	}
	integers = binary.BigEndian.AppendUint32(nil, first)
	value := uint64(first)
	for _, d := range differences {
		if value += d; value > math.MaxUint32 {
			break
		}
		for range d >> k {
			put(1)
		}
		put(0)
		for bit := range k {
			put(d >> bit)
		}
		coded.count++
		integers = binary.BigEndian.AppendUint32(integers, uint32(value))
	}
	return coded, integers
}

// randomDifferences returns differences whose quotients are small but for a few, and some of these are longer than any window.
func randomDifferences(rng *rand.Rand, k uint) (all []uint64) {
	for range 2000 {
		quotient := rng.Uint64N(3)
		if rng.IntN(50) == 0 {
			quotient = rng.Uint64N(80)
		}
		all = append(all, quotient<<k|rng.Uint64N(1<<k))
	}
	return all
}

func TestRiceDecodesEveryParameter(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for k := uint(3); k <= 30; k++ {
		for range 5 {
			coded, want := plainRice(rng.Uint32N(1<<20), k, randomDifferences(rng, k))
			wantDecoded(t, fmt.Sprint("in one piece, parameter ", k), coded, want)
			if got, err := readOdd(coded.reader(), 4, rng); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("parameter %d: %d integers in pieces are decoded wrong, %v", k, len(want)/4, err)
			}
		}
	}
}

// Whatever the place of the fault, all integers before it are read, and none after it.
func TestRiceReadsUpToTheFault(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const k = 10
	for n := 1; n < 40; n++ {
		differences := make([]uint64, n)
		for i := range differences {
			differences[i] = rng.Uint64N(4 << k)
		}
		coded, want := plainRice(rng.Uint32N(1<<20), k, differences)
		last := binary.BigEndian.Uint32(want[len(want)-4:])
		high, below := plainRice(math.MaxUint32-last+binary.BigEndian.Uint32(want), k, differences)
		if int(high.count) != n {
			t.Fatalf("%d differences fit, want %d", high.count, n)
		}
		high.count++
		high.data = append(high.data, bytes.Repeat([]byte{0x55}, 20)...)
		got, err := io.ReadAll(high.reader())
		if !errors.Is(err, updater.ErrMalformed) || !bytes.Equal(got, below) {
			t.Errorf("the sum exceeds 32 bits: %d of %d integers, %v", len(got)/4, n+1, err)
		}
		for size := range coded.data {
			cut := coded
			cut.data = coded.data[:size]
			got, err := io.ReadAll(cut.reader())
			if !errors.Is(err, updater.ErrMalformed) || !bytes.HasPrefix(want, got) || len(got)/4 < 1+8*size/(k+4) {
				t.Errorf("the data ends: %d of %d integers from %d of %d bytes, %v", len(got)/4, n+1, size, len(coded.data), err)
			}
		}
	}
}

// fieldOfAdditions are the fields of HashList with the additions (schema of version 5).
var fieldOfAdditions = map[int]protowire.Number{4: 4, 8: 9, 16: 10, 32: 11}

// runsOf yields entries in runs of random length, empty ones among them.
func runsOf(width int, entries []byte, rng *rand.Rand) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for rest, n := entries, 0; len(rest) > 0; rest = rest[n:] {
			if n = min(rng.IntN(7)*width, len(rest)); !yield(rest[:n]) {
				return
			}
		}
	}
}

// encodeField returns a HashList that has nothing but the additions, and the plan.
func encodeField(t testing.TB, width int, entries []byte, rng *rand.Rand) ([]byte, RicePlan) {
	t.Helper()
	runs := runsOf(width, entries, rng)
	p, err := PlanRice(width, runs)
	testkit.Must(t, err)
	field := fieldOfAdditions[width]
	raw := p.AppendField(make([]byte, 0, p.Size(field)), field, runs)
	testkit.Equal(t, "bytes and entries, as the plan says", [2]int{len(raw), len(entries) / width}, [2]int{p.Size(field), p.n})
	return raw, p
}

// decodeField returns the entries of the additions in raw, as the client reads them.
func decodeField(t testing.TB, width int, raw []byte) []byte {
	t.Helper()
	list := new(sbv5.HashList)
	testkit.Must(t, proto.Unmarshal(raw, list))
	list.Name, list.Version = fmt.Sprintf("x-%db", width), []byte{1}
	u := updateOf(t.Context(), list)
	testkit.Must(t, u.Err)
	if len(u.Additions) == 0 {
		return nil
	}
	got, err := io.ReadAll(u.Additions[0].Reader)
	testkit.Must(t, err)
	return got
}

// The encoder, the decoder and the encoder of the judging server agree about every list.
func TestRiceEncodingDecodesToTheEntries(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, width := range widths {
		for round := range 200 {
			entries := randomEntries(rng, width, rng.IntN(300), round%2 == 0)
			want := bytes.Join(entries, nil)
			raw, p := encodeField(t, width, want, rng)
			testkit.Equal(t, "entries of our coding", hex.EncodeToString(decodeField(t, width, raw)), hex.EncodeToString(want))
			other := new(sbv5.HashList)
			protocoltest.EncodeAdditions(width, entries, other)
			reference := marshal(t, other)
			if r, ok := additionsOf(other); ok && r.parameter == int32(p.k) && !bytes.Equal(raw, reference) {
				t.Fatalf("width %d, %d entries, parameter %d: got %x, the judging server writes %x", width, len(entries), p.k, raw, reference)
			}
			testkit.Equal(t, "entries of the judging server's", hex.EncodeToString(decodeField(t, width, reference)), hex.EncodeToString(want))
		}
	}
}

func TestRiceEncodingRefusesEntriesOutOfOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, width := range widths {
		low, high := make([]byte, width), bytes.Repeat([]byte{1}, width)
		for name, entries := range map[string][]byte{
			"descending": slices.Concat(high, low),
			"equal":      slices.Concat(low, high, high),
		} {
			_, err := PlanRice(width, runsOf(width, entries, rng))
			testkit.Is(t, fmt.Sprintf("width %d, %s", width, name), err, errOrder)
		}
	}
	_, err := PlanRice(5, runsOf(5, nil, rng)) // there is no such list
	testkit.WantError(t, err)
	_, err = PlanRice(4, func(yield func([]byte) bool) { yield(make([]byte, 6)) }) // one and a half entries
	testkit.WantError(t, err)
}

// No other allowed parameter makes a list of hashes smaller by more than half a percent.
func TestRiceParameterIsAsGoodAsTheBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, n := range []int{100, 3000, 5000, 7000, 11000, 100_000} {
		values := make([]uint32, n)
		for i := range values {
			values[i] = rng.Uint32()
		}
		slices.Sort(values)
		packed, err := binary.Append(nil, binary.BigEndian, slices.Compact(values))
		testkit.Must(t, err)
		_, p := encodeField(t, 4, packed, rng)
		best := p
		for k := uint(3); k <= 30; k++ {
			other := p
			other.k = k
			quotients, err := other.quotients(runsOf(4, packed, rng))
			testkit.Must(t, err)
			if other.data = int((uint64(p.n-1)*uint64(k+1) + quotients + 7) / 8); other.data < best.data {
				best = other
			}
		}
		testkit.Between(t, fmt.Sprintf("%d entries: bytes by parameter %d, the best is %d", n, p.k, best.k), p.data, 0, best.data*1005/1000)
	}
}

func FuzzRiceEncoding(f *testing.F) {
	f.Add(byte(0), []byte{0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff})
	f.Add(byte(1), bytes.Repeat([]byte{1, 2, 3}, 8))
	f.Add(byte(3), bytes.Repeat([]byte{9}, 64))
	f.Fuzz(func(t *testing.T, which byte, raw []byte) {
		width := widths[which%4]
		entries := slices.Collect(slices.Chunk(raw[:len(raw)/width*width], width))
		slices.SortFunc(entries, bytes.Compare)
		want := bytes.Join(slices.CompactFunc(entries, bytes.Equal), nil)
		coded, _ := encodeField(t, width, want, rand.New(rand.NewPCG(1, uint64(len(raw)))))
		if got := decodeField(t, width, coded); !bytes.Equal(got, want) {
			t.Errorf("got %x, want %x", got, want)
		}
	})
}

// TestRiceEncodingAllocatesLittleBesideItsOutput holds that millions of entries need no second buffer.
func TestRiceEncodingAllocatesLittleBesideItsOutput(t *testing.T) {
	entries := make([]byte, 4<<20)
	for i := range len(entries) / 4 {
		binary.BigEndian.PutUint32(entries[4*i:], uint32(i)*4000)
	}
	whole := func(yield func([]byte) bool) { yield(entries) }
	size := 0
	got := allocated(func() {
		p, err := PlanRice(4, whole)
		testkit.Must(t, err)
		size = p.Size(4)
		p.AppendField(make([]byte, 0, size), 4, whole)
	})
	testkit.Between(t, "bytes allocated", got, 0, size+size/8)
}
