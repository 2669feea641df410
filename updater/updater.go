package updater

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Config says which lists an Updater keeps fresh, and how.
type Config struct {
	Source     Source           // required
	Database   *lookup.Database // required; only this Updater publishes to it
	Schedule   *Schedule        // required
	Store      *Store           // nil: lists live in memory only; else the store of Schedule
	Lists      []string         // in the order of publishing; each at most once; none: Run sends nothing
	LikelySafe string           // the one of Lists whose hosts are likely safe; "": none
	MaxEntries int              // limit of one list; zero: DefaultMaxEntries
	Report     func(Event)      // called from Load, Run and Once, in their goroutine; nil: events are dropped
	Timeout    time.Duration    // limit of one fetch; zero: 5 minutes
	// FirstContact draws how long the first request after a start or a wake-up waits.
	// Nil: uniform in [0, 1 min) ("Request Frequency").
	FirstContact func() time.Duration
}

// DefaultMaxEntries is the limit of entries in one list unless Config sets another.
const DefaultMaxEntries = 1 << 24

// Updater keeps the lists of a Database fresh. Call New, then Load, then Run; or New,
// then Once. It is not safe for concurrent use: call one method at a time.
type Updater struct {
	cfg   Config
	lists map[string]List // lists in memory, by name; written by Load, Run and Once
	// What others have of each list, for the difference to the next content; with a Shared only.
	published   map[string]List
	reacher     Reacher // the Source, if it is one
	contact     bool    // contacted has reported
	pullTrouble string  // why lists of others could not be taken over, as reported; "": they could

	// sleep waits, at most slice at a time. Tests replace both to simulate a suspend,
	// or a year.
	sleep func(ctx context.Context, d time.Duration) error
	slice time.Duration
	// sinceBoot is a clock that runs during a suspend. Systems without one return
	// zero: there a suspend makes waits longer.
	sinceBoot func() time.Duration
}

// New returns an Updater. The error names what is missing or wrong in cfg.
func New(cfg Config) (*Updater, error) {
	if cfg.Source == nil || cfg.Database == nil || cfg.Schedule == nil {
		return nil, errors.New("an updater needs a source, a database and a schedule")
	}
	u := &Updater{cfg: cfg, lists: make(map[string]List), published: make(map[string]List), sleep: sleep, slice: sleepSlice, sinceBoot: SinceBoot}
	u.reacher, _ = cfg.Source.(Reacher)
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
			return nil, fmt.Errorf("list %s is given more than once", name)
		}
		u.lists[name] = List{Name: name}
	}
	return u, nil
}

// Load publishes the lists in the store, and those that an earlier Schedule hands
// over. It reports whether all configured lists were there. It sends nothing. Call it
// before Run. It needs no lock: lists protect before it is known who may fetch new ones.
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
		kind := Loaded
		if before := u.lists[name]; before.held() && before.Checksum == l.Checksum {
			kind = Followed // it was in force already
		}
		u.lists[name] = l
		loaded += l.Set.Bytes()
		u.report(kind, name, nil)
		if l.versionUnknown() {
			u.report(StartsAnew, name, nil)
		}
	}
	u.cfg.Database.PublishApart(u.inForce()) // Run joins them: a start must not wait
	prefixset.GiveBack(loaded)
	return all
}

// loadAgain loads the lists that another process has saved since Load, and joins them.
func (u *Updater) loadAgain() {
	u.Load()
	u.join()
}

// join joins the sets of the lists that Load has published.
func (u *Updater) join() {
	held := 0
	for _, l := range u.inForce() {
		held += l.Set.Bytes()
	}
	if u.cfg.Database.Join() {
		prefixset.GiveBack(held)
	}
}

