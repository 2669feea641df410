package ownlist

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
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

func (w *clocked) RoundTrip(*http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times = append(w.times, time.Now())
	answer := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), ContentLength: -1}
	text := w.list
	switch text {
	case "away":
		return nil, &net.OpError{Op: "dial", Err: errors.New("no route")}
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

// took lets time pass, and returns when the server was asked, in minutes after then, and what was reported.
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

// asked lets time pass, wants the server to be asked within bounds, in minutes, and these events.
func (w *clocked) asked(d time.Duration, what, reported string, bounds ...[2]float64) {
	w.t.Helper()
	at, events := w.took(d)
	within(w.t, what, at, bounds...)
	testkit.Equal(w.t, what, events, reported)
}

// has lets time pass, and wants the list to have a number of entries, and these events.
func (w *clocked) has(d time.Duration, entries int, reported string) {
	w.t.Helper()
	_, events := w.took(d)
	testkit.Equal(w.t, "entries and events", fmt.Sprint(w.states()[0].Entries, events), fmt.Sprint(entries, reported))
}

// start opens the list, until the test ends at most.
func (w *clocked) start(change func(*URLConfig)) *URLList {
	c := URLConfig{URL: "https://lists.example.org/a.txt", DB: w.db, Refresh: 24 * time.Hour}
	if change != nil {
		change(&c)
	}
	l := w.open(c, Config{}, w.report)
	w.t.Cleanup(l.Close)
	return l
}

// each sets the interval at which a list is fetched.
func each(refresh time.Duration) func(*URLConfig) { return func(c *URLConfig) { c.Refresh = refresh } }

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
	testkit.Equal(t, fmt.Sprintf("%s: asked after minutes %.1f", what, got), len(got), len(bounds))
	for i := range min(len(got), len(bounds)) {
		testkit.Between(t, what+": asked after minutes", got[i], bounds[i][0], bounds[i][1])
	}
}

func TestAListIsFetchedAtOnceAndThenAtEachIntervalAndOnceForAllOpeners(t *testing.T) {
	withClock(t, names(10), func(w *clocked) {
		l := w.start(nil)
		w.asked(16*time.Hour, "first", "", [2]float64{0, 0})
		w.asked(16*time.Hour, "second, 24 h ± 30 % after the first", "", [2]float64{48, 912})
		l.Close()
		w.asked(48*time.Hour, "after Close", "")
		var lists []*URLList
		for i := range 12 {
			lists = append(lists, w.start(func(c *URLConfig) { c.URL += fmt.Sprint("?", i%6) }))
		}
		at, _ := w.took(time.Second)
		testkit.Equal(w.t, "requests and states", []int{len(at), len(w.states())}, []int{6, 6})
		for _, l := range lists {
			l.Close()
		}
		testkit.Equal(w.t, "lists that are open", len(w.states()), 0)
	})
}

// A restart soon after a fetch asks nothing, and one long after it asks within a minute: the content is in force meanwhile.
func TestARestartKeepsTheTimeOfTheNextFetch(t *testing.T) {
	withClock(t, names(10), func(w *clocked) {
		l := w.start(nil)
		w.took(time.Hour)
		l.Close()
		l = w.start(nil)
		w.asked(15*time.Hour, "soon after a restart", "")
		reloaded := w.start(each(10 * time.Minute)) // before the first fetch after a start a shorter interval holds, too
		l.Close()
		w.asked(5*time.Minute, "after a reload with a shorter interval", "", [2]float64{0, 3})
		reloaded.Close()
		w.took(100 * time.Hour)
		delayed := false
		for range 8 {
			w.answer("unchanged")
			l = w.start(nil)
			at, _ := w.took(time.Hour)
			within(w.t, "long after", at, [2]float64{0, 1})
			delayed = delayed || len(at) > 0 && at[0] > 0.05
			l.Close()
			w.took(100 * time.Hour)
		}
		testkit.Equal(w.t, "many machines that start together do not ask together", delayed, true)
		for range 100 { // the wait is drawn: at worst it lasts for 78 s
			l = w.start(each(time.Hour)) // due already
			w.took(2 * time.Minute)
			l.Close()
			l = w.start(each(time.Minute)) // a shorter interval holds at once
			at, _ := w.took(90 * time.Second)
			testkit.Between(w.t, "requests by the shorter interval", len(at), 1, 3)
			l.Close()
			w.took(100 * time.Hour)
		}
	})
}

