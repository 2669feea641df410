package updater

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// process is one process that searches, with a folder that others may have too.
type process struct {
	schedule *Schedule
	searcher lookup.Searcher
	script   *script
	mu       sync.Mutex
	events   []Event // guarded by mu while searches run or are saved
}

// newProcess returns a process whose first contact is over. It does not hold the folder.
func newProcess(t *testing.T, dir string, rules SearchRules, s *script) *process {
	t.Helper()
	return newProcessOf(t, newScheduleOf(t, openStore(t, dir)), rules, s)
}

func newProcessOf(t *testing.T, schedule *Schedule, rules SearchRules, s *script) *process {
	t.Helper()
	p := &process{schedule: schedule, script: s}
	if rules.FirstContact == nil {
		rules.FirstContact = func() time.Duration { return 0 }
	}
	p.searcher = Pace(s, schedule, rules, func(e Event) { // from the goroutine that saves, too
		p.mu.Lock()
		defer p.mu.Unlock()
		p.events = append(p.events, e)
	})
	return p
}

// during makes the process ask a searcher that does something while a search is under way, then answers that, with err.
func (p *process) during(err error, do func()) *midway {
	m := &midway{do: do, err: err}
	p.searcher.(*pacedSearcher).searcher = m
	return m
}

func (p *process) search(t *testing.T) error {
	t.Helper()
	_, err := p.searcher.Search(t.Context(), nil)
	p.schedule.Flush()
	return err
}

// backsOff fails unless the process sends nothing for exactly so long.
func (p *process) backsOff(t *testing.T, who string, wait time.Duration) {
	t.Helper()
	sent := p.script.sent
	testkit.Is(t, who, p.search(t), lookup.ErrBackoff)
	testkit.Equal(t, who+": sent", p.script.sent-sent, 0)
	testkit.Equal(t, who+" waits for", p.schedule.searchWait(time.Now()), wait)
}

var v4Rules, v5Rules = SearchRules{Backoff: Strict, Published: true}, SearchRules{Backoff: Strikes}

func good() *script { return &script{errs: []error{nil}} }

// Whoever holds the folder, each process waits as any of them was told to.
func TestProcessesWithOneFolderShareTheClockOfSearches(t *testing.T) {
	for version, rules := range map[string]SearchRules{"v4": v4Rules, "v5": v5Rules} {
		for _, holder := range []string{"none", "first", "second"} {
			inBubble(t, version+", a refusal, the folder is held by "+holder, func(t *testing.T) {
				dir := t.TempDir()
				first := newProcess(t, dir, rules, &script{errs: []error{errLimited, errLimited, nil, nil}})
				second := newProcess(t, dir, rules, good())
				if p := map[string]*process{"first": first, "second": second}[holder]; p != nil {
					must(t, errors.Join(p.schedule.own()))
				}
				must(t, second.search(t))
				testkit.Equal(t, "refused", first.search(t), errLimited)
				second.backsOff(t, "the other process", 15*time.Minute)
				newProcess(t, dir, rules, good()).backsOff(t, "one that starts now", 15*time.Minute)
				time.Sleep(15 * time.Minute)
				testkit.Equal(t, "refused", first.search(t), errLimited)
				second.backsOff(t, "after the second refusal", 30*time.Minute)
				time.Sleep(30 * time.Minute)
				must(t, second.search(t))
				must(t, first.search(t))
				testkit.Equal(t, "failures after the success of the other one", first.schedule.SearchHold().Failures, 0)
			})
		}
	}
	inBubble(t, "a minimum wait, in turns", func(t *testing.T) {
		dir := t.TempDir()
		script := &script{errs: []error{nil}, waits: []time.Duration{10 * time.Minute}}
		processes := []*process{newProcess(t, dir, v4Rules, script), newProcess(t, dir, v4Rules, script), newProcess(t, dir, v4Rules, script)}
		for turn := range 12 {
			must(t, processes[turn%3].search(t))
			for _, p := range processes {
				p.backsOff(t, "in the wait", 10*time.Minute)
			}
			time.Sleep(10*time.Minute - 1)
			for _, p := range processes {
				p.backsOff(t, "at its end", 1)
			}
			time.Sleep(1 * time.Nanosecond)
		}
	})
	// That a process with another key writes the file, too, must not hide the wait from others that have this key.
	inBubble(t, "another key in the folder", func(t *testing.T) {
		dir := t.TempDir()
		ofKey := func(asker string, err error) *process {
			store := openStoreBy(t, dir, Origin{Name: testOrigin, Asker: asker})
			return newProcessOf(t, newScheduleOf(t, store), v4Rules, &script{errs: []error{err}})
		}
		ours, refused, other := ofKey("ours", nil), ofKey("ours", errLimited), ofKey("other", errLimited)
		must(t, ours.search(t))
		testkit.Equal(t, "refused", refused.search(t), errLimited)
		time.Sleep(time.Minute)
		testkit.Equal(t, "refused", other.search(t), errLimited)
		ours.backsOff(t, "the process that has the key, too", 14*time.Minute)
	})
	// A version before there was a file of searches had their clock in the schedule.
	inBubble(t, "a clock in the schedule", func(t *testing.T) {
		dir := t.TempDir()
		raw, err := encodeSchedule(scheduleState{clockSet: clockSet{Search: asked{Clock: Clock{NotBefore: time.Now().Add(time.Hour), Failures: 2}}}}, time.Now(), moment{Saved: time.Now()})
		must(t, err)
		must(t, writeSchedule(openStore(t, dir), raw))
		p := newProcess(t, dir, v5Rules, good())
		p.backsOff(t, "at once", time.Hour)
		must(t, errors.Join(p.schedule.own()))
		p.schedule.Flush()
		newProcess(t, dir, v5Rules, good()).backsOff(t, "after a restart", time.Hour)
	})
	// Who only looks writes nothing: the file could belong to another user.
	inBubble(t, "an onlooker", func(t *testing.T) {
		dir := t.TempDir()
		s, err := ReadSchedule(openStore(t, dir))
		must(t, errors.Join(err, searched(s, time.Now(), errLimited)))
		testkit.Equal(t, "files", namesIn(t, dir), nil)
		testkit.Equal(t, "it waits", s.SearchHold().Active(time.Now()), true)
	})
}

