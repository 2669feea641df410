// Package updater keeps hash lists fresh and obeys the server's rules about how
// often it may be asked.
//
//	Load:  Store ──▶ lists ──checked──▶ Database (package lookup)
//
//	Run:   ┌─▶ sleep until a list is due            Schedule: clocks
//	       │   save the schedule                    the request counts as failed until it is answered
//	       │   fetch all that is due                Source: one request
//	       │   apply to the old list, check SHA-256
//	       │   save the lists                       Store
//	       │   publish the lists                    Database
//	       │   save the schedule                    the outcome, and the next times
//	       └── report                               events
//
//	Pace:  Searcher ──▶ searches that obey the same Schedule
//	Limit: Searcher ──▶ searches within a budget        Ledger: what each day has cost
//
// Who writes what:
//
//   - Lists, in memory and on disk, and the Database: one goroutine at a time, the one
//     in Load, Run or Once. What it publishes is immutable.
//   - The Schedule: that goroutine, every goroutine that searches, and those that save
//     their changes (document.go). A mutex guards it.
//   - The file of the schedule: the process that holds the lock of the folder. The file
//     with the clock of searches, and the Ledger's file: every process, each file
//     under a lock of its own.
//
// A list that fails its checks keeps its last good content and is fetched again in
// full, under back-off. The schedule is saved before and after every request for lists,
// so that neither a restart nor a crash makes the plugin ask too early.
//
// The package does not log: it returns errors and reports events. It does not know
// the wire format or its version.
//
// Package client puts it together with lookup and Google's server, for programs that are no name
// server. The module is at v0: exported names may still change with any version, and CHANGELOG.md
// says so.
package updater
