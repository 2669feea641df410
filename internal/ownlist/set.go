package ownlist

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// content is the parsed form of a list: a map from each name to the actions on the name
// itself and on the names below it. It is immutable and safe for concurrent use.
//
// A name is a 64-bit number: 61 bits of a hash, and the code of its says in the low three
// bits. One probe per name finds both actions, which a set of plain hashes could not. With
// the index this takes 8.25 to 8.5 bytes per name. Each content has a new random seed, so
// an attacker cannot search for a name that collides with a listed one. A query of an
// unlisted name collides with one of a million names with a probability of 1 in 2 million
// million.
type content struct {
	seed  maphash.Seed
	said  []uint64 // hash | says.code(), sorted, each hash once
	index []uint32 // the numbers of said with hash>>shift == s are said[index[s]:index[s+1]]
	shift int
	// ending has the names that expire, by hash; all of them are allowed.
	ending map[uint64]ends
	// responses has the blocked names whose response is not lookup.NXDOMAIN, by hash.
	responses map[uint64]responses
	// Bit n is set if there is an entry of n labels (63: 63 or more) with scope exact or
	// below. Without the bit a query needs no probe.
	exactAt, belowAt uint64
	summary          Summary // Ended is 0 here: summaryAt counts it
}

// ends holds when the permission of a name, and of the names below it, expires.
type ends struct{ exact, below time.Time }

// responses holds the responses for a blocked name and for the names below it.
type responses struct{ exact, below lookup.Response }

// action is the effect of an entry.
type action uint8

const (
	none action = iota
	block
	allow
)

// says holds the actions on a name itself and on the names below it.
type says struct{ exact, below action }

// saysMask has the bits of a number in said that hold says.code.
const saysMask = 7

// code packs s into three bits. At least one of its actions must not be none.
func (s says) code() uint64 { return uint64(3*s.exact+s.below) - 1 }

// saysOf is the inverse of code.
func saysOf(code uint64) says {
	return says{exact: action((code + 1) / 3), below: action((code + 1) % 3)}
}

// builder collects entries.
type builder struct {
	content content
	lines   int // of the list; 0: not known
}

func newBuilder() *builder { return &builder{content: content{seed: maphash.MakeSeed()}} }

// The bounds of grow: names before the rest of a list is predicted, what is added to the
// prediction, and the most further names that are predicted.
const (
	predictAfter = 1 << 12
	reserve      = 1.0 / 64
	maxPredicted = 1 << 25
)

// grow makes room for the names of the whole list, by what has been read of it. The usual
// growth by a quarter would need three times the memory of a large list. Each further line
// counts as at least one name: memory that is not used afterwards is never touched. If that
// is too little, grow is called again.
func (b *builder) grow() {
	said := b.content.said
	if b.lines == 0 || len(said) < predictAfter {
		return // append grows
	}
	read := max(1, b.content.summary.lines)
	perLine := max(1, float64(len(said))/float64(read))
	rest := perLine * float64(max(0, b.lines-read))
	room := float64(len(said)) + min(rest, maxPredicted)
	room += room * reserve
	b.content.said = append(make([]uint64, 0, int(room)), said...)
}

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
	if e.response != lookup.NXDOMAIN && !e.allow {
		c.setResponse(hash, e)
	}
	if e.until.IsZero() {
		if len(c.said) == cap(c.said) {
			b.grow()
		}
		c.said = append(c.said, hash|s.code())
		return
	}
	if c.ending == nil {
		c.ending = make(map[uint64]ends)
	}
	end := c.ending[hash] // if a name has several dates, the last one counts
	if s.exact != none {
		end.exact = later(end.exact, e.until)
	}
	if s.below != none {
		end.below = later(end.below, e.until)
	}
	c.ending[hash] = end
}

// setResponse stores the response of an entry. If a name has several, the greatest
// counts.
func (c *content) setResponse(hash uint64, e entry) {
	if c.responses == nil {
		c.responses = make(map[uint64]responses)
	}
	a := c.responses[hash]
	if e.scope&exact != 0 {
		a.exact = max(a.exact, e.response)
	}
	if e.scope&below != 0 {
		a.below = max(a.below, e.response)
	}
	c.responses[hash] = a
}

// response returns the response for a blocked name, or for the names below it.
func (c *content) response(name string, isBelow bool) lookup.Response {
	if len(c.responses) == 0 {
		return lookup.NXDOMAIN
	}
	a := c.responses[c.hash(name)]
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
		merged := says{max(was.exact, is.exact), max(was.below, is.below)} // allow wins: it is the greatest
		kept[last] = next&^saysMask | merged.code()
	}
	if c.said = kept; cap(kept)-len(kept) > len(kept)/16 {
		c.said = append(make([]uint64, 0, len(kept)), kept...)
	}
	c.summary.Entries = len(c.said)
	for hash := range c.ending {
		if _, found := c.search(hash); !found {
			c.summary.Entries++
		}
	}
	c.makeIndex()
	return c
}

