package engine

import (
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// stop ends everything that the engine does and waits for it, but not for a write that
// hangs: see patience. Then its goroutines end when the disk answers, and report nothing.
func (e *Engine) stop() {
	e.Checker.Close() // before the schedule is let go of: a search may end with a wait
	e.cancel()
	running.remove(e)
	if !files.Wait(e.finish) {
		e.reporter.abandon()
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

// abandon says that a write hangs, and has nothing more be reported: the metrics may belong to
// another engine by then.
func (r *reporter) abandon() {
	r.abandoned.Store(true)
	log.Warningf("A write to %s has not ended within %s. It is not waited for: each file there is the old or the new one. Check the disk", r.settings.DB, files.WaitLimit)
}
