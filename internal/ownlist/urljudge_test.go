package ownlist

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestAListThatShrinksIsBelievedAfterAnHour(t *testing.T) {
	testkit.Long(t)
	withClock(t, names(100), func(w *clocked) {
		l := w.start(func(c *URLConfig) { c.Refresh = time.Minute })
		defer l.Close()
		w.took(10 * time.Second)
		entries := func() int { return w.states()[0].Entries }
		w.answer(names(50)) // half of it is believed
		if _, events := w.took(2 * time.Minute); entries() != 50 || events != "" {
			t.Errorf("%d entries, events %q", entries(), events)
		}
		w.answer(names(24))
		if _, events := w.took(30 * time.Minute); entries() != 50 || events != "doubted" {
			t.Errorf("%d entries, events %q", entries(), events)
		}
		if at, events := w.took(time.Hour); entries() != 24 || events != "recovered" || len(at) > 40 {
			t.Errorf("%d entries, events %q, asked %d times", entries(), events, len(at))
		}
		w.answer("# there is no new name today\n")
		if _, events := w.took(2 * time.Hour); entries() != 0 || events != "doubted recovered" {
			t.Errorf("%d entries, events %q", entries(), events)
		}
		w.answer("# there is no new name today again\n")
		if _, events := w.took(time.Hour); entries() != 0 || events != "" {
			t.Errorf("%d entries, events %q", entries(), events)
		}
	})
}

// A server that now has the list and now half of it never makes the half believed.
func TestAListThatFlapsIsNotBelieved(t *testing.T) {
	withClock(t, names(100), func(w *clocked) {
		l := w.start(func(c *URLConfig) { c.Refresh = 20 * time.Minute })
		defer l.Close()
		w.took(10 * time.Second)
		var all []string
		for i := range 40 {
			w.answer([]string{names(10), names(100 + i)}[i%2])
			for asked := false; !asked; {
				at, events := w.took(time.Minute)
				asked = len(at) > 0
				all = append(all, strings.Fields(events)...)
			}
			if s := w.states()[0]; s.Entries < 100 {
				t.Fatalf("Believed %d entries", s.Entries)
			}
		}
		if got, want := strings.Join(all, " "), strings.TrimSpace(strings.Repeat("doubted recovered ", 20)); got != want {
			t.Errorf("Events %q, want %q", got, want)
		}
	})
}

// That the good list has not changed ends a doubt: the next short list begins a new one.
func TestAnUnchangedListEndsADoubt(t *testing.T) {
	withClock(t, names(100), func(w *clocked) {
		l := w.start(func(c *URLConfig) { c.Refresh = time.Minute })
		defer l.Close()
		w.took(10 * time.Second)
		w.answer(names(10))
		w.took(2 * time.Minute)
		w.answer("unchanged")
		w.took(58 * time.Minute)
		w.answer(names(10))
		if _, events := w.took(30 * time.Minute); events != "doubted" || w.states()[0].Entries != 100 {
			t.Errorf("Events %q, %+v", events, w.states()[0])
		}
	})
}

func TestDoubtAndFailureAreToldApart(t *testing.T) {
	withClock(t, names(100), func(w *clocked) {
		l := w.start(func(c *URLConfig) { c.Refresh = time.Minute })
		defer l.Close()
		w.took(10 * time.Second)
		w.answer("<html>")
		_, first := w.took(3 * time.Hour)
		w.answer("")
		_, second := w.took(48 * time.Hour)
		if first+", "+second != "doubted, failed" {
			t.Errorf("Events %q, %q", first, second)
		}
	})
}

func TestJudge(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	before := func(entries int, doubt *Doubt) URLState {
		return URLState{Entries: entries, Changed: now, Doubt: doubt}
	}
	came := func(text string) Summary {
		sum, _, err := Survey(strings.NewReader(text), Config{})
		must(t, err)
		return sum
	}
	for _, test := range []struct {
		name  string
		state URLState
		came  Summary
		want  string // "": believed
		from  time.Time
	}{
		{"first", URLState{}, came("a.example"), "", time.Time{}},
		{"grows", before(1, nil), came(names(1000)), "", time.Time{}},
		{"half", before(10, nil), came(names(5)), "", time.Time{}},
		{"less than half", before(11, nil), came(names(5)), "it has 5 entries, and the one before had 11", now.Add(time.Hour)},
		{"one left", before(11, nil), came(names(1)), "it has 1 entry, and the one before had 11", now.Add(time.Hour)},
		{"again too early", before(11, &Doubt{5, now.Add(-59 * time.Minute)}), came(names(5)), "it has 5 entries, and the one before had 11", now.Add(time.Minute)},
		{"again after an hour", before(11, &Doubt{5, now.Add(-time.Hour)}), came(names(5)), "", time.Time{}},
		{"shrinks further", before(100, &Doubt{40, now.Add(-2 * time.Hour)}), came(names(19)), "it has 19 entries, and the one before had 100", now.Add(time.Hour)},
		{"a clock that went back", before(100, &Doubt{40, now.Add(time.Hour)}), came(names(40)), "it has 40 entries, and the one before had 100", now.Add(time.Hour)},
		{"HTML again", before(11, &Doubt{0, now.Add(-2 * time.Hour)}), came("<html>"), "it looks like an HTML page", time.Time{}},
		{"empty again", before(11, &Doubt{0, now.Add(-2 * time.Hour)}), came(""), "it is empty", time.Time{}},
		{"comments at first", URLState{}, came("# none\n"), "it has only comments", time.Time{}},
		{"comments again", before(11, &Doubt{0, now.Add(-2 * time.Hour)}), came("# none\n"), "", time.Time{}},
		{"too many", URLState{}, Summary{Entries: maxEntries + 1}, "it has 20000001 entries, and a list may have 20000000", time.Time{}},
	} {
		_, err := judge(test.state, test.came, now)
		doubt, _ := errors.AsType[*DoubtError](err)
		switch {
		case doubt == nil && test.want != "", doubt != nil && (doubt.Why != test.want || !doubt.From.Equal(test.from)):
			t.Errorf("%s: %+v, want %q from %s", test.name, doubt, test.want, test.from)
		}
	}
}
