package redisstore

import (
	"strings"
	"time"
)

// Kind says what an Event reports.
type Kind uint8

// The kinds of events. Each is reported once when a state begins.
const (
	Lost       Kind = iota // Redis cannot be used: Err, Cure
	Back                   // Redis can be used again, or for the first time
	Newer                  // relays of a newer version use these keys: Holder is that version
	LeaseTaken             // this process has the right to fetch
	LeaseLost              // this process no longer has the right to fetch; Holder has it, "" if that is unknown
	Follows                // another process has the right to fetch: Holder
	Alone                  // this process goes on without Redis, which is away since Since
	Repaired               // lists in Redis were missing or damaged and are published again
)

// Event is something for a log line or a metric. Fields that its Kind does not mention are zero.
type Event struct {
	Kind   Kind
	Err    error
	Holder string
	Since  time.Time
}

// Cure returns what an operator can do about an error of Redis.
func Cure(err error) string {
	text := err.Error()
	for word, cure := range map[string]string{
		"NOAUTH": "Give the password of Redis", "WRONGPASS": "Correct the password of Redis",
		"NOPERM": "Give the user of Redis the rights for these keys", "OOM": "Raise maxmemory of Redis",
		"READONLY": "Name the master of Redis, or its Sentinels", "LOADING": "Redis is reading its data; wait",
		"MISCONF": "Make room on the disk of Redis",
	} {
		if strings.Contains(text, word) {
			return cure
		}
	}
	return "Check that Redis runs and can be reached"
}
