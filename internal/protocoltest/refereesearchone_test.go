package protocoltest

import (
	"net/url"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

// searchValues returns the parameters of hashes.search for a prefix in both lists.
func searchValues(prefix string) url.Values {
	return url.Values{"hashPrefix": {base64URL([]byte(prefix))}, "threatTypes": {riskNames["se-4b"], riskNames["mw-4b"]}}
}

// risk asks about a prefix in both lists; the answer may be bad.
func (b *bench) risk(prefix string) {
	_ = read(b, politeRisk(b.T, searchOnePath, searchValues(prefix)), new(wrv1.SearchHashesResponse))
}

func riskA(b *bench) { b.risk(entryA) }
func riskM(b *bench) { b.risk(entryM) }

// inRiskBubble is inBubble for a client of Web Risk that has fetched both lists.
func inRiskBubble(t *testing.T, name string, f func(b *bench)) {
	inBubble(t, name, func(b *bench) {
		b.Publish("se-4b", [][]byte{[]byte(entryA), []byte(entryB), []byte(entryL)})
		b.diff("se-4b", "mw-4b")
		time.Sleep(time.Hour)
		f(b)
	})
}

func TestRefereeReportsSearchesOfWebRiskTooEarly(t *testing.T) {
	setUp := func(do func(b *bench)) func(b *bench) {
		return func(b *bench) { b.diff("se-4b", "mw-4b"); do(b) }
	}
	fail := func(b *bench, prefix string, f Fault) { b.Break("searchOne", 1, f); b.risk(prefix) }
	refuse := func(b *bench) { fail(b, entryA, Fault{Status: 429}) }
	notBefore(t, "one failure", "back-off", time.Second, setUp(func(b *bench) { fail(b, entryA, Fault{ShortHash: true}) }), riskM)
	notBefore(t, "failure before a restart", "back-off", 15*time.Minute, setUp(func(b *bench) { refuse(b); b.ClientStarted() }), riskA)
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
	notBefore(t, "three failures", "back-off", 4*time.Second, failures(3, 500, time.Second), riskA)
	notBefore(t, "seven failures", "back-off", 32*time.Second, failures(7, 500, time.Second), riskA)
	notBefore(t, "three refusals", "back-off", time.Hour, failures(3, 403, 15*time.Minute), riskA)
	for name, f := range map[string]Fault{"two fail together": {Status: 429}, "one of two fails": {}} {
		notBefore(t, name, "back-off", 14*time.Minute, setUp(func(b *bench) {
			end := b.meanwhile("searchOne", f, func(b *bench) { b.risk(entryB) })
			refuse(b)
			end()
		}), riskA)
	}
	notBefore(t, "one of three failures cancelled", "back-off", 30*time.Minute, setUp(func(b *bench) {
		refuse(b)
		time.Sleep(15 * time.Minute)
		refuse(b)
		b.ClientCancelled() // counts for nothing
		refuse(b)
	}), riskA)
	judged(t, inRiskBubble,
		act{"after a success", func(b *bench) {
			fail(b, entryA, Fault{Status: 500})
			time.Sleep(15 * time.Minute)
			riskA(b)
			riskM(b)
			fail(b, entryB, Fault{Status: 500})
			time.Sleep(15 * time.Minute)
			b.risk(entryB)
		}, ""},
		act{"cancelled", func(b *bench) { fail(b, entryA, Fault{Status: 500}); b.ClientCancelled(); riskA(b) }, ""})
}

func TestRefereeReportsRisksSearchedAgain(t *testing.T) {
	full := entryA + string(make([]byte, 28))
	ask := func(b *bench) { b.diff("se-4b", "mw-4b"); riskA(b); riskM(b) }
	listed := func(life time.Duration) func(b *bench) {
		return func(b *bench) {
			b.SetCacheDuration(life)
			b.AddFullHash([]byte(full), &ThreatDetail{ThreatType: sbv5.ThreatType_MALWARE})
			ask(b)
		}
	}
	const rule = ruleCacheRisk + ": 1 hash prefix asked for again while the answer is fresh"
	notBefore(t, "negative", rule, 300*time.Second, ask, riskA)
	notBefore(t, "negative of an hour", rule, time.Hour, func(b *bench) { b.SetNegativeCacheDuration(time.Hour); ask(b) }, riskA)
	notBefore(t, "short positive", rule, time.Minute, listed(time.Minute), riskA)
	notBefore(t, "long positive", rule, 300*time.Second, listed(time.Hour), riskA)
	notBefore(t, "slow answer", rule, 4*time.Minute, func(b *bench) { b.Break("search", 1, Fault{Delay: time.Minute}); ask(b) }, riskA)
	notBefore(t, "negative after positive", rule, 300*time.Second, func(b *bench) {
		listed(time.Minute)(b)
		time.Sleep(time.Minute)
		delete(b.threats, full)
		riskA(b)
	}, riskA)
	judged(t, inRiskBubble,
		act{"no negative expire time", func(b *bench) { b.SetNegativeCacheDuration(-1); riskA(b); riskA(b) }, ""},
		act{"longer prefix", func(b *bench) { riskA(b); b.risk(entryL) }, ""},
		act{"restarted", func(b *bench) { riskA(b); b.ClientStarted(); riskA(b) }, ""},
		act{"under way", func(b *bench) {
			end := b.meanwhile("search", Fault{}, riskA)
			riskM(b)
			b.want("")
			riskA(b)
			end()
		}, "under way"})
}

func TestRefereeReportsMalformedSearchesOfWebRisk(t *testing.T) {
	types := func(texts ...string) func(url.Values) { return func(v url.Values) { v["threatTypes"] = texts } }
	prefixes := func(all ...string) func(url.Values) { return func(v url.Values) { v["hashPrefix"] = all } }
	for _, tt := range []struct {
		name   string
		prefix string
		change func(values url.Values)
		rule   string // empty: legal
		status int
	}{
		{"legal", entryA, nil, "", 200},
		{"longer", entryL, nil, "", 200},
		{"no prefix", entryA, prefixes(), "0 hash prefixes asked for, want 1", 400},
		{"two prefixes", entryA, prefixes(base64URL([]byte(entryA)), base64URL([]byte(entryB))), "2 hash prefixes asked for, want 1", 400},
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
		{"no base64", entryA, prefixes("!"), "not base64", 400},
	} {
		inRiskBubble(t, tt.name, func(b *bench) {
			values := searchValues(tt.prefix)
			if tt.change != nil {
				tt.change(values)
			}
			b.wantAnswer(politeRisk(b.T, searchOnePath, values), tt.status, tt.rule)
		})
	}
}

// takesEntries holds what the referee says to a search for each prefix, "" for nothing, by a
// client that has fetched a list with the entry "longer".
func takesEntries(t *testing.T, name string, fetch func(b *bench, lists ...string), ask func(b *bench, prefix string), rules map[string]string) {
	for prefix, rule := range rules {
		judged(t, inBubble, act{name + ", " + prefix, func(b *bench) {
			b.Publish("se-4b", [][]byte{[]byte("longer")})
			fetch(b, "se-4b")
			b.violations.take()
			ask(b, prefix)
		}, rule})
	}
}

// A client may cut entries, and none that it was not given.
func TestRefereeTakesEntriesThatWereGiven(t *testing.T) {
	takesEntries(t, "Web Risk, by its own lists", (*bench).diff, (*bench).risk, map[string]string{"longer": "", "long": "", "longe": "no entry", "none": "no entry"})
}
