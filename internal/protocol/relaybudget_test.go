package protocol

import (
	"net/http"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestABudgetIsAnnouncedAndRead(t *testing.T) {
	b := lookup.Budget{Day: 100, Left: 75, Hour: 25, Now: 5}
	for value, want := range map[string]lookup.Budget{
		FormatBudget(b): b,
		"now=5,hour=25 , left=75,day=100, later=?1": b,
		"day=1, left=0, hour=1, now=0":              {Day: 1, Hour: 1},
		"":                                          {},
		"day=100":                                   {},
		"day=100, left=101, hour=25, now=5":         {},
		"day=100, left=4, hour=25, now=5":           {},
		"day=100, left=75, hour=101, now=5":         {},
		"day=100, left=-1, hour=25, now=0":          {},
		"day=99999999999, left=1, hour=25, now=0":   {},
		"day=1e2, left=1, hour=25, now=0":           {},
	} {
		got, ok := ParseBudget(value)
		if ok != (want != lookup.Budget{}) || ok && got != want {
			t.Errorf("%q: %+v, %t, want %+v", value, got, ok, want)
		}
	}
}

// What a relay has said long ago lets one search pass that brings news.
func TestAnAnnouncementGetsOld(t *testing.T) {
	var a Announced
	now := time.Now()
	if _, known := a.Left(now); known {
		t.Error("nothing was heard, and something is known")
	}
	b := lookup.Budget{Day: 100, Left: 0, Hour: 25, Now: 0}
	a.hear(http.Header{BudgetHeader: {FormatBudget(b)}}, now)
	if got, known := a.Left(now.Add(announcementLife - 1)); !known || got != b {
		t.Errorf("%+v", got)
	}
	for _, later := range []time.Time{now.Add(announcementLife), now.Add(-1)} {
		if got, known := a.Left(later); !known || got.Left < 100 || got.Now == 0 || got.Now > 10 {
			t.Errorf("when it is old: %+v", got)
		}
	}
	a.hear(http.Header{}, now)
	if _, known := a.Left(now); known {
		t.Error("the relay has no budget any more, and one is known")
	}
}
