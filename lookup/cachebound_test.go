package lookup

import (
	"context"
	"encoding/binary"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// threatsBehind returns n full hashes that begin with the same four bytes. The first is
// the hash of the expression.
func threatsBehind(expression string, n int) (all []ThreatHash) {
	hash := HashExpression(expression)
	for i := range n {
		all = append(all, ThreatHash{Hash: hash, Threats: AllThreats, TTL: time.Hour})
		binary.BigEndian.PutUint32(hash[20:], uint32(i))
	}
	return all
}

// An answer that is too long for the cache serves the queries that wait for it. The next
// query asks again: a part of the answer must not pass for all of it.
func TestMoreThan256FullHashesOfAPrefixAreUsedButNotKept(t *testing.T) {
	for n, kept := range map[int]bool{1: true, 256: true, 257: false, 5000: false} {
		synctest.Test(t, func(t *testing.T) {
			all := threatsBehind("example.com/", n)
			slices.Reverse(all) // the one that is asked for comes last
			srv := &server{t: t}
			srv.OnSearch = func(_ context.Context, _ []Prefix) (Answer, error) { return Answer{Threats: all}, nil }
			c := checkerOf(t, Config{Searcher: srv}, "example.com/")
			for i, by := range []Decider{ByServer, ByCache} {
				if !kept {
					by = ByServer
				}
				if got := decide(t, c, "example.com."); got.Verdict != Unsafe || got.By != by {
					t.Errorf("%d full hashes, query %d: %+v, want unsafe by %s", n, i+1, got, by)
				}
			}
		})
	}
}

func TestAnAnswerThatIsTooLongSupersedesOthers(t *testing.T) {
	hash, now := HashExpression("example.com/"), time.Now()
	for _, size := range []int{4, 5} {
		c := newTestCache(t)
		c.put(hash.Prefix(4), serverAnswer{received: now.Add(-time.Minute), ttl: time.Hour})
		c.put(hash.Prefix(size), serverAnswer{received: now, ttl: time.Hour, threats: threatsBehind("example.com/", 300)})
		for _, at := range []time.Time{now, now.Add(time.Second)} {
			if answer, ok := c.get(hash, at); ok {
				t.Errorf("prefix of %d bytes: the answer before is used: %+v", size, answer)
			}
		}
	}
}

// The cache holds no more full hashes than prefixes. It forgets the least recently used
// prefixes first.
func TestTheCacheIsBoundedInFullHashes(t *testing.T) {
	c, err := newCache(1000)
	if err != nil {
		t.Fatal(err)
	}
	var hashes []FullHash
	for i := range 20 {
		threats := threatsBehind(expressed(i), 100)
		hashes = append(hashes, threats[0].Hash)
		for range 3 { // what replaces an answer about the same prefix takes its room
			c.put(hashes[i].Prefix(4), serverAnswer{received: time.Now(), ttl: time.Hour, threats: threats})
		}
	}
	for i, hash := range hashes {
		if answer, ok := c.get(hash, time.Now()); ok != (i >= 10) || ok && len(answer.threats) != 100 {
			t.Errorf("prefix %d is answered: %v, with %d full hashes, want the last ten only", i, ok, len(answer.threats))
		}
	}
	for i := range 1000 {
		c.put(HashExpression(expressed(100+i)).Prefix(4), serverAnswer{received: time.Now(), ttl: time.Hour})
	}
	if c.hashes != 0 || c.answers.Len() != 1000 {
		t.Errorf("%d full hashes of %d prefixes are counted, want none of 1,000", c.hashes, c.answers.Len())
	}
}

// docs/reliability.md, "Bounds": 300 bytes a prefix, and half a megabyte at least.
func TestTheCacheIsBoundedInBytes(t *testing.T) {
	testkit.Long(t)
	const capacity = 50_000
	for _, n := range []int{0, 1, 256} {
		before := heap()
		c, err := newCache(capacity)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 * capacity / max(1, n/20) {
			threats := threatsBehind(expressed(i), n)
			c.put(HashExpression(expressed(i)).Prefix(4), serverAnswer{received: time.Now(), ttl: time.Hour, threats: threats})
		}
		took := heap() - before
		t.Logf("%d full hashes a prefix: %d prefixes in %d bytes, %d of capacity", n, c.answers.Len(), took, took/capacity)
		if took > 300*capacity+1<<19 {
			t.Errorf("%d full hashes a prefix: %d bytes, want at most %d", n, took, 300*capacity+1<<19)
		}
		runtime.KeepAlive(c)
	}
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// apart moves the wall clock of t but not its monotonic clock. Package time cannot do
// that; the seconds are in the upper bits of its first word.
func apart(t *testing.T, at time.Time, seconds int64) time.Time {
	t.Helper()
	moved := at
	*(*uint64)(unsafe.Pointer(&moved)) += uint64(seconds) << 30
	if moved.Sub(at) != 0 || moved.Round(0).Sub(at.Round(0)) != time.Duration(seconds)*time.Second {
		t.Fatalf("the clocks are not apart: %s and %s", at, moved)
	}
	return moved
}

// The monotonic clock stops while a machine is suspended, and an operator may set the
// wall clock back. An answer has expired if it has expired on either clock.
func TestAnAnswerEndsByEitherClock(t *testing.T) {
	hash := HashExpression("example.com/")
	asked := time.Now()
	for _, test := range []struct {
		name      string
		monotonic time.Duration
		wall      int64 // seconds more than that
		want      bool
	}{
		{"a minute later", time.Minute, 0, true},
		{"30 minutes later", 30 * time.Minute, 0, true},
		{"a second more", 30*time.Minute + time.Second, 0, false},
		{"a minute later, half of it asleep", 30 * time.Second, 30, true},
		{"a minute later, after a sleep of 30 minutes", time.Minute, 30 * 60, false},
		{"a minute later, after a sleep of a night", time.Minute, 8 * 3600, false},
		{"an hour later, the clock set back by an hour", time.Hour, -3600, false},
	} {
		c := newTestCache(t)
		threat := ThreatHash{Hash: hash, Threats: AllThreats, TTL: 24 * time.Hour}
		c.put(hash.Prefix(4), serverAnswer{received: asked, ttl: time.Minute, threats: []ThreatHash{threat}})
		now := apart(t, asked.Add(test.monotonic), test.wall)
		if _, ok := c.get(hash, now); ok != test.want {
			t.Errorf("%s: the threat is answered: %v, want %v", test.name, ok, test.want)
		}
	}
}

// An answer that may be used once leaves nothing behind, and takes the place of the one before.
func TestAnAnswerToBeUsedOnceIsNotKept(t *testing.T) {
	c, err := newCache(10)
	if err != nil {
		t.Fatal(err)
	}
	p, now := HashExpression("example.com/").Prefix(4), time.Now()
	for _, ttl := range []time.Duration{0, time.Hour, 0} {
		c.put(p, serverAnswer{received: now, ttl: ttl})
		if got, want := c.answers.Len(), min(1, int(ttl)); got != want {
			t.Errorf("with a TTL of %s the cache has %d answers, want %d", ttl, got, want)
		}
	}
}

// The cache shortens the TTL of a threat in its own copy of the answer.
func TestPutLeavesTheAnswerAsItIs(t *testing.T) {
	c, hash := newTestCache(t), HashExpression("example.com/")
	threats := []ThreatHash{{Hash: hash, Threats: AllThreats, TTL: time.Hour}}
	c.put(hash.Prefix(4), serverAnswer{received: time.Now(), ttl: time.Hour, threats: threats})
	if threats[0].TTL != time.Hour {
		t.Errorf("the TTL is %s", threats[0].TTL)
	}
}

// When every threat has expired no bit is left in either word: a bit that stays makes
// queries slow.
func TestNoBitOutlivesTheThreats(t *testing.T) {
	c, err := newCache(10)
	if err != nil {
		t.Fatal(err)
	}
	hash, now := HashExpression("example.com/"), time.Now()
	for range 2 { // the second is in the other word
		now = now.Add(maxVerdictAge + 1)
		c.put(hash.Prefix(4), serverAnswer{received: now, ttl: time.Hour, threats: []ThreatHash{{Hash: hash, Threats: AllThreats, TTL: time.Minute}}})
		if !c.mayThreaten(&hash) {
			t.Error("the cache does not know of its threat")
		}
		c.sweep(now.Add(time.Minute + 1))
		if n := len(bitsOf(c)); n != 0 || c.anyThreat.Load() {
			t.Errorf("%d bits of expired threats are left", n)
		}
	}
}

// bitsOf returns the words of threatBits that have a bit set.
func bitsOf(c *cache) (words []uint64) {
	for i := range c.threatBits {
		for j := range c.threatBits[i] {
			if word := c.threatBits[i][j].Load(); word != 0 {
				words = append(words, word)
			}
		}
	}
	return words
}

func TestEachBitOfThreatsIsUsed(t *testing.T) {
	var c cache
	if got := unsafe.Sizeof(c.threatBits); got != 2*(1<<16)/8 {
		t.Errorf("%d bytes for two times 65,536 bits", got)
	}
	for _, test := range []struct {
		hash FullHash
		word int
		bit  uint64
	}{
		{FullHash{0, 0, 255}, 0, 1},
		{FullHash{0, 63}, 0, 1 << 63},
		{FullHash{0, 64}, 1, 1},
		{FullHash{255, 255}, 1023, 1 << 63},
	} {
		if word, bit := threatBit(&test.hash); word != test.word || bit != test.bit {
			t.Errorf("%x: word %d, bit %x, want %d and %x", test.hash[:3], word, bit, test.word, test.bit)
		}
	}
}
