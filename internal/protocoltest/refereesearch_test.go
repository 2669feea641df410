package protocoltest

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
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
	notBefore(t, "short cache", "fresh", 2*time.Second,
		func(b *bench) { b.SetCacheDuration(2 * time.Second); ask(b); b.SetCacheDuration(-1) }, again)
	inBubble(t, "restarted", func(b *bench) {
		ask(b)
		b.ClientStarted()
		again(b)
		wantNone(b.T, b.violations.take())
	})
	inBubble(t, "no cache duration", func(b *bench) {
		b.SetCacheDuration(-1)
		ask(b)
		again(b)
		wantNone(b.T, b.violations.take())
	})
	inBubble(t, "after failures", func(b *bench) {
		for _, f := range SearchFaults() {
			if f.Delay > 0 {
				continue // a good answer in the end
			}
			b.Break("search", 1, f)
			if err := b.search("aaaa"); err == nil {
				b.Errorf("%+v does not break the answer", f)
			}
		}
		wantNone(b.T, b.violations.take())
		if err := b.search("aaaa"); err != nil {
			b.Error(err)
		}
	})
	inBubble(t, "under way", func(b *bench) {
		b.Break("search", 1, Fault{Delay: time.Minute})
		done := make(chan struct{})
		go func() { defer close(done); ask(b) }()
		synctest.Wait()
		_ = b.search("dddd")
		wantNone(b.T, b.violations.take())
		again(b)
		wantOne(b.T, b.violations.take(), "under way")
		<-done
	})
}

func TestRefereeReportsBadPrefixes(t *testing.T) {
	tests := []struct {
		name     string
		prefixes []string
		rule     string // empty: legal
	}{
		{"one", []string{"aaaa"}, ""},
		{"a thousand", numbered(1000), ""},
		{"too many", numbered(1001), "at most 1000"},
		{"none", nil, "no hash prefix"},
		{"three bytes", []string{"aaaa", "bbb"}, "do not have 4 bytes"},
		{"five bytes", []string{"aaaaa"}, "do not have 4 bytes"},
		{"duplicate", []string{"aaaa", "bbbb", "aaaa"}, "duplicates"},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(b *bench) {
			_ = b.search(tt.prefixes...)
			if got := b.violations.take(); tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
		})
	}
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
	notBefore(t, "403 twice", rule, 30*time.Minute, func(b *bench) {
		fail(b, 403, 1)
		time.Sleep(15 * time.Minute)
		fail(b, 403, 1)
	}, ask)
	notBefore(t, "three strikes", rule, 5*time.Minute, func(b *bench) { fail(b, 500, 3) }, ask)
	notBefore(t, "four times three strikes", rule, 30*time.Minute, func(b *bench) {
		for _, pause := range []time.Duration{5, 10, 20} {
			fail(b, 503, 3)
			time.Sleep(pause * time.Minute)
		}
		fail(b, 503, 3)
	}, ask)
	inBubble(t, "two strikes", func(b *bench) {
		fail(b, 500, 2)
		ask(b)
		_ = b.search("bbbb")
		wantNone(b.T, b.violations.take())
	})
	inBubble(t, "not judged", func(b *bench) {
		fail(b, 429, 1)
		b.JudgeSearchBackoff(false)
		ask(b)
		wantNone(b.T, b.violations.take())
	})
}
