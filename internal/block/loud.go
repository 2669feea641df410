package block

import (
	"cmp"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// loudness logs what may be a mistake of Safe Browsing: that it blocks a name which was
// asked for often. It unblocks nothing: an attacker would use it. There is one per
// process, so that a reload forgets nothing. It is safe for concurrent use.
type loudness struct {
	familiar *familiarity
	names    say.Daily
}

var loud = &loudness{familiar: newFamiliarity(time.Now())}

// blocked notes that a name is blocked.
func (l *loudness) blocked(q dns.Question, d lookup.Decision, now time.Time) {
	if isOwn(d) {
		return
	}
	name := strings.TrimSuffix(q.Name, ".")
	perHour := l.familiar.perHour(lookup.FromQname(q.Name), now)
	if perHour >= familiarRate && l.names.First(q.Name, now) {
		log.Warningf("%s is blocked now (suspected %s, list %s), and was asked for about %d times an hour before. "+
			"If this is a mistake: %s", name, d.Threat, cmp.Or(d.List, "none"), perHour, cmp.Or(status.Allowing("safebrowsing", "1d", name), "add the host to a file of allow"))
	}
}

// familiarity estimates how often names in no list were asked for: a count-min sketch of a
// sample of the queries, of 64 KiB. What each counter has of other names on average is taken off: on a
// busy server that is much. A name that shares its counters with a more frequent one is overestimated.
// Counting takes no lock and reads no clock. The zero value is not ready: use newFamiliarity. It is safe
// for concurrent use.
type familiarity struct {
	seed     maphash.Seed
	counters [2][familiarWidth]atomic.Uint32
	total    atomic.Uint64 // of each row

	mu    sync.Mutex
	since time.Time // when the counts began; guarded by mu
}

const (
	familiarWidth  = 1 << 13
	familiarSample = 16             // queries for each one that is counted, on average
	familiarRate   = 60             // queries an hour that make a name familiar
	familiarMemory = 24 * time.Hour // counts of more are halved
)

func newFamiliarity(now time.Time) *familiarity {
	return &familiarity{seed: maphash.MakeSeed(), since: now}
}

// count notes a query for a host that is in no list.
func (f *familiarity) count(h lookup.Host) {
	if rand.Uint32()%familiarSample == 0 {
		f.add(h, 1)
	}
}

// add adds to the counters of a host.
func (f *familiarity) add(h lookup.Host, n uint32) {
	first, second := f.places(h)
	f.total.Add(uint64(n))
	f.counters[0][first].Add(n)
	f.counters[1][second].Add(n)
}

func (f *familiarity) places(h lookup.Host) (first, second uint64) {
	sum := maphash.String(f.seed, h.String())
	return sum % familiarWidth, sum >> 32 % familiarWidth
}

// perHour returns about how many queries an hour there were for a host, as the mean since
// the counts began, but of an hour at least.
func (f *familiarity) perHour(h lookup.Host, now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for now.Sub(f.since) > familiarMemory {
		f.halve(now)
	}
	first, second := f.places(h)
	n := float64(min(f.counters[0][first].Load(), f.counters[1][second].Load()))
	others := max(0, float64(f.total.Load())-n) / (familiarWidth - 1) // what they have added to each counter, on average
	n = max(0, n-others-3*math.Sqrt(others))                          // and by chance, hardly more than three deviations
	return int(n * familiarSample / max(1, now.Sub(f.since).Hours()))
}

// halve halves the counts and the time in which they were counted, so the means stay.
func (f *familiarity) halve(now time.Time) {
	f.since = now.Add(-now.Sub(f.since) / 2)
	for row := range f.counters {
		for i := range f.counters[row] {
			c := &f.counters[row][i]
			half := c.Load() / 2
			c.Add(-half) // wraps around, which subtracts
			if row == 0 {
				f.total.Add(-uint64(half))
			}
		}
	}
}
