package updater

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// route is a way to a server, of a Source and a Searcher.
type route struct {
	mu    sync.Mutex
	err   error // of requests; nil: they are answered
	sent  int   // requests that got through
	tried int   // requests that did not
	looks int
}

func (r *route) Fetch(_ context.Context, _ []Want, take func(int, *Update)) (time.Duration, error) {
	if err := r.request(); err != nil {
		return 0, err
	}
	take(0, fullOf("version", 1))
	return time.Hour, nil
}

func (r *route) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	return lookup.Answer{}, r.request()
}

func (r *route) request() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		r.tried++
	} else {
		r.sent++
	}
	return r.err
}

func (r *route) Reach(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks++
	if e, ok := errors.AsType[*NotSentError](r.err); ok && !e.Reached {
		return r.err
	}
	return nil
}

// comes is the server's end of an outage, while an Updater runs.
func (r *route) comes() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = nil
}

func (r *route) requests() (sent, tried int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent, r.tried
}

var (
	errGone  error = &NotSentError{Err: errors.New("there is no network")}
	errNoTLS error = &NotSentError{Err: errors.New("no TLS"), Reached: true}
)

// steps are the least waits after tries that were not sent.
var steps = []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute}

func TestTheWaitAfterARequestThatWasNotSentIsShort(t *testing.T) {
	for i, least := range steps {
		testkit.Equal(t, fmt.Sprint("the least wait after ", i+1), awayWait(i+1, 0), least)
		most := min(least+least/4, maxAway)
		testkit.Between(t, fmt.Sprint("the longest wait after ", i+1), awayWait(i+1, 0.9999), most-10*time.Millisecond, most)
	}
	for _, tries := range []int{-1, 0, math.MaxInt} {
		testkit.Between(t, fmt.Sprint("after ", tries), awayWait(tries, 0.5), awayUnit, maxAway)
	}
}

// loadedUpdater returns an Updater with a folder that has loaded its list.
func loadedUpdater(t *testing.T, dir string, source Source) *Updater {
	t.Helper()
	u := newUpdater(t, source, newScheduleOf(t, openStore(t, dir)), se)
	u.Load()
	return u
}

// once runs an Updater's round, if it is due.
func once(t *testing.T, u *Updater) {
	t.Helper()
	err := u.Once(t.Context())
	if _, notDue := errors.AsType[*NotDueError](err); !notDue {
		must(t, err)
	}
}

func TestAFetchThatWasNotSentIsNoFailureOfTheServer(t *testing.T) {
	inBubble(t, "restarts", func(t *testing.T) {
		dir := t.TempDir()
		way := &route{err: errGone}
		for i, wait := range steps {
			u := loadedUpdater(t, dir, blindSource{way}) // each with a restart, which continues with the count
			once(t, u)
			testkit.Equal(t, "tries", way.tried, i+1)
			wantDueIn(t, u.cfg.Schedule, wait)
			hold, got := u.cfg.Schedule.FetchHold([]string{se}), u.cfg.Schedule.state.Fetch
			testkit.Equal(t, "unsent, and the failures", []any{hold.Unsent, hold.Failures}, []any{true, i + 1})
			testkit.WantStart(t, hold.String(), "the server could not be reached")
			testkit.Equal(t, "failures by the server's rules, and no wait", []any{got.Failures, got.NotBefore.IsZero()}, []any{0, true})
			time.Sleep(wait - 1)
			once(t, loadedUpdater(t, dir, blindSource{way}))
			testkit.Equal(t, "tries after a restart, which ends no wait", way.tried, i+1)
			time.Sleep(time.Nanosecond)
		}
		// A status ends the count, and starts the rules with their first step.
		way.err = &StatusError{Code: 503}
		u := loadedUpdater(t, dir, blindSource{way})
		once(t, u)
		wantDueIn(t, u.cfg.Schedule, 15*time.Minute)
		time.Sleep(15 * time.Minute)
		way.err = errGone
		once(t, u)
		wantDueIn(t, u.cfg.Schedule, 15*time.Second)
		got := u.cfg.Schedule.state.Fetch
		testkit.Equal(t, "failures before, and tries since", []int{got.Failures, got.Away.Tries}, []int{1, 1})
		time.Sleep(15 * time.Second)
		way.err = nil
		once(t, u)
		got = u.cfg.Schedule.state.Fetch
		testkit.Equal(t, "after a success", []any{got.Away, got.Failures, way.sent}, []any{away{}, 0, 1})
	})
	// A crash while a server is looked for that cannot be reached is no failure of it.
	inBubble(t, "a crash", func(t *testing.T) {
		dir := t.TempDir()
		way := &route{err: errGone}
		once(t, loadedUpdater(t, dir, way))
		testkit.Equal(t, "requests, and it was looked for", []any{way.tried, way.looks > 0}, []any{0, true})
		testkit.WantNone(t, testkit.Read(t, filepath.Join(dir, scheduleFile)), "asking") // it is not saved as sent
	})
}

