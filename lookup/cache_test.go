package lookup

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestAnswersAreFreshForExactlyTheirLife(t *testing.T) {
	for _, tt := range []struct {
		name string
		ttl  time.Duration // as the server says
		want time.Duration // how long the answer may be used
		safe bool          // the server knows no threat
	}{
		{"a threat for a nanosecond", 1, 1, false},
		{"a threat for some nanoseconds", 999, 999, false},
		{"a threat for a usual time", 300*time.Second + 1, 300*time.Second + 1, false},
		{"a threat for 30 minutes", 30 * time.Minute, 30 * time.Minute, false},
		{"a threat for a nanosecond too long", 30*time.Minute + 1, 30 * time.Minute, false},
		{"a threat for a day", 24 * time.Hour, 30 * time.Minute, false},
		{"a threat for ever", math.MaxInt64, 30 * time.Minute, false},
		{"no threat for a nanosecond", 1, 1, true},
		{"no threat for a usual time", 300 * time.Second, 300 * time.Second, true},
		{"no threat for 30 minutes and more", 31 * time.Minute, 31 * time.Minute, true},
		{"no threat for a day", 24 * time.Hour, 24 * time.Hour, true},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			srv := &server{t: t}
			verdict := Safe
			srv.knows(tt.ttl)
			if !tt.safe {
				verdict = Unsafe
				srv.knows(tt.ttl, isThreat("example.com/", Malware))
			}
			c := checkerOf(t, Config{Searcher: srv}, "example.com/")
			asked := time.Now()
			decision := decide(t, c, "example.com.")
			decided(t, "first", decision, verdict, ByServer)
			if !tt.safe {
				testkit.Equal(t, "expires, after it was asked", decision.Expires.Sub(asked), tt.want)
			}
			time.Sleep(tt.want)
			decided(t, "at the end of its TTL", decide(t, c, "example.com."), verdict, ByCache)
			testkit.Equal(t, "searches", len(srv.searches()), 1)

			time.Sleep(1 * time.Nanosecond)
			suspect(t, c, "example.com.") // for the answer is not used any more
			_, ok := c.cache.get(HashExpression("example.com/"), time.Now())
			testkit.Equal(t, "a nanosecond later the cache answers", ok, false)
		})
	}
}

func TestCacheBeatsTheLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := databaseOf(listOf("list", "example.com/"))
		srv := &server{t: t}
		srv.knows(5*time.Minute, isThreat("example.com/", SocialEngineering))
		c := checkerOf(t, Config{Database: database, Searcher: srv})
		first := decide(t, c, "www.example.com.")

		database.Publish([]List{listOf("list", "example.net/")})
		want := first
		want.By, want.List = ByCache, ""
		testkit.Equal(t, "after the prefix was dropped", decide(t, c, "www.example.com."), want)
		database.Publish(nil)
		testkit.Equal(t, "without lists", decide(t, c, "www.example.com."), want)
		testkit.Equal(t, "another name without lists", decide(t, c, "www.example.net."), Decision{})

		time.Sleep(5*time.Minute + 1)
		testkit.Equal(t, "after its TTL", decide(t, c, "www.example.com."), Decision{})
		testkit.Equal(t, "the cache looks for threats", c.cache.anyThreat.Load(), false)
		testkit.Equal(t, "searches", len(srv.searches()), 1)
	})
}

func TestThreatsAreLookedForUntilTheLastExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(10)
		hash, other := HashExpression("example.com/"), HashExpression("example.org/")
		put := func(size int, ttl time.Duration) {
			threat := lasting(ttl, isThreat("example.com/", Malware))
			cache.put(hash.Prefix(size), serverAnswer{received: time.Now(), ttl: ttl, threats: []ThreatHash{threat}})
		}
		looksFor := func(when string, first, second bool) {
			t.Helper()
			cache.sweep(time.Now())
			got := []bool{cache.mayThreaten(&hash), cache.mayThreaten(&other), cache.anyThreat.Load()}
			testkit.Equal(t, when, got, []bool{first, second, first || second})
		}
		put(4, time.Minute)
		put(5, 3*time.Minute)
		put(6, 2*time.Minute)
		cache.put(other.Prefix(4), serverAnswer{received: time.Now(), ttl: time.Hour})
		time.Sleep(3 * time.Minute)
		looksFor("until the longest-lived threat ends, and nothing for an answer without threats", true, false)
		time.Sleep(1 * time.Nanosecond)
		looksFor("when all have expired", false, false)
		put(4, 1)
		looksFor("a new threat", true, false)
		time.Sleep(2 * time.Nanosecond)
		threat := lasting(time.Minute, isThreat("example.org/", Malware))
		cache.put(other.Prefix(4), serverAnswer{received: time.Now(), threats: []ThreatHash{threat}})
		looksFor("the next threat, in the place of those that have expired", false, true)
		time.Sleep(maxVerdictAge + 1) // the next bits are in the other word
		put(4, time.Minute)
		time.Sleep(time.Minute + 1)
		looksFor("when all have expired again", false, false)
	})
}

// threatsBehind returns n full hashes that begin with the same four bytes. The first is the hash of the expression.
func threatsBehind(expression string, n int) (all []ThreatHash) {
	hash := HashExpression(expression)
	for i := range n {
		all = append(all, ThreatHash{Hash: hash, Threats: AllThreats, TTL: time.Hour})
		binary.BigEndian.PutUint32(hash[20:], uint32(i))
	}
	return all
}

// Such an answer serves the queries that wait for it. A part of it in the cache must not pass for all of it.
func TestMoreThan256FullHashesOfAPrefixAreUsedButNotKept(t *testing.T) {
	for n, kept := range map[int]bool{1: true, 256: true, 257: false, 5000: false} {
		synctest.Test(t, func(t *testing.T) {
			all := threatsBehind("example.com/", n)
			slices.Reverse(all) // the one that is asked for comes last
			srv := &server{t: t}
			srv.always(Answer{Threats: all}, nil)
			c := checkerOf(t, Config{Searcher: srv}, "example.com/")
			decided(t, fmt.Sprint(n, " full hashes"), decide(t, c, "example.com."), Unsafe, ByServer)
			decided(t, fmt.Sprint(n, " again"), decide(t, c, "example.com."), Unsafe, map[bool]Decider{true: ByCache, false: ByServer}[kept])
		})
	}
}

// The cache holds no more full hashes than prefixes. It forgets the least recently used prefixes first.
func TestTheCacheIsBoundedInFullHashes(t *testing.T) {
	c := newCache(1000)
	var hashes []FullHash
	for i := range 20 {
		threats := threatsBehind(expressed(i), 100)
		hashes = append(hashes, threats[0].Hash)
		for range 3 { // what replaces an answer about the same prefix takes its room
			c.put(hashes[i].Prefix(4), serverAnswer{received: time.Now(), ttl: time.Hour, threats: threats})
		}
	}
	for i, hash := range hashes {
		answer, ok := c.get(hash, time.Now())
		kept := map[bool]int{true: 100}[i >= 10]
		testkit.Equal(t, fmt.Sprintf("prefix %d is answered, with full hashes", i), []any{ok, len(answer.threats)}, []any{kept > 0, kept})
	}
	for i := range 1000 {
		c.put(HashExpression(expressed(100+i)).Prefix(4), serverAnswer{received: time.Now(), ttl: time.Hour})
	}
	testkit.Equal(t, "full hashes and prefixes that are counted", []any{c.hashes, c.answers.Len()}, []any{0, 1000})
}

