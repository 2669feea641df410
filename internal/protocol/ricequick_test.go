package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

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

// randomDifferences returns differences whose quotients are small but for a few, some of which
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
