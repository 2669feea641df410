package protocoltest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// states returns the newest states of the bench's lists.
func (b *bench) states() [][]byte {
	return [][]byte{b.Server.lists["se-4b"].newest().id, b.Server.lists["mw-4b"].newest().id}
}

// find asks about prefixes in both lists with the newest states; the answer may be
// bad.
func (b *bench) find(prefixes ...string) { b.findWith(nil, prefixes...) }

func (b *bench) findWith(change func(*sbv4.FindFullHashesRequest), prefixes ...string) {
	_, _ = findV4(b.T, b, b.states(), []string{"se-4b", "mw-4b"}, prefixes, change)
}

// inFindBubble is inBubble for a client that has fetched both lists.
func inFindBubble(t *testing.T, name string, f func(b *bench)) {
	inBubble(t, name, func(b *bench) {
		b.Publish("se-4b", [][]byte{[]byte(entryA), []byte(entryB), []byte(entryL)})
		b.fetch("se-4b", "mw-4b")
		time.Sleep(time.Hour)
		f(b)
	})
}

func TestRefereeReportsFindsTooEarly(t *testing.T) {
	a := func(b *bench) { b.find(entryA) }
	m := func(b *bench) { b.find(entryM) }
	setUp := func(act func(b *bench)) func(b *bench) {
		return func(b *bench) { b.fetch("se-4b", "mw-4b"); act(b) }
	}
	wait := setUp(func(b *bench) { b.SetFindWait(time.Hour); a(b) })
	notBefore(t, "minimum wait", "minimum wait", time.Hour, wait, m)
	notBefore(t, "minimum wait after restart", "minimum wait", time.Hour, func(b *bench) { wait(b); b.ClientStarted() }, m)
	notBefore(t, "one failure", "back-off", 15*time.Minute, setUp(func(b *bench) {
		b.Break("find", 1, Fault{ShortHash: true})
		a(b)
	}), a)
	notBefore(t, "failure before restart", "back-off", 15*time.Minute, setUp(func(b *bench) {
		b.Break("", 1, Fault{Status: 429})
		a(b)
		b.ClientStarted()
	}), a)
	notBefore(t, "two failures", "back-off", 30*time.Minute, setUp(func(b *bench) {
		b.Break("find", 2, Fault{Status: 500})
		a(b)
		time.Sleep(15 * time.Minute)
		a(b)
	}), a)
	inFindBubble(t, "cancelled", func(b *bench) {
		b.Break("find", 1, Fault{Status: 500})
		a(b)
		b.ClientCancelled()
		a(b)
		wantNone(b.T, b.violations.take())
	})
	inFindBubble(t, "after a success", func(b *bench) {
		b.Break("find", 1, Fault{Status: 500})
		a(b)
		time.Sleep(15 * time.Minute)
		a(b)
		m(b)
		b.fetch("se-4b")
		wantNone(b.T, b.violations.take())
	})
}

func TestRefereeReportsHashesFoundAgain(t *testing.T) {
	full := entryA + string(make([]byte, 28))
	ask := func(b *bench) { b.fetch("se-4b", "mw-4b"); b.find(entryA, entryM) }
	again := func(b *bench) { b.find(entryA) }
	listed := func(life time.Duration) func(b *bench) {
		return func(b *bench) {
			b.SetCacheDuration(life)
			b.AddFullHash([]byte(full), &ThreatDetail{ThreatType: sbv5.ThreatType_MALWARE})
			ask(b)
		}
	}
	notBefore(t, "negative", "fresh", 300*time.Second, ask, again)
	notBefore(t, "negative of an hour", "fresh", time.Hour, func(b *bench) { b.SetNegativeCacheDuration(time.Hour); ask(b) }, again)
	notBefore(t, "short positive", "fresh", time.Minute, listed(time.Minute), again)
	notBefore(t, "long positive", "fresh", 300*time.Second, listed(time.Hour), again)
	notBefore(t, "negative after positive", "fresh", 300*time.Second, func(b *bench) {
		listed(time.Minute)(b)
		time.Sleep(time.Minute)
		delete(b.threats, full)
		again(b) // nothing there any more: now the prefix is known
	}, again)
	inFindBubble(t, "no negative cache", func(b *bench) {
		b.SetNegativeCacheDuration(-1)
		b.find(entryA)
		b.find(entryA)
		wantNone(b.T, b.violations.take())
	})
	inFindBubble(t, "longer prefix", func(b *bench) {
		b.find(entryA)
		b.find(entryL)
		wantNone(b.T, b.violations.take())
	})
	inFindBubble(t, "restarted", func(b *bench) {
		b.find(entryA)
		b.ClientStarted()
		b.find(entryA)
		wantNone(b.T, b.violations.take())
	})
	inFindBubble(t, "under way", func(b *bench) {
		b.Break("find", 1, Fault{Delay: time.Minute})
		done := make(chan struct{})
		go func() { defer close(done); b.find(entryA, entryB) }()
		synctest.Wait()
		b.find(entryM)
		wantNone(b.T, b.violations.take())
		b.find(entryL, entryB)
		wantOne(b.T, b.violations.take(), "under way")
		<-done
	})
}

