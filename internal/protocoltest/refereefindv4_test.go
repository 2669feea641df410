package protocoltest

import (
	"testing"
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
	b.findV4(b.states(), []string{"se-4b", "mw-4b"}, prefixes, change)
}

// findIn is find in some lists, with these states.
func (b *bench) findIn(states [][]byte, lists []string, prefixes ...string) {
	b.findV4(states, lists, prefixes, nil)
}

func findA(b *bench) { b.find(entryA) }
func findM(b *bench) { b.find(entryM) }

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
	setUp := func(do func(b *bench)) func(b *bench) {
		return func(b *bench) { b.fetch("se-4b", "mw-4b"); do(b) }
	}
	wait := setUp(func(b *bench) { b.SetFindWait(time.Hour); findA(b) })
	notBefore(t, "minimum wait", "minimum wait", time.Hour, wait, findM)
	notBefore(t, "minimum wait after restart", "minimum wait", time.Hour, func(b *bench) { wait(b); b.ClientStarted() }, findM)
	notBefore(t, "one failure", "back-off", 15*time.Minute, setUp(func(b *bench) { b.Break("find", 1, Fault{ShortHash: true}); findA(b) }), findA)
	notBefore(t, "failure before restart", "back-off", 15*time.Minute, setUp(func(b *bench) { b.Break("", 1, Fault{Status: 429}); findA(b); b.ClientStarted() }), findA)
	notBefore(t, "two failures", "back-off", 30*time.Minute, setUp(func(b *bench) {
		b.Break("find", 2, Fault{Status: 500})
		findA(b)
		time.Sleep(15 * time.Minute)
		findA(b)
	}), findA)
	judged(t, inFindBubble,
		act{"cancelled", func(b *bench) { b.Break("find", 1, Fault{Status: 500}); findA(b); b.ClientCancelled(); findA(b) }, ""},
		act{"after a success", func(b *bench) {
			b.Break("find", 1, Fault{Status: 500})
			findA(b)
			time.Sleep(15 * time.Minute)
			findA(b)
			findM(b)
			fetchSE(b)
		}, ""},
		act{"the budget counts finds", func(b *bench) {
			b.diff("se-4b", "mw-4b")
			b.SetBudget(3, time.Date(2000, 1, 1, 8, 0, 0, 0, time.UTC))
			riskA(b)
			findA(b)
			_ = b.search("aaaa")
			b.want("")
			_ = b.search("bbbb")
		}, "search 4 of a day that has 3"})
}

// Answers are remembered as for Web Risk, see TestRefereeReportsRisksSearchedAgain.
func TestRefereeReportsHashesFoundAgain(t *testing.T) {
	ask := func(b *bench) { b.fetch("se-4b", "mw-4b"); b.find(entryA, entryM) }
	notBefore(t, "negative of an hour", "fresh", time.Hour, func(b *bench) { b.SetNegativeCacheDuration(time.Hour); ask(b) }, findA)
	notBefore(t, "short positive", "fresh", time.Minute, func(b *bench) {
		b.SetCacheDuration(time.Minute)
		b.AddFullHash([]byte(entryA+string(make([]byte, 28))), &ThreatDetail{ThreatType: sbv5.ThreatType_MALWARE})
		ask(b)
	}, findA)
	judged(t, inFindBubble,
		act{"no negative cache", func(b *bench) { b.SetNegativeCacheDuration(-1); findA(b); findA(b) }, ""},
		act{"longer prefix", func(b *bench) { findA(b); b.find(entryL) }, ""},
		act{"restarted", func(b *bench) { findA(b); b.ClientStarted(); findA(b) }, ""},
		act{"under way", func(b *bench) {
			end := b.meanwhile("find", Fault{}, func(b *bench) { b.find(entryA, entryB) })
			findM(b)
			b.want("")
			b.find(entryL, entryB)
			end()
		}, "under way"})
	if got := Excuse("protocoltest: Caching: 2 hash prefixes asked for again"); got != "the client was restarted" {
		t.Errorf("a restart excuses a find that was forgotten, got %q", got)
	}
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
	for _, tt := range []struct {
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
	} {
		inFindBubble(t, tt.name, func(b *bench) { b.findWith(tt.change, tt.prefixes...); b.want(tt.rule) })
	}
	for n, rule := range map[int]string{500: "", 501: "want 1 to 500"} {
		judged(t, inBubble, act{"many", func(b *bench) {
			var entries [][]byte
			for _, p := range numbered(n) {
				entries = append(entries, []byte(p))
			}
			b.Publish("se-4b", entries)
			b.fetch("se-4b", "mw-4b")
			b.find(numbered(n)...)
		}, rule})
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
	find := func(b *bench, states ...[]byte) { b.findIn(states, []string{"se-4b", "mw-4b"}, entryB) }
	old := func(then func(b *bench)) func(b *bench) {
		return func(b *bench) {
			old := update(b, Fault{})
			time.Sleep(applyTime)
			then(b)
			find(b, old...)
		}
	}
	judged(t, inFindBubble,
		act{"old while the new one is applied", func(b *bench) { find(b, update(b, Fault{})...) }, ""},
		act{"old", old(func(*bench) {}), "want the newest"},
		act{"old after a restart", old(func(b *bench) { b.ClientStarted() }), ""},
		act{"none after a restart", func(b *bench) { b.ClientStarted(); find(b) }, ""},
		act{"none while the first one is applied", func(b *bench) { b.ClientStarted(); b.fetch("se-4b", "mw-4b"); find(b) }, ""},
		act{"none though the first one is applied", func(b *bench) { b.ClientStarted(); fetchSE(b); time.Sleep(applyTime); find(b) }, "no state was sent"},
		act{"of a refused answer", func(b *bench) { update(b, Fault{WrongChecksum: true}); find(b, b.states()...) }, "want the newest good"},
		act{"before a refused answer", func(b *bench) { find(b, update(b, Fault{WrongChecksum: true})...) }, ""},
		act{"none after a refused answer", func(b *bench) { find(b, update(b, Fault{WrongChecksum: true})[1]) }, ""})
}

func init() { batchers["v4"] = (*bench).fetch }

func TestRefereeKeepsTheClocksOfV4Apart(t *testing.T) {
	judged(t, inBubble, act{"three services", func(b *bench) {
		b.Break("", 1, Fault{Status: 500})
		se(b)
		b.fetch("se-4b", "mw-4b")
		b.Break("find", 1, Fault{Status: 500})
		findA(b)
		b.diff("se-4b", "mw-4b")
		b.Break("searchOne", 1, Fault{Status: 500})
		riskA(b)
		b.lists(nil) // no violation but that no list is named
		b.violations.take()
		_ = b.search(entryA)
		time.Sleep(time.Hour)
		b.diff("se-4b", "mw-4b")
	}, ""})
}

func TestRefereeTakesEntriesThatTheOtherServiceGave(t *testing.T) {
	find := func(b *bench, prefix string) { b.findIn(nil, []string{"se-4b", "mw-4b"}, prefix) }
	takesEntries(t, "Web Risk, by lists of v4", (*bench).fetch, (*bench).risk, map[string]string{"longer": "", "long": "", "longe": "no entry", "none": "no entry"})
	takesEntries(t, "v4, by lists of Web Risk", (*bench).diff, find, map[string]string{"longer": "", "long": "no entries", "none": "no entries"})
}
