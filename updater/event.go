package updater

import "time"

// Kind says what an Event reports.
type Kind uint8

// The kinds of events.
const (
	Loaded        Kind = iota // List was read from disk, or handed over, and serves now
	LoadFailed                // List, or the schedule (List is ""), could not be read from disk: Err
	LockBusy                  // another process or engine has locked the folder and fetches; its lists are loaded
	LeaseBusy                 // another machine has the shared right to fetch; its lists are taken over
	Followed                  // List is as the process that has the lock fetched it last
	FollowFailed              // lists that another process has fetched could not be taken over: Err
	Started                   // after a Loaded or ListWaiting for each list; Due is the time of the first request
	StartsAnew                // List is the predecessor's, see Origin, and serves until it has been fetched in full
	Fetched                   // a request for lists has ended, with Err or without; List names them all, with commas
	ListUpdated               // an update was applied to List
	ListUnchanged             // List was fetched and has not changed
	ListWaiting               // List was not fetched, or not yet; its next fetch is at Due
	ListRejected              // the update of List failed its checks: Err; the old content stays
	ListRefused               // the server refused List, asked for alone: Err; other lists are fetched
	BatchRefused              // a relay lacks one of List, several with commas: Err; each is asked for alone now
	LongWait                  // the server gave a minimum wait above 24 hours, Wait: nothing for List ("": no search) before Due
	StoreFailed               // List, or the schedule (List is ""), could not be saved: Err
	Stored                    // List, or the schedule, has been saved
	WokeUp                    // the machine was suspended
	FirstContact              // the first request for lists has ended with any result, or is not due yet; or another machine fetches, and its lists have been taken over or do not come
	Searched                  // a search for full hashes has ended, with Err or without
	BudgetLow                 // 80 % of the day's budget of searches are spent; Due is the next day
	BudgetSpent               // the day's budget of searches is spent, or, with Err, its count is unknown; Due is the next day
	BudgetPaused              // a portion of the day's budget is spent, while others are left: Hold; Due is its end
	BudgetRenewed             // after BudgetSpent, the first search of a new day is made
)

// Event is something for a log line or a metric. Fields that its Kind does not mention
// are zero, or describe List.
type Event struct {
	Kind    Kind
	List    string
	Err     error
	Entries int           // of List, now
	Updated time.Time     // last success of List; zero: never
	Due     time.Time     // next request for List; of Fetched: for any list
	Took    time.Duration // by a request: Fetched, ListRefused, BatchRefused, Searched
	Wait    time.Duration // LongWait only
	Spent   int           // searches today, of BudgetLow, BudgetSpent, BudgetPaused and BudgetRenewed
	Budget  int           // searches a day, of the same
	Hold    Hold          // BudgetPaused only
}

// BudgetFile stands for the file of a Ledger in the List of LoadFailed, StoreFailed and
// Stored.
const BudgetFile = "budget"