func TestRefereeReportsMalformedFinds(t *testing.T) {
	type message = sbv4.FindFullHashesRequest
	lists := func(names ...string) func(m *message) {
		return func(m *message) {
			m.ThreatInfo.ThreatTypes, m.ThreatInfo.PlatformTypes = nil, nil
			for _, name := range names {
				of := tripleOf(name)
				m.ThreatInfo.ThreatTypes = append(m.ThreatInfo.ThreatTypes, of.threat)
				m.ThreatInfo.PlatformTypes = append(m.ThreatInfo.PlatformTypes, of.platform)
			}
		}
	}
	tests := []struct {
		name     string
		prefixes []string
		change   func(m *message)
		rule     string // empty: legal
	}{
		{"legal", []string{entryA, entryL, entryM}, nil, ""},
		{"none", nil, nil, "want 1 to 500"},
		{"duplicate", []string{entryA, entryB, entryA}, nil, "duplicates"},
		{"shortened", []string{entryL[:5]}, nil, "no entries"},
		{"lengthened", []string{entryB + "\x00"}, nil, "no entries"},
		{"too short", []string{entryA[:3]}, nil, "no entries"},
		{"one list", []string{entryA}, lists("se-4b"), ""},
		{"entry of another list", []string{entryM}, lists("se-4b"), "no entries"},
		{"unpublished list too", []string{entryA}, lists("se-4b", "pha-4b"), "threat info"},
		{"type twice", []string{entryA}, lists("se-4b", "se-4b"), "threat info"},
		{"no entry type", []string{entryA}, func(m *message) { m.ThreatInfo.ThreatEntryTypes = nil }, "threat info"},
		{"another entry type too", []string{entryA}, func(m *message) {
			m.ThreatInfo.ThreatEntryTypes = append(m.ThreatInfo.ThreatEntryTypes, sbv4.ThreatEntryType_IP_RANGE)
		}, "threat info"},
		{"another platform too", []string{entryA}, func(m *message) {
			m.ThreatInfo.PlatformTypes = append(m.ThreatInfo.PlatformTypes, sbv4.PlatformType_WINDOWS)
		}, "threat info"},
		{"a state missing", []string{entryA}, func(m *message) { m.ClientStates = m.ClientStates[:1] }, "no state was sent"},
		{"a state twice", []string{entryA}, func(m *message) { m.ClientStates = append(m.ClientStates, m.ClientStates[0]) }, "more than one state"},
		{"a foreign state", []string{entryA}, func(m *message) { m.ClientStates = append(m.ClientStates, []byte{1}) }, "never served"},
		{"no client", []string{entryA}, func(m *message) { m.Client = nil }, "client_id"},
	}
	for _, tt := range tests {
		inFindBubble(t, tt.name, func(b *bench) {
			b.findWith(tt.change, tt.prefixes...)
			if got := b.violations.take(); tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
		})
	}
	for n, rule := range map[int]string{500: "", 501: "want 1 to 500"} {
		inBubble(t, "many", func(b *bench) {
			var entries [][]byte
			for _, p := range numbered(n) {
				entries = append(entries, []byte(p))
			}
			b.Publish("se-4b", entries)
			b.fetch("se-4b", "mw-4b")
			b.find(numbered(n)...)
			if got := b.violations.take(); rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, rule)
			}
		})
	}
}

