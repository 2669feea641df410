package protocoltest

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
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

// diffWith fetches a list with this token, by a request whose parameters change may
// still change.
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
	notBefore(t, "next diff after a slow answer", next, 30*time.Minute, func(b *bench) { b.Break("", 1, Fault{Delay: 30 * time.Minute}); diffSE(b) }, diffSE)
	notBefore(t, "next diff after restart", next, time.Hour, func(b *bench) { diffSE(b); b.ClientStarted() }, diffSE)
	notBefore(t, "failure before a restart", "back-off", 15*time.Minute, func(b *bench) { b.Break("update", 1, Fault{Status: 429}); diffSE(b); b.ClientStarted() }, diffMW)
	notBefore(t, "failure after success", "back-off", 15*time.Minute, func(b *bench) {
		b.Break("", 2, Fault{Status: 500})
		diffSE(b)
		time.Sleep(15 * time.Minute)
		diffSE(b)
		time.Sleep(30 * time.Minute)
		diffMW(b)
		b.Break("", 1, Fault{Garbage: true})
		diffSE(b)
	}, diffSE)
	notBefore(t, "bad content twice", "back-off of one list", 30*time.Minute, func(b *bench) {
		b.Break("computeDiff", 2, Fault{ShortChecksum: true, List: "se-4b"})
		diffSE(b)
		time.Sleep(15 * time.Minute)
		diffSE(b)
		diffMW(b)
	}, diffSE)
	for _, status := range []int{400, 404} {
		notBefore(t, "a list refused", "back-off of one list", 15*time.Minute, func(b *bench) {
			b.Break("update", 1, Fault{Status: status})
			diffSE(b)
			diffMW(b)
		}, diffSE)
	}
	judged(t, inBubble,
		act{"the other list", func(b *bench) { diffSE(b); diffMW(b) }, ""},
		act{"cancelled", func(b *bench) { b.Break("", 1, Fault{Status: 500}); diffSE(b); b.ClientCancelled(); diffSE(b) }, ""},
		act{"Web Risk and Safe Browsing", func(b *bench) { // each service has clocks of its own
			b.Break("", 1, Fault{Status: 500})
			se(b)
			b.diff("se-4b", "mw-4b")
			b.Break("searchOne", 1, Fault{Status: 500})
			b.risk(entryA)
			b.lists(nil) // no violation but that no list is named
			b.violations.take()
			_ = b.search(entryA)
			time.Sleep(time.Hour)
			b.diff("se-4b", "mw-4b")
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
	for name, other := range map[string]struct {
		f   Fault
		ask func(b *bench)
	}{"two fail together": {Fault{Status: 500}, diffSE}, "one fails": {Fault{}, diffMW}} {
		notBefore(t, name, "back-off", 14*time.Minute, func(b *bench) {
			end := b.meanwhile("computeDiff", other.f, diffSE)
			b.Break("computeDiff", 1, Fault{Status: 500})
			diffMW(b)
			end()
		}, other.ask)
	}
}

func TestRefereeReportsMalformedDiffs(t *testing.T) {
	set := func(name string, values ...string) func(url.Values) {
		return func(v url.Values) { v[name] = values }
	}
	const diff, database, compressions = "constraints.maxDiffEntries", "constraints.maxDatabaseEntries", "constraints.supportedCompressions"
	for _, tt := range []struct {
		name   string
		change func(values url.Values)
		rule   string // empty: legal
		status int
	}{
		{"legal", nil, "", 200},
		{"limits", func(v url.Values) { v.Set(diff, "16777216"); v.Set(database, "1024") }, "", 200},
		{"no limits", func(v url.Values) { v.Set(diff, "0"); v.Set(database, "0") }, "", 200},
		{"no power of two", set(database, "5000"), "Update Constraints", 400},
		{"no power of two of a diff", set(diff, "1025"), "Update Constraints", 400},
		{"too small a diff", set(diff, "512"), "Update Constraints", 400},
		{"no number", set(diff, "many"), "", 400},
		{"no threat type", set("threatType"), "1 known type", 400},
		{"unspecified threat type", set("threatType", "0"), "1 known type", 400},
		{"unknown threat type", set("threatType", "5"), "1 known type", 400},
		{"unknown name", set("threatType", "PHISHING"), "1 known type", 400},
		{"two threat types", set("threatType", "MALWARE", "2"), "1 known type", 400},
		{"known and unknown threat type", set("threatType", "SOCIAL_ENGINEERING", "9"), "1 known type", 400},
		{"unpublished list", set("threatType", "UNWANTED_SOFTWARE"), "", 400},
		{"no RICE", set(compressions, "RAW"), "compressions", 200},
		{"no RAW", set(compressions, "RICE"), "compressions", 200},
		{"no compressions", set(compressions), "compressions", 200},
		{"unknown compression", set(compressions, "RAW", "RICE", "ZIP"), "", 400},
		{"empty token", set("versionToken", ""), "", 200},
		{"no base64", set("versionToken", "!"), "not base64", 400},
	} {
		inBubble(t, tt.name, func(b *bench) {
			b.diffWith("se-4b", nil, tt.change)
			b.want(tt.rule)
			if got := b.Requests("computeDiff")[0].Status; got != tt.status {
				b.Errorf("status %d, want %d", got, tt.status)
			}
		})
	}
}

// Tokens that were right once are judged as versions are, see TestRefereeReportsWrongVersions.
func TestRefereeReportsWrongTokens(t *testing.T) {
	again := func(list string, token func(b *bench) []byte) func(b *bench) {
		return func(b *bench) { b.diffWith(list, token(b), nil) }
	}
	newest := func(b *bench) []byte { return b.version }
	old := func(then func(b *bench)) func(b *bench) {
		return func(b *bench) {
			old := b.version
			b.Publish("se-4b", nil)
			b.diffWith("se-4b", old, nil)
			then(b)
			time.Sleep(time.Hour)
			b.diffWith("se-4b", old, nil)
		}
	}
	judged(t, func(t *testing.T, name string, f func(b *bench)) {
		inBubble(t, name, func(b *bench) { diffSE(b); time.Sleep(time.Hour); f(b) })
	},
		act{"newest", again("se-4b", newest), ""},
		act{"absent", diffSE, ""},
		act{"altered", again("se-4b", func(b *bench) []byte { return append(b.version, 0) }), "never served"},
		act{"of another list", again("mw-4b", newest), "was sent for"},
		act{"of Safe Browsing", func(b *bench) { se(b); again("se-4b", newest)(b) }, "never served"},
		act{"twice", func(b *bench) {
			b.diffWith("se-4b", nil, func(v url.Values) { v["versionToken"] = []string{base64URL(b.version), base64URL(b.version)} })
			if got := b.Requests("update")[1].Status; got != 400 {
				b.Errorf("status %d, want 400", got)
			}
		}, "2 version tokens"},
		act{"old", old(func(*bench) {}), "want the newest"},
		act{"old after a restart", old(func(b *bench) { b.ClientStarted() }), ""},
		act{"of a wiped disk", func(b *bench) { b.ClientLostState(); again("se-4b", newest)(b) }, "had to be refused"},
		act{"to Safe Browsing", func(b *bench) { b.lists([][]byte{b.version}, "se-4b") }, "never served"})
}
