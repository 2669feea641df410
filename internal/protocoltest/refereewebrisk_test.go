package protocoltest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

func TestRefereeReportsDiffsTooEarly(t *testing.T) {
	se := func(b *bench) { b.diff("se-4b") }
	mw := func(b *bench) { b.diff("mw-4b") }
	const next = "recommended next diff"
	notBefore(t, "next diff", next, time.Hour, se, se)
	notBefore(t, "next diff after a slow answer", next, 30*time.Minute, func(b *bench) {
		b.Break("", 1, Fault{Delay: 30 * time.Minute})
		se(b)
	}, se)
	notBefore(t, "next diff after restart", next, time.Hour, func(b *bench) { se(b); b.ClientStarted() }, se)
	notBefore(t, "one failure", "back-off", 15*time.Minute, func(b *bench) { b.Break("", 1, Fault{Status: 503}); se(b) }, mw)
	notBefore(t, "failure before a restart", "back-off", 15*time.Minute,
		func(b *bench) { b.Break("update", 1, Fault{Status: 429}); se(b); b.ClientStarted() }, mw)
	notBefore(t, "ten failures", "back-off", 24*time.Hour, func(b *bench) {
		b.Break("computeDiff", 10, Fault{CloseConnection: true})
		for n := range 10 {
			se(b)
			if n < 9 {
				time.Sleep(min(15*time.Minute<<n, 24*time.Hour))
			}
		}
	}, se)
	notBefore(t, "failure after success", "back-off", 15*time.Minute, func(b *bench) {
		b.Break("", 2, Fault{Status: 500})
		se(b)
		time.Sleep(15 * time.Minute)
		se(b)
		time.Sleep(30 * time.Minute)
		mw(b)
		b.Break("", 1, Fault{Garbage: true})
		se(b)
	}, se)
	notBefore(t, "bad content twice", "back-off of one list", 30*time.Minute, func(b *bench) {
		b.Break("computeDiff", 2, Fault{ShortChecksum: true, List: "se-4b"})
		se(b)
		time.Sleep(15 * time.Minute)
		se(b)
		mw(b)
	}, se)
	for _, status := range []int{400, 404} {
		notBefore(t, "a list refused", "back-off of one list", 15*time.Minute, func(b *bench) {
			b.Break("update", 1, Fault{Status: status})
			se(b)
			mw(b)
		}, se)
	}
	notBefore(t, "at once too often", ourFloor+", no minimum wait", time.Minute, func(b *bench) {
		b.SetMinimumWait("se-4b", 0)
		for range 33 {
			b.ForgetVersions("se-4b")
			se(b)
		}
	}, se)
	inBubble(t, "the other list", func(b *bench) {
		se(b)
		mw(b)
		wantNone(b.T, b.violations.take())
	})
	inBubble(t, "cancelled", func(b *bench) {
		b.Break("", 1, Fault{Status: 500})
		se(b)
		b.ClientCancelled()
		se(b)
		wantNone(b.T, b.violations.take())
	})
	inBubble(t, "wiped disk", func(b *bench) {
		se(b)
		b.Break("", 1, Fault{Status: 500})
		mw(b)
		b.ClientLostState()
		se(b)
		wantNone(b.T, b.violations.take())
	})
}

func TestRefereeKeepsTheClocksOfServicesApart(t *testing.T) {
	inBubble(t, "Web Risk and Safe Browsing", func(b *bench) {
		b.Break("", 1, Fault{Status: 500})
		b.lists(nil, "se-4b")
		b.fetch("se-4b", "mw-4b")
		b.Break("find", 1, Fault{Status: 500})
		b.find(entryA)
		b.diff("se-4b", "mw-4b")
		b.Break("searchOne", 1, Fault{Status: 500})
		b.risk(entryA)
		b.lists(nil) // no violation but that no list is named
		b.violations.take()
		_ = b.search(entryA)
		time.Sleep(time.Hour)
		b.diff("se-4b", "mw-4b")
		wantNone(b.T, b.violations.take())
	})
}