func searchOnce(t *testing.T, s lookup.Searcher) error { return errOf(s.Search(t.Context(), nil)) }

func errOf[T any](_ T, err error) error { return err }

// midway is a searcher that does something while its search is under way.
type midway struct {
	do     func()
	answer lookup.Answer
	err    error
}

func (m *midway) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	m.do()
	return m.answer, m.err
}

func TestASearchThatMayBeToldToWaitIsNotedBeforeItIsSent(t *testing.T) {
	inBubble(t, "a loop of crashes", func(t *testing.T) {
		dir := t.TempDir()
		t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
		for failures := 1; failures < 10; failures++ {
			p, sent := newProcess(t, dir, v4Rules, nil), 0
			p.during(errDown, func() {
				sent++
				c := savedSearch(t, dir)
				testkit.Equal(t, "asking, and failures on disk", []any{c.Asking, c.Failures}, []any{true, failures})
				testkit.Equal(t, "the wait on disk", time.Until(c.NotBefore), Backoff(failures, 0))
				p.schedule.store.dir = filepath.Join(t.TempDir(), "dead") // what it writes later is lost
			})
			p.search(t)
			testkit.Equal(t, "sent", sent, 1)
			testkit.Equal(t, "after the restart it waits for", time.Until(savedSearch(t, dir).NotBefore), Backoff(failures, 0))
			time.Sleep(Backoff(failures, 0))
		}
	})
	inBubble(t, "which are noted", func(t *testing.T) {
		dir := t.TempDir()
		var noted []bool
		p := newProcess(t, dir, v4Rules, nil)
		m := p.during(nil, func() { noted = append(noted, savedSearch(t, dir).Asking) })
		for i, step := range []struct {
			wait time.Duration
			err  error
			want bool
		}{
			{0, nil, true}, // the first since the start
			{0, nil, false},
			{time.Hour, nil, false},
			{0, nil, true}, // there was a wait
			{0, errServer, false},
			{0, errServer, true}, // the one before failed
			{0, nil, true},
			{0, nil, false},
		} {
			m.answer.MinimumWait, m.err = step.wait, step.err
			testkit.Equal(t, "the error", p.search(t), step.err)
			testkit.Equal(t, fmt.Sprintf("search %d is noted", i+1), noted[i], step.want)
			testkit.Equal(t, fmt.Sprintf("search %d is noted after it", i+1), savedSearch(t, dir).Asking, false)
			time.Sleep(2 * time.Hour)
		}
		testkit.Equal(t, "failures at the end", p.schedule.SearchHold().Failures, 0)
	})
	inBubble(t, "version 5 publishes no rule", func(t *testing.T) {
		dir := t.TempDir()
		p := newProcess(t, dir, v5Rules, nil)
		p.during(nil, func() { testkit.Equal(t, "files", namesIn(t, dir), nil) })
		must(t, p.search(t))
	})
	inBubble(t, "another process is asking", func(t *testing.T) {
		dir := t.TempDir()
		second := newProcess(t, dir, v4Rules, good())
		first := newProcess(t, dir, v4Rules, nil)
		first.during(nil, func() { second.backsOff(t, "meanwhile", 15*time.Minute) })
		must(t, first.search(t))
		must(t, second.search(t))
	})
	inBubble(t, "a cancelled one is no failure", func(t *testing.T) {
		dir := t.TempDir()
		p := newProcess(t, dir, v4Rules, &script{errs: []error{context.Canceled}})
		p.search(t)
		c := savedSearch(t, dir)
		testkit.Equal(t, "asking, failures, a wait", []any{c.Asking, c.Failures, c.NotBefore.After(time.Now())}, []any{false, 0, false})
	})
}

