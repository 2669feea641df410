package updater

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Three processes search with one key and one budget, on two media: folders and a Shared. At each
// step the one that is not to be relied on may be away, lose what it had or bring an old copy back; a
// process may crash, also on an answer; and the wall clock may step. However that goes, no search is
// sent before the end of a wait that the server gave, and no more than the budget.
func TestThreeProcessesOnTwoMediaAskNoSoonerAndNoMoreThanOne(t *testing.T) {
	sent, refused, crashes := 0, 0, 0
	for _, flaky := range []string{"the shared store", "the folders"} {
		for seed := range *histories / 20 {
			inBubble(t, fmt.Sprintf("%s, history %d", flaky, seed), func(t *testing.T) {
				m := newWorldModel(t, flaky == "the folders", rand.New(rand.NewPCG(uint64(seed), 10)))
				for range 120 {
					m.step()
				}
				m.end()
				sent, refused, crashes = sent+m.sent, refused+m.refused, crashes+m.crashes
			})
		}
	}
	t.Logf("%d histories: %d searches sent, %d refused, %d crashes", *histories/20*2, sent, refused, crashes)
	if least := *histories / 2; sent < least || refused < least || crashes < least {
		t.Errorf("%d searches, %d refused, %d crashes: the histories are too quiet", sent, refused, crashes)
	}
}

const modelBudget = 12

// worldModel is the model; it is the server, too.
type worldModel struct {
	t       *testing.T
	chance  *rand.Rand
	shared  *medium
	folders bool     // they are flaky, and each process has its own; otherwise one is common
	dirs    []string // of the processes
	begun   time.Time
	old     map[string][]byte // a copy of what was shared
	writers [3]*modelWriter

	until                  time.Time      // no search before
	today                  map[string]int // searches sent, by date
	sent, refused, crashes int
}

// modelWriter is one process.
type modelWriter struct {
	view     *view
	store    *Store
	schedule *Schedule
	ledger   *Ledger
	search   lookup.Searcher
	dead     bool
}

func newWorldModel(t *testing.T, folders bool, chance *rand.Rand) *worldModel {
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	m := &worldModel{t: t, chance: chance, shared: newMedium(), folders: folders, begun: time.Now(), today: make(map[string]int)}
	common := t.TempDir()
	for i := range m.writers {
		m.dirs = append(m.dirs, common)
		if folders {
			m.dirs[i] = t.TempDir()
		}
		m.start(i)
	}
	return m
}

// start replaces a process by a new one.
func (m *worldModel) start(i int) {
	w := &modelWriter{view: &view{medium: m.shared}, store: quick(openStore(m.t, m.dirs[i]))}
	w.store.boot = func() (string, time.Duration) { return "boot", time.Since(m.begun) }
	w.store.Share(w.view)
	w.schedule, w.ledger = newScheduleOf(m.t, w.store), newLedger(m.t, w.store)
	rules := SearchRules{Backoff: Strict, Published: true, FirstContact: func() time.Duration { return 0 }}
	w.search = w.ledger.Limit(Pace(modelServer{m, w}, w.schedule, rules, func(Event) {}), modelBudget, func(Event) {})
	m.writers[i] = w
}

// step lets one thing happen.
func (m *worldModel) step() {
	i := m.chance.IntN(3)
	w := m.writers[i]
	switch m.chance.IntN(12) {
	case 0:
		m.crash(i)
	case 1:
		m.breakMedium(w)
	case 2: // a step of the wall clock, which the files do not know of
		must(m.t, SetClock(m.dirs[i], time.Duration(m.chance.IntN(48)-24)*time.Hour))
	case 3, 4, 5:
		time.Sleep(time.Duration(m.chance.IntN(40)) * time.Minute)
	default:
		if _, err := w.search.Search(m.t.Context(), nil); errors.Is(err, lookup.ErrBackoff) || errors.Is(err, lookup.ErrBudget) {
			m.refused++
		}
		if w.dead {
			m.crash(i)
		}
		w.schedule.Flush()
	}
	synctest.Wait() // for what is written
}

// crash ends a process, without reservations coming back.
func (m *worldModel) crash(i int) {
	m.crashes++
	m.writers[i].schedule.Flush()
	m.start(i)
}

// breakMedium has something happen to the medium that is not to be relied on.
func (m *worldModel) breakMedium(w *modelWriter) {
	broken := m.chance.IntN(2) == 0
	if m.folders {
		w.store.disk.SyncFile = func(*os.File) error {
			if broken {
				return errTest
			}
			return nil
		}
		return
	}
	w.view.away = nil
	switch m.chance.IntN(4) {
	case 0:
		m.old = maps.Clone(m.shared.documents)
	case 1: // an old copy, or none
		m.shared.documents = make(map[string][]byte)
		maps.Copy(m.shared.documents, m.old)
	default:
		if broken {
			w.view.away = errTest
		}
	}
}

func (m *worldModel) end() {
	for _, w := range m.writers {
		w.schedule.Flush()
		_ = w.ledger.Flush() // it may have no disk
	}
}

// modelServer is the server, as a process asks it.
type modelServer struct {
	*worldModel
	by *modelWriter
}

// Search implements lookup.Searcher.
func (m modelServer) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	now := time.Now()
	m.sent++
	m.today[dateOf(now)]++
	if n := m.today[dateOf(now)]; n > modelBudget {
		m.t.Errorf("search %d of %s, and the budget is %d", n, dateOf(now), modelBudget)
	}
	if now.Before(m.until) {
		m.t.Errorf("a search %s too early", m.until.Sub(now))
	}
	noted := m.by.schedule.searchClock().Asking
	switch m.chance.IntN(5) {
	case 0:
		m.until = now.Add(Backoff(1, 0))
		return lookup.Answer{}, &StatusError{Code: 503}
	case 1:
		wait := time.Duration(m.chance.IntN(90)) * time.Minute
		m.until = now.Add(wait)
		return lookup.Answer{MinimumWait: wait}, nil
	case 2:
		if !noted {
			break
		}
		m.until = now.Add(Backoff(1, 0)) // as far as anybody knows
		m.by.dead, m.by.view.away = true, errTest
		m.by.store.dir = filepath.Join(m.t.TempDir(), "none") // what it writes from now on is lost
	}
	return lookup.Answer{}, nil
}
