package updater

import (
	"fmt"
	"time"
)

// Hold says until when something is not asked of the server, and why. The zero
// Hold is none.
type Hold struct {
	Until    time.Time
	Failures int       // in a row, of a back-off; 0: the server's minimum wait
	Cause    string    // of the last failure
	Failed   time.Time // when that was
}

// Active reports whether the hold lasts at now.
func (h Hold) Active(now time.Time) bool { return h.Until.After(now) }

// String says what the hold comes from, without its end.
func (h Hold) String() string {
	if h.Failures == 0 {
		return "minimum wait of the server"
	}
	text := "back-off after a failure"
	if h.Failures > 1 {
		text = fmt.Sprintf("back-off after %d failures in a row, the last", h.Failures)
	}
	if !h.Failed.IsZero() {
		text += " at " + h.Failed.UTC().Format(time.RFC3339)
	}
	if h.Cause != "" {
		text += ": " + h.Cause
	}
	return text
}
