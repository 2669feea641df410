package prefixset

import (
	"math/bits"
	"runtime"
)

// members says to which of several joined sets each entry of blocks belongs. Each combination
// of sets has a code: the largest set alone has code 0, the next one alone code 1, and so on,
// then come combinations of several, in the order in which they are met. An entry takes code+1
// bits: as many zeros as its code, and a one. It is immutable.
type members struct {
	sets   int // how many are joined
	codes  *memory
	starts []uint32         // where the codes of the entries 0, eachStart, 2*eachStart … begin, in bits
	masks  [maxCodes]uint32 // by code: a bit for each set
}

const (
	maxJoined = 16  // sets
	maxCodes  = 32  // combinations; a code fits into the bits that bitsAt returns
	eachStart = 512 // entries
)

// bytes returns the bytes of memory.
func (m *members) bytes() int { return len(m.codes.bytes) + 4*len(m.starts) + 4*maxCodes }

// mask returns the sets of entry i.
func (m *members) mask(i int) uint32 {
	at, before := uint64(m.starts[i/eachStart]), i%eachStart
	for before > 0 {
		w := wordAt(m.codes.bytes, at)
		if ones := bits.OnesCount64(w); ones < before {
			at, before = at+64, before-ones
			continue
		}
		at, before = at+uint64(select64(w, before-1))+1, 0
	}
	code := bits.TrailingZeros64(bitsAt(m.codes.bytes, at))
	runtime.KeepAlive(m)
	return m.masks[code&(maxCodes-1)]
}

// membersBuilder makes members from the masks of all entries in order.
type membersBuilder struct {
	made  members
	out   bitWriter
	bits  uint64          // written
	n     int             // entries
	code  map[uint32]uint // of the masks with several bits
	next  uint            // code
	pause Pause           // while codes are moved
}

// newMembersBuilder returns a builder for sets with these numbers of entries, the largest first.
// The bit of a set is its number.
func newMembersBuilder(sizes []int) *membersBuilder {
	b := &membersBuilder{code: map[uint32]uint{}, next: uint(len(sizes))}
	expected, entries := 0, 0
	for i, n := range sizes {
		b.made.masks[i] = 1 << i
		expected, entries = expected+(i+1)*n, entries+n
	}
	b.made.codes = newMemory(expected/8 + expected/256 + eachStart*maxCodes/8 + codesSlack) // some entries belong to several sets
	b.made.starts = make([]uint32, 0, entries/eachStart+1)
	b.out.buf = b.made.codes.bytes
	return b
}

// codesSlack is a number of bytes behind the codes: bitWriter and wordAt reach beyond the last.
const codesSlack = 32

// add adds the mask of the next n entries. It reports false if there are too many combinations.
func (b *membersBuilder) add(mask uint32, n int) bool {
	code, ok := b.codeOf(mask)
	if !ok {
		return false
	}
	for range n {
		if b.n%eachStart == 0 {
			b.made.starts = append(b.made.starts, uint32(b.bits))
			b.grow()
		}
		b.out.put(1<<code, code+1)
		b.bits += uint64(code) + 1
		b.n++
	}
	return true
}

// codeOf returns the code of a mask. It reports false if there is none left.
func (b *membersBuilder) codeOf(mask uint32) (code uint, ok bool) {
	if mask&(mask-1) == 0 {
		return uint(bits.TrailingZeros32(mask)), true
	}
	if code, ok = b.code[mask]; !ok && b.next < maxCodes {
		code, ok = b.next, true
		b.code[mask], b.made.masks[code] = code, mask
		b.next++
	}
	return code, ok
}

// grow makes room for eachStart entries more.
func (b *membersBuilder) grow() {
	need := b.out.at + eachStart*maxCodes/8 + codesSlack
	if need <= len(b.out.buf) {
		return
	}
	mem := newMemory(need + need/8)
	b.pause.copy(mem.bytes, b.out.buf)
	b.made.codes, b.out.buf = mem, mem.bytes
}

// finish returns the members. The builder must not be used afterwards.
func (b *membersBuilder) finish() *members {
	b.out.flush()
	b.made.codes.bytes = b.made.codes.bytes[:b.bits/8+codesSlack]
	b.made.codes = fitted(b.made.codes)
	return &b.made
}
