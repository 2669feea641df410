package updater

import (
	"fmt"
	"time"
)

// A Hold explains to people what a Clock or a Ledger has decided. It decides nothing itself.

// Hold says until when the schedule or a budget allows no request, and why. The zero Hold does not
// stop anything. It is a value.
type Hold struct {
	Until    time.Time
	Failures int       // in a row, which caused a back-off; 0: it is the server's minimum wait
	Cause    string    // of the last failure
	Failed   time.Time // time of the last failure; zero: unknown
	Budget   int       // searches a day, all of which are spent; 0: a budget is not the reason
}

// Active reports whether the hold lasts at now.
func (h Hold) Active(now time.Time) bool { return h.Until.After(now) }

// String returns the reason, without the end.
func (h Hold) String() string {
	switch {
	case h.Budget > 1:
		return fmt.Sprintf("the day's budget of %d searches is spent", h.Budget)
	case h.Budget == 1:
		return "the day's budget of 1 search is spent"
	case h.Failures == 0:
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
