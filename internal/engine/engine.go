// Package engine holds lists, checker and updater under one owner. Server blocks with
// equal settings share an engine, which also lives on when the Corefile is reloaded.
//
//	Settings ──▶ Registry.Acquire ──▶ Engine ─┬─ Checker ── searches, paced ──┐
//	                    (counted holds)              ├─ updater ──▶ lookup.Database  ├─▶ protocol.Client ──HTTP──▶ server
//	                                                 │     └── fetches lists ────────┘
//	                                                 └─ reporter: events ──▶ log lines and metrics
package engine

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Engine is the lists, the checker and the updater behind one or more server
// blocks. Its fields do not change; it is safe for concurrent use.
type Engine struct {
	Service

	database     *lookup.Database
	updater      *updater.Updater
	store        *updater.Store // nil: db is off
	reporter     *reporter
	announced    protocol.Announced   // of a relay's budget
	ready        atomic.Bool          // nothing more is to be waited for
	onReady      func()               // told once
	firstContact func() time.Duration // see Edge
	changed      chan struct{}        // has one element after a change that Changed has not told yet

	// The goroutines below end with stop, which waits for them: one that keeps the
	// lists fresh, one that watches the file of the key, one that asks a relay what it has, and
	// one that tells of the end of a protocol.
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// newEngine makes an engine that asks with the key, and puts the lists that are on
// disk in force. It asks nobody. A disk that cannot be used is reported and done
// without. onReady is called at most once.
func newEngine(s Settings, key string, edge Edge, before past, onReady func()) (*Engine, error) {
	database := new(lookup.Database)
	e := &Engine{Service: Service{settings: s}, database: database, onReady: onReady, firstContact: edge.FirstContact, changed: make(chan struct{}, 1)}
	e.reporter = newReporter(s, e.becomeReady)
	e.reporter.changed = e.change
	e.standing = e.reporter.standing
	client, err := s.Client(key, database, edge.Transport)
	if err != nil {
		return nil, err
	}
	if several, ok := client.(*protocol.Failover); ok {
		several.Report = e.reporter.endpointChanged
	}
	store := e.openStore(key, edge.Share)
	schedule := before.schedules.next(s.Identity(), s.Origin(key), store, e.reporter.report)
	e.client, e.store, e.Schedule, e.reporter.schedule = client, store, schedule, schedule
	if store == nil { // without one it does not know yet who asks; nothing is saved
		_ = schedule.Rekey(s.Origin(key).Asker, func() {})
	}
	if s.Token {
		_ = schedule.Renew(s.Origin(key).Token, func() {}) // nor the token
	}
	e.updater, err = updater.New(updater.Config{
		Source:       client,
		Database:     database,
		Schedule:     schedule,
		Store:        store,
		Lists:        s.Stored(),
		LikelySafe:   protocol.GlobalCache,
		MaxEntries:   s.MaxEntries,
		Report:       e.reporter.report,
		FirstContact: edge.FirstContact,
	})
	if err != nil {
		return nil, err
	}
	e.hearRelay()
	searcher := updater.Pace(client, schedule, s.SearchRules(edge.FirstContact), e.reporter.report)
	paced := searcher
	if s.Budget > 0 {
		searcher = e.limit(searcher, before.ledgers.next(s.Identity(), store, e.reporter.report))
	}
	searcher = &knowing{searcher, paced, &e.announced}
	if edge.Searcher != nil { // before the budget: what is known costs nothing
		searcher = edge.Searcher(searcher)
	}
	config := s.CheckerConfig(database, searcher)
	config.Known = edge.Searcher != nil || !s.Google()
	e.Checker, err = lookup.NewChecker(config)
	if err != nil {
		return nil, err
	}
	e.reporter.roundedLimit()
	if e.updater.Load() {
		e.becomeReady()
	}
	return e, nil
}

// knowing is a lookup.Searcher that asks for what is known only a relay that has announced a budget:
// such a relay can answer without a search.
type knowing struct {
	lookup.Searcher
	relay     lookup.Searcher // past the budget
	announced *protocol.Announced
}

// Search implements lookup.Searcher.
func (k *knowing) Search(ctx context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	if !lookup.OnlyKnown(ctx) {
		return k.Searcher.Search(ctx, prefixes)
	}
	if _, relayed := k.announced.Left(time.Now()); !relayed {
		return lookup.Answer{}, lookup.ErrShare
	}
	return k.relay.Search(ctx, prefixes)
}

// hearRelay begins to note what a relay announces of its budget, and keeps shares of it.
func (e *Engine) hearRelay() {
	if !e.settings.Google() {
		e.client.Announce(&e.announced)
		e.Shares = lookup.NewShares(lookup.DefaultShare, e.announced.Left, nil)
	}
}

// limit returns the searcher within the day's budget, which the ledger counts.
func (e *Engine) limit(s lookup.Searcher, ledger *updater.Ledger) lookup.Searcher {
	budget := e.settings.Budget
	e.ledger, e.reporter.ledger = ledger, ledger
	e.Shares = ledger.Shares(budget, e.settings.Share, e.announced.Left)
	return ledger.Limit(s, budget, e.reporter.report)
}

// resume continues to count searches in the folder of the engine, after one of a reload that has failed had the
// ledger.
func (e *Engine) resume() {
	if e.ledger == nil {
		return
	}
	e.ledger.TellOf(e.Shares, e.reporter.report)
	files.Wait(func() { // not for a disk that hangs: the caller keeps others from ending
		if err := e.ledger.Move(e.store); err != nil {
			e.reporter.report(updater.Event{Kind: updater.LoadFailed, List: updater.BudgetFile, Err: err})
		}
	})
}

// Lists returns the lists in force. The caller must not change them.
func (e *Engine) Lists() []lookup.List { return e.database.Lists() }

// Ready reports whether all lists are in force, or the first contact with the server has
// ended.
func (e *Engine) Ready() bool { return e.ready.Load() }

// Changed returns a channel that gets an element when Lists or Ready may have changed. It
// is for one receiver. Several changes may become one element.
func (e *Engine) Changed() <-chan struct{} { return e.changed }

// change tells the receiver of Changed.
func (e *Engine) change() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// becomeReady says that nothing more is to be waited for: the lists are in force, or
// the first contact with the server has ended, however it ended.
func (e *Engine) becomeReady() {
	if e.ready.CompareAndSwap(false, true) {
		e.onReady()
		e.change()
	}
}

// openStore returns nil if no store is wanted. share may be nil.
func (e *Engine) openStore(key string, share func(updater.Origin) updater.Shared) *updater.Store {
	if e.settings.DB == "" {
		return nil
	}
	store, err := updater.OpenStore(e.settings.DB, e.settings.Origin(key))
	if err != nil {
		e.reporter.report(updater.Event{Kind: updater.StoreFailed, Err: err})
	}
	if share != nil {
		e.reporter.shares = true
		store.Share(share(e.settings.Origin(key)))
	}
	return store
}

// start begins to keep the lists fresh, with the key, until stop.
func (e *Engine) start(key string) {
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	running.add(e)
	if end := e.settings.Ending(); !end.At.IsZero() {
		e.wg.Go(func() { tellEnding(ctx, end) })
	}
	if s := e.settings; s.Mode == lookup.NoStorage && !s.Google() && s.Dialect() == protocol.DialectV5 {
		e.wg.Go(func() { e.lookForRealtime(ctx) }) // a relay without -realtime confirms only what its own lists hold
	}
	if e.settings.KeyFile == "" {
		e.wg.Go(func() { e.updater.Run(ctx) })
		return
	}
	e.wg.Go(func() { e.runWithKeys(ctx, key) })
}

// stop ends everything that the engine does and waits for it, but not for a write that
// hangs: see files.Wait. Then its goroutines end when the disk answers, and report nothing.
func (e *Engine) stop() {
	e.Checker.Close() // before the schedule is let go of: a search may end with a wait
	e.cancel()
	running.remove(e)
	if !files.Wait(e.finish) { // the metrics may belong to another engine by the time when the disk answers
		e.reporter.abandoned.Store(true)
		log.Warningf("A write to %s has not ended within %s. It is not waited for: each file there is the old or the new one. Check the disk", e.settings.DB, files.WaitLimit)
	}
}

// finish waits until all goroutines have ended and all clocks are on disk.
func (e *Engine) finish() {
	e.wg.Wait()
	e.Schedule.Flush() // an answer does not wait for the disk
	if e.ledger != nil {
		if err := e.ledger.Flush(); err != nil {
			e.reporter.report(updater.Event{Kind: updater.StoreFailed, List: updater.BudgetFile, Err: err})
		}
	}
	e.client.Close()
}

// ShareLog logs that a client has spent its share of a budget: the first one of each day. The
// zero ShareLog is ready to use. It is safe for concurrent use.
type ShareLog struct {
	Flag bool // the budget is a flag, and no property of a Corefile

	said say.Daily
}

// Log logs that a client of the service was refused at now. Named is its address, client what its share is
// counted for.
func (l *ShareLog) Log(s *Service, client, named netip.Addr, now time.Time) {
	if s.Shares == nil || !l.said.First("", now) {
		return
	}
	b, _ := s.Shares.For(client, now)
	cure := fmt.Sprintf("budget %d 100%%", b.Day)
	if l.Flag {
		cure = fmt.Sprintf("-budget %d,100%%", b.Day)
	}
	log.Warningf("In part: client %s has spent its share of the day's budget and what others do not need (%d of %d): its suspected names pass until more is free, at midnight at the latest. If it forwards for others, write \"%s\". The log names the first such client of a day only",
		named, s.Shares.Taken(client, now), b.Day, cure)
}
