package protocoltest

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const (
	diffPath      = "/v1/threatLists:computeDiff"
	searchOnePath = "/v1/hashes:search"
)

// riskNames are the threat types of the bench's lists.
var riskNames = map[string]string{"se-4b": "SOCIAL_ENGINEERING", "mw-4b": "MALWARE"}

// politeRisk returns a request of Web Risk that breaks no rule of form.
func politeRisk(t testing.TB, path string, values url.Values) *http.Request {
	t.Helper()
	r := polite(t, path, nil)
	r.URL.RawQuery = values.Encode()
	r.Header.Set("Accept", "application/x-protobuf")
	return r
}

// diffValues returns the parameters of computeDiff for a list.
func diffValues(list string, token []byte) url.Values {
	values := url.Values{"threatType": {riskNames[list]}, "constraints.supportedCompressions": {"RICE", "RAW"}}
	if token != nil {
		values.Set("versionToken", base64URL(token))
	}
	return values
}

// diff fetches lists, each by a request and without a token; the answers may be bad.
func (b *bench) diff(lists ...string) {
	for _, list := range lists {
		b.diffWith(list, nil, nil)
	}
}

// diffWith fetches a list with this token, by a request whose parameters change may still change.
func (b *bench) diffWith(list string, token []byte, change func(values url.Values)) {
	values := diffValues(list, token)
	if change != nil {
		change(values)
	}
	var m wrv1.ComputeThreatListDiffResponse
	if read(b, politeRisk(b.T, diffPath, values), &m) == nil {
		b.version = m.NewVersionToken
	}
}

func diffSE(b *bench) { b.diff("se-4b") }
func diffMW(b *bench) { b.diff("mw-4b") }

// What Web Risk shares with version 5, the clock of a list and the growth of a back-off, is in
// TestRefereeReportsRequestsTooEarly.
func TestRefereeReportsDiffsTooEarly(t *testing.T) {
	const next = "recommended next diff"
	notBefore(t, "next diff", next, time.Hour, diffSE, diffSE)
	for _, f := range []Fault{{Status: 400}, {ShortChecksum: true, List: "se-4b"}} {
		notBefore(t, "a list refused, or bad", "back-off of one list", 15*time.Minute, func(b *bench) {
			b.SetMinimumWait("se-4b", 0)
			b.Break("update", 1, f)
			diffSE(b)
			diffMW(b)
		}, diffSE)
	}
	judged(t, inBubble,
		act{"Web Risk and Safe Browsing", func(b *bench) { // each service has clocks of its own
			b.Break("", 1, Fault{Status: 500})
			se(b)
			b.diff("se-4b", "mw-4b")
			b.Break("searchOne", 1, Fault{Status: 500})
			b.risk(entryA)
			_ = b.search(entryA)
		}, ""})
}

func TestRefereeReportsParallelDiffs(t *testing.T) {
	judged(t, inBubble,
		act{"same list", func(b *bench) {
			end := b.meanwhile("computeDiff", Fault{}, diffSE)
			diffMW(b)
			b.want("")
			diffSE(b)
			end()
		}, "under way"},
		act{"by a client that died", func(b *bench) {
			end := b.meanwhile("computeDiff", Fault{}, diffSE)
			b.ClientStarted()
			diffSE(b)
			end()
		}, ""})
	notBefore(t, "two fail together", "back-off", 14*time.Minute, func(b *bench) {
		end := b.meanwhile("computeDiff", Fault{Status: 500}, diffSE)
		b.Break("computeDiff", 1, Fault{Status: 500})
		diffMW(b)
		end()
	}, diffSE)
}

func TestRefereeReportsMalformedDiffs(t *testing.T) {
	set := func(name string, values ...string) func(url.Values) {
		return func(v url.Values) { v[name] = values }
	}
	const diff, database, compressions = "constraints.maxDiffEntries", "constraints.maxDatabaseEntries", "constraints.supportedCompressions"
	send := func(b *bench, change func(url.Values)) { b.diffWith("se-4b", nil, change) }
	judgedChanged(t, inBubble, send, []changed[url.Values]{
		{"limits", func(v url.Values) { v.Set(diff, "16777216"); v.Set(database, "1024") }, "", 200},
		{"no limits", func(v url.Values) { v.Set(diff, "0"); v.Set(database, "0") }, "", 200},
		{"no power of two", set(database, "5000"), "Update Constraints", 400},
		{"no number", set(diff, "many"), "", 400},
		{"two threat types", set("threatType", "MALWARE", "2"), "1 known type", 400},
		{"unpublished list", set("threatType", "UNWANTED_SOFTWARE"), "", 400},
		{"no RICE", set(compressions, "RAW"), "compressions", 200},
		{"unknown compression", set(compressions, "RAW", "RICE", "ZIP"), "", 400},
	}...)
}

