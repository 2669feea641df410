package protocoltest

import (
	"testing"
	"time"
)

func TestRefereeReportsSearchesOverBudget(t *testing.T) {
	const rule = ruleBudget + ": search 3 of a day that has 2"
	day := time.Date(2000, 1, 1, 8, 0, 0, 0, time.UTC) // a bubble begins at midnight
	tests := []struct {
		name  string
		until time.Duration // of the third search, from midnight
		rule  string        // empty: legal
	}{
		{"the same day", 8*time.Hour - 1, rule},
		{"the next day", 8 * time.Hour, ""},
		{"many days later", 80 * time.Hour, ""},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(b *bench) {
			begin := time.Now()
			b.diff("se-4b", "mw-4b")
			b.SetBudget(2, day)
			b.risk(entryA)
			b.Break("search", 1, Fault{Status: 404}) // costs one too
			b.risk(entryB)
			wantNone(b.T, b.violations.take())
			time.Sleep(tt.until - time.Since(begin))
			b.risk(entryM)
			if got := b.violations.take(); tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
		})
	}
	budgeted := func(b *bench) {
		b.SetBudget(2, day)
		_ = b.search("aaaa")
		_ = b.search("bbbb")
	}
	inBubble(t, "any protocol", func(b *bench) {
		b.diff("se-4b", "mw-4b")
		b.SetBudget(2, day)
		b.risk(entryA)
		_ = b.search("aaaa")
		wantNone(b.T, b.violations.take())
		_ = b.search("bbbb")
		wantOne(b.T, b.violations.take(), rule)
	})
	inBubble(t, "a restart does not renew it", func(b *bench) {
		budgeted(b)
		b.ClientStarted()
		_ = b.search("cccc")
		wantOne(b.T, b.violations.take(), rule)
	})
	inBubble(t, "a wiped disk does", func(b *bench) {
		budgeted(b)
		b.ClientLostState()
		_ = b.search("cccc")
		wantNone(b.T, b.violations.take())
	})
	inBubble(t, "none", func(b *bench) {
		budgeted(b)
		b.SetBudget(0, day)
		_ = b.search("cccc")
		wantNone(b.T, b.violations.take())
	})
}
