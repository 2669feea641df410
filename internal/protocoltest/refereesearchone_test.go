package protocoltest

import (
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

func TestRefereeReportsSearchesOfWebRiskTooEarly(t *testing.T) {
	setUp := func(act func(b *bench)) func(b *bench) {
		return func(b *bench) { b.diff("se-4b", "mw-4b"); act(b) }
	}
	a := func(b *bench) { b.risk(entryA) }
	m := func(b *bench) { b.risk(entryM) }
	fail := func(b *bench, prefix string, f Fault) { b.Break("searchOne", 1, f); b.risk(prefix) }
	notBefore(t, "one failure", "back-off", time.Second, setUp(func(b *bench) { fail(b, entryA, Fault{ShortHash: true}) }), m)
	notBefore(t, "failure before a restart", "back-off", 15*time.Minute,
		setUp(func(b *bench) { fail(b, entryA, Fault{Status: 429}); b.ClientStarted() }), a)
	failures := func(n, status int, first time.Duration) func(b *bench) {
		return setUp(func(b *bench) {
			for i := range n {
				if i > 0 {
					time.Sleep(first << (i - 1))
				}
				fail(b, entryA, Fault{Status: status})
			}
		})
	}
	notBefore(t, "three failures", "back-off", 4*time.Second, failures(3, 500, time.Second), a)
	notBefore(t, "seven failures", "back-off", 32*time.Second, failures(7, 500, time.Second), a)
	notBefore(t, "three refusals", "back-off", time.Hour, failures(3, 403, 15*time.Minute), a)
	slow := func(b *bench, f Fault) (wait func()) {
		f.Delay = time.Minute
		b.Break("searchOne", 1, f)
		done := make(chan struct{})
		go func() { defer close(done); b.risk(entryB) }()
		synctest.Wait()
		return func() { <-done }
	}
	notBefore(t, "two fail together", "back-off", 14*time.Minute, setUp(func(b *bench) {
		wait := slow(b, Fault{Status: 429})
		fail(b, entryA, Fault{Status: 429})
		wait()
	}), a)
	notBefore(t, "one of three failures cancelled", "back-off", 30*time.Minute, setUp(func(b *bench) {
		fail(b, entryA, Fault{Status: 429})
		time.Sleep(15 * time.Minute)
		fail(b, entryA, Fault{Status: 429})
		b.ClientCancelled() // counts for nothing
		fail(b, entryA, Fault{Status: 429})
	}), a)
	notBefore(t, "one of two fails", "back-off", 14*time.Minute, setUp(func(b *bench) {
		wait := slow(b, Fault{})
		fail(b, entryA, Fault{Status: 429})
		wait()
	}), a)
	inRiskBubble(t, "after a success", func(b *bench) {
		fail(b, entryA, Fault{Status: 500})
		time.Sleep(15 * time.Minute)
		a(b)
		m(b)
		fail(b, entryB, Fault{Status: 500})
		time.Sleep(15 * time.Minute)
		b.risk(entryB)
		wantNone(b.T, b.violations.take())
	})
	inRiskBubble(t, "cancelled", func(b *bench) {
		fail(b, entryA, Fault{Status: 500})
		b.ClientCancelled()
		a(b)
		wantNone(b.T, b.violations.take())
	})
}

func TestRefereeReportsRisksSearchedAgain(t *testing.T) {
	full := entryA + string(make([]byte, 28))
	ask := func(b *bench) { b.diff("se-4b", "mw-4b"); b.risk(entryA); b.risk(entryM) }
	again := func(b *bench) { b.risk(entryA) }
	listed := func(life time.Duration) func(b *bench) {
		return func(b *bench) {
			b.SetCacheDuration(life)
			b.AddFullHash([]byte(full), &ThreatDetail{ThreatType: sbv5.ThreatType_MALWARE})
			ask(b)
		}
	}
	const rule = ruleCacheRisk + ": 1 hash prefix asked for again while the answer is fresh"
	notBefore(t, "negative", rule, 300*time.Second, ask, again)
	notBefore(t, "negative of an hour", rule, time.Hour, func(b *bench) { b.SetNegativeCacheDuration(time.Hour); ask(b) }, again)
	notBefore(t, "short positive", rule, time.Minute, listed(time.Minute), again)
	notBefore(t, "long positive", rule, 300*time.Second, listed(time.Hour), again)
	notBefore(t, "slow answer", rule, 4*time.Minute, func(b *bench) {
		b.Break("search", 1, Fault{Delay: time.Minute})
		ask(b)
	}, again)
	notBefore(t, "negative after positive", rule, 300*time.Second, func(b *bench) {
		listed(time.Minute)(b)
		time.Sleep(time.Minute)
		delete(b.threats, full)
		again(b)
	}, again)
	inRiskBubble(t, "no negative expire time", func(b *bench) {
		b.SetNegativeCacheDuration(-1)
		again(b)
		again(b)
		wantNone(b.T, b.violations.take())
	})
	inRiskBubble(t, "longer prefix", func(b *bench) {
		again(b)
		b.risk(entryL)
		wantNone(b.T, b.violations.take())
	})
	inRiskBubble(t, "restarted", func(b *bench) {
		again(b)
		b.ClientStarted()
		again(b)
		wantNone(b.T, b.violations.take())
	})
	inRiskBubble(t, "under way", func(b *bench) {
		b.Break("search", 1, Fault{Delay: time.Minute})
		done := make(chan struct{})
		go func() { defer close(done); again(b) }()
		synctest.Wait()
		b.risk(entryM)
		wantNone(b.T, b.violations.take())
		again(b)
		wantOne(b.T, b.violations.take(), "under way")
		<-done
	})
}

func TestRefereeReportsMalformedSearchesOfWebRisk(t *testing.T) {
	types := func(texts ...string) func(url.Values) { return func(v url.Values) { v["threatTypes"] = texts } }
	tests := []struct {
		name   string
		prefix string
		change func(values url.Values)
		rule   string // empty: legal
		status int
	}{
		{"legal", entryA, nil, "", 200},
		{"longer", entryL, nil, "", 200},
		{"no prefix", entryA, func(v url.Values) { v.Del("hashPrefix") }, "0 hash prefixes asked for, want 1", 400},
		{"two prefixes", entryA, func(v url.Values) { v.Add("hashPrefix", base64URL([]byte(entryB))) }, "2 hash prefixes asked for, want 1", 400},
		{"too short", entryA[:3], nil, "has 3 bytes", 400},
		{"too long", entryA + string(make([]byte, 29)), nil, "has 33 bytes", 400},
		{"shortened", entryL[:5], nil, "no entry", 200},
		{"lengthened", entryB + "\x00", nil, "no entry", 200},
		{"full hash", entryB + string(make([]byte, 28)), nil, "no entry", 200},
		{"entry of another list", entryM, types("SOCIAL_ENGINEERING"), "no entry", 200},
		{"one list", entryA, types("2"), "", 200},
		{"unpublished list too", entryA, types("2", "UNWANTED_SOFTWARE", "4"), "", 200},
		{"no types", entryA, types(), "no threat type", 400},
		{"unspecified type", entryA, types("SOCIAL_ENGINEERING", "THREAT_TYPE_UNSPECIFIED"), "do not exist", 400},
		{"unknown type", entryA, types("SOCIAL_ENGINEERING", "9"), "do not exist", 400},
		{"unknown name", entryA, types("SOCIAL_ENGINEERING", "PHISHING"), "do not exist", 400},
		{"type twice", entryA, types("SOCIAL_ENGINEERING", "2"), "not distinct", 200},
		{"no base64", entryA, func(v url.Values) { v.Set("hashPrefix", "!") }, "not base64", 400},
	}
	for _, tt := range tests {
		inRiskBubble(t, tt.name, func(b *bench) {
			values := searchValues(tt.prefix, "se-4b", "mw-4b")
			if tt.change != nil {
				tt.change(values)
			}
			if resp, err := b.RoundTrip(politeRisk(b.T, searchOnePath, values)); err != nil || resp.StatusCode != tt.status {
				b.Errorf("got %v, %v, want status %d", resp, err, tt.status)
			}
			if got := b.violations.take(); tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
		})
	}
}

// takesEntries holds what the referee says to a search for each prefix, "" for nothing, by a
// client that has fetched a list with the entry "longer".
func takesEntries(t *testing.T, name string, fetch func(b *bench, lists ...string), ask func(b *bench, prefix string), rules map[string]string) {
	for prefix, rule := range rules {
		inBubble(t, name+", "+prefix, func(b *bench) {
			b.Publish("se-4b", [][]byte{[]byte("longer")})
			fetch(b, "se-4b")
			b.violations.take()
			ask(b, prefix)
			if got := b.violations.take(); rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, rule)
			}
		})
	}
}

// A client may cut entries, and none that it was not given.
func TestRefereeTakesEntriesThatWereGiven(t *testing.T) {
	takesEntries(t, "Web Risk, by its own lists", (*bench).diff, (*bench).risk, map[string]string{"longer": "", "long": "", "longe": "no entry", "none": "no entry"})
}
