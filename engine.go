package safebrowsing

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// engine is the lists, the checker and the updater behind one or more server
// blocks.
type engine struct {
	settings config.Settings
	checker  *lookup.Checker
	updater  *updater.Updater
	schedule *updater.Schedule
	client   protocol.Client
	reporter *reporter
	ready    atomic.Bool // nothing more is to be waited for
	onReady  func()      // told once

	// The goroutines below end with stop, which waits for them: one that keeps the
	// lists fresh, and one that watches the file of the key.
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// newEngine makes an engine that asks with the key, and puts the lists that are on
// disk in force. It asks nobody. A disk that cannot be used is reported and done
// without. OnReady is called at most once.
func newEngine(s config.Settings, key string, edge edge, onReady func()) (*engine, error) {
	e := &engine{settings: s, onReady: onReady}
	e.reporter = newReporter(s, e.becomeReady)
	database := new(lookup.Database)
	client, err := s.Client(key, database, edge.transport)
	if err != nil {
		return nil, err
	}
	store := e.openStore(key)
	schedule := edge.schedule(s.Identity(), store, e.reporter.report)
	e.client, e.schedule, e.reporter.schedule = client, schedule, schedule
	e.updater, err = updater.New(updater.Config{
		Source:       client,
		Database:     database,
		Schedule:     schedule,
		Store:        store,
		Lists:        s.Stored(),
		LikelySafe:   protocol.GlobalCache,
		MaxEntries:   s.MaxEntries,
		Report:       e.reporter.report,
		FirstContact: edge.firstContact,
	})
	if err != nil {
		return nil, err
	}
	e.checker, err = lookup.NewChecker(s.CheckerConfig(database, updater.Pace(client, schedule, s.SearchRules(edge.firstContact), e.reporter.report)))
	if err != nil {
		return nil, err
	}
	if asked := protocol.V4MaxEntries(s.MaxEntries); s.Protocol == protocol.Version4 && asked != s.MaxEntries {
		log.Infof("max_entries %d is asked for as %d: version 4 of the protocol knows powers of two from 1024 to 1048576 only", s.MaxEntries, asked)
	}
	if e.updater.Load() {
		e.becomeReady()
	}
	return e, nil
}

func (e *engine) becomeReady() {
	if e.ready.CompareAndSwap(false, true) {
		e.onReady()
	}
}

// openStore returns nil if no store is wanted.
func (e *engine) openStore(key string) *updater.Store {
	if e.settings.DB == "" {
		return nil
	}
	store, err := updater.OpenStore(e.settings.DB, e.settings.Origin(key))
	if err != nil {
		e.reporter.report(updater.Event{Kind: updater.StoreFailed, Err: err})
	}
	return store
}

// start begins to keep the lists fresh, with the key, until stop.
func (e *engine) start(key string) {
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	if e.settings.KeyFile == "" {
		e.wg.Go(func() { e.updater.Run(ctx) })
		return
	}
	e.wg.Go(func() { e.runWithKeys(ctx, key) })
}

// stop ends everything that the engine does and waits for it.
func (e *engine) stop() {
	e.checker.Close() // before the schedule is let go of: a search may end with a wait
	e.cancel()
	e.wg.Wait()
	e.schedule.Flush() // an answer does not wait for the disk
	e.client.Close()
}