func TestRefereeReportsParallelDiffs(t *testing.T) {
	begin := func(b *bench, f Fault, list string) (wait func()) {
		b.Break("computeDiff", 1, f)
		done := make(chan struct{})
		other := &bench{T: b.T, Server: b.Server}
		go func() { defer close(done); other.diff(list) }()
		synctest.Wait()
		return func() { <-done }
	}
	inBubble(t, "same list", func(b *bench) {
		wait := begin(b, Fault{Delay: time.Minute}, "se-4b")
		b.diff("mw-4b")
		wantNone(b.T, b.violations.take())
		b.diff("se-4b")
		wantOne(b.T, b.violations.take(), "under way")
		wait()
	})
	inBubble(t, "by a client that died", func(b *bench) {
		wait := begin(b, Fault{Delay: time.Minute}, "se-4b")
		b.ClientStarted()
		b.diff("se-4b")
		wait()
		wantNone(b.T, b.violations.take())
	})
	slow := Fault{Delay: time.Minute}
	notBefore(t, "two fail together", "back-off", 14*time.Minute, func(b *bench) {
		wait := begin(b, Fault{Delay: time.Minute, Status: 500}, "se-4b")
		b.Break("computeDiff", 1, Fault{Status: 500})
		b.diff("mw-4b")
		wait()
	}, func(b *bench) { b.diff("se-4b") })
	notBefore(t, "one fails", "back-off", 14*time.Minute, func(b *bench) {
		wait := begin(b, slow, "se-4b")
		b.Break("computeDiff", 1, Fault{Status: 500})
		b.diff("mw-4b")
		wait()
	}, func(b *bench) { b.diff("mw-4b") })
}

func TestRefereeReportsMalformedDiffs(t *testing.T) {
	set := func(name string, values ...string) func(url.Values) {
		return func(v url.Values) { v[name] = values }
	}
	none := func(name string) func(url.Values) { return func(v url.Values) { v.Del(name) } }
	const diff, database, compressions = "constraints.maxDiffEntries", "constraints.maxDatabaseEntries", "constraints.supportedCompressions"
	tests := []struct {
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
		{"too small a database", set(database, "1"), "Update Constraints", 400},
		{"no number", set(diff, "many"), "", 400},
		{"no threat type", none("threatType"), "1 known type", 400},
		{"unspecified threat type", set("threatType", "0"), "1 known type", 400},
		{"unknown threat type", set("threatType", "5"), "1 known type", 400},
		{"unknown name", set("threatType", "PHISHING"), "1 known type", 400},
		{"two threat types", set("threatType", "MALWARE", "2"), "1 known type", 400},
		{"known and unknown threat type", set("threatType", "SOCIAL_ENGINEERING", "9"), "1 known type", 400},
		{"unpublished list", set("threatType", "UNWANTED_SOFTWARE"), "", 400},
		{"no RICE", set(compressions, "RAW"), "compressions", 200},
		{"no RAW", set(compressions, "RICE"), "compressions", 200},
		{"no compressions", none(compressions), "compressions", 200},
		{"unknown compression", set(compressions, "RAW", "RICE", "ZIP"), "", 400},
		{"empty token", set("versionToken", ""), "", 200},
		{"no base64", set("versionToken", "!"), "not base64", 400},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(b *bench) {
			b.diffWith("se-4b", nil, tt.change)
			if got := b.violations.take(); tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
			if got := b.Requests("computeDiff")[0].Status; got != tt.status {
				b.Errorf("status %d, want %d", got, tt.status)
			}
		})
	}
}

func TestRefereeReportsWrongTokens(t *testing.T) {
	again := func(list string, token func(b *bench) []byte) func(b *bench) {
		return func(b *bench) { b.diffWith(list, token(b), nil) }
	}
	newest := func(b *bench) []byte { return b.version }
	tests := []struct {
		name string
		act  func(b *bench)
		rule string // empty: legal
	}{
		{"newest", again("se-4b", newest), ""},
		{"absent", again("se-4b", func(*bench) []byte { return nil }), ""},
		{"altered", again("se-4b", func(b *bench) []byte { return append(b.version, 0) }), "never served"},
		{"cut", again("se-4b", func(b *bench) []byte { return b.version[1:] }), "never served"},
		{"of another list", again("mw-4b", newest), "was sent for"},
		{"of Safe Browsing", func(b *bench) { b.lists(nil, "se-4b"); again("se-4b", newest)(b) }, "never served"},
		{"twice", func(b *bench) {
			twice := func(v url.Values) { v["versionToken"] = []string{base64URL(b.version), base64URL(b.version)} }
			b.diffWith("se-4b", nil, twice)
			if got := b.Requests("update")[1].Status; got != 400 {
				b.Errorf("status %d, want 400", got)
			}
		}, "2 version tokens"},
		{"old", func(b *bench) {
			old := b.version
			b.Publish("se-4b", nil)
			b.diffWith("se-4b", old, nil)
			time.Sleep(time.Hour)
			b.diffWith("se-4b", old, nil)
		}, "want the newest"},
		{"old after a restart", func(b *bench) {
			old := b.version
			b.Publish("se-4b", nil)
			b.diffWith("se-4b", old, nil)
			b.ClientStarted()
			time.Sleep(time.Hour)
			b.diffWith("se-4b", old, nil)
		}, ""},
		{"after bad content", func(b *bench) {
			b.Break("computeDiff", 1, Fault{NoResponseType: true})
			old := b.version
			b.diffWith("se-4b", old, nil)
			time.Sleep(time.Hour)
			b.diffWith("se-4b", old, nil)
		}, "last update was bad"},
		{"of a bad answer", func(b *bench) {
			b.Break("computeDiff", 1, Fault{RaggedRaw: true})
			b.Publish("se-4b", nil)
			b.diffWith("se-4b", b.version, nil)
			time.Sleep(time.Hour)
			b.diffWith("se-4b", b.version, nil)
		}, "had to be refused"},
		{"of a wiped disk", func(b *bench) { b.ClientLostState(); again("se-4b", newest)(b) }, "had to be refused"},
		{"to Safe Browsing", func(b *bench) { b.lists([][]byte{b.version}, "se-4b") }, "never served"},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(b *bench) {
			b.diff("se-4b")
			time.Sleep(time.Hour)
			tt.act(b)
			if got := b.violations.take(); tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
		})
	}
}

