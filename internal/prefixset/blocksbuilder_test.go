package prefixset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// plainBlocks is the directory and the stream of ascending numbers, made bit by bit from what
// the comment of blocks says.
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

// clustered returns about n ascending numbers: some alone, and some in dense groups, so that
// blocks have from no entry to several hundred.
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
