package ownlist

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// clocked is a registry under a clock that a test moves, and its server.
type clocked struct {
	t  *testing.T
	db string
	*urlRegistry

	mu     sync.Mutex
	list   string // "": status 503; "unchanged": 304; "away": no server is reached
	times  []time.Time
	events []string
}

// RoundTrip implements http.RoundTripper.
func (w *clocked) RoundTrip(*http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times = append(w.times, time.Now())
	answer := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), ContentLength: -1}
	text := w.list
	switch text {
	case "":
		answer.StatusCode, text = http.StatusServiceUnavailable, ""
	case "wait":
		answer.StatusCode, text = http.StatusTooManyRequests, ""
		answer.Header.Set("Retry-After", "36000")
	case "unchanged":
		answer.StatusCode, text = http.StatusNotModified, ""
	}
	answer.Header.Set("ETag", `"x"`)
	answer.Body = io.NopCloser(strings.NewReader(text))
	return answer, nil
}

func (w *clocked) report(e URLEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	word := "recovered"
	if e, ok := e.(URLFailed); ok {
		word = "failed"
		if e.Doubt != nil {
			word = "doubted"
		}
	}
	w.events = append(w.events, word)
}

// answer sets what the server answers from now on.
func (w *clocked) answer(list string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = list
}

// took lets time pass, and returns when the server was asked, in minutes after then, and
// what was reported.
func (w *clocked) took(d time.Duration) (minutes []float64, events string) {
	begun := time.Now()
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.times {
		minutes = append(minutes, at.Sub(begun).Minutes())
	}
	events = strings.Join(w.events, " ")
	w.times, w.events = nil, nil
	return minutes, events
}

func (w *clocked) start(change func(*URLConfig)) *URLList {
	c := URLConfig{URL: "https://lists.example.org/a.txt", DB: w.db, Refresh: 24 * time.Hour}
	if change != nil {
		change(&c)
	}
	return w.open(c, Config{}, w.report)
}

func withClock(t *testing.T, list string, test func(w *clocked)) {
	db := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &clocked{t: t, db: db, list: list}
		w.urlRegistry = newURLRegistry(limits{15 * time.Minute, time.Minute, 30 * time.Second}, w)
		test(w)
	})
}

func within(t *testing.T, what string, got []float64, bounds ...[2]float64) {
	t.Helper()
	ok := len(got) == len(bounds)
	for i := range bounds {
		ok = ok && got[i] >= bounds[i][0] && got[i] <= bounds[i][1]
	}
	if !ok {
		t.Errorf("%s: asked after %.1f minutes, want %v", what, got, bounds)
	}
}

func TestAListIsFetchedAtOnceAndThenAtEachInterval(t *testing.T) {
	withClock(t, names(10), func(w *clocked) {
		l := w.start(nil)
		at, events := w.took(16 * time.Hour)
		within(t, "first", at, [2]float64{0, 0})
		at, _ = w.took(16 * time.Hour) // 24 h ± 30 % after the first
		within(t, "second", at, [2]float64{48, 912})
		if events != "" {
			t.Errorf("Events %s", events)
		}
		l.Close()
		if at, _ := w.took(48 * time.Hour); len(at) > 0 {
			t.Errorf("Asked after Close: %v", at)
		}
	})
}

// A restart soon after a fetch asks nothing, and one long after it asks within a minute: the content
// is in force meanwhile.
func TestARestartKeepsTheTimeOfTheNextFetch(t *testing.T) {
	withClock(t, names(10), func(w *clocked) {
		l := w.start(nil)
		w.took(time.Hour)
		l.Close()
		l = w.start(nil)
		if at, _ := w.took(15 * time.Hour); len(at) > 0 {
			t.Errorf("Asked soon after a restart: %v", at)
		}
		l.Close()
		w.took(100 * time.Hour)
		delayed := false
		for range 8 {
			w.answer("unchanged")
			l = w.start(nil)
			at, _ := w.took(time.Hour)
			within(t, "long after", at, [2]float64{0, 1})
			delayed = delayed || len(at) > 0 && at[0] > 0.05
			l.Close()
			w.took(100 * time.Hour)
		}
		if !delayed {
			t.Error("Many machines that start together ask together")
		}
		l = w.start(func(c *URLConfig) { c.Refresh = time.Hour }) // due already
		w.took(2 * time.Minute)
		l.Close()
		l = w.start(func(c *URLConfig) { c.Refresh = time.Minute }) // a shorter interval holds at once
		at, _ := w.took(90 * time.Second)
		if len(at) == 0 {
			t.Error("The shorter interval does not hold")
		}
		l.Close()
	})
}

