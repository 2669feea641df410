package ownlist

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
	"time"
)

// content is what a file says: an immutable map from names to what is said
// about the name itself and about the names below it. Safe for concurrent use.
//
// Names are held as 64-bit numbers, in order: 61 bits of a hash, and in the low
// three what is said. One probe per name then answers for both scopes and both
// actions, which a set of plain hashes could not; with the index it takes 8.25
// to 8.5 bytes a name. The hash is seeded anew for each content, so that nobody
// can prepare a name that is taken for a listed one; that one of a million names
// is by chance has a probability of 1 in 2 million million.
type content struct {
	seed  maphash.Seed
	said  []uint64 // sorted by hash, each hash once
	index []uint32 // said whose hash>>shift is s are numbers index[s] to index[s+1]-1
	shift int
	// The names that end some time: hash to what is said, all of it allowing.
	ending map[uint64]ends
	// The blocked names that are answered in a way of their own: hash to answers.
	answers map[uint64]answers
	// The entries of n labels, as bit n (63: more), say something about the name
	// itself, or about those below it. They spare most probes.
	exactAt, belowAt uint64
	summary          Summary // with its Entries; Ended is counted when it is asked for
}

// ends is until when a name, and the names below it, are allowed.
type ends struct{ exact, below time.Time }

// answers is how a name, and the names below it, are answered where they are
// blocked.
type answers struct{ exact, below Answer }

// action is what an entry does.
type action uint8

const (
	none action = iota
	block
	allow
)

// says is the actions on a name itself and on the names below it.
type says struct{ exact, below action }

// saysMask are the bits of a said that are not of the hash.
const saysMask = 7

// code packs says, of which one is not none, into three bits.
func (s says) code() uint64 { return uint64(3*s.exact+s.below) - 1 }

func saysOf(code uint64) says {
	return says{exact: action((code + 1) / 3), below: action((code + 1) % 3)}
}

// builder collects entries.
type builder struct{ content content }

func newBuilder() *builder { return &builder{content{seed: maphash.MakeSeed()}} }

func (b *builder) add(e entry) {
	c := &b.content
	act := block
	if e.allow {
		act = allow
	}
	var s says
	at := uint64(1) << depthBit(labels(e.name))
	if e.scope&exact != 0 {
		s.exact = act
		c.exactAt |= at
	}
	if e.scope&below != 0 {
		s.below = act
		c.belowAt |= at
	}
	hash := maphash.Bytes(c.seed, e.name) &^ saysMask
	if e.answer != AnswerDefault && !e.allow {
		c.setAnswer(hash, e)
	}
	if e.until.IsZero() {
		c.said = append(c.said, hash|s.code())
		return
	}
	if c.ending == nil {
		c.ending = make(map[uint64]ends)
	}
	end := c.ending[hash] // of several dates the last counts
	if s.exact != none {
		end.exact = later(end.exact, e.until)
	}
	if s.below != none {
		end.below = later(end.below, e.until)
	}
	c.ending[hash] = end
}

// setAnswer notes how an entry is answered. Of several answers for one name the
// greatest counts.
func (c *content) setAnswer(hash uint64, e entry) {
	if c.answers == nil {
		c.answers = make(map[uint64]answers)
	}
	a := c.answers[hash]
	if e.scope&exact != 0 {
		a.exact = max(a.exact, e.answer)
	}
	if e.scope&below != 0 {
		a.below = max(a.below, e.answer)
	}
	c.answers[hash] = a
}

// answer returns how a blocked name, or those below it, are answered.
func (c *content) answer(name string, isBelow bool) Answer {
	if len(c.answers) == 0 {
		return AnswerDefault
	}
	a := c.answers[c.hash(name)]
	if isBelow {
		return a.below
	}
	return a.exact
}

func (c *content) hash(name string) uint64 { return maphash.String(c.seed, name) &^ saysMask }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// build returns the content. The builder must not be used afterwards.
func (b *builder) build() *content {
	c := &b.content
	slices.Sort(c.said)
	kept := c.said[:0]
	for _, next := range c.said {
		last := len(kept) - 1
		if last < 0 || kept[last]&^saysMask != next&^saysMask {
			kept = append(kept, next)
			continue
		}
		was, is := saysOf(kept[last]&saysMask), saysOf(next&saysMask)
		merged := says{max(was.exact, is.exact), max(was.below, is.below)} // allow is the greatest
		kept[last] = next&^saysMask | merged.code()
	}
	c.said = append(make([]uint64, 0, len(kept)), kept...)
	c.summary.Entries = len(c.said)
	for hash := range c.ending {
		if _, found := c.search(hash); !found {
			c.summary.Entries++
		}
	}
	c.makeIndex()
	return c
}

// ended returns the number of names whose entries have all ended.
func (c *content) ended(now time.Time) (n int) {
	for hash, end := range c.ending {
		if _, found := c.search(hash); !found && !now.Before(end.exact) && !now.Before(end.below) {
			n++
		}
	}
	return n
}

// makeIndex makes an index of 8 to 16 entries a slot: a cache line or two.
func (c *content) makeIndex() {
	width := max(0, bits.Len(uint(len(c.said)))-4)
	c.shift = 64 - width
	c.index = make([]uint32, 1<<width+1)
	for _, s := range c.said {
		c.index[s>>c.shift+1]++
	}
	for i := 1; i < len(c.index); i++ {
		c.index[i] += c.index[i-1]
	}
}

// search is the slow way to find a hash: it needs no index.
func (c *content) search(hash uint64) (int, bool) {
	return slices.BinarySearchFunc(c.said, hash, func(s, hash uint64) int { return cmp.Compare(s&^saysMask, hash) })
}

// bytes returns the memory held for names that do not end.
func (c *content) bytes() int { return 8*cap(c.said) + 4*cap(c.index) }

// about returns what is said of a name now. It does not allocate.
func (c *content) about(name string, now time.Time) (s says) {
	hash := c.hash(name)
	slot := hash >> c.shift
	for _, next := range c.said[c.index[slot]:c.index[slot+1]] {
		if next&^saysMask == hash {
			s = saysOf(next & saysMask)
			break
		}
	}
	if end, ok := c.ending[hash]; ok {
		if now.Before(end.exact) {
			s.exact = allow
		}
		if now.Before(end.below) {
			s.below = allow
		}
	}
	return s
}

// labels returns the number of labels of a canonical name.
func labels[T string | []byte](name T) int {
	if len(name) == 0 {
		return 0
	}
	n := 1
	for i := range len(name) {
		if name[i] == '.' {
			n++
		}
	}
	return n
}

func depthBit(labels int) int { return min(labels, 63) }
