package updater

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// The budget has six files. This one has what callers use. budgetleft.go says what is left, and
// until when nothing is; budgethour.go counts an hour. budgetreserve.go moves searches between
// memory and the media. budgetdays.go counts by date, without a lock or a file.
// budgetfile.go reads the file.

// Ledger counts the searches of each day, for a service that charges for them. The day
// is the operator's: a date of local time. A Ledger outlives engines: keep one for each
// service while the process runs. It is safe for concurrent use.
//
// With a Store the count is in a file, which several processes may share. A search is
// counted there before it is sent. So that not every search waits for the disk, a
// process reserves a few at a time; after a crash those count as spent. If the disk
// hangs or fails, the process goes on with what it knows: the last count that it saw,
// and its own searches.
type Ledger struct {
	clock func() time.Time // tests replace it, to set the clock back

	// The lock of the file may be held when mu is locked, never the other way round: another
	// process can hold the file for seconds.
	mu      sync.Mutex // guards the rest; never held during disk access
	store   *Store     // nil: in memory only
	writer  string     // names the part of this process
	days    budgetDays // all that is known, with the part of this process as it was written last
	own     int        // searches of this process on days.Day
	hour    recent     // those of the last hour
	covered int        // searches of this process that the file counts; more than own are reserved

	unknown error               // why the count of days.Day is unknown; nil: it is known
	damaged string              // the unreadable file that was reported last; "": none
	saving  chan struct{}       // closed when the save under way ends; nil: none is
	late    bool                // that save takes longer than searchLockTimeout
	trouble bool                // the last save failed or was late
	uses    func() []lookup.Use // what the clients of this process used; nil: not known
	changed bool                // that is to be saved now

	alone     bool      // there is a Shared, which cannot be reached
	common    int       // then: searches of days.Day when it was last reached
	spread    bool      // an hour has its part of the budget, see Spread
	lookAgain time.Time // no save before, unless there is something to reserve
}

// maxReserved is the most searches that are reserved at once.
const maxReserved = 50

// lookAgainAfter is the time between two looks at a file that cannot be written, or
// that says that the budget is spent: another process may return a reservation.
const lookAgainAfter = time.Minute

// NewLedger returns the count saved in store, or with a nil store one that lives in
// memory. The error says that the count cannot be read; then the Ledger refuses to
// spend a budget before the next day: the unknown count may be anything up to it, and
// a search costs money.
func NewLedger(store *Store) (*Ledger, error) {
	l := &Ledger{clock: time.Now, writer: newWriter()}
	return l, l.Move(store)
}

// ReadLedger is NewLedger, with Spread, for programs that only look: it changes no file,
// now or later.
func ReadLedger(store *Store) (*Ledger, error) {
	l, err := NewLedger(store)
	l.store, l.spread = nil, true
	return l, err
}

