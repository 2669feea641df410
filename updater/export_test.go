package updater

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Doors for tests of package updater_test.

// A medium in memory, for relays that share one.
type (
	MemoryShared = medium
	MemoryView   = view
)

const DeadLease, HeldLease = deadLease, heldLease

var (
	NewMemoryShared = newMedium
	NamesIn         = namesIn
	InBubble        = inBubble
)

func (m *medium) View() *view { return &view{medium: m, settle: 5 * time.Second} }

// SetSleep replaces the sleep of Run, and the longest time that it sleeps at once.
func (u *Updater) SetSleep(sleep func(ctx context.Context, d time.Duration) error, slice time.Duration) {
	u.sleep, u.slice = sleep, slice
}

var Sleep = sleep

func (s *Schedule) SetRandom(random func() float64) { s.random = random }

// SetBoot replaces the clock since boot.
func (s *Store) SetBoot(boot func() (id string, since time.Duration)) { s.boot = boot }

// SetSync replaces the syncs of files and folders.
func (s *Store) SetSync(sync func()) {
	s.disk.SyncFile = func(*os.File) error { sync(); return nil }
	s.disk.SyncDir = func(string) error { sync(); return nil }
}

// SetClock changes the files of clocks as if the wall clock had been set forward by d since they were written; below 0: back.
func SetClock(dir string, d time.Duration) error {
	for _, name := range (Origin{}).Documents() {
		file := filepath.Join(dir, name)
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || name == (Origin{}).budgetFile() {
			continue
		}
		if err != nil {
			return err
		}
		now := time.Now()
		state, err := parseSchedule(raw, now, moment{}) // now is when the file was saved
		if err != nil {
			return err
		}
		at := state.moment
		at.Saved = at.Saved.Add(-d)
		if raw, err = encodeSchedule(state, now, at); err != nil {
			return err
		}
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			return err
		}
	}
	return nil
}
