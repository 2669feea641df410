package sharing

import (
	"strings"
	"time"
)

// EventKind says what an Event reports.
type EventKind uint8

// The kinds of events. Each is reported once when a state begins.
const (
	Lost       EventKind = iota // Redis cannot be used: Err, Cure
	Back                        // Redis can be used again, or for the first time
	Newer                       // relays of a newer version use these keys: Holder is that version
	LeaseTaken                  // this process has the right to fetch
	LeaseLost                   // this process no longer has the right to fetch; Holder has it, "" if that is unknown
	Follows                     // another process has the right to fetch: Holder
	Alone                       // this process continues without Redis, which is away since Since
	Repaired                    // lists in Redis were missing or damaged and are published again
)

// Event is something for a log line or a metric. Fields that its Kind does not mention are zero.
type Event struct {
	Kind   EventKind
	Err    error
	Holder string
	Since  time.Time
}

// Cure returns what an operator can do about an error of Redis.
func Cure(err error) string {
	text := err.Error()
	for _, c := range cures {
		if strings.Contains(text, c.word) {
			return c.cure
		}
	}
	return "Check that Redis runs and can be reached"
}

// cures are what helps against errors with a word. The first one counts.
var cures = []struct{ word, cure string }{
	{"does not speak as Redis does", "Check the address of Redis, and who can change what it sends: rediss:// protects it on its way"},
	{"does not speak RESP3", "Upgrade Redis"},
	{"NOAUTH", "Give the password of Redis"},
	{"WRONGPASS", "Correct the password of Redis"},
	{"NOPERM", "Give the user of Redis the rights for these keys"},
	{"OOM", "Raise maxmemory of Redis"},
	{"READONLY", "Name the master of Redis, or its Sentinels"},
	{"LOADING", "Redis is reading its data; wait"},
	{"MISCONF", "Make room on the disk of Redis"},
	{"MOVED", "Name a cluster as redis+cluster://, and let each node announce its own address"},
	{"ASK ", "Let each node of the cluster announce its own address"},
}