func TestFailuresAreRetriedWithBackOffAndReportedOnce(t *testing.T) {
	withClock(t, "", func(w *clocked) {
		l := w.start(nil)
		defer l.Close()
		at, events := w.took(31 * time.Minute)
		within(t, "without content", at, [2]float64{0, 0}, [2]float64{15, 30})
		if events != "failed" {
			t.Errorf("Events %q", events)
		}
	})
}

func TestARetryIsNotBeforeTheServerSays(t *testing.T) {
	withClock(t, "wait", func(w *clocked) {
		l := w.start(nil)
		defer l.Close()
		at, _ := w.took(9 * time.Hour)
		within(t, "in back-off", at, [2]float64{0, 0})
		at, _ = w.took(90 * time.Minute)
		within(t, "after it", at, [2]float64{59, 61})
	})
}

func TestALoopOfCrashesIsNoLoopOfRequests(t *testing.T) {
	withClock(t, "", func(w *clocked) {
		for range 60 {
			l := w.start(nil)
			time.Sleep(time.Second)
			l.Close()
		}
		if at, _ := w.took(0); len(at) > 2 {
			t.Errorf("Asked %d times in a minute of crashes", len(at))
		}
	})
}

func TestListsAreFetchedFourAtATimeAndOnceForAllOpeners(t *testing.T) {
	withClock(t, names(10), func(w *clocked) {
		var lists []*URLList
		release := make(chan struct{})
		open, most := 0, 0
		w.urlRegistry.transport = transport(func(r *http.Request) (*http.Response, error) {
			w.mu.Lock()
			open++
			most = max(most, open)
			w.mu.Unlock()
			<-release
			w.mu.Lock()
			open--
			w.mu.Unlock()
			return w.RoundTrip(r)
		})
		for i := range 6 {
			for range 2 {
				lists = append(lists, w.start(func(c *URLConfig) { c.URL += fmt.Sprint(i) }))
			}
		}
		synctest.Wait()
		close(release)
		at, _ := w.took(time.Second)
		if len(at) != 6 || most != sideBySide || len(w.states()) != 6 {
			t.Errorf("%d requests, %d at a time, %d states", len(at), most, len(w.states()))
		}
		for _, l := range lists {
			l.Close()
		}
		if n := len(w.states()); n != 0 {
			t.Errorf("%d lists are open", n)
		}
	})
}

// Two processes that share a db fetch a list once: the second one finds the state of the
// first.
func TestAnotherProcessWithTheSameDBIsNotAskedTwice(t *testing.T) {
	withClock(t, names(10), func(w *clocked) {
		other := newURLRegistry(w.limits, w)
		a := w.start(nil)
		w.took(time.Second)
		b := other.open(a.cfg, Config{}, nil)
		at, _ := w.took(100 * time.Hour)
		soon := 0
		for i := range at[1:] {
			if at[i+1]-at[i] < 60*16 {
				soon++
			}
		}
		if len(at) < 3 || soon > 0 {
			t.Errorf("Asked %d times in 100 hours by two processes, with an interval of 24 hours ± 30 %%", len(at))
		}
		a.Close()
		b.Close()
	})
}

func TestDueStaysInReach(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		state  URLState
		latest time.Duration // after now
	}{
		"as planned":                 {URLState{Checked: now, Tried: now, Next: now.Add(time.Hour)}, time.Hour},
		"a next time in years":       {URLState{Checked: now, Tried: now, Next: now.AddDate(5, 0, 0)}, 13 * 24 * time.Hour / 10},
		"a back-off of years":        {URLState{Failures: 1, Tried: now, Next: now.AddDate(5, 0, 0)}, 24 * time.Hour},
		"an attempt that is to come": {URLState{Tried: now.AddDate(1, 0, 0), Next: now.AddDate(1, 0, 1)}, 0},
	} {
		if got := due(test.state, 0, now).Sub(now); got.Round(time.Minute) != test.latest {
			t.Errorf("%s: due in %s, want %s", name, got, test.latest)
		}
	}
}
