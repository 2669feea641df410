package updater

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// The budget has three files. This one has the owner of the count, and how a search gets into it.
// budgetdays.go counts by date; budgetleft.go says what is left, and until when nothing is, and has
// the Searcher.

// Ledger counts the searches of each day, for a service that charges for them. The day
// is the operator's: a date of local time. A Ledger outlives engines: keep one for each
// service while the process runs. It is safe for concurrent use.
//
// With a Store the count is a document, which several processes may share. A search is
// counted there before it is sent. So that not every search waits for the disk, a
// process reserves a few at a time; after a crash those count as spent. If the disk
// hangs or fails, the process continues with what it knows: the last count that it saw,
// and its own searches.
//
// The document counts covered searches of this process, which has spent own. If own is less, the others
// are reserved; if it is more, the others are in memory only. While a process has a reservation it
// counts in memory, under mu. When it has none, searches wait for the next one.
type Ledger struct {
	clock  func() time.Time // tests replace it, to set the clock back
	writer string           // names the part of this process

	mu      sync.Mutex // guards the rest; never held during disk access
	store   *Store     // nil: in memory only
	count   document[budgetDays]
	days    budgetDays // all that is known, with the part of this process as it was written last
	own     int        // searches of this process on days.Day
	hour    recent     // searches of the last hour
	covered int        // searches of this process that the document counts; more than own are reserved

	unknown error               // why the count of days.Day is unknown; nil: it is known
	damaged string              // the unreadable file that was reported last; "": none
	trouble bool                // the last save failed or was late
	uses    func() []lookup.Use // what the clients of this process used; nil: not known
	changed bool                // that is to be saved now
	report  func(Event)         // of the last Limit

	reserving reservation
	common    int       // searches of days.Day when a Shared was last reached
	spread    bool      // an hour has its part of the budget, see Spread
	lookAgain time.Time // no save before, unless there is something to reserve
}

// reservation is what a save under way, or the last one, changes in the document.
type reservation struct {
	store  *Store // of the save: Move may replace the Ledger's meanwhile
	perDay int
	spends bool    // searches may be reserved; otherwise those that are not spent are returned
	events []Event // to report
	uses   []lookup.Use
	day    string
	part   int  // searches of this process on that day, with reservations
	more   bool // some are reserved
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
	l.count = document[budgetDays]{
		mu: &l.mu, media: l.media, meet: l.meet, gather: l.gatherUses, prepare: l.reserve, damaged: l.keepDamaged,
		parse:  func(raw []byte, _ time.Time, _ moment) (budgetDays, error) { return parseBudget(raw) },
		lacks:  func(found budgetDays) bool { return !found.same(l.days) },
		encode: func(time.Time, moment) ([]byte, error) { return json.Marshal(l.days) },
	}
	return l, l.Move(store)
}

// ReadLedger is NewLedger, with Spread, for programs that only look: it changes no file,
// now or later.
func ReadLedger(store *Store) (*Ledger, error) {
	l, err := NewLedger(store)
	l.store, l.spread = nil, true
	return l, err
}

// budgetFile is the file name of the count of searches. It has no checksum: an operator may edit it.
func (o Origin) budgetFile() string {
	return "budget" + strings.TrimPrefix(o.scheduleFile(), "schedule")
}

// budgetPath returns the path of that file in the folder of the lists; "" without a Store.
func (s *Store) budgetPath() string {
	if s == nil {
		return ""
	}
	return filepath.Join(s.dir, s.origin.budgetFile())
}

// media returns where the count is.
func (l *Ledger) media() []place {
	if l.store == nil {
		return nil
	}
	return l.store.places(l.store.origin.budgetFile(), l.store.shared, false)
}

// Move continues in the folder of another store, or with nil in memory. What this
// process has spent today counts there too. Call Flush before, for the sake of the old
// folder. A store with the same file changes nothing. The errors are those NewLedger returns.
func (l *Ledger) Move(store *Store) (err error) {
	l.mu.Lock()
	l.turn(dateOf(l.clock()))
	same := l.store.budgetPath() == store.budgetPath()
	if !same {
		// Reservations stay behind, in the file of the old folder, unless Flush has
		// returned them.
		l.days = l.exact()
		l.store, l.covered, l.lookAgain = store, 0, time.Time{}
		l.damaged, l.unknown = "", nil
		l.count.forget()
	}
	l.mu.Unlock()
	if same || store == nil {
		return nil
	}
	for _, p := range store.folders(store.origin.budgetFile()) {
		_, _, readErr := l.count.look(p, nil)
		if readErr != nil {
			file := p.Medium.(folder).path(p.document)
			today := l.ofToday(file)
			l.mu.Lock()
			err = errors.Join(err, l.noteDamage(file, today, readErr))
			l.mu.Unlock()
		}
	}
	return err
}

// Continue counts what another Ledger has counted so far, with its own searches. Both are safe for concurrent use.
func (l *Ledger) Continue(other *Ledger) {
	other.mu.Lock()
	other.turn(dateOf(other.clock()))
	days := other.exact()
	other.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meet(days, inFolder)
}