// ended returns the number of names whose entries have all expired.
func (c *content) ended(now time.Time) (n int) {
	for hash, end := range c.ending {
		if _, found := c.search(hash); !found && !now.Before(end.exact) && !now.Before(end.below) {
			n++
		}
	}
	return n
}

// makeIndex builds an index with 8 to 16 names per slot: one or two cache lines.
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

// search finds a hash without the index, which build has not made yet.
func (c *content) search(hash uint64) (int, bool) {
	return slices.BinarySearchFunc(c.said, hash, func(s, hash uint64) int { return cmp.Compare(s&^saysMask, hash) })
}

// about returns the actions that the list has for a name at now. It does not allocate.
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

// depthBit returns the bit of exactAt and belowAt for names with this number of labels.
func depthBit(labels int) int { return min(labels, 63) }

// Match is the entry of a list that decides on a host.
type Match struct {
	Allow    bool            // else it blocks
	Fetched  bool            // the list is, see Config
	Labels   int             // of the matched name, which is the end of the host; 0: every name
	Response lookup.Response // of a match that blocks
	File     string          // the name or the path given to Open, or the name given to Hosts
}

// Name returns the matched name. h is the host that was given to File.Match.
func (m Match) Name(h lookup.Host) string {
	name := h.String()
	for skip := labels(name) - m.Labels; skip > 0; skip-- {
		_, name, _ = strings.Cut(name, ".")
	}
	return name
}

// File is one own list of the operator: an open file, or hosts of the Corefile. Create it
// with Open or Hosts. It is safe for concurrent use.
type File struct {
	name    string
	fetched bool
	content *atomic.Pointer[content] // shared with other Files of the same source
	source  *source                  // nil: hosts of the Corefile
	close   func()                   // has an effect only once
}

// HostEntry is a host that the Corefile allows.
type HostEntry struct {
	Host  lookup.Host
	Below bool      // match only the names below it
	Until time.Time // when the entry expires; zero: never
}

// Hosts returns a list that matches the entries and all names below them. Every match
// allows, and its File is name. The list needs no Close.
func Hosts(name string, entries []HostEntry) *File {
	b := newBuilder()
	for _, e := range entries {
		scope := tree
		if e.Below {
			scope = below
		}
		if host := e.Host.String(); host != "" {
			b.add(entry{name: []byte(host), scope: scope, allow: true, until: e.Until})
		}
	}
	f := &File{name: name, content: new(atomic.Pointer[content]), close: func() {}}
	f.content.Store(b.build())
	return f
}

// Match returns the entry for h with the most labels, and whether there is one. If
// several entries have the same name, one that allows wins. It takes no lock and does not
// allocate.
func (f *File) Match(h lookup.Host, now time.Time) (Match, bool) {
	c := f.content.Load()
	act, depth := c.match(h, now)
	if act == none {
		return Match{}, false
	}
	m := Match{Allow: act == allow, Fetched: f.fetched, Labels: depth, File: f.name}
	if act == block && len(c.responses) > 0 {
		name := m.Name(h)
		m.Response = c.response(name, !isWhole(h) || name != h.String())
	}
	return m, true
}

// Best returns the match of the file that decides on h, and whether there is one. The
// match with the most labels decides; on a tie the first one that allows. It takes no
// lock and does not allocate.
func Best(files []*File, h lookup.Host, now time.Time) (best Match, found bool) {
	for _, f := range files {
		m, ok := f.Match(h, now)
		if ok && (!found || m.Labels > best.Labels || m.Labels == best.Labels && m.Allow && !best.Allow) {
			best, found = m, true
		}
	}
	return best, found
}

// match returns the action of the most specific entry for h, and the number of its labels.
func (c *content) match(h lookup.Host, now time.Time) (act action, depth int) {
	name := h.String()
	if c.summary.Entries == 0 || name == "" {
		return none, 0
	}
	depth = labels(name)
	if at := uint64(1) << depthBit(depth); (c.exactAt|c.belowAt)&at != 0 {
		if s := c.about(name, now); s != (says{}) {
			if act = s.exact; !isWhole(h) {
				act = s.below
			}
			if act != none {
				return act, depth
			}
		}
	}
	if c.belowAt == 0 || isIP(name) {
		return none, 0
	}
	for depth--; depth >= 0; depth-- {
		name = name[strings.IndexByte(name, '.')+1:]
		if depth == 0 {
			name = ""
		}
		if c.belowAt>>depthBit(depth)&1 != 0 {
			if s := c.about(name, now); s.below != none {
				return s.below, depth
			}
		}
	}
	return none, 0
}
