package protocoltest

import (
	"encoding/binary"
	"testing"
	"time"
)

// numbered returns n different prefixes.
func numbered(n int) (all []string) {
	for i := range n {
		all = append(all, string(binary.BigEndian.AppendUint32(nil, uint32(i))))
	}
	return all
}

func TestRefereeReportsPrefixesAskedAgain(t *testing.T) {
	ask := func(b *bench) { _ = b.search("aaaa", "bbbb") }
	again := func(b *bench) { _ = b.search("cccc", "bbbb") }
	notBefore(t, "fresh", "fresh", 300*time.Second, ask, again)
	notBefore(t, "short cache", "fresh", 2*time.Second, func(b *bench) { b.SetCacheDuration(2 * time.Second); ask(b); b.SetCacheDuration(-1) }, again)
	judged(t, inBubble,
		act{"restarted", func(b *bench) { ask(b); b.ClientStarted(); again(b) }, ""},
		act{"no cache duration", func(b *bench) { b.SetCacheDuration(-1); ask(b); again(b) }, ""},
		act{"after failures", func(b *bench) {
			for _, f := range SearchFaults() {
				if f.Delay > 0 {
					continue // a good answer in the end
				}
				b.Break("search", 1, f)
				if err := b.search("aaaa"); err == nil {
					b.Errorf("%+v does not break the answer", f)
				}
			}
			b.want("")
			if err := b.search("aaaa"); err != nil {
				b.Error(err)
			}
		}, ""},
		act{"under way", func(b *bench) {
			end := b.meanwhile("search", Fault{}, ask)
			_ = b.search("dddd")
			b.want("")
			again(b)
			end()
		}, "under way"})
}

func TestRefereeReportsBadPrefixes(t *testing.T) {
	asking := func(prefixes ...string) func(b *bench) { return func(b *bench) { _ = b.search(prefixes...) } }
	judged(t, inBubble,
		act{"one", asking("aaaa"), ""},
		act{"a thousand", asking(numbered(1000)...), ""},
		act{"too many", asking(numbered(1001)...), "at most 1000"},
		act{"none", asking(), "no hash prefix"},
		act{"three bytes", asking("aaaa", "bbb"), "do not have 4 bytes"},
		act{"five bytes", asking("aaaaa"), "do not have 4 bytes"},
		act{"duplicate", asking("aaaa", "bbbb", "aaaa"), "duplicates"})
}

func TestRefereeJudgesSearchBackoffOnRequest(t *testing.T) {
	ask := func(b *bench) { _ = b.search("aaaa") }
	fail := func(b *bench, status, times int) {
		b.JudgeSearchBackoff(true)
		b.Break("search", times, Fault{Status: status})
		for range times {
			ask(b)
		}
	}
	const rule = "back-off of searches"
	notBefore(t, "429", rule, 15*time.Minute, func(b *bench) { fail(b, 429, 1) }, ask)
	notBefore(t, "403 twice", rule, 30*time.Minute, func(b *bench) { fail(b, 403, 1); time.Sleep(15 * time.Minute); fail(b, 403, 1) }, ask)
	notBefore(t, "three strikes", rule, 5*time.Minute, func(b *bench) { fail(b, 500, 3) }, ask)
	notBefore(t, "four times three strikes", rule, 30*time.Minute, func(b *bench) {
		for _, pause := range []time.Duration{5, 10, 20, 0} {
			fail(b, 503, 3)
			time.Sleep(pause * time.Minute)
		}
	}, ask)
	judged(t, inBubble,
		act{"two strikes", func(b *bench) { fail(b, 500, 2); ask(b); _ = b.search("bbbb") }, ""},
		act{"not judged", func(b *bench) { fail(b, 429, 1); b.JudgeSearchBackoff(false); ask(b) }, ""})
}

func TestRefereeReportsSearchesOverBudget(t *testing.T) {
	const rule = ruleBudget + ": search 3 of a day that has 2"
	day := time.Date(2000, 1, 1, 8, 0, 0, 0, time.UTC) // a bubble begins at midnight
	third := func(at time.Duration) func(b *bench) {   // from midnight
		return func(b *bench) {
			begin := time.Now()
			b.diff("se-4b", "mw-4b")
			b.SetBudget(2, day)
			b.risk(entryA)
			b.Break("search", 1, Fault{Status: 404}) // costs one too
			b.risk(entryB)
			b.want("")
			time.Sleep(at - time.Since(begin))
			b.risk(entryM)
		}
	}
	spent := func(then func(b *bench)) func(b *bench) {
		return func(b *bench) {
			b.SetBudget(2, day)
			_, _ = b.search("aaaa"), b.search("bbbb")
			then(b)
			_ = b.search("cccc")
		}
	}
	judged(t, inBubble,
		act{"the same day", third(8*time.Hour - 1), rule},
		act{"the next day", third(8 * time.Hour), ""},
		act{"many days later", third(80 * time.Hour), ""},
		act{"any protocol", func(b *bench) {
			b.diff("se-4b", "mw-4b")
			b.SetBudget(2, day)
			b.risk(entryA)
			_ = b.search("aaaa")
			b.want("")
			_ = b.search("bbbb")
		}, rule},
		act{"a restart does not renew it", spent(func(b *bench) { b.ClientStarted() }), rule},
		act{"a wiped disk does", spent(func(b *bench) { b.ClientLostState() }), ""},
		act{"none", spent(func(b *bench) { b.SetBudget(0, day) }), ""})
}