// errUnknownCount says that a file that cannot be read may count searches of today.
var errUnknownCount = fmt.Errorf("the number of searches spent today is unknown: %w", errStays)

// noteDamage notes that the count in a file cannot be read, and returns the error: it is
// errUnknownCount unless the count belongs to an earlier day. The caller holds mu.
func (l *Ledger) noteDamage(file string, today bool, err error) error {
	err = fmt.Errorf("%s: %w", file, err)
	if today {
		err = fmt.Errorf("%w: %w", errUnknownCount, err)
		l.unknown = err
	}
	l.damaged = file
	return err
}

// ofToday reports whether a file may count searches of today. It asks the disk.
func (l *Ledger) ofToday(file string) bool {
	info, err := os.Stat(file)
	return err != nil || dateOf(info.ModTime()) >= dateOf(l.clock())
}

// keepDamaged copies a damaged file that is about to be replaced, so that it can be inspected. The file itself
// stays until then: without it the next start would count from 0. It asks the disk.
func (l *Ledger) keepDamaged(p place, err error) (judge func() error) {
	if p.kind == inShared {
		return nil
	}
	file := p.Medium.(folder).path(p.document)
	today := l.ofToday(file)
	if !errors.Is(err, ErrDamaged) && !errors.Is(err, fs.ErrPermission) && today {
		// The next try may read it; what is known counts until then.
		return func() error { return cmp.Or(l.unknown, err) }
	}
	if raw, err := readSmall(file); err == nil {
		_ = os.Remove(file + damagedSuffix) // there could be a link to any file
		if f, err := os.OpenFile(file+damagedSuffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
			_, _ = f.Write(raw)
			f.Close()
		}
	}
	return func() error { return l.judgeDamage(file, today, err) }
}

// judgeDamage returns why a damaged file must not be replaced, or nil. A count to replace an unknown one
// needs a budget. The caller holds mu.
func (l *Ledger) judgeDamage(file string, today bool, err error) error {
	before := l.damaged
	if err = l.noteDamage(file, today, err); l.damaged != before {
		l.reserving.events = append(l.reserving.events, Event{Kind: LoadFailed, List: BudgetFile, Err: err})
	}
	switch {
	case l.unknown == nil:
		return nil
	case l.reserving.perDay <= 0:
		return l.unknown
	}
	// Money first: anything up to the budget may be spent. An error costs at most
	// the confirmations of one day, and is reported.
	l.days.Spent = copied(l.days.Spent)
	l.days.Spent[l.days.Day] = max(l.days.spent(), l.reserving.perDay)
	return nil
}

// meet joins what a medium knows. The caller holds mu.
func (l *Ledger) meet(found budgetDays, in placeKind) {
	l.turn(dateOf(l.clock())) // no process goes back to a date that has ended
	if all := l.days.join(found); fits(all, in) {
		l.days, _ = all.on(l.days.Day, l.apart())
	}
}

// apart returns the writer if the day of others may begin at another time. A folder is one machine's. The caller holds mu.
func (l *Ledger) apart() string {
	if l.store != nil && l.store.shared != nil {
		return l.writer
	}
	return ""
}

// turn continues with another date. The caller holds mu.
func (l *Ledger) turn(today string) {
	if l.days.Day == today {
		return
	}
	// A reservation belongs to the date of its count.
	next, fresh := l.days.with(l.writer, max(l.own, l.covered), l.hour).on(today, l.apart())
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
		next, _ := l.exact().on(date, l.apart())
		return next.spent()
	}
	return l.spent()
}

// taken is one search that was counted.
type taken struct {
	date  string
	spent int // of that date, with this search
}

// take counts a search that is about to be sent. It returns an error that is
// lookup.ErrBudget if perDay, above 0, does not allow it, and the error of ctx if that
// ends first. It waits for the disk for at most diskPatience.
func (l *Ledger) take(ctx context.Context, perDay int, report func(Event)) (taken, error) {
	for {
		// The loop ends also if the disk hangs: the next try decides in memory.
		saved, t, err := l.tryTake(perDay, report)
		if saved == nil {
			return t, err
		}
		if l.count.await(ctx, saved) {
			l.isLate(report)
		}
		if err := ctx.Err(); err != nil {
			return t, err
		}
	}
}

// tryTake is take without waiting: if saved is not nil, try again when it has ended.
func (l *Ledger) tryTake(perDay int, report func(Event)) (saved *saving, t taken, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	l.turn(dateOf(now))
	due, may := !now.Before(l.lookAgain), l.may(perDay, now)
	// With trouble the disk is tried again once per lookAgainAfter, not for each search.
	inMemory := l.store == nil || perDay <= 0 || l.count.late || l.trouble && !due
	switch {
	// The file can change the decision: another process may have returned searches to
	// a spent budget, or this process needs a reservation.
	case !inMemory && (!may && due || may && l.own >= l.covered):
		return l.save(perDay, true, report), t, nil
	case !may:
		return nil, taken{l.days.Day, l.spent()}, &SpentError{Hold: l.allowance(perDay, now).Hold, why: l.unknown}
	}
	l.own++
	l.hour = l.hour.plus(1, now)
	// Without a budget no search waits for the disk. The count is saved in batches, at
	// most one per lookAgainAfter.
	if l.store != nil && perDay <= 0 && l.own >= l.covered+maxReserved && due && !l.count.late {
		l.save(perDay, true, report)
	}
	return nil, taken{l.days.Day, l.spent()}, nil
}

