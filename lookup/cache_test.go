package lookup

import (
	"math"
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