// blindSource is a Source that cannot look for its server.
type blindSource struct{ Source }

// While nothing protects, the server is looked for every 15 seconds, whatever the step is.
func TestAServerThatComesIsFoundAtOnceWhileNoListIsInForce(t *testing.T) {
	inBubble(t, "no connection: it is looked for", func(t *testing.T) {
		way := &route{err: errGone}
		_, end := running(t, loadedUpdater(t, t.TempDir(), way))
		time.Sleep(23*time.Minute + time.Second)
		synctest.Wait()
		way.comes()
		came := time.Now()
		for sent := 0; sent == 0 && time.Since(came) < time.Hour; sent, _ = way.requests() {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		testkit.Between(t, "protected after", time.Since(came), 0, seekEvery+time.Second)
		end()
	})
	inBubble(t, "TLS fails: only the steps count", func(t *testing.T) {
		way := &route{err: errNoTLS}
		_, end := running(t, loadedUpdater(t, t.TempDir(), way))
		time.Sleep(time.Hour)
		synctest.Wait()
		_, tried := way.requests()
		testkit.Between(t, "tries in an hour", tried, 0, 18)
		end()
	})
}

func TestASearchThatWasNotSentIsNoFailureOfTheServer(t *testing.T) {
	for name, rules := range map[string]SearchRules{"v5": v5Rules, "v4": v4Rules, "webrisk": {Backoff: ServiceLevel, Published: true}} {
		inBubble(t, name, func(t *testing.T) {
			dir := t.TempDir()
			script := &script{errs: []error{errGone}}
			for i, wait := range steps {
				p := newProcess(t, dir, rules, script)
				testkit.Equal(t, fmt.Sprint("search ", i, " is not sent"), isNotSent(p.search(t)), true)
				p.backsOff(t, "the same process", wait)
				newProcess(t, dir, rules, script).backsOff(t, "after a restart", wait)
				testkit.Equal(t, "unsent, and the failures", []any{p.schedule.SearchHold().Unsent, heldSearch(p.schedule).Failures}, []any{true, 0})
				time.Sleep(wait)
			}
			script.errs = []error{nil}
			p := newProcess(t, dir, rules, script)
			must(t, p.search(t))
			must(t, p.search(t))
			testkit.Equal(t, "after a success", savedSearch(t, dir).Away, away{})
		})
	}
	inBubble(t, "those under way together count once, and a back-off that runs stays", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir())
		p := &pacedSearcher{schedule: s, rules: v5Rules, report: func(Event) {}}
		until := time.Now().Add(time.Hour)
		s.state.Search.Clock = Clock{NotBefore: until, Failures: 2}
		for range 5 {
			p.notSent(time.Now(), sentSearch{}, errGone)
			time.Sleep(time.Second)
		}
		got := heldSearch(s)
		testkit.Equal(t, "tries and failures", []int{got.Away.Tries, got.Failures}, []int{1, 2})
		testkit.Equal(t, "the back-off ends late by", got.NotBefore.Sub(until), 0)
	})
	inBubble(t, "when the network is back, the next search but few goes out", func(t *testing.T) {
		way := &route{err: errGone}
		p := Pace(way, ownedSchedule(t, t.TempDir()), v5Rules, func(Event) {})
		for range 6 * 60 { // one a second, for some minutes
			p.Search(t.Context(), nil)
			time.Sleep(time.Second)
		}
		testkit.Between(t, "tries in 6 minutes", way.tried, 0, 6)
		testkit.Between(t, "looks in 6 minutes", way.looks, 0, 25)
		way.err = nil
		back := time.Now()
		for way.sent == 0 {
			p.Search(t.Context(), nil)
			time.Sleep(time.Second)
		}
		testkit.Between(t, "the first search is sent after", time.Since(back), 0, 17*time.Second)
	})
}