// docs/reliability.md, "Bounds": 300 bytes a prefix, and half a megabyte at least.
func TestTheCacheIsBoundedInBytes(t *testing.T) {
	testkit.Long(t)
	const capacity = 50_000
	for _, n := range []int{0, 1, 256} {
		before := heap()
		c := newCache(capacity)
		for i := range 3 * capacity / max(1, n/20) {
			threats := threatsBehind(expressed(i), n)
			c.put(HashExpression(expressed(i)).Prefix(4), serverAnswer{received: time.Now(), ttl: time.Hour, threats: threats})
		}
		took := heap() - before
		t.Logf("%d full hashes a prefix: %d prefixes in %d bytes, %d of capacity", n, c.answers.Len(), took, took/capacity)
		testkit.Between(t, fmt.Sprint("bytes, where a prefix has ", n, " full hashes"), max(took, 0), 0, 300*capacity+1<<19)
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

// The monotonic clock stops while a machine is suspended, and an operator may set the wall clock back.
func TestAnAnswerEndsByEitherClock(t *testing.T) {
	hash := HashExpression("example.com/")
	asked := time.Now()
	for _, test := range []struct {
		name      string
		monotonic time.Duration
		wall      time.Duration // more than that
		want      bool
	}{
		{"a minute later", time.Minute, 0, true},
		{"30 minutes later", 30 * time.Minute, 0, true},
		{"a second more", 30*time.Minute + time.Second, 0, false},
		{"a minute later, half of it asleep", 30 * time.Second, 30 * time.Second, true},
		{"a minute later, after a sleep of 30 minutes", time.Minute, 30 * time.Minute, false},
		{"a minute later, after a sleep of a night", time.Minute, 8 * time.Hour, false},
		{"an hour later, the clock set back by an hour", time.Hour, -time.Hour, false},
	} {
		c := newCache(10)
		threats := []ThreatHash{{Hash: hash, Threats: AllThreats, TTL: 24 * time.Hour}}
		c.put(hash.Prefix(4), serverAnswer{received: asked, ttl: time.Minute, threats: threats})
		testkit.Equal(t, "the TTL in the answer itself", threats[0].TTL, 24*time.Hour)
		now := testkit.ClockSet(asked.Add(test.monotonic), test.wall)
		_, ok := c.get(hash, now)
		testkit.Equal(t, test.name, ok, test.want)
	}
}

// neighbour returns a full hash with the same first n bytes, and no more.
func neighbour(hash FullHash, n int) FullHash {
	hash[n] ^= 0x80
	return hash
}

func TestTheYoungestAnswerCountsWhateverItsLength(t *testing.T) {
	hash := HashExpression("example.com/")
	threat := func(ttl time.Duration) []ThreatHash {
		return []ThreatHash{lasting(ttl, isThreat("example.com/", Malware))}
	}
	type put struct {
		size    int // of the prefix
		ttl     time.Duration
		threats []ThreatHash
	}
	for _, tt := range []struct {
		name  string
		puts  []put // one second after the other
		ok    bool
		found bool // a threat
	}{
		{"nothing", nil, false, false},
		{"a negative one only", []put{{32, time.Hour, nil}}, true, false},
		{"a threat, then a longer prefix without", []put{{4, time.Hour, threat(time.Minute)}, {8, time.Hour, nil}}, true, false},
		{"a threat, then a shorter prefix without", []put{{8, time.Hour, threat(time.Minute)}, {4, time.Hour, nil}}, true, false},
		{"no threat, then one of a longer prefix", []put{{4, time.Hour, nil}, {9, time.Hour, threat(time.Minute)}}, true, true},
		{"no threat, then one of a shorter prefix", []put{{9, time.Hour, nil}, {4, time.Hour, threat(time.Minute)}}, true, true},
		{"the youngest in the middle", []put{{4, time.Hour, nil}, {32, time.Hour, nil}, {16, time.Hour, threat(time.Minute)}}, true, true},
		{"the youngest has expired, an older one not", []put{{4, time.Hour, threat(time.Minute)}, {8, 1, nil}}, false, false},
		{"its threat has expired, the older answer not", []put{{4, time.Hour, nil}, {8, time.Hour, threat(1)}}, false, false},
		{"the same prefix again", []put{{4, time.Hour, threat(time.Minute)}, {4, time.Hour, nil}}, true, false},
		{"a shorter prefix later, for once only", []put{{5, time.Hour, nil}, {4, 0, threat(0)}}, false, false},
		{"the same prefix again, for once only", []put{{4, time.Hour, nil}, {4, 0, threat(0)}}, false, false},
		{"a longer prefix later, too long to keep", []put{{4, time.Hour, nil}, {5, time.Hour, threatsBehind("example.com/", 300)}}, false, false},
		{"the same prefix again, too long to keep", []put{{4, time.Hour, nil}, {4, time.Hour, threatsBehind("example.com/", 300)}}, false, false},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			c := newCache(10)
			for _, p := range tt.puts {
				c.put(hash.Prefix(p.size), serverAnswer{received: time.Now(), ttl: p.ttl, threats: p.threats})
				time.Sleep(time.Second)
			}
			answer, ok := c.get(hash, time.Now())
			testkit.Equal(t, "an answer, with a threat", []bool{ok, ok && answer.threats != nil}, []bool{tt.ok, tt.found})
		})
	}
}