func TestFailuresAreRetriedWithBackOffAndReportedOnce(t *testing.T) {
	withClock(t, "", func(w *clocked) {
		w.start(nil)
		w.asked(31*time.Minute, "without content", "failed", [2]float64{0, 0}, [2]float64{15, 30})
	})
}

// As when the line of a house is away for an evening, and the list has never come.
func TestAListThatWasNeverFetchedComesSoonAfterTheNetworkDoes(t *testing.T) {
	withClock(t, "away", func(w *clocked) {
		w.start(nil)
		_, events := w.took(5 * time.Hour)
		testkit.Equal(w.t, "without a network", events, "failed")
		w.answer(names(10))
		w.asked(time.Hour, "with a network", "recovered", [2]float64{0, 33})
	})
}

func TestARetryIsNotBeforeTheServerSays(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		withClock(t, "wait", func(w *clocked) {
			l := w.start(nil)
			w.asked(8*time.Hour, "in back-off", "failed", [2]float64{0, 0})
			if restarts {
				l.Close()
				w.start(nil)
			}
			w.asked(time.Hour, "still in back-off", "")
			w.asked(90*time.Minute, "after it, which another process tells", map[bool]string{true: "failed"}[restarts], [2]float64{59, 61})
		})
	}
}

func TestALoopOfCrashesIsNoLoopOfRequests(t *testing.T) {
	withClock(t, "", func(w *clocked) {
		for range 60 {
			l := w.start(nil)
			time.Sleep(time.Second)
			l.Close()
		}
		at, _ := w.took(0)
		testkit.Between(t, "requests in a minute of crashes", len(at), 1, 2)
	})
}

// A reload opens the lists before it closes the old Corefile's: how they are fetched and read is as the new one says.
func TestAReloadChangesHowAListIsFetchedAndRead(t *testing.T) {
	withClock(t, "192.0.2.7 bad.example\n", func(w *clocked) {
		asked, client := "", w.client
		w.client = func(resolvers string) *http.Client {
			asked = resolvers
			return client(resolvers)
		}
		c := URLConfig{URL: "https://lists.example.org/a.txt", DB: w.db, Resolvers: "192.0.2.53:53"}
		before := w.open(c, Config{}, w.report)
		_, events := w.took(time.Second)
		testkit.Equal(w.t, "events, and the resolver", events+" "+asked, "doubted 192.0.2.53:53")
		c.Resolvers = "9.9.9.9:53"
		after := w.open(c, Config{IPv4: netip.MustParseAddr("192.0.2.7")}, w.report)
		before.Close()
		_, events = w.took(48 * time.Hour)
		testkit.Equal(w.t, "events, and the resolver, after the reload", events+" "+asked, "recovered 9.9.9.9:53")
		after.Close()
	})
}

// The log says what is wrong with a list, and who has mended that need not wait for the back-off.
func TestAReloadThatChangesAFailingListHasItFetchedSoon(t *testing.T) {
	withClock(t, names(1000), func(w *clocked) {
		sized := func(maxBytes int64) *URLList { return w.start(func(c *URLConfig) { c.MaxBytes = maxBytes }) }
		l := sized(1 << 10)
		reload := func(what string, maxBytes int64, bounds ...[2]float64) {
			after := sized(maxBytes)
			l.Close()
			l = after
			at, _ := w.took(3 * time.Minute)
			within(w.t, what, at, bounds...)
		}
		untilAsked := func() { // else the next attempt could be due in the minutes after the reload
			for at := []float64(nil); len(at) == 0; {
				at, _ = w.took(time.Hour)
			}
		}
		w.took(100 * time.Hour)
		untilAsked()
		reload("after a reload that changes nothing", 1<<10)
		reload("after one that does not mend it", 1<<11, [2]float64{0, 2})
		reload("after one that does", 1<<20, [2]float64{0, 2})
		w.answer("wait")
		untilAsked()
		reload("where the server has said when", 1<<21)
	})
}