// In version 4 a search may be the initial request for data ("Request Frequency").
func TestTheFirstSearchWaitsForTheFirstContact(t *testing.T) {
	drawn := []time.Duration{40 * time.Second, 20 * time.Second, 30 * time.Second}
	// begin returns a process whose first contacts are drawn in turn.
	begin := func(t *testing.T, rules SearchRules, s *Schedule) *process {
		n := 0
		rules.FirstContact = func() time.Duration { n++; return drawn[n-1] }
		return newProcessOf(t, s, rules, good())
	}
	// waits fails unless the process sends nothing for exactly so long.
	waits := func(t *testing.T, p *process, wait time.Duration) {
		t.Helper()
		sent := p.script.sent
		for _, pause := range []time.Duration{0, wait - 1} {
			time.Sleep(pause)
			testkit.Is(t, "before the first contact", p.search(t), lookup.ErrBackoff)
		}
		time.Sleep(1 * time.Nanosecond)
		testkit.Is(t, "after the first contact", p.search(t), nil)
		testkit.Equal(t, "sent", p.script.sent-sent, 1)
	}
	for name, test := range map[string]func(t *testing.T, s, last *Schedule){
		"version 4, after a start and after a suspend": func(t *testing.T, s, _ *Schedule) {
			p := begin(t, v4Rules, s)
			begun, suspended := time.Now(), time.Duration(0)
			of := p.searcher.(*pacedSearcher)
			of.sinceBoot, of.booted = func() time.Duration { return time.Since(begun) + suspended }, 0
			waits(t, p, drawn[0])
			time.Sleep(time.Hour)
			suspended += 14 * time.Second // a machine under load
			testkit.Is(t, "without a suspend", p.search(t), nil)
			suspended += time.Hour
			waits(t, p, drawn[1])
			suspended += 16 * time.Second
			waits(t, p, drawn[2])
		},
		"version 5": func(t *testing.T, s, _ *Schedule) { testkit.Is(t, "at once", begin(t, v5Rules, s).search(t), nil) },
		"a reload, which is no start": func(t *testing.T, s, last *Schedule) {
			s.Follow(last)
			testkit.Is(t, "at once", begin(t, v4Rules, s).search(t), nil)
		},
		"a reload to another protocol, which is another server": func(t *testing.T, s, last *Schedule) {
			begin(t, v5Rules, last)
			s.Succeed(last, nil, false)
			waits(t, begin(t, v4Rules, s), drawn[0])
		},
		"another key, which is another client": func(t *testing.T, s, _ *Schedule) {
			p := begin(t, v4Rules, s)
			waits(t, p, drawn[0])
			must(t, s.Rekey("another", func() {}))
			waits(t, p, drawn[1])
			must(t, s.Renew("token", func() {}))
			testkit.Is(t, "with another token", p.search(t), nil)
		},
		"reloads before the first contact of the process": func(t *testing.T, s, _ *Schedule) {
			p := begin(t, v4Rules, s)
			for range 3 {
				time.Sleep(10 * time.Second)
				next := newScheduleOf(t, nil)
				next.Follow(p.schedule)
				p = begin(t, v4Rules, next)
			}
			waits(t, p, drawn[0]-30*time.Second)
		},
		"as the rule draws it": func(t *testing.T, _, _ *Schedule) {
			var all []time.Duration
			for range 200 {
				p := Pace(good(), newScheduleOf(t, nil), v4Rules, func(Event) {}).(*pacedSearcher)
				all = append(all, p.contactWait(time.Now()))
			}
			testkit.Between(t, "the first of 200", slices.Min(all), 0, 10*time.Second)
			testkit.Between(t, "the last of 200", slices.Max(all), 50*time.Second, time.Minute)
		},
	} {
		inBubble(t, name, func(t *testing.T) { test(t, newScheduleOf(t, nil), newScheduleOf(t, nil)) })
	}
}