// Move continues in the folder of another store, or with nil in memory. What this
// process has spent today counts there too. Call Flush before, for the sake of the old
// folder. A store with the same file changes nothing. The error is that of NewLedger.
func (l *Ledger) Move(store *Store) (err error) {
	var found budgetDays
	var damaged string
	if store != nil {
		found, damaged, err = store.readBudget(dateOf(l.clock()))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(dateOf(l.clock()))
	switch {
	case l.store == nil && store == nil, l.store != nil && store != nil && l.store.budgetPath() == store.budgetPath():
		return nil
	case store == nil:
		l.days = l.exact()
	default:
		// Reservations stay behind, in the file of the old folder, unless Flush has
		// returned them.
		l.days, _ = found.on(l.days.Day)
		l.days = l.exact()
		l.lookAgain = time.Time{}
		l.damaged, l.unknown = damaged, onlyUnknown(err)
	}
	l.store, l.covered = store, 0
	return err
}

// onlyUnknown returns err if it is errUnknownCount.
func onlyUnknown(err error) error {
	if errors.Is(err, errUnknownCount) {
		return err
	}
	return nil
}

// Flush returns reservations that are not spent, and saves what the file does not count
// yet. It waits for the disk for at most files.WaitLimit. The Ledger can be used
// afterwards.
func (l *Ledger) Flush() error {
	timeout := time.NewTimer(files.WaitLimit)
	defer timeout.Stop()
	for {
		saving, failed := l.flush()
		if saving == nil {
			return nil
		}
		select {
		case <-saving:
		case <-timeout.C:
			return hungDisk(files.WaitLimit)
		}
		if failed != nil { // this was our own save
			return *failed
		}
	}
}

// flush begins to save, or returns the channel of the save under way, nil if there is
// nothing to save. failed is set when a save of its own has ended.
func (l *Ledger) flush() (saving <-chan struct{}, failed *error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(dateOf(l.clock()))
	switch {
	case l.saving != nil:
		return l.saving, nil
	case l.store == nil || l.covered == l.own && !l.changed:
		return nil, nil
	}
	l.changed = false
	done := make(chan struct{})
	l.saving = make(chan struct{})
	// The goroutine sets *failed before it closes done. So the receiver needs no lock to
	// read it.
	failed = new(error)
	go func() { // ends when the disk answers
		_, *failed = l.update(0, false)
		l.saved()
		close(done)
	}()
	return done, failed
}

// turn continues with another date. The caller holds mu.
func (l *Ledger) turn(today string) {
	if l.days.Day == today {
		return
	}
	// A reservation belongs to the date of its count.
	next, fresh := l.days.with(l.writer, max(l.own, l.covered), l.hour).on(today)
	p := next.part(l.writer)
	l.days, l.own, l.covered, l.hour = next, p.Spent, p.Spent, p.Hour
	if fresh {
		l.unknown, l.lookAgain, l.common = nil, time.Time{}, 0
	}
}

// exact returns what is known, with what this process has spent, without reservations. The caller
// holds mu.
func (l *Ledger) exact() budgetDays { return l.days.with(l.writer, l.own, l.hour) }

// spent returns the searches of the current date, of all processes. Reservations of
// other processes count. The caller holds mu.
func (l *Ledger) spent() int { return l.days.spent() - l.days.part(l.writer).Spent + l.own }

// Spent returns how many searches were spent on the date of now, of all processes as
// far as this one knows: it learns of the others when it reserves searches itself.
func (l *Ledger) Spent(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spentOn(now)
}

// spentOn is Spent for callers that hold mu.
func (l *Ledger) spentOn(now time.Time) int {
	if date := dateOf(now); date != l.days.Day {
		next, _ := l.exact().on(date)
		return next.spent()
	}
	return l.spent()
}

// Limit returns a Searcher that asks s, but at most perDay times a day, 0 for no limit:
// then it sends nothing and returns an error that is lookup.ErrBudget. A search that
// fails counts, since it may have been charged for, unless its error is
// lookup.ErrBackoff or lookup.ErrLimited, which say that nothing was sent. So s is
// usually a Searcher from Pace. It must send one request for a search.
//
// report may be called from another goroutine. The Searcher is safe for concurrent use
// if s is.
func (l *Ledger) Limit(s lookup.Searcher, perDay int, report func(Event)) lookup.Searcher {
	return &budgetedSearcher{searcher: s, ledger: l, perDay: perDay, report: report}
}

// budgetedSearcher is a Searcher with a budget.
type budgetedSearcher struct {
	searcher lookup.Searcher
	ledger   *Ledger
	perDay   int
	report   func(Event)

	mu         sync.Mutex
	low, spent string    // dates when BudgetLow and BudgetSpent were reported last; guarded by mu
	paused     time.Time // when BudgetPaused was reported last; guarded by mu
}

// Search implements lookup.Searcher.
func (b *budgetedSearcher) Search(ctx context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	// Count first, send afterwards. A crash in between wastes one search. In the other
	// order a loop of crashes could spend more than the budget.
	t, err := b.ledger.take(ctx, b.perDay, b.report)
	if b.perDay > 0 && (err == nil || errors.Is(err, lookup.ErrBudget)) {
		b.tell(t, err)
	}
	if err != nil {
		return lookup.Answer{}, err
	}
	answer, err := b.searcher.Search(ctx, prefixes)
	if errors.Is(err, lookup.ErrBackoff) || errors.Is(err, lookup.ErrLimited) || errors.Is(err, lookup.ErrBudget) || isNotSent(err) { // the last is that of a relay
		b.ledger.giveBack(t)
	}
	return answer, err
}

// tell reports what changes for the budget with a search that was granted or, with
// err, refused: each once a day.
func (b *budgetedSearcher) tell(t taken, err error) {
	// mu stays locked during the reports, so that those of a day keep their order. So report
	// must not search with b.
	e := Event{Spent: t.spent, Budget: b.perDay, Due: midnightAfter(time.Now().Local())}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && b.spent != "" && b.spent != t.date {
		b.spent = ""
		e.Kind = BudgetRenewed
		b.report(e)
	}
	if err == nil && b.low != t.date && float64(t.spent) >= lowBudget*float64(b.perDay) {
		b.low = t.date
		e.Kind = BudgetLow
		b.report(e)
	}
	refused, _ := errors.AsType[*SpentError](err)
	if refused != nil && (refused.Hold.Portion == AnHour || refused.Hold.Portion == OneAlone) {
		b.pause(e, refused.Hold)
		return
	}
	if (err != nil || t.spent >= b.perDay) && b.spent != t.date {
		b.spent = t.date
		e.Kind = BudgetSpent
		if errors.Is(err, errUnknownCount) {
			e.Err = err
		}
		b.report(e)
	}
}

// pause reports that a portion of the budget is spent, once an hour. The caller holds mu.
func (b *budgetedSearcher) pause(e Event, hold Hold) {
	if now := time.Now(); b.paused.IsZero() || now.Sub(b.paused) >= time.Hour || now.Before(b.paused) {
		b.paused = now
		e.Kind, e.Due, e.Hold = BudgetPaused, hold.Until, hold
		b.report(e)
	}
}

// lowBudget is the part of a budget whose spending is reported.
const lowBudget = 0.8