// giveBack takes back a search that was not sent. If the file counts it already, it is a
// reservation again.
func (l *Ledger) giveBack(t taken) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.date == l.days.Day { // otherwise the count of that date is closed
		l.own, l.hour = max(0, l.own-1), l.hour.plus(-1, l.clock())
	}
}

func hungDisk(limit time.Duration) error {
	return fmt.Errorf("the disk has not answered within %s", limit)
}

// isLate notes that a save takes too long: until it has ended, searches count in memory.
func (l *Ledger) isLate(report func(Event)) {
	l.mu.Lock()
	began := !l.trouble
	l.trouble = true
	l.mu.Unlock()
	if began {
		report(Event{Kind: StoreFailed, List: BudgetFile, Err: hungDisk(diskPatience)})
	}
}

// save begins to save the count, unless that is under way: spends says whether to reserve searches for
// perDay, or to return those that are reserved. The caller holds mu.
func (l *Ledger) save(perDay int, spends bool, report func(Event)) *saving {
	if l.count.saving == nil {
		l.reserving = reservation{store: l.store, perDay: perDay, spends: spends}
	}
	return l.count.save(func(kept bool, err error) {
		for _, e := range l.settle(kept, err) {
			if report != nil {
				report(e)
			}
		}
	})
}

// gatherUses asks what clients have used: that asks what is left, and so needs mu.
func (l *Ledger) gatherUses() {
	l.mu.Lock()
	uses := l.uses
	l.mu.Unlock()
	if uses == nil {
		return
	}
	all := uses()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserving.uses = all
}

// reserve says what to write, after what is on a medium was joined. The caller holds mu.
func (l *Ledger) reserve() {
	r, now := &l.reserving, l.clock()
	r.day, r.part, r.more = l.days.Day, l.own, false
	switch {
	case !r.spends:
		l.covered = min(l.covered, l.own) // from now on they are not reserved
	case r.perDay > 0:
		// By what take looks at: it would otherwise try for ever.
		granted := min(chunk(allowedOf(r.perDay, l.common, l.alone()), l.spent()), l.allowance(r.perDay, now).Now)
		r.part, r.more = max(l.covered, l.own+granted), granted > 0
	}
	l.days = l.days.with(l.writer, r.part, l.hour.plus(r.part-l.own, now))
	l.days.Uses = lookup.JoinUses(l.days.Uses, r.uses)
}

// alone reports whether there is a Shared that cannot be reached. The caller holds mu.
func (l *Ledger) alone() bool { return l.count.away != nil }

// chunk returns how many searches to reserve: a hundredth of the budget, and less near
// its end, so that several processes share the rest.
func chunk(perDay, spent int) int {
	left := max(0, perDay-spent)
	return min(left, max(1, min(perDay/100, left/4, maxReserved)))
}

// settle ends a save and returns what there is to report. err comes from the folder.
func (l *Ledger) settle(kept bool, err error) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.reserving
	if r.store == l.store && kept && r.day == l.days.Day {
		l.unknown, l.covered = nil, r.part
	}
	if !l.alone() {
		l.common = l.days.spent()
	}
	if r.store == l.store && (!kept || !r.more) {
		l.lookAgain = l.clock().Add(lookAgainAfter)
	}
	switch {
	case err != nil && !l.trouble:
		r.events = append(r.events, Event{Kind: StoreFailed, List: BudgetFile, Err: err})
	case err == nil && l.trouble:
		r.events = append(r.events, Event{Kind: Stored, List: BudgetFile})
	}
	l.trouble = err != nil
	return r.events
}

// Flush returns reservations that are not spent, and saves what the file does not count
// yet. It waits for the disk for at most files.WaitLimit. The Ledger can be used
// afterwards.
func (l *Ledger) Flush() error {
	timeout := time.After(files.WaitLimit)
	for {
		saved, ours := l.flush(nil) // the error is returned
		if saved == nil {
			return nil
		}
		select {
		case <-saved.done:
		case <-timeout:
			return hungDisk(files.WaitLimit)
		}
		if ours {
			return saved.err
		}
	}
}

// flush begins to save, or returns the save under way; nil: there is nothing to save. report may be nil.
func (l *Ledger) flush(report func(Event)) (saved *saving, ours bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(dateOf(l.clock()))
	switch {
	case l.count.saving != nil:
		return l.count.saving, false
	case l.store == nil || l.covered == l.own && !l.changed:
		return nil, false
	}
	l.changed = false
	return l.save(0, false, report), true
}
