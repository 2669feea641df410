package protocoltest

import (
	"net/url"
	"testing"
	"testing/synctest"
	"time"
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