// Tokens that were right once are judged as versions are, see TestRefereeReportsWrongVersions.
func TestRefereeReportsWrongTokens(t *testing.T) {
	again := func(list string, token func(b *bench) []byte) func(b *bench) {
		return func(b *bench) { b.diffWith(list, token(b), nil) }
	}
	newest := func(b *bench) []byte { return b.version }
	judged(t, func(t *testing.T, name string, f func(b *bench)) {
		inBubble(t, name, func(b *bench) { diffSE(b); time.Sleep(time.Hour); f(b) })
	},
		act{"of another list", again("mw-4b", newest), "was sent for"},
		act{"of Safe Browsing", func(b *bench) { se(b); again("se-4b", newest)(b) }, "never served"},
		act{"twice", func(b *bench) {
			b.diffWith("se-4b", nil, func(v url.Values) { v["versionToken"] = []string{base64URL(b.version), base64URL(b.version)} })
			testkit.Equal(b, "status", b.Requests("update")[1].Status, 400)
		}, "2 version tokens"},
		act{"of a wiped disk", func(b *bench) { b.ClientLostState(); again("se-4b", newest)(b) }, "had to be refused"},
		act{"to Safe Browsing", func(b *bench) { b.lists([][]byte{b.version}, "se-4b") }, "never served"})
}

// risk asks about a prefix in both lists; the answer may be bad.
func (b *bench) risk(prefix string) { b.riskWith(prefix, nil) }

// riskWith is risk, by a request whose parameters change may still change.
func (b *bench) riskWith(prefix string, change func(values url.Values)) {
	values := url.Values{"hashPrefix": {base64URL([]byte(prefix))}, "threatTypes": {riskNames["se-4b"], riskNames["mw-4b"]}}
	if change != nil {
		change(values)
	}
	_ = read(b, politeRisk(b.T, searchOnePath, values), new(wrv1.SearchHashesResponse))
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
	notBefore(t, "seven failures", "back-off", 32*time.Second, failures(7, 500, time.Second), riskA)
	notBefore(t, "three refusals", "back-off", time.Hour, failures(3, 403, 15*time.Minute), riskA)
	notBefore(t, "two fail together", "back-off", 14*time.Minute, setUp(func(b *bench) {
		end := b.meanwhile("searchOne", Fault{Status: 429}, func(b *bench) { b.risk(entryB) })
		refuse(b)
		end()
	}), riskA)
	judged(t, inRiskBubble, act{"cancelled", func(b *bench) { fail(b, entryA, Fault{Status: 500}); b.ClientCancelled(); riskA(b) }, ""})
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
	notBefore(t, "short positive", rule, time.Minute, listed(time.Minute), riskA)
	notBefore(t, "long positive", rule, 300*time.Second, listed(time.Hour), riskA)
	notBefore(t, "negative after positive", rule, 300*time.Second, func(b *bench) {
		listed(time.Minute)(b)
		time.Sleep(time.Minute)
		delete(b.threats, full)
		riskA(b)
	}, riskA)
	judged(t, inRiskBubble,
		act{"no negative expire time", func(b *bench) { b.SetNegativeCacheDuration(-1); riskA(b); riskA(b) }, ""},
		act{"longer prefix", func(b *bench) { riskA(b); b.risk(entryL) }, ""},
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
	prefixes := func(all ...string) func(url.Values) {
		return func(v url.Values) {
			v.Del("hashPrefix")
			for _, p := range all {
				v.Add("hashPrefix", base64URL([]byte(p)))
			}
		}
	}
	judgedChanged(t, inRiskBubble, func(b *bench, change func(url.Values)) { b.riskWith(entryA, change) }, []changed[url.Values]{
		{"no prefix", prefixes(), "0 hash prefixes asked for, want 1", 400},
		{"two prefixes", prefixes(entryA, entryB), "2 hash prefixes asked for, want 1", 400},
		{"too short", prefixes(entryA[:3]), "has 3 bytes", 400},
		{"shortened", prefixes(entryL[:5]), "no entry", 200},
		{"entry of another list", func(v url.Values) { prefixes(entryM)(v); types("SOCIAL_ENGINEERING")(v) }, "no entry", 200},
		{"unpublished list too", types("2", "UNWANTED_SOFTWARE", "4"), "", 200},
		{"no types", types(), "no threat type", 400},
		{"unknown name", types("SOCIAL_ENGINEERING", "PHISHING"), "do not exist", 400},
		{"type twice", types("SOCIAL_ENGINEERING", "2"), "not distinct", 200},
		{"no base64", func(v url.Values) { v.Set("hashPrefix", "!") }, "not base64", 400},
	}...)
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

func TestRefereeReportsSearchesOverBudget(t *testing.T) {
	const rule = ruleBudget + ": search 3 of a day that has 2"
	day := time.Date(2000, 1, 1, 8, 0, 0, 0, time.UTC) // a bubble begins at midnight
	spent := func(then func(b *bench)) func(b *bench) {
		return func(b *bench) {
			b.SetBudget(2, day)
			b.Break("search", 1, Fault{Status: 404}) // costs one too
			_, _ = b.search("aaaa"), b.search("bbbb")
			b.want("")
			then(b)
			_ = b.search("cccc")
		}
	}
	judged(t, inBubble,
		act{"the same day", spent(func(*bench) { time.Sleep(8*time.Hour - 1) }), rule},
		act{"the next day", spent(func(*bench) { time.Sleep(8 * time.Hour) }), ""},
		act{"any protocol", func(b *bench) {
			b.diff("se-4b", "mw-4b")
			b.SetBudget(2, day)
			b.risk(entryA)
			_ = b.search("aaaa")
			b.want("")
			_ = b.search("bbbb")
		}, rule},
		act{"a wiped disk does", spent(func(b *bench) { b.ClientLostState() }), ""},
		act{"none", spent(func(b *bench) { b.SetBudget(0, day) }), ""})
}
