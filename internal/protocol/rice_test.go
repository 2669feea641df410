package protocol

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

var widths = []int{4, 8, 16, 32}

// riceVector is a line of the file of vectors.
type riceVector struct {
	coded rice
	want  []byte
}

func readRiceVectors(t *testing.T) (all []riceVector) {
	t.Helper()
	f, err := os.Open("../../testdata/protocol/rice.txt")
	testkit.Must(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if fields := strings.Fields(text); len(fields) > 0 {
			all = append(all, parseRiceVector(t, fields))
		}
	}
	if lines.Err() != nil || len(all) == 0 {
		t.Fatalf("%d vectors, %v", len(all), lines.Err())
	}
	return all
}

func parseRiceVector(t *testing.T, fields []string) riceVector {
	t.Helper()
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		testkit.Must(t, err)
		return n
	}
	v := riceVector{coded: rice{
		width: number(fields[0]), first: limbs(unhex(t, fields[1])),
		parameter: int32(number(fields[2])), count: int32(number(fields[3])),
	}}
	if fields[4] != "-" {
		v.coded.data = unhex(t, fields[4])
	}
	v.want = unhex(t, strings.Join(fields[5:], ""))
	return v
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

func TestRiceDecodesThePublishedExamples(t *testing.T) {
	for _, v := range readRiceVectors(t) {
		t.Run(fmt.Sprintf("%d bytes, parameter %d, %d differences", v.coded.width, v.coded.parameter, v.coded.count), func(t *testing.T) {
			got, err := decodeRice(v.coded)
			if err != nil || !bytes.Equal(got, v.want) {
				t.Errorf("got %x, %v, want %x", got, err, v.want)
			}
		})
	}
}

func TestRiceAcceptsParametersWithinBoundsOnly(t *testing.T) {
	for _, width := range widths {
		least, greatest := int32(8*width-29), int32(8*width-2)
		for parameter, accepted := range map[int32]bool{
			math.MinInt32: false, -1: false, 0: false, least - 1: false, least: true,
			greatest: true, greatest + 1: false, int32(8 * width): false, math.MaxInt32: false,
		} {
			r := rice{width: width, parameter: parameter, count: 1, data: make([]byte, 64)}
			_, err := decodeRice(r)
			if accepted != (err == nil) || err != nil && !errors.Is(err, updater.ErrMalformed) {
				t.Errorf("width %d, parameter %d: %v, want accepted: %t", width, parameter, err, accepted)
			}
		}
	}
}

func TestRiceRejectsWhatCannotBe(t *testing.T) {
	most := limbs(bytes.Repeat([]byte{0xff}, 32))
	tests := []struct {
		name  string
		coded rice
	}{
		{"a negative count", rice{width: 4, parameter: 3, count: -1}},
		{"the least count there is", rice{width: 4, parameter: 3, count: math.MinInt32, data: make([]byte, 10)}},
		{"differences without data", rice{width: 4, parameter: 3, count: 1}},
		{"more differences than there are bits for", rice{width: 4, parameter: 3, count: 3, data: make([]byte, 1)}},
		{"a count that lies by far", rice{width: 4, parameter: 30, count: math.MaxInt32, data: make([]byte, 1000)}},
		{"a remainder that is cut", rice{width: 4, parameter: 3, count: 2, data: []byte{0b0111_0111}}},
		{"a quotient that is cut", rice{width: 4, parameter: 3, count: 2, data: []byte{0b1111_0111}}},
		{"nothing left for the last difference", rice{width: 4, parameter: 3, count: 3, data: []byte{0b0000_1111, 0b1111_1000}}},
		{"a quotient that is one too large", rice{width: 4, parameter: 30, count: 1, data: []byte{0x0f, 0, 0, 0, 0}}},
		{"the greatest quotient over a first value of one", rice{width: 4, first: [4]uint64{1}, parameter: 30, count: 1, data: []byte{0xf7, 0xff, 0xff, 0xff, 0x03}}},
		{"a sum over 32 bits", rice{width: 4, first: [4]uint64{math.MaxUint32}, parameter: 3, count: 1, data: []byte{2}}},
		{"a sum over 64 bits", rice{width: 8, first: most, parameter: 35, count: 1, data: append([]byte{2}, make([]byte, 4)...)}},
		{"a sum over 128 bits", rice{width: 16, first: most, parameter: 99, count: 1, data: append([]byte{2}, make([]byte, 12)...)}},
		{"a sum over 256 bits", rice{width: 32, first: most, parameter: 227, count: 1, data: append([]byte{2}, make([]byte, 28)...)}},
		{"a remainder of 64 bits that is cut", rice{width: 8, parameter: 35, count: 1, data: append([]byte{0x1f}, make([]byte, 4)...)}},
		{"a remainder of 128 bits that is cut", rice{width: 16, parameter: 99, count: 1, data: append([]byte{0x1f}, make([]byte, 12)...)}},
		{"a remainder of 256 bits that is cut", rice{width: 32, parameter: 227, count: 1, data: append([]byte{0x1f}, make([]byte, 28)...)}},
		{"too large a quotient of 64 bits", rice{width: 8, parameter: 62, count: 1, data: append([]byte{0x0f}, make([]byte, 9)...)}},
		{"too large a quotient of 128 bits", rice{width: 16, parameter: 126, count: 1, data: append([]byte{0x0f}, make([]byte, 17)...)}},
		{"too large a quotient of 256 bits", rice{width: 32, parameter: 254, count: 1, data: append([]byte{0x0f}, make([]byte, 33)...)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got, err := decodeRice(test.coded); !errors.Is(err, updater.ErrMalformed) {
				t.Errorf("got %x, %v, want it refused as malformed", got, err)
			}
		})
	}
}

