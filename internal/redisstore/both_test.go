package redisstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/redistest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// stores are the two ways for several processes to have one store. Each returns what opens the
// store of one more process.
var stores = map[string]func(t *testing.T) func() *updater.Store{
	"one folder": func(t *testing.T) func() *updater.Store {
		dir := t.TempDir()
		return func() *updater.Store { return folder(t, dir) }
	},
	"folders and one Redis": func(t *testing.T) func() *updater.Store {
		server := redistest.Start(t)
		return func() *updater.Store {
			r := open(t, server.URL(), nil)
			store := folder(t, r.folder)
			store.Share(r.Store)
			return store
		}
	},
}

func folder(t *testing.T, dir string) *updater.Store {
	t.Helper()
	store, err := updater.OpenStore(dir, origin)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// onBoth runs a test on both stores.
func onBoth(t *testing.T, test func(t *testing.T, next func() *updater.Store)) {
	for name, make := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, make(t))
		})
	}
}

// source serves one list, whose n-th content has n entries.
type source struct {
	mu     sync.Mutex
	asked  []time.Time
	wait   time.Duration
	err    error
	answer int // entries of the next answer
}

// Fetch implements updater.Source.
func (s *source) Fetch(_ context.Context, wanted []updater.Want, take func(int, *updater.Update)) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Now())
	if s.err != nil {
		return 0, s.err
	}
	entries := make([]byte, 0, 4*s.answer)
	for i := range s.answer {
		entries = append(entries, 0, 0, byte(i>>8), byte(i))
	}
	sum := sha256.Sum256(entries)
	for i := range wanted {
		take(i, &updater.Update{Version: []byte{byte(s.answer)}, Checksum: sum[:], MinimumWait: s.wait,
			Additions: []updater.Entries{{Width: 4, Count: s.answer, Reader: bytes.NewReader(entries)}}})
	}
	return 0, nil
}

func (s *source) set(change func(*source)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *source) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// process is an updater with its store.
type process struct {
	database lookup.Database
	schedule *updater.Schedule
	end      func()
}

// run starts a process, which ends with the test or with end.
func run(t *testing.T, store *updater.Store, from updater.Source) *process {
	t.Helper()
	p := new(process)
	var err error
	if p.schedule, err = updater.NewSchedule(store); err != nil {
		t.Fatal(err)
	}
	u, err := updater.New(updater.Config{Source: from, Database: &p.database, Schedule: p.schedule, Store: store,
		Lists: []string{"se-4b"}, FirstContact: func() time.Duration { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	u.Load()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = u.Run(ctx) })
	p.end = sync.OnceFunc(func() { cancel(); wg.Wait(); p.schedule.Flush() })
	t.Cleanup(p.end)
	return p
}

func (p *process) entries() (n int) {
	for _, l := range p.database.Lists() {
		n += l.Set.Len()
	}
	return n
}

func TestOneProcessFetchesAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	onBoth(t, func(t *testing.T, next func() *updater.Store) {
		s := &source{wait: 6 * time.Second, answer: 200}
		a := run(t, next(), s)
		until(t, "lists of the first process", func() bool { return a.entries() == 200 })
		b := run(t, next(), s)
		until(t, "lists of the second process", func() bool { return b.entries() == 200 })
		s.set(func(s *source) { s.answer = 300 })
		a.end()
		until(t, "lists that the second process has fetched", func() bool { return b.entries() == 300 })
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.asked) != 2 || s.asked[1].Sub(s.asked[0]) < s.wait {
			t.Errorf("Expected a second request after %s, got %v", s.wait, s.asked)
		}
	})
}

func TestABackOffHoldsForAnotherProcess(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, next func() *updater.Store) {
		s := &source{err: &updater.StatusError{Code: http.StatusServiceUnavailable}}
		a := run(t, next(), s)
		until(t, "the failure", func() bool { return strings.Contains(a.schedule.FetchHold([]string{"se-4b"}).Cause, "503") })
		a.end()
		b := run(t, next(), s)
		until(t, "that the second process knows it", func() bool {
			h := b.schedule.FetchHold([]string{"se-4b"})
			return h.Failures == 1 && time.Until(h.Until) > 14*time.Minute
		})
		if s.requests() != 1 {
			t.Errorf("Expected 1 request, got %d", s.requests())
		}
	})
}

// searcher answers with err.
type searcher struct{ err error }

// Search implements lookup.Searcher.
func (s *searcher) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	return lookup.Answer{}, s.err
}

func TestAWaitOfSearchesHoldsForAllProcesses(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, next func() *updater.Store) {
		quiet := &source{wait: time.Hour, answer: 1}
		a, b := run(t, next(), quiet), run(t, next(), quiet)
		rules := updater.SearchRules{Backoff: updater.Strikes}
		refused := &searcher{&updater.StatusError{Code: http.StatusTooManyRequests, RetryAfter: time.Hour}}
		if _, err := updater.Pace(refused, a.schedule, rules, func(updater.Event) {}).Search(t.Context(), nil); err == nil {
			t.Fatal("Expected an error")
		}
		other := updater.Pace(&searcher{}, b.schedule, rules, func(updater.Event) {})
		until(t, "that the second process waits", func() bool {
			_, err := other.Search(t.Context(), nil)
			return errors.Is(err, lookup.ErrBackoff)
		})
		if wait := time.Until(b.schedule.SearchHold().Until); wait < 59*time.Minute || wait > time.Hour+time.Minute {
			t.Errorf("Expected the wait of an hour, got %s", wait)
		}
		// A third one that starts later knows it from the beginning.
		c := run(t, next(), quiet)
		until(t, "that the third process waits", func() bool { return c.schedule.SearchHold().Active(time.Now()) })
	})
}

func TestTheBudgetIsOne(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, next func() *updater.Store) {
		const budget = 100
		sent := make(chan int, 3)
		var ledgers []*updater.Ledger
		for range 3 {
			store := next()
			run(t, store, &source{wait: time.Hour, answer: 1})
			ledger, err := updater.NewLedger(store)
			if err != nil {
				t.Fatal(err)
			}
			ledgers = append(ledgers, ledger)
		}
		for _, l := range ledgers {
			go func() {
				s, n := l.Limit(&searcher{}, budget, func(updater.Event) {}), 0
				for range budget {
					if _, err := s.Search(t.Context(), nil); err == nil {
						n++
					}
				}
				sent <- n
			}()
		}
		total := <-sent + <-sent + <-sent
		if total > budget || total < budget*9/10 {
			t.Errorf("Expected at most %d searches and nearly as many, got %d", budget, total)
		}
	})
}