// load reads a list from disk, or else takes it from the schedule before; likewise if that could not save it since.
func (u *Updater) load(name string) (List, error) {
	var l List
	err := fs.ErrNotExist
	if u.cfg.Store != nil {
		l, err = u.cfg.Store.LoadList(name)
	}
	if recalled, ok := u.cfg.Schedule.hand.recall(name, u.cfg.Store); ok && (err != nil || recalled.TakenOver == l.TakenOver && u.cfg.Store.savedBefore(name, recalled.unsaved)) {
		l, err = recalled, nil
	}
	if err == nil {
		u.cfg.Schedule.hand.remember(l)
	}
	return l, err
}

// publish makes the lists in memory those that are looked up.
func (u *Updater) publish() { u.cfg.Database.Publish(u.inForce()) }

// inForce returns the lists in memory as they are published.
func (u *Updater) inForce() (lists []lookup.List) {
	for _, name := range u.cfg.Lists {
		if l := u.lists[name]; l.held() {
			lists = append(lists, lookup.List{Name: name, Version: l.Version, Set: l.Set, LikelySafe: name == u.cfg.LikelySafe})
		}
	}
	return lists
}

// report reports an event with the present state of the list.
func (u *Updater) report(kind Kind, name string, err error) { u.cfg.Report(u.event(kind, name, err)) }

// event returns an event with the present state of the list.
func (u *Updater) event(kind Kind, name string, err error) Event {
	e := Event{Kind: kind, List: name, Err: err, Due: u.cfg.Schedule.due([]string{name})}
	if l := u.lists[name]; l.held() { // otherwise the clock may be of content that has been lost
		e.Entries, e.Updated = l.Set.Len(), u.cfg.Schedule.list(name).Updated
	}
	return e
}

// Run fetches the lists whenever they are due. It returns the error of ctx when that
// ends. It sends nothing for up to a minute after a start or a wake-up. With a Store
// it first waits for the lock, so that among all processes and engines with the same
// folder only one asks the server for lists. With a Shared it goes back to waiting when it
// loses the right to fetch.
func (u *Updater) Run(ctx context.Context) error {
	u.join()
	for {
		if err := u.turn(ctx); ctx.Err() != nil || !errors.Is(err, errTurnEnded) {
			return err
		}
	}
}

// errTurnEnded says that another process may fetch now.
var errTurnEnded = errors.New("the right to fetch lists has ended")

// turn waits for the right to fetch and uses it until it ends.
func (u *Updater) turn(ctx context.Context) error {
	if err := u.acquire(ctx); err != nil {
		return err
	}
	defer u.release()
	held, cancel, settled := u.cfg.Store.held(ctx)
	defer cancel()
	if err := u.fetchWhenDue(held, settled); held.Err() == nil || ctx.Err() != nil {
		return err
	}
	return errTurnEnded
}

