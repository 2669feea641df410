package updater

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
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
	// sinceBoot is a clock that goes on during a suspend, where the system has
	// one; elsewhere it stands at zero and waits are longer by the suspend.
	sinceBoot func() time.Duration
}

// New returns an Updater, or an error if the configuration makes no sense.
func New(cfg Config) (*Updater, error) {
	if cfg.Source == nil || cfg.Database == nil || cfg.Schedule == nil {
		return nil, errors.New("an updater needs a source, a database and a schedule")
	}
	u := &Updater{cfg: cfg, lists: make(map[string]List), sleep: sleep, slice: sleepSlice, sinceBoot: sinceBoot}
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
	all, loaded := true, 0
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
		loaded += l.Set.Bytes()
		u.report(Loaded, name, nil)
		if l.startsAnew() {
			u.report(StartsAnew, name, nil)
		}
	}
	u.publish()
	if loaded >= manyBytesOfLists {
		debug.FreeOSMemory() // what reading took
	}
	return all
}

// load reads a list from disk, or else takes it over from the schedule that is
// followed.
func (u *Updater) load(name string) (List, error) {
	var l List
	err := fs.ErrNotExist
	if u.cfg.Store != nil {
		l, err = u.cfg.Store.LoadList(name)
	}
	if err != nil {
		if recalled, ok := u.cfg.Schedule.hand.recall(name); ok {
			l, err = recalled, nil
		}
	}
	if err == nil {
		u.cfg.Schedule.hand.remember(l)
	}
	return l, err
}

func (u *Updater) publish() {
	var lists []lookup.List
	for _, name := range u.cfg.Lists {
		if l := u.lists[name]; l.held() {
			lists = append(lists, lookup.List{Name: name, Version: l.Version, Set: l.Set, LikelySafe: name == u.cfg.LikelySafe})
		}
	}
	u.cfg.Database.Publish(lists)
}

// report tells of a list as it is now.
func (u *Updater) report(kind Kind, name string, err error) { u.cfg.Report(u.event(kind, name, err)) }

func (u *Updater) event(kind Kind, name string, err error) Event {
	entries := 0
	if l := u.lists[name]; l.held() {
		entries = l.Set.Len()
	}
	updated := time.Time{} // of what is held: the clock may be of a list that is not there any more
	if u.lists[name].held() {
		updated = u.cfg.Schedule.list(name).Updated
	}
	return Event{Kind: kind, List: name, Err: err, Entries: entries, Updated: updated, Due: u.cfg.Schedule.due([]string{name})}
}

// Run fetches the lists whenever they are due, until ctx ends, and returns its
// error. It asks nothing in the first moments, up to a minute, after a start or
// a wake-up. If there is a Store it first waits for its lock, so that of several
// processes or engines with the same folder only one asks the server.
func (u *Updater) Run(ctx context.Context) error {
	if err := u.acquire(ctx); err != nil {
		return err
	}
	defer u.release()
	if len(u.cfg.Lists) == 0 {
		u.cfg.Report(Event{Kind: Started})
		u.cfg.Report(Event{Kind: FirstContact})
		<-ctx.Done()
		return ctx.Err()
	}
	contact := time.Now().Add(u.cfg.FirstContact())
	u.cfg.Report(Event{Kind: Started, Due: latest(contact, u.cfg.Schedule.due(u.cfg.Lists))})
	for first := true; ; {
		due := u.cfg.Schedule.due(u.cfg.Lists)
		if first && due.After(contact) && ctx.Err() == nil { // nothing more is to be waited for: it may take a day
			u.cfg.Report(Event{Kind: FirstContact})
			first = false
		}
		woke, err := u.sleepUntil(ctx, latest(due, contact))
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

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