func TestEachFullHashHasItsOwnLife(t *testing.T) {
	hash := HashExpression("example.com/")
	other := neighbour(hash, 4)
	threat := isThreat("example.com/", Malware)
	unwanted := isThreat("example.com/", UnwantedSoftware)
	for _, tt := range []struct {
		name     string
		negative time.Duration // TTL of the rest of the prefix
		threats  []ThreatHash
		after    time.Duration
		ok       bool // hash can be answered
		others   bool // so can another full hash of the prefix
	}{
		{"all live", time.Hour, []ThreatHash{lasting(time.Minute, threat)}, time.Minute, true, true},
		{"the threat has expired", time.Hour, []ThreatHash{lasting(time.Minute, threat)}, time.Minute + 1, false, true},
		{"the rest has expired", time.Minute, []ThreatHash{lasting(20*time.Minute, threat)}, time.Minute + 1, true, false},
		{"there was no TTL for the rest", 0, []ThreatHash{lasting(20*time.Minute, threat)}, 20 * time.Minute, true, false},
		{"both have expired", time.Minute, []ThreatHash{lasting(time.Minute, threat)}, time.Minute + 1, false, false},
		{"the TTL of a threat is at most 30 minutes", 2 * time.Hour, []ThreatHash{lasting(time.Hour, threat)}, maxVerdictAge + 1, false, true},
		{"one of two threats of it has expired", time.Hour,
			[]ThreatHash{lasting(2*time.Minute, threat), lasting(time.Minute, unwanted)}, time.Minute + 1, false, true},
		{"the other one has", time.Hour,
			[]ThreatHash{lasting(time.Minute, unwanted), lasting(2*time.Minute, threat)}, time.Minute + 1, false, true},
		{"a threat for this once", time.Hour, []ThreatHash{threat}, 1, false, true},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			c := newCache(10)
			c.put(hash.Prefix(4), serverAnswer{received: time.Now(), ttl: tt.negative, threats: tt.threats})
			time.Sleep(tt.after)
			_, ok := c.get(hash, time.Now())
			_, others := c.get(other, time.Now())
			testkit.Equal(t, "the threat and another full hash are answered", []bool{ok, others}, []bool{tt.ok, tt.others})
		})
	}
}

// An answer with or without a threat is told of while it may be used.
func TestConfirmedIsTheTimeOfACachedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t}
		srv.knows(time.Minute, isThreat("bad.example/", Malware))
		c := checkerOf(t, Config{Searcher: srv}, "bad.example/", "good.example/")
		decide(t, c, "bad.example.")
		decide(t, c, "good.example.")
		asked := time.Now()
		for _, at := range []time.Time{asked, asked.Add(time.Minute), {}} { // then the TTL has ended
			time.Sleep(max(1, time.Until(at)))
			for expression, known := range map[string]bool{"bad.example/": true, "good.example/": true, "other.example/": false} {
				want := map[bool]time.Time{true: asked}[known && !at.IsZero()]
				testkit.Equal(t, expression+" is confirmed at", c.Confirmed(expression).Equal(want), true)
			}
		}
	})
}