// Two processes that share a db fetch a list once: the second one finds the state of the first.
func TestAnotherProcessWithTheSameDBIsNotAskedTwice(t *testing.T) {
	withClock(t, names(10), func(w *clocked) {
		other := newURLRegistry(w.limits, w)
		a := w.start(nil)
		w.took(time.Second)
		b := other.open(a.cfg, Config{}, nil)
		at, _ := w.took(100 * time.Hour)
		for i := range at[1:] {
			testkit.Between(t, "minutes between two requests", at[i+1]-at[i], 60*16, 60*100)
		}
		testkit.Between(t, "requests of two processes in 100 hours, with an interval of 24 hours ± 30 %", len(at), 3, 7)
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
		testkit.Equal(t, name, due(test.state, DefaultRefresh, now).Sub(now).Round(time.Minute), test.latest)
	}
}

// A clock that was ahead when a list was fetched, or when the process started, may be set right while it runs.
func TestAListIsDueAtOnceWhenTheClockIsSetBack(t *testing.T) {
	setBack := func() time.Time { return testkit.ClockSet(time.Now().Add(2*time.Minute), -72*time.Hour) }
	for what, list := range map[string]string{"a fetch": names(10), "a failure": ""} {
		w := &clocked{t: t, db: t.TempDir(), list: list} // by the real clock: the simulated one is a wall clock only
		w.urlRegistry = newURLRegistry(patient, w)
		l := w.start(nil)
		testkit.Until(t, what, func() bool { return !l.State().Tried.IsZero() })
		at, now := due(l.State(), DefaultRefresh, setBack()), setBack()
		testkit.Equal(t, fmt.Sprintf("after %s: due at %s, later than %s", what, at, now), at.Round(0).After(now.Round(0)), false)
		l.Close()
	}
	start, now := wall(), setBack()
	testkit.Equal(t, fmt.Sprintf("%s counts as earlier than %s", now, start), earlier(start, now).Equal(now), true)
}

func TestAListThatShrinksIsBelievedAfterAnHour(t *testing.T) {
	testkit.Long(t)
	withClock(t, names(100), func(w *clocked) {
		w.start(each(time.Minute))
		w.took(10 * time.Second)
		w.answer(names(50)) // half of it is believed
		w.has(2*time.Minute, 50, "")
		w.answer(names(24))
		w.has(30*time.Minute, 50, "doubted")
		at, events := w.took(time.Hour)
		testkit.Equal(t, "entries and events", fmt.Sprint(w.states()[0].Entries, events), fmt.Sprint(24, "recovered"))
		testkit.Between(t, "requests", len(at), 1, 40)
		w.answer("# there is no new name today\n")
		w.has(2*time.Hour, 0, "doubted recovered")
		w.answer("# there is no new name today again\n")
		w.has(time.Hour, 0, "")
	})
}

func TestAListThatFlapsIsNotBelieved(t *testing.T) {
	withClock(t, names(100), func(w *clocked) {
		w.start(each(20 * time.Minute))
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
		testkit.Equal(t, "Events", strings.Join(all, " "), strings.TrimSpace(strings.Repeat("doubted recovered ", 20)))
	})
}

// That the good list has not changed ends a doubt: the next short list begins a new one.
func TestAnUnchangedListEndsADoubtAndAFailureIsNone(t *testing.T) {
	withClock(t, names(100), func(w *clocked) {
		w.start(each(time.Minute))
		w.took(10 * time.Second)
		w.answer(names(10))
		w.took(2 * time.Minute)
		w.answer("unchanged")
		w.took(58 * time.Minute)
		w.answer(names(10))
		w.has(30*time.Minute, 100, "doubted")
		w.answer("") // doubt and failure are told apart
		w.has(48*time.Hour, 100, "failed")
		w.answer("<html>")
		w.has(48*time.Hour, 100, "doubted")
	})
}

func TestJudge(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	before := func(entries int, doubt *Doubt) URLState {
		return URLState{Entries: entries, Bytes: 1, Changed: now, Doubt: doubt}
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
		{"comments, and the file before has lost its state", URLState{Changed: now}, came("# none\n"), "it has only comments", time.Time{}},
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

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The end of a list does not wait for what hangs. A request that ignores its context stands in for the disk.
func TestClosingAListByURLDoesNotWaitForADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		r := newURLRegistry(patient, transport(func(*http.Request) (*http.Response, error) {
			<-hung
			return nil, errors.New("it was given up")
		}))
		l := r.open(URLConfig{URL: "https://lists.example/list.txt", DB: t.TempDir(), Refresh: DefaultRefresh}, Config{}, nil)
		time.Sleep(time.Minute)
		begun := time.Now()
		l.Close()
		testkit.Equal(t, "the time that it took", time.Since(begun), files.WaitLimit)
		close(hung)
		synctest.Wait() // it writes its state
	})
}
