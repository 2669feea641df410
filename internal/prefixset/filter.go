package prefixset

import (
	"encoding/binary"
	"runtime"
)

// Filter tells of most hashes by one access to memory that no set holds them.
// It never denies an entry; of uniform hashes that are none it lets 7 % through.
// It is a Bloom filter in which all bits of a prefix are in one word. The words
// are in the order of the prefixes: to add ascending ones writes memory from its
// beginning to its end. A nil filter and the zero filter hold nothing. Safe for
// concurrent use once nothing is added any more.
type Filter struct {
	memory *memory // words of eight bytes, little-endian
	words  int
}

// filterBits are the bits of a filter for each entry. With three bits set for
// each, 15.8 % get through at 4 bits an entry, 10.3 % at 5, 7.0 % at 6 and 3.9 %
// at 8. (At 6: two set, 8.5 %; four set, 7.0 %; a plain bitmap, 15.4 %.) Each that
// gets through costs a look-up in every set.
const filterBits = 6

// NewFilter returns an empty filter for so many entries. It takes more of them,
// but lets more through then.
func NewFilter(entries int) *Filter {
	words := (entries*filterBits + 63) / 64
	return &Filter{memory: newMemory(8 * words), words: words}
}

// addPrefix adds an entry by its first four bytes, as a big-endian number. The
// filter must have been made for one entry or more.
func (f *Filter) addPrefix(prefix uint32) {
	word := f.memory.bytes[8*f.word(prefix):]
	binary.LittleEndian.PutUint64(word, binary.LittleEndian.Uint64(word)|filterMask(prefix))
}

// Add adds all entries of a set, which must be empty if the filter was made for
// none. It pauses from time to time, unless pause is nil. Add is not safe for
// concurrent use.
func (f *Filter) Add(s *Set, pause *Pause) {
	runs := s.Runs()
	for entries, width := runs.Next(); width > 0; entries, width = runs.Next() {
		pause.After(len(entries))
		for ; len(entries) > 0; entries = entries[width:] {
			f.addPrefix(binary.BigEndian.Uint32(entries))
		}
	}
}

// AtOnce is the most hashes that one call of Suspects takes.
const AtOnce = 10

// Suspects reports which of at most AtOnce hashes begin with an entry that may
// have been added to f: bit i of found is for hashes[i]. It does not allocate. It
// loads all words before it looks at the first, since a simple processor waits
// where a word is looked at.
func Suspects[H ~[32]byte](f *Filter, hashes []H) (found uint) {
	if f == nil || f.words == 0 {
		return 0
	}
	var words [AtOnce]uint64
	for i := range hashes {
		words[i] = binary.LittleEndian.Uint64(f.memory.bytes[8*f.word(binary.BigEndian.Uint32(hashes[i][:])):])
	}
	for i := range hashes {
		mask := filterMask(binary.BigEndian.Uint32(hashes[i][:]))
		if words[i]&mask == mask {
			found |= 1 << i
		}
	}
	runtime.KeepAlive(f)
	return found
}

// word returns the number of the word of a prefix: all prefixes, in their order,
// are dealt out evenly.
func (f *Filter) word(prefix uint32) int {
	return int(uint64(prefix) * uint64(f.words) >> 32)
}

// filterMask returns the bits of a prefix within its word. The factor, 2^32 over
// the golden ratio, gives the prefixes of one word, which are neighbours,
// different bits.
func filterMask(prefix uint32) uint64 {
	h := prefix * 0x9e3779b1
	return 1<<(h>>26) | 1<<(h>>20&63) | 1<<(h>>14&63)
}
