package lookup

import (
	"testing"
	"testing/synctest"
	"time"
)

// neighbour returns a full hash with the same first n bytes, and no more.
func neighbour(hash FullHash, n int) FullHash {
	hash[n] ^= 0x80
	return hash
}

// newTestCache returns a cache of ten answers.
func newTestCache(t *testing.T) *cache {
	t.Helper()
	c, err := newCache(10)
	if err != nil {
		t.Fatal(err)
	}
	return c
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
	tests := []struct {
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
		{"the same prefix again, for once only", []put{{4, time.Hour, nil}, {4, 0, threat(0)}}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCache(t)
				for _, p := range tt.puts {
					c.put(hash.Prefix(p.size), serverAnswer{received: time.Now(), ttl: p.ttl, threats: p.threats})
					time.Sleep(time.Second)
				}
				answer, ok := c.get(hash, time.Now())
				if ok != tt.ok || ok && (answer.threats != nil) != tt.found {
					t.Errorf("got %+v, %v, want an answer: %v, with a threat: %v", answer, ok, tt.ok, tt.found)
				}
			})
		})
	}
}

func TestEachFullHashHasItsOwnLife(t *testing.T) {
	hash := HashExpression("example.com/")
	other := neighbour(hash, 4)
	threat := isThreat("example.com/", Malware)
	unwanted := isThreat("example.com/", UnwantedSoftware)
	tests := []struct {
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCache(t)
				c.put(hash.Prefix(4), serverAnswer{received: time.Now(), ttl: tt.negative, threats: tt.threats})
				time.Sleep(tt.after)
				if _, ok := c.get(hash, time.Now()); ok != tt.ok {
					t.Errorf("the threat is answered: %v, want %v", ok, tt.ok)
				}
				if _, ok := c.get(other, time.Now()); ok != tt.others {
					t.Errorf("another full hash is answered: %v, want %v", ok, tt.others)
				}
			})
		})
	}
}

// TestExpiredThreatIsAskedAboutAgain asks through the Checker, for two names whose
// prefix, of the one list, is the same.
func TestExpiredThreatIsAskedAboutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := collision(t)
		srv := &server{t: t}
		srv.knows(time.Hour, lasting(time.Minute, isThreat(a+"/", Malware)))
		c := checkerOf(t, Config{Searcher: srv}, a+"/")
		asked := time.Now()
		got := decide(t, c, a+".")
		if got.Verdict != Unsafe || got.By != ByServer || !got.Expires.Equal(asked.Add(time.Minute)) {
			t.Errorf("first: %+v, want unsafe by server for a minute", got)
		}
		time.Sleep(time.Minute)
		if got := decide(t, c, a+"."); got.Verdict != Unsafe || got.By != ByCache || !got.Expires.Equal(asked.Add(time.Minute)) {
			t.Errorf("a minute later: %+v, want unsafe by cache until now", got)
		}
		time.Sleep(1 * time.Nanosecond)
		if got := decide(t, c, b+"."); got != (Decision{By: ByCache}) {
			t.Errorf("another name of the prefix: %+v, want safe by cache", got)
		}
		if n := len(srv.searches()); n != 1 {
			t.Errorf("%d searches, want 1", n)
		}
		if got := decide(t, c, a+"."); got.Verdict != Unsafe || got.By != ByServer {
			t.Errorf("when the threat has expired: %+v, want unsafe by server", got)
		}
	})
}

func TestLiveThreatCountsWhenItsPrefixHasNoLifeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := collision(t)
		srv := &server{t: t}
		srv.knows(time.Minute, lasting(20*time.Minute, isThreat(a+"/", Malware)))
		c := checkerOf(t, Config{Searcher: srv}, a+"/")
		decide(t, c, a+".")
		time.Sleep(20 * time.Minute)
		if got := decide(t, c, a+"."); got.Verdict != Unsafe || got.By != ByCache {
			t.Errorf("the threat: %+v, want unsafe by cache", got)
		}
		suspect(t, c, b+".")
		time.Sleep(1 * time.Nanosecond)
		suspect(t, c, a+".")
	})
}

// collision returns two names whose hashes begin with the same four bytes.
func collision(t *testing.T) (a, b string) {
	t.Helper()
	a, b = "h83507.example", "h113938.example"
	if hash, other := HashExpression(a+"/"), HashExpression(b+"/"); hash.Prefix(4) != other.Prefix(4) || hash == other {
		t.Fatalf("%x and %x do not begin alike", hash, other)
	}
	return a, b
}

func TestAYoungerAnswerForOnceSupersedesAnOlderOne(t *testing.T) {
	c, err := newCache(10)
	if err != nil {
		t.Fatal(err)
	}
	h := HashExpression("example.com/")
	now := time.Now()
	c.put(h.Prefix(5), serverAnswer{received: now, ttl: time.Hour})
	c.put(h.Prefix(4), serverAnswer{received: now.Add(time.Minute), threats: []ThreatHash{{Hash: h, Threats: AllThreats}}})
	if answer, ok := c.get(h, now.Add(2*time.Minute)); ok {
		t.Errorf("the older answer, without a threat, is used: %+v", answer)
	}
}

// Confirmed is the time of an answer with or without a threat, while it may be used.
func TestConfirmedIsTheTimeOfACachedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t}
		srv.knows(time.Minute, isThreat("bad.example/", Malware))
		c := checkerOf(t, Config{Searcher: srv}, "bad.example/", "good.example/")
		asked := time.Now()
		decide(t, c, "bad.example.")
		decide(t, c, "good.example.")
		for _, after := range []time.Duration{0, time.Minute, 1} {
			time.Sleep(after)
			want := asked
			if after == 1 { // the TTL has ended
				want = time.Time{}
			}
			for _, expression := range []string{"bad.example/", "good.example/"} {
				if got := c.Confirmed(expression); !got.Equal(want) {
					t.Errorf("%s, after %s: confirmed at %s, want %s", expression, time.Since(asked), got, want)
				}
			}
			if got := c.Confirmed("other.example/"); !got.IsZero() {
				t.Errorf("a host that was not asked about is confirmed at %s", got)
			}
		}
	})
}
