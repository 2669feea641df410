package lookup

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// Passed remembers which clients asked for which names that passed, without a name or an address, so
// that Checker.LookBack can find those that a list has later. A record is for a client and a name, and
// has 24 bytes:
//
//	pair   32 bits of a keyed hash of client and name, 32 of the SHA-256 of the first expression
//	more   32 bits of the second expression's hash, 32 of the third's; 0: none
//	seen   16 bits of the minute of the first question, 18 of a keyed hash of the client,
//	       3 × 10 of a keyed hash of each expression's SHA-256
//
// The keys are made by NewPassed. A name with four or five expressions, one of some hundred, has two
// records. The 32 bits are what a list holds and a search sends. The server answers with whole
// hashes, and nearly always with one, since the prefix is in its list: without more bits each name
// that happens to share a prefix would be reported. Of 10,000 names of a day with 25,000 expressions
// and 100,000 prefixes that are new to the lists, 25,000 × 100,000 / 2^32 = 0.6 collide. The 10 bits
// leave one in 1,024 of them: one false report in four years.
//
// A record is in one of 8 places, the bucket that the hash of client and name chooses. If all are
// taken the oldest one goes. Two names of a client count as one where their 32 bits and their bucket
// are the same. One bit is always set, so of 2^31 / 8 names one is not remembered.
//
// Note takes no lock for a pair that is there, and does not allocate. Passed is safe for concurrent
// use.
type Passed struct {
	keep  time.Duration
	clock func() time.Duration // since boot
	begun time.Time            // a whole minute, from which minutes count
	boot  time.Duration        // clock at begun
	seed  maphash.Seed
	keys  [4]uint64
	pair  []eight // of each bucket, a cache line: all that Note looks at; 0: no record
	more  []eight // a prefix 0: no expression
	seen  []eight
	locks [64]sync.Mutex // of the buckets with the number modulo 64; to write a record

	unsure   atomic.Bool // a name passed that a list holds
	looking  sync.Mutex  // held by LookBack; it guards those below
	looked   *snapshot   // that LookBack has compared with; nil: none
	lookedAt time.Time
	left     bool // something that LookBack has found is not confirmed
}

// eight is one word of each record of a bucket.
type eight [8]atomic.Uint64

const (
	passedBytes   = 24 // of a record
	passedOfName  = 3  // expressions in a record
	passedMinutes = 1 << 16
	checkBits     = 10
	clientBits    = 18
)

// NewPassed returns a memory of about this size in bytes, at least one bucket, for names that were asked
// for up to keep ago, at most 22 days. sinceBoot is updater.SinceBoot, or nil: then a suspend counts as no time.
func NewPassed(bytes int, keep time.Duration, sinceBoot func() time.Duration) *Passed {
	if sinceBoot == nil {
		sinceBoot = func() time.Duration { return 0 }
	}
	n, now := max(1, bytes/(8*passedBytes)), time.Now()
	seconds := now.Sub(now.Truncate(time.Minute))
	p := &Passed{keep: keep, clock: sinceBoot, begun: now.Add(-seconds), boot: sinceBoot() - seconds,
		seed: maphash.MakeSeed(), pair: make([]eight, n), more: make([]eight, n), seen: make([]eight, n)}
	for i := range p.keys {
		p.keys[i] = rand.Uint64() | 1 // math/rand/v2 is seeded by the system, and cannot be predicted (ChaCha8)
	}
	return p
}

// Pair tells pairs of client and name apart, within one Passed.
type Pair uint64

// Note remembers that a client asked for a host that passed. client is a hash of its address, with a key
// that is not known outside; 0 if it has none. Note reports whether that is new, and then which pair it is.
func (p *Passed) Note(client uint64, h Host, r Rule) (pair Pair, added bool) {
	sum := fold(client^p.keys[2], maphash.String(p.seed, h.name)^p.keys[3])
	tag := sum>>32 | 1 // never 0
	place := uint32(uint64(uint32(sum)) * uint64(len(p.pair)) >> 32)
	bucket, first := &p.pair[place], sum%8
	if bucket[first].Load()>>32 == tag { // where add puts it, if there is room
		return 0, false
	}
	for i := range bucket {
		if bucket[i].Load()>>32 == tag {
			return 0, false
		}
	}
	return Pair(tag<<32 | uint64(place)), p.add(place, int(first), uint32(tag), client, h, r)
}