func TestRefereeKnowsWhichStatesAreHeld(t *testing.T) {
	update := func(b *bench, f Fault) (old [][]byte) {
		old = b.states()
		b.Publish("se-4b", [][]byte{[]byte(entryA)})
		if f != (Fault{}) {
			b.Break("fetch", 1, f)
		}
		b.fetchWith(old[0], nil, "se-4b")
		return old
	}
	find := func(b *bench, states ...[]byte) {
		_, _ = findV4(b.T, b, states, []string{"se-4b", "mw-4b"}, []string{entryB}, nil)
	}
	tests := []struct {
		name string
		act  func(b *bench)
		rule string // empty: legal
	}{
		{"old while the new one is applied", func(b *bench) { find(b, update(b, Fault{})...) }, ""},
		{"old", func(b *bench) {
			old := update(b, Fault{})
			time.Sleep(applyTime)
			find(b, old...)
		}, "want the newest"},
		{"old after a restart", func(b *bench) {
			old := update(b, Fault{})
			time.Sleep(applyTime)
			b.ClientStarted()
			find(b, old...)
		}, ""},
		{"none after a restart", func(b *bench) { b.ClientStarted(); find(b) }, ""},
		{"none while the first one is applied", func(b *bench) {
			b.ClientStarted()
			b.fetch("se-4b", "mw-4b")
			find(b)
		}, ""},
		{"none though the first one is applied", func(b *bench) {
			b.ClientStarted()
			b.fetch("se-4b")
			time.Sleep(applyTime)
			find(b)
		}, "no state was sent"},
		{"of a refused answer", func(b *bench) { update(b, Fault{WrongChecksum: true}); find(b, b.states()...) }, "want the newest good"},
		{"before a refused answer", func(b *bench) { find(b, update(b, Fault{WrongChecksum: true})...) }, ""},
		{"none after a refused answer", func(b *bench) { find(b, update(b, Fault{WrongChecksum: true})[1]) }, ""},
	}
	for _, tt := range tests {
		inFindBubble(t, tt.name, func(b *bench) {
			tt.act(b)
			if got := b.violations.take(); tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
		})
	}
}

func init() { batchers["v4"] = (*bench).fetch }

func TestRefereeKeepsTheClocksOfV4Apart(t *testing.T) {
	inBubble(t, "three services", func(b *bench) {
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

func TestRefereeTakesEntriesThatTheOtherServiceGave(t *testing.T) {
	find := func(b *bench, prefix string) {
		_, _ = findV4(b.T, b, nil, []string{"se-4b", "mw-4b"}, []string{prefix}, nil)
	}
	takesEntries(t, "Web Risk, by lists of v4", (*bench).fetch, (*bench).risk, map[string]string{"longer": "", "long": "", "longe": "no entry", "none": "no entry"})
	takesEntries(t, "v4, by lists of Web Risk", (*bench).diff, find, map[string]string{"longer": "", "long": "no entries", "none": "no entries"})
}

func TestTheBudgetCountsFinds(t *testing.T) {
	inFindBubble(t, "any protocol", func(b *bench) {
		b.diff("se-4b", "mw-4b")
		b.SetBudget(3, time.Date(2000, 1, 1, 8, 0, 0, 0, time.UTC))
		b.risk(entryA)
		b.find(entryA)
		_ = b.search("aaaa")
		wantNone(b.T, b.violations.take())
		_ = b.search("bbbb")
		wantOne(b.T, b.violations.take(), "search 4 of a day that has 3")
	})
}

func TestARestartExcusesAForgottenFind(t *testing.T) {
	if got := Excuse("protocoltest: Caching: 2 hash prefixes asked for again"); got != "the client was restarted" {
		t.Errorf("got %q", got)
	}
}