// A run of ones must be given up at the greatest quotient that makes sense, not
// at its end.
func TestRiceGivesUpALongRunOfOnesSoon(t *testing.T) {
	for _, width := range widths {
		r := rice{width: width, parameter: int32(8*width - 2), count: 1, data: bytes.Repeat([]byte{0xff}, 1<<20)}
		reader := r.reader()
		if _, err := io.ReadAll(reader); !errors.Is(err, updater.ErrMalformed) {
			t.Errorf("width %d: %v", width, err)
		}
		if used := 1<<20 - len(reader.data); used > 16 {
			t.Errorf("width %d: looked at %d bytes of ones", width, used)
		}
	}
}

func TestRiceIgnoresWhatDoesNotMatter(t *testing.T) {
	eleven := []byte{0, 0, 0, 10, 0, 0, 0, 11}
	one := []byte{0, 0, 0, 10}
	tests := []struct {
		name  string
		coded rice
		want  []byte
	}{
		{"zeros left over", rice{width: 4, first: [4]uint64{10}, parameter: 3, count: 1, data: append([]byte{2}, make([]byte, 100)...)}, eleven},
		{"ones left over", rice{width: 4, first: [4]uint64{10}, parameter: 3, count: 1, data: []byte{0xf2, 0xff, 0xff}}, eleven},
		{"any parameter for one integer", rice{width: 4, first: [4]uint64{10}, parameter: -77}, one},
		{"a large parameter for one integer", rice{width: 4, first: [4]uint64{10}, parameter: 1000}, one},
		{"any data for one integer", rice{width: 4, first: [4]uint64{10}, parameter: 3, data: []byte{0xff, 0xff}}, one},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got, err := decodeRice(test.coded); err != nil || !bytes.Equal(got, test.want) {
				t.Errorf("got %x, %v, want %x", got, err, test.want)
			}
		})
	}
}

// randomEntries returns n entries, ascending, each once; with extremes the least
// and the greatest are among them.
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

// readOdd reads all with buffers of changing sizes, most of them no multiple of
// an integer.
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

// plainRice codes differences bit by bit, and returns the integers too. It stops before the
// first integer that exceeds 32 bits.
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

// randomDifferences returns differences whose quotients are small but for a few, and some of these
// are longer than any window.
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
			if got, err := decodeRice(coded); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("parameter %d: %d integers in one piece are decoded wrong, %v", k, len(want)/4, err)
			}
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
		t.Run(fmt.Sprintf("the sum exceeds 32 bits after %d differences", n), func(t *testing.T) {
			last := binary.BigEndian.Uint32(want[len(want)-4:])
			high, below := plainRice(math.MaxUint32-last+binary.BigEndian.Uint32(want), k, differences)
			if int(high.count) != n {
				t.Fatalf("%d differences fit, want %d", high.count, n)
			}
			high.count++
			high.data = append(high.data, bytes.Repeat([]byte{0x55}, 20)...)
			got, err := io.ReadAll(high.reader())
			if !errors.Is(err, updater.ErrMalformed) || !bytes.Equal(got, below) {
				t.Errorf("%d of %d integers, %v", len(got)/4, n+1, err)
			}
		})
		t.Run(fmt.Sprintf("the data ends within %d differences", n), func(t *testing.T) {
			for size := range coded.data {
				cut := coded
				cut.data = coded.data[:size]
				got, err := io.ReadAll(cut.reader())
				if !errors.Is(err, updater.ErrMalformed) || !bytes.HasPrefix(want, got) || len(got)/4 < 1+8*size/(k+4) {
					t.Errorf("%d of %d integers from %d of %d bytes, %v", len(got)/4, n+1, size, len(coded.data), err)
				}
			}
		})
	}
}
