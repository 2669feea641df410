package updater

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Config says what an Updater keeps fresh.
type Config struct {
	Source     Source           // required
	Database   *lookup.Database // required; the Updater is the only one that publishes to it
	Schedule   *Schedule        // required
	Store      *Store           // nil: lists are kept in memory only
	Lists      []string         // in this order; each once; may be none, then Run only keeps the schedule
	LikelySafe string           // the one of them that lists hosts that are likely safe; zero: none
	MaxEntries int              // of a list; zero: DefaultMaxEntries
	Report     func(Event)      // called from Run and Load; nil: events are dropped
	Timeout    time.Duration    // of one fetch; zero: 5 min
	// FirstContact draws how long to wait with the first request after a start
	// or a wake-up. Nil: uniform in [0, 1 min), as the server's rules demand.
	FirstContact func() time.Duration
}

// DefaultMaxEntries is the most entries that a list may hold unless configured.
const DefaultMaxEntries = 1 << 24

// Updater keeps the lists of a Database fresh. Use New, then Load, then Run.
type Updater struct {
	cfg   Config
	lists map[string]List // what is held, by name; written by Load and Run only

	// sleep waits, at most slice at a time. Both are replaced where a test
	// simulates a suspend, or a year.
	sleep func(ctx context.Context, d time.Duration) error
	slice time.Duration
}

// New returns an Updater, or an error if the configuration makes no sense.
func New(cfg Config) (*Updater, error) {
	if cfg.Source == nil || cfg.Database == nil || cfg.Schedule == nil {
		return nil, errors.New("an updater needs a source, a database and a schedule")
	}
	u := &Updater{cfg: cfg, lists: make(map[string]List), sleep: sleep, slice: sleepSlice}
	u.cfg.MaxEntries = cmp.Or(cfg.MaxEntries, DefaultMaxEntries)
	u.cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Minute)
	if u.cfg.Report == nil {
		u.cfg.Report = func(Event) {}
	}
	if u.cfg.FirstContact == nil {
		u.cfg.FirstContact = firstContact
	}
	for _, name := range cfg.Lists {
		if _, err := Width(name); err != nil {
			return nil, err
		}
		if _, ok := u.lists[name]; ok {
			return nil, fmt.Errorf("list %s is named twice", name)
		}
		u.lists[name] = List{Name: name}
	}
	return u, nil
}

// Load publishes the lists that are in the store and reports whether all of the
// configured ones are. It is called before Run and asks nobody.
func (u *Updater) Load() bool {
	all := true
	for _, name := range u.cfg.Lists {
		l, err := u.load(name)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				u.cfg.Report(Event{Kind: LoadFailed, List: name, Err: err})
			}
			u.report(ListWaiting, name, nil)
			all = false
			continue
		}
		u.lists[name] = l
		u.report(Loaded, name, nil)
	}
	u.publish()
	return all
}

func (u *Updater) load(name string) (List, error) {
	if u.cfg.Store == nil {
		return List{}, fs.ErrNotExist
	}
	return u.cfg.Store.LoadList(name)
}

func (u *Updater) publish() {
	var lists []lookup.List
	for _, name := range u.cfg.Lists {
		if l := u.lists[name]; l.held() {
			lists = append(lists, lookup.List{Name: name, Set: l.Set, LikelySafe: name == u.cfg.LikelySafe})
		}
	}
	u.cfg.Database.Publish(lists)
}

// report tells of a list as it is now.
func (u *Updater) report(kind Kind, name string, err error) {
	entries := 0
	if l := u.lists[name]; l.held() {
		entries = l.Set.Len()
	}
	clock := u.cfg.Schedule.list(name)
	u.cfg.Report(Event{Kind: kind, List: name, Err: err, Entries: entries, Updated: clock.Updated, Due: u.cfg.Schedule.due([]string{name})})
}

// Run fetches the lists whenever they are due, until ctx ends, and returns its
// error. It asks nothing in the first moments, up to a minute, after a start or
// a wake-up. If there is a Store it first waits for its lock, so that of several
// processes or engines with the same folder only one asks the server.
func (u *Updater) Run(ctx context.Context) error {
	if u.cfg.Store != nil {
		if err := u.acquire(ctx); err != nil {
			return err
		}
		defer u.release()
	}
	if len(u.cfg.Lists) == 0 {
		u.cfg.Report(Event{Kind: FirstContact})
		<-ctx.Done()
		return ctx.Err()
	}
	contact := time.Now().Add(u.cfg.FirstContact())
	for first := true; ; {
		due := u.cfg.Schedule.due(u.cfg.Lists)
		if contact.After(due) {
			due = contact
		}
		woke, err := u.sleepUntil(ctx, due)
		if err != nil {
			return err
		}
		if woke {
			u.cfg.Report(Event{Kind: WokeUp})
			contact = time.Now().Add(u.cfg.FirstContact())
			continue
		}
		u.update(ctx)
		if first && ctx.Err() == nil {
			u.cfg.Report(Event{Kind: FirstContact})
			first = false
		}
	}
}

// lockRetry is how often a busy folder is tried again.
const lockRetry = time.Second

// acquire waits for the lock of the store and then reads anew what another
// process or engine may have written since Load.
func (u *Updater) acquire(ctx context.Context) error {
	store := u.cfg.Store
	locked, err := store.lock.TryLock()
	if err == nil && !locked {
		u.cfg.Report(Event{Kind: LockBusy})
		_, err = store.lock.TryLockContext(ctx, lockRetry)
	}
	if ctx.Err() != nil {
		store.lock.Close() // it may have been taken all the same
		return ctx.Err()
	}
	if err != nil {
		// No lock to be had here (a read-only or odd file system). Go on: a
		// second process is less likely than a use for fresh lists.
		u.cfg.Report(Event{Kind: StoreFailed, Err: fmt.Errorf("locking the folder: %w", err)})
	}
	store.clean()
	loadErr, saveErr := u.cfg.Schedule.own()
	if loadErr != nil {
		u.cfg.Report(Event{Kind: LoadFailed, Err: loadErr})
	}
	u.saved("", saveErr)
	if !locked {
		u.Load()
	}
	return nil
}

func (u *Updater) release() {
	u.cfg.Schedule.disown()
	u.cfg.Store.lock.Close()
}

// sleepSlice bounds one sleep, so that a wake-up is noticed soon after it.
const sleepSlice = time.Minute

// overshoot is by how much a sleep must be late to count as a suspend.
const overshoot = 15 * time.Second

// sleepUntil returns at due, or earlier with woke set if the machine turned out
// to have been suspended.
func (u *Updater) sleepUntil(ctx context.Context, due time.Time) (woke bool, err error) {
	for {
		before := time.Now()
		wait := min(due.Sub(before), u.slice)
		if wait <= 0 {
			return false, ctx.Err()
		}
		if err := u.sleep(ctx, wait); err != nil {
			return false, err
		}
		// The monotonic clock may stand still during a suspend, so the wall
		// clock is asked. Setting it forward looks the same and does no harm.
		if time.Now().Round(0).Sub(before.Round(0)) > wait+overshoot {
			return true, nil
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
