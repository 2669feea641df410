// Package updater keeps hash lists fresh, politely.
//
//	Load:  Store ──▶ lists ──check──▶ Publish ──▶ lookup.Database
//	Run:   ┌─▶ sleep until something is due (Schedule)
//	       │   Source.Fetch: all that is due, in one request
//	       │   apply: removals and additions over the old list, SHA-256
//	       │   Store: the list, then the schedule
//	       └── Publish, Report
//
// One goroutine, the one that calls Run, writes all of this state. What it
// publishes is immutable.
//
// A list that fails its checks keeps serving its last good content, and is
// fetched again in full under back-off. The schedule is on disk before and
// after every request, so that neither a restart nor a crash can make the
// server be asked too early.
//
// The package does not log: it returns errors and reports events. It knows
// neither the wire format nor its version.
package updater