// fetchWhenDue fetches the lists whenever they are due, but not before settled, until ctx ends.
func (u *Updater) fetchWhenDue(ctx context.Context, settled time.Time) error {
	if len(u.cfg.Lists) == 0 {
		u.cfg.Report(Event{Kind: Started})
		u.contacted()
		for { // it moves the clock of searches after a suspend
			if _, err := u.sleepUntil(ctx, time.Now().Add(u.slice)); err != nil {
				return err
			}
		}
	}
	// The later of both applies: neither a first contact nor a saved wait replaces the other.
	contact := latest(time.Now().Add(u.cfg.FirstContact()), settled)
	u.cfg.Report(Event{Kind: Started, Due: latest(contact, u.cfg.Schedule.due(u.cfg.Lists))})
	for {
		if u.cfg.Schedule.due(u.cfg.Lists).After(contact) && ctx.Err() == nil { // do not wait for the first request, which may be a day away
			u.contacted()
		}
		woke, err := u.await(ctx, contact)
		if err != nil {
			return err
		}
		if woke {
			u.cfg.Report(Event{Kind: WokeUp})
			contact = time.Now().Add(u.cfg.FirstContact())
			continue
		}
		u.update(ctx)
		if ctx.Err() == nil {
			u.contacted()
		}
	}
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Once is for a program that runs and ends, such as a command or the job of a timer. It
// keeps the same rules as Run: both take the same locks and save the same schedule.

// Once does a single round, instead of Run: it publishes the lists in the store,
// waits for the first contact, up to a minute, and fetches what is due.
//
// It returns ErrBusy at once if the lock of the store is taken; a *NotDueError if the
// schedule does not allow any fetch; and an error if the schedule cannot be saved, as
// the next call would then ask too early. With these errors it has sent nothing. It
// returns the error of ctx if that ends. The outcome of the request and of each list
// goes to Config.Report and is not an error.
func (u *Updater) Once(ctx context.Context) error {
	if err := u.acquireNow(); err != nil {
		return err
	}
	defer u.release()
	u.Load()
	if len(u.cfg.Lists) == 0 {
		return nil
	}
	if u.cfg.Schedule.seeks(u.cfg.Lists, time.Now()) { // somebody may have repaired the network
		u.look(ctx)
	}
	// Before the first contact: nothing is gained by waiting a minute for this error.
	if len(u.cfg.Schedule.dueNow(u.cfg.Lists, time.Now())) == 0 {
		return &NotDueError{Until: u.cfg.Schedule.due(u.cfg.Lists)}
	}
	if err := u.awaitContact(ctx); err != nil {
		return err
	}
	u.update(ctx)
	return ctx.Err()
}

// awaitContact waits for the first contact, and again after a suspend.
func (u *Updater) awaitContact(ctx context.Context) error {
	for {
		woke, err := u.sleepUntil(ctx, time.Now().Add(u.cfg.FirstContact()))
		if err != nil || !woke {
			return err
		}
		u.cfg.Report(Event{Kind: WokeUp})
	}
}

// The sleep of Run and Once, which notices a suspend. A wake-up counts as a start: the request
// after it waits for a first contact ("Request Frequency").

// sleepUntil returns at due, or earlier with woke set if the machine has been
// suspended meanwhile.
func (u *Updater) sleepUntil(ctx context.Context, due time.Time) (woke bool, err error) {
	for {
		before, booted, search := time.Now(), u.sinceBoot(), u.cfg.Schedule.searchClock()
		wait := min(due.Sub(before), u.slice)
		if wait <= 0 {
			return false, ctx.Err()
		}
		if err := u.sleep(ctx, wait); err != nil {
			return false, err
		}
		now := time.Now()
		slept, wall := now.Sub(before), now.Round(0).Sub(before.Round(0))
		suspended := u.sinceBoot() - booted - slept
		if suspended > overshoot {
			u.cfg.Schedule.forward(suspended, search)
		}
		u.keep(now)
		if wokeUp(slept, wall, suspended, wait, booted > 0) {
			return true, nil
		}
	}
}

// keep saves long waits now and then. A machine whose wall clock is behind at each start knows no more of a
// wait than what was left when it was saved: restarted daily, it would never end one of a day.
func (u *Updater) keep(now time.Time) {
	long, searches := u.cfg.Schedule.lasts(now)
	if searches {
		u.cfg.Schedule.changeSearch(func(*asked) {}, func(error) {}) // saving the schedule reports any error
	}
	if long {
		u.reportSave("", u.cfg.Schedule.change(func(*scheduleState) {}))
	}
}

// wokeUp reports whether the machine was suspended during a sleep of wait, by what passed. The
// monotonic clock, by which it slept, measures the waits but stops during a suspend. The clock
// since boot runs on, and unlike the wall clock it cannot be set. On systems without that clock,
// which knows what was suspended, the wall clock counts. It may have been set instead. Then a
// needless first contact costs at most a minute.
func wokeUp(slept, wall, suspended, wait time.Duration, knows bool) bool {
	if !knows {
		slept = max(slept, wall)
	}
	return suspended > overshoot || slept > wait+overshoot
}

// sleepSlice limits one sleep, so that a wake-up is noticed soon.
const sleepSlice = time.Minute

// overshoot is how late a sleep must end to count as a suspend.
const overshoot = 15 * time.Second

// sleep waits for d, or until ctx ends, whose error it returns then.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