// The disk may take long, and is no part of what a query waits for.
func TestAnAnswerDoesNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		p := newProcess(t, dir, v4Rules, &script{errs: []error{nil}, waits: []time.Duration{0, time.Hour}})
		must(t, p.search(t)) // the first one is noted before it is sent
		store := p.schedule.store
		sync := store.disk.SyncFile
		store.disk.SyncFile = func(f *os.File) error { time.Sleep(time.Minute); return sync(f) }
		begun := time.Now()
		must(t, searchOnce(t, p.searcher))
		testkit.Equal(t, "an answer takes, while the disk takes a minute", time.Since(begun), 0)
		testkit.Is(t, "before the wait is on disk", searchOnce(t, p.searcher), lookup.ErrBackoff)
		p.schedule.Flush()
		testkit.Equal(t, "Flush takes, as the disk", time.Since(begun), time.Minute)
		newProcess(t, dir, v4Rules, good()).backsOff(t, "after a restart", 59*time.Minute)
	})
}

// Of failures at once the latest attempt counts, and every wait. One after another process's, which was seen, is a later attempt.
func TestNoWaitIsLostBetweenProcesses(t *testing.T) {
	const processes, changes = 4, 25
	for _, test := range []struct {
		name string
		each func(*Schedule) // after a failure
		most int             // failures that are saved
	}{
		{"in turn", (*Schedule).Flush, changes},
		{"at once", func(*Schedule) {}, processes * changes},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			var all []*Schedule
			for range processes {
				all = append(all, newScheduleOf(t, openStore(t, dir)))
			}
			now := time.Now()
			for i := range changes {
				for p, s := range all {
					s.changeSearch(fail(now.Add(time.Duration(i*processes+processes-p)*time.Minute)), noError(t))
					test.each(s)
				}
			}
			for _, s := range all {
				s.Flush()
			}
			got := savedSearch(t, dir)
			testkit.Between(t, "failures that are saved", got.Failures, changes, test.most)
			testkit.Equal(t, "the wait that is saved", got.NotBefore.Sub(now).Round(time.Second), processes*changes*time.Minute)
		})
	}
}

// openStoreOf is openStore for a folder that may not be usable.
func openStoreOf(t *testing.T, dir string) *Store {
	t.Helper()
	s, _ := OpenStore(dir, Origin{Name: testOrigin})
	return s
}

// Which successes change the clock, and which searches came together.
func TestSearchesThatChangeTheClock(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		failures     int
		wait         time.Duration
		failed, sent time.Time
		waits        bool // a success of the search changes the clock
		together     bool
	}{
		{0, 0, time.Time{}, now, false, false},
		{1, 0, time.Time{}, now, true, false}, // it failed in another process
		{1, 0, now, now, true, false},
		{1, 0, now, now.Add(-1), false, true},
		{1, 0, now, now.Add(1), true, false},
		{0, 0, now, now.Add(-1), false, true},
		{0, 0, now, now.Add(1), false, false},
		{0, 1, time.Time{}, now, true, false},
		{1, time.Hour, now, now.Add(-1), true, true},
	} {
		s := newSchedule(nil)
		s.state.Search.Clock, s.failed = Clock{Failures: test.failures, Wait: test.wait}, test.failed
		testkit.Equal(t, fmt.Sprintf("%+v: a success changes the clock", test), s.searchWaits(test.sent), test.waits)
		for err, failed := range map[error]time.Time{nil: test.failed, errTest: now.Add(time.Hour)} {
			if s.failed = test.failed; test.together {
				failed = test.failed
			}
			testkit.Equal(t, fmt.Sprintf("%+v, %v: together", test, err), s.failedTogether(test.sent, now.Add(time.Hour), err), test.together)
			testkit.Equal(t, fmt.Sprintf("%+v, %v: failed last", test, err), s.failed, failed)
		}
	}
}
