// Package storetest has the tests of what every updater.Store must do for several processes,
// whatever they share: a folder, or a Redis with a folder each. Only tests import it.
//
// What only files have is tested in package updater: writes that survive a loss of power,
// unfinished and spare files, disks that hang or are full, each bit of a list file, and files
// that another server or an older version has written.
package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Origin is the stores' origin.
var Origin = updater.Origin{Name: "http://google.test", Asker: "0badcafe"}

// List is the list that the processes keep.
const List = "se-4b"

// Medium is what several processes share.
type Medium struct {
	// Process opens the store of a process. The same number is the same machine.
	Process func(machine int) *updater.Store
	// Lose removes all that the processes share.
	Lose func()
	// Damage replaces a document by garbage.
	Damage func(document string)
	// DamageList changes the last content of List that was shared.
	DamageList func()
	// Late reports whether the medium, other than the disk, has refused a write or not answered
	// in time. nil: there is only the disk.
	Late func() bool
}

// Waits are the tests in which a machine keeps times that another one has written.
var Waits = []string{"one fetches and another takes over", "of several one fetches", "a minimum wait holds for another",
	"a back-off holds for another", "what is lost comes back from those that run", "a wait of searches holds for all"}

// Run tests the stores on a medium. open makes an empty one. With names it runs those tests only.
func Run(t *testing.T, open func(t *testing.T) Medium, only ...string) {
	ran := 0
	for name, test := range map[string]struct {
		test func(t *testing.T, m Medium)
		slow bool // it waits for seconds
	}{
		"a list comes back":                           {listComesBack, false},
		"a list that does not exist":                  {missingList, false},
		"a damaged list is fetched again":             {damagedList, true},
		"one fetches and another takes over":          {takeOver, true},
		"of several one fetches":                      {oneFetches, true},
		"a minimum wait holds for another":            {minimumWait, false},
		"a back-off holds for another":                {backOff, false},
		"a damaged schedule shortens no wait":         {damagedSchedule, false},
		"what is lost comes back from those that run": {lost, true},
		"a wait of searches holds for all":            {waitOfSearches, false},
		"the budget is one":                           {oneBudget, false},
		"a count that is lost renews no budget":       {lostCount, false},
		"a damaged count renews no budget":            {damagedCount, false},
	} {
		if len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			if test.slow && testing.Short() {
				t.Skip("this test waits for seconds")
			}
			t.Parallel()
			test.test(t, open(t))
		})
	}
	if len(only) > 0 && ran != len(only) {
		t.Errorf("Expected tests %q, %d of them exist", only, ran)
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

// requests returns when the source was asked.
func (s *source) requests() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.asked...)
}

// Process is an updater of List with its store. It is safe for concurrent use.
type Process struct {
	database lookup.Database
	store    *updater.Store
	schedule *updater.Schedule
	end      func()

	mu     sync.Mutex
	events []updater.Event
}

// Start starts a process, which ends with the test or with end.
func Start(t *testing.T, store *updater.Store, from updater.Source) *Process {
	t.Helper()
	p := &Process{store: store}
	p.schedule, _ = updater.NewSchedule(store) // tests look at what a damaged schedule leads to
	u, err := updater.New(updater.Config{Source: from, Database: &p.database, Schedule: p.schedule, Store: store,
		Lists: []string{List}, FirstContact: func() time.Duration { return 0 }, Report: p.report})
	testkit.Must(t, err)
	u.Load()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = u.Run(ctx) })
	p.end = sync.OnceFunc(func() { cancel(); wg.Wait(); p.schedule.Flush() })
	t.Cleanup(p.end)
	return p
}

// Lists returns the lists that the process has in force.
func (p *Process) Lists() []lookup.List { return p.database.Lists() }

func (p *Process) report(e updater.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
}

// reported returns the first event of one of the kinds, and whether there is one.
func (p *Process) reported(kinds ...updater.Kind) (updater.Event, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		for _, k := range kinds {
			if e.Kind == k {
				return e, true
			}
		}
	}
	return updater.Event{}, false
}

// leads reports whether the process has begun to fetch lists.
func (p *Process) leads() bool {
	_, ok := p.reported(updater.Started)
	return ok
}

// entries returns how many entries the process has in force.
func (p *Process) entries() (n int) {
	for _, l := range p.Lists() {
		n += l.Set.Len()
	}
	return n
}