func TestRefereeReportsSearchesOfWebRiskTooEarly(t *testing.T) {
	setUp := func(act func(b *bench)) func(b *bench) {
		return func(b *bench) { b.diff("se-4b", "mw-4b"); act(b) }
	}
	a := func(b *bench) { b.risk(entryA) }
	m := func(b *bench) { b.risk(entryM) }
	fail := func(b *bench, prefix string, f Fault) { b.Break("searchOne", 1, f); b.risk(prefix) }
	notBefore(t, "one failure", "back-off", 15*time.Minute, setUp(func(b *bench) { fail(b, entryA, Fault{ShortHash: true}) }), m)
	notBefore(t, "failure before a restart", "back-off", 15*time.Minute,
		setUp(func(b *bench) { fail(b, entryA, Fault{Status: 429}); b.ClientStarted() }), a)
	notBefore(t, "three failures", "back-off", time.Hour, setUp(func(b *bench) {
		for n := range 3 {
			fail(b, entryA, Fault{Status: 500})
			if n < 2 {
				time.Sleep(15 * time.Minute << n)
			}
		}
	}), a)
	slow := func(b *bench, f Fault) (wait func()) {
		f.Delay = time.Minute
		b.Break("searchOne", 1, f)
		done := make(chan struct{})
		go func() { defer close(done); b.risk(entryB) }()
		synctest.Wait()
		return func() { <-done }
	}
	notBefore(t, "two fail together", "back-off", 14*time.Minute, setUp(func(b *bench) {
		wait := slow(b, Fault{Status: 500})
		fail(b, entryA, Fault{Status: 500})
		wait()
	}), a)
	notBefore(t, "one of three failures cancelled", "back-off", 30*time.Minute, setUp(func(b *bench) {
		fail(b, entryA, Fault{Status: 500})
		time.Sleep(15 * time.Minute)
		fail(b, entryA, Fault{Status: 500})
		b.ClientCancelled() // counts for nothing
		fail(b, entryA, Fault{Status: 500})
	}), a)
	notBefore(t, "one of two fails", "back-off", 14*time.Minute, setUp(func(b *bench) {
		wait := slow(b, Fault{})
		fail(b, entryA, Fault{Status: 500})
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

func TestRefereeReportsImpoliteRequestsOfWebRisk(t *testing.T) {
	const secret = "secret key/1"
	inKey := func(r *http.Request) { r.Header.Set("X-Goog-Api-Key", secret) }
	inToken := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secret) }
	add := func(query string) func(r *http.Request) {
		return func(r *http.Request) { r.URL.RawQuery += "&" + query }
	}
	tests := []struct {
		name   string
		token  bool // else a key is wanted
		sent   func(r *http.Request)
		change func(r *http.Request)
		rule   string // empty: legal
		status int
	}{
		{"key", false, inKey, nil, "", 200},
		{"token", true, inToken, nil, "", 200},
		{"token instead of a key", false, inToken, nil, "without a key", 403},
		{"key instead of a token", true, inKey, nil, "without an access token", 401},
		{"no key", false, nil, nil, "without a key", 403},
		{"no token", true, nil, nil, "without an access token", 401},
		{"another key", false, func(r *http.Request) { r.Header.Set("X-Goog-Api-Key", "x") }, nil, "", 403},
		{"another token", true, func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, nil, "", 401},
		{"token without scheme", true, func(r *http.Request) { r.Header.Set("Authorization", secret) }, nil, "without an access token", 401},
		{"key as parameter", false, inKey, add("key=" + url.QueryEscape(secret)), "parameter key", 200},
		{"token as parameter", true, inToken, add("access_token=" + url.QueryEscape(secret)), "parameter access_token", 200},
		{"key elsewhere in the URL", false, inKey, add("x=" + url.QueryEscape(secret)), "holds the key", 200},
		{"token elsewhere in the URL", true, inToken, add("x=" + url.QueryEscape(secret)), "holds the key", 200},
		{"POST", false, inKey, func(r *http.Request) { r.Method = "POST" }, "want GET", 405},
		{"clear-text search", false, inKey, func(r *http.Request) { r.URL.Path = "/v1/uris:search" }, "Web Risk, methods", 404},
		{"misspelt path", false, inKey, func(r *http.Request) { r.URL.Path = "/v1/threatLists/computeDiff" }, "Web Risk, methods", 404},
		{"cookie", false, inKey, func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "a", Value: "b"}) }, "cookies", 200},
		{"Go's User-Agent", false, inKey, func(r *http.Request) { r.Header.Set("User-Agent", "Go-http-client/2.0") }, "User-Agent", 200},
		{"redirect followed", false, inKey, func(r *http.Request) { r.Header.Set("Referer", "https://sb.test/") }, "redirect", 200},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(b *bench) {
			for _, token := range []bool{!tt.token, tt.token} { // the later one counts
				if token {
					b.SetToken(secret)
				} else {
					b.SetKey(secret)
				}
			}
			r := politeRisk(b.T, diffPath, diffValues("se-4b", nil))
			if tt.sent != nil {
				tt.sent(r)
			}
			if tt.change != nil {
				tt.change(r)
			}
			resp, err := b.RoundTrip(r)
			if err != nil || resp.StatusCode != tt.status {
				b.Fatalf("got %v, %v, want status %d", resp, err, tt.status)
			}
			resp.Body.Close()
			got := b.violations.take()
			if tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
			if strings.Contains(strings.Join(got, ""), secret) {
				b.Errorf("the key is in %q", got)
			}
		})
	}
}

