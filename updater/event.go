package updater

import "time"

// Kind is what an Event tells of.
type Kind uint8

// The kinds of events.
const (
	Loaded        Kind = iota // List is in force, read from disk
	LoadFailed                // List, or the schedule (List is ""), could not be read from disk: Err
	LockBusy                  // another process or engine uses the folder and fetches; its lists are followed until it lets go
	Followed                  // List is as the process that is followed has fetched it last
	Started                   // what is in force at the start has been told, by Loaded and ListWaiting; Due is the first request
	StartsAnew                // List is the predecessor's, see Origin, and in force until it has been fetched in full
	Fetched                   // a request for lists, List names them all, has ended, with Err or without
	ListUpdated               // List was applied
	ListUnchanged             // List was fetched and is as it was
	ListWaiting               // List was not fetched, or not yet: it waits until Due
	ListRejected              // the update of List failed its checks: Err; the content held stays in force
	ListRefused               // List, asked for by itself, was refused as one that the server does not have: Err; others are fetched
	LongWait                  // the server gave a minimum wait of more than a day, Wait: no request for List, or if it is "" no search, before Due
	StoreFailed               // List, or the schedule (List is ""), could not be saved: Err
	Stored                    // List, or the schedule, has been saved
	WokeUp                    // a sleep overshot: the machine was suspended
	FirstContact              // the first contact with the server has ended, however it ended
	Searched                  // a search for full hashes has ended, with Err or without
)

// Event is something that operators want to know of, in a log line or a metric.
type Event struct {
	Kind    Kind
	List    string
	Err     error
	Entries int           // of List now in force
	Updated time.Time     // last success of List; zero: never
	Due     time.Time     // when List, or after Fetched anything, is due next
	Took    time.Duration // of a request
	Wait    time.Duration // of LongWait
}