// LookSoon makes LookBack look within a minute, though no list has changed: after a Note of a host that a
// list holds, and that passed because the server did not confirm it in time.
func (p *Passed) LookSoon() { p.unsure.Store(true) }

// fold is a hash of two words. With a key in each it cannot be guessed from outside.
func fold(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

// device returns bits of a keyed hash of the client.
func (p *Passed) device(client uint64) uint64 {
	return fold(client^p.keys[0], p.keys[2]) >> (64 - clientBits)
}

// check returns bits of a keyed hash of the part of a full hash that is not in its prefix.
func (p *Passed) check(hash *FullHash) uint64 {
	return fold(binary.LittleEndian.Uint64(hash[4:])^p.keys[1], binary.LittleEndian.Uint64(hash[12:])^p.keys[3]) >> (64 - checkBits)
}

// add writes the records of a pair, the first one at an index of the bucket if that is free, and reports
// whether it was not there.
func (p *Passed) add(place uint32, first int, tag uint32, client uint64, h Host, r Rule) bool {
	hashes := h.hashes(r)
	if len(hashes) == 0 {
		return false
	}
	now, device := p.minuteOf(time.Now()), p.device(client)
	lock := &p.locks[place%uint32(len(p.locks))]
	lock.Lock()
	defer lock.Unlock()
	for i := range p.pair[place] {
		if uint32(p.pair[place][i].Load()>>32) == tag { // by another query since Note has looked
			return false
		}
	}
	for some := range slices.Chunk(hashes, passedOfName) {
		prefix, more, checks := p.recordOf(some)
		p.put(place, p.free(place, first, now), uint64(tag)<<32|prefix, more, uint64(now)<<(64-16)|device<<(3*checkBits)|checks)
	}
	return true
}

// recordOf returns what a record has of up to three expressions: the lower half of its first word, its second word,
// and the lowest bits of its third one.
func (p *Passed) recordOf(hashes []FullHash) (first, more, checks uint64) {
	var prefix [passedOfName]uint64
	for i := range hashes {
		prefix[i] = uint64(binary.BigEndian.Uint32(hashes[i][:]))
		checks |= p.check(&hashes[i]) << (i * checkBits)
	}
	return prefix[0], prefix[1]<<32 | prefix[2], checks
}

// Asked returns who asked for a host that passed, each client once: its Pair, Client and Asked, the earliest first. It
// looks at all records, and takes no lock. A client is not known any more if its record had to go, or the server has been asked
// about the host. What it returns is about another host about as seldom as LookBack does.
func (p *Passed) Asked(h Host, r Rule) (all []Late) {
	hashes := h.hashes(r)
	if len(hashes) == 0 {
		return nil
	}
	first, more, checks := p.recordOf(hashes[:min(len(hashes), passedOfName)])
	now, minute := time.Now(), p.minuteOf(time.Now())
	for place := range p.pair {
		for i := range p.pair[place] {
			pair := p.pair[place][i].Load()
			if pair&math.MaxUint32 != first || pair == 0 {
				continue
			}
			seen := p.seen[place][i].Load()
			age := ageOf(seen, minute)
			if p.more[place][i].Load() != more || seen&(1<<(passedOfName*checkBits)-1) != checks || age > int(p.keep/time.Minute) {
				continue
			}
			all = append(all, lateOf(pair, seen, place, now, age))
		}
	}
	slices.SortFunc(all, Late.compare)
	return all
}

// lateOf returns what a record has of its pair, which was made age minutes before now.
func lateOf(pair, seen uint64, place int, now time.Time, age int) Late {
	return Late{
		Pair:   Pair(pair>>32<<32 | uint64(place)),
		Client: uint32(seen >> (passedOfName * checkBits) & (1<<clientBits - 1)),
		Asked:  now.Add(-time.Duration(age) * time.Minute).Truncate(time.Minute),
	}
}

// free returns the index of an empty place, if it can be first, or of the oldest record. The caller
// holds the lock.
func (p *Passed) free(place uint32, first int, now uint16) (oldest int) {
	if p.pair[place][first].Load() == 0 {
		return first
	}
	greatest := -1
	for i := range p.pair[place] {
		if p.pair[place][i].Load() == 0 {
			return i
		}
		if age := ageOf(p.seen[place][i].Load(), now); age > greatest {
			oldest, greatest = i, age
		}
	}
	return oldest
}

// put writes a record. The caller holds the lock.
func (p *Passed) put(place uint32, i int, pair, more, seen uint64) {
	p.more[place][i].Store(more)
	p.seen[place][i].Store(seen)
	p.pair[place][i].Store(pair)
}

// minuteOf returns the minute of now by clocks that nobody can set. The one of package time stops during a suspend.
func (p *Passed) minuteOf(now time.Time) uint16 {
	return uint16(max(now.Sub(p.begun), p.clock()-p.boot) / time.Minute % passedMinutes)
}

// ageOf returns how many minutes ago a record was made; 0 if it is newer than now.
func ageOf(seen uint64, now uint16) int {
	age := now - uint16(seen>>(64-16))
	if age >= passedMinutes/2 {
		return 0
	}
	return int(age)
}

// passedOne is an expression of a record that a list holds now.
type passedOne struct {
	place    uint32
	index, n int    // of the record, and of the expression in it
	pair     uint64 // of the record; it may be another one by now
	check    uint64
	Late
}

// listed returns the expressions whose prefix holds reports to be in a list, at most most of them, by
// prefix. It forgets what is older than keep.
func (p *Passed) listed(holds func(prefix uint32) bool, now time.Time, most int) (found map[uint32][]passedOne, all bool) {
	found = make(map[uint32][]passedOne)
	minute, keep := p.minuteOf(now), int(p.keep/time.Minute)
	var pause prefixset.Pause
	for place := range p.pair {
		pause.After(8 * passedBytes)
		for i := range p.pair[place] {
			pair := p.pair[place][i].Load()
			if pair == 0 {
				continue
			}
			more, seen := p.more[place][i].Load(), p.seen[place][i].Load()
			age := ageOf(seen, minute)
			if age > keep {
				p.change(uint32(place), i, pair, func() { p.put(uint32(place), i, 0, 0, 0) })
				continue
			}
			for n, prefix := range [passedOfName]uint32{uint32(pair), uint32(more >> 32), uint32(more)} {
				if prefix == 0 || !holds(prefix) {
					continue
				}
				if _, known := found[prefix]; !known && len(found) == most {
					return found, false
				}
				found[prefix] = append(found[prefix], passedOne{
					place: uint32(place), index: i, n: n, pair: pair, check: seen >> (n * checkBits) & (1<<checkBits - 1),
					Late: lateOf(pair, seen, place, now, age),
				})
			}
		}
	}
	return found, true
}

// Forget forgets what is older than it is to be kept. Call it every few minutes: LookBack does the same, but only
// when there is something to look at.
func (p *Passed) Forget() { p.listed(func(uint32) bool { return false }, time.Now(), 0) }

// change changes a record, unless it belongs to another pair by now. The first expression may be forgotten already.
func (p *Passed) change(place uint32, i int, pair uint64, do func()) {
	lock := &p.locks[place%uint32(len(p.locks))]
	lock.Lock()
	defer lock.Unlock()
	if p.pair[place][i].Load()>>32 == pair>>32 {
		do()
	}
}

// settle forgets what the server has answered about: a record with a threat, else only the expression.
// Its client asked, and that is known still.
func (p *Passed) settle(one *passedOne, threat bool) {
	p.change(one.place, one.index, one.pair, func() {
		switch {
		case threat:
			p.put(one.place, one.index, 0, 0, 0)
		case one.n == 0:
			p.pair[one.place][one.index].Store(one.pair >> 32 << 32)
		default:
			p.more[one.place][one.index].And(uint64(math.MaxUint32) << (32 * (one.n - 1)))
		}
	})
}

// Len returns the number of records.
func (p *Passed) Len() (n int) {
	for i := range p.pair {
		for j := range p.pair[i] {
			if p.pair[i][j].Load() != 0 {
				n++
			}
		}
	}
	return n
}