func TestViolationsOfWebRiskHideTheSecret(t *testing.T) {
	for name, set := range map[string]func(b *bench){
		"key":   func(b *bench) { b.SetKey("secret") },
		"token": func(b *bench) { b.SetToken("secret") },
	} {
		inBubble(t, name, func(b *bench) {
			set(b)
			b.diffWith("se-4b", nil, func(v url.Values) { v.Add("threatType", "secret") })
			if got := strings.Join(b.violations.take(), ""); !strings.Contains(got, `["[key]"]`) || strings.Contains(got, "secret") {
				b.Errorf("got %q, want [key] instead of the secret", got)
			}
		})
	}
}

// sentWith is a RoundTripper that sends a header with every request.
type sentWith struct {
	*Server
	name, value string
}

func (s sentWith) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set(s.name, s.value)
	return s.Server.RoundTrip(r)
}

func TestRefereeKnowsAClientByItsCredential(t *testing.T) {
	with := func(b *bench, name, value string) {
		_, _ = diffRisk(b.T, sentWith{b.Server, name, value}, map[string]*copyOf{}, "se-4b")
	}
	key := func(b *bench, value string) { with(b, "X-Goog-Api-Key", value) }
	token := func(b *bench, value string) { with(b, "Authorization", "Bearer "+value) }
	tests := []struct {
		name string
		act  func(b *bench)
		rule string // empty: legal
	}{
		{"the same key", func(b *bench) { key(b, "a"); key(b, "a") }, "next diff"},
		{"another key", func(b *bench) { key(b, "a"); key(b, "b") }, ""},
		{"the first key again", func(b *bench) { key(b, "a"); key(b, "b"); key(b, "a") }, "next diff"},
		{"a new token", func(b *bench) { token(b, "a"); token(b, "b") }, "next diff"},
		{"a new token after a failure", func(b *bench) {
			b.Break("", 1, Fault{Status: 500})
			token(b, "a")
			token(b, "b")
		}, "back-off"},
		{"a new token after one that was refused", func(b *bench) {
			b.Break("", 1, Fault{Status: 401})
			token(b, "a")
			token(b, "b")
		}, ""},
		{"the same token after it was refused", func(b *bench) {
			b.Break("", 1, Fault{Status: 401})
			token(b, "a")
			token(b, "a")
		}, "back-off"},
		{"a token instead of a key", func(b *bench) { key(b, "a"); token(b, "a") }, ""},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(b *bench) {
			tt.act(b)
			if got := b.violations.take(); tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
		})
	}
}
