package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// fieldOfAdditions are the fields of HashList with the additions (schema of version 5).
var fieldOfAdditions = map[int]protowire.Number{4: 4, 8: 9, 16: 10, 32: 11}

// runsOf yields entries in runs of random length, empty ones among them.
func runsOf(width int, entries []byte, rng *rand.Rand) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for rest := entries; len(rest) > 0; {
			n := min(rng.IntN(7)*width, len(rest))
			if !yield(rest[:n]) {
				return
			}
			rest = rest[n:]
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
	if len(raw) != p.Size(field) || p.n != len(entries)/width {
		t.Fatalf("width %d: %d bytes for %d entries, the plan says %d and %d", width, len(raw), len(entries)/width, p.Size(field), p.n)
	}
	return raw, p
}

// decodeField returns the entries of the additions in raw, as the client reads them.
func decodeField(t testing.TB, width int, raw []byte) []byte {
	t.Helper()
	list := new(sbv5.HashList)
	testkit.Must(t, proto.Unmarshal(raw, list))
	list.Name, list.Version = fmt.Sprintf("x-%db", width), []byte{1}
	u := updateOf(t.Context(), list)
	if u.Err != nil {
		t.Fatal(u.Err)
	}
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
			if got := decodeField(t, width, raw); !bytes.Equal(got, want) {
				t.Fatalf("width %d, %d entries: got %x, want %x", width, len(entries), got, want)
			}
			other := new(sbv5.HashList)
			protocoltest.EncodeAdditions(width, entries, other)
			reference := marshal(t, other)
			if r, ok := additionsOf(other); ok && r.parameter == int32(p.k) && !bytes.Equal(raw, reference) {
				t.Fatalf("width %d, %d entries, parameter %d: got %x, the judging server writes %x", width, len(entries), p.k, raw, reference)
			}
			if got := decodeField(t, width, reference); !bytes.Equal(got, want) {
				t.Fatalf("width %d: the judging server's coding decodes to %x, want %x", width, got, want)
			}
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
			if _, err := PlanRice(width, runsOf(width, entries, rng)); !errors.Is(err, errOrder) {
				t.Errorf("width %d, %s: %v, want %v", width, name, err, errOrder)
			}
		}
	}
	if _, err := PlanRice(5, runsOf(5, nil, rng)); err == nil {
		t.Error("entries of five bytes are planned")
	}
	if _, err := PlanRice(4, func(yield func([]byte) bool) { yield(make([]byte, 6)) }); err == nil {
		t.Error("one and a half entries are planned")
	}
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
		values = slices.Compact(values)
		_, p := encodeField(t, 4, packed(values), rng)
		best := p
		for k := uint(3); k <= 30; k++ {
			other := p
			other.k = k
			quotients, err := other.quotients(runsOf(4, packed(values), rng))
			testkit.Must(t, err)
			if other.data = int((uint64(p.n-1)*uint64(k+1) + quotients + 7) / 8); other.data < best.data {
				best = other
			}
		}
		if p.data*1000 > best.data*1005 {
			t.Errorf("%d entries: %d bytes with parameter %d, %d bytes with %d", n, p.data, p.k, best.data, best.k)
		}
	}
}

func packed(values []uint32) (entries []byte) {
	for _, v := range values {
		entries = binary.BigEndian.AppendUint32(entries, v)
	}
	return entries
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
	if got > size+size/8 {
		t.Errorf("%d bytes allocated for an output of %d", got, size)
	}
}
