package updater

import (
	"fmt"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// A Hold explains to people what a Clock or a Ledger has decided. It decides nothing itself.

// Hold says until when the schedule or a budget allows no request, and why. The zero Hold does not
// stop anything. It is a value.
type Hold struct {
	Until    time.Time
	Failures int       // in a row, which caused a back-off; 0: it is the server's minimum wait
	Unsent   bool      // they are requests that were not sent, see NotSentError
	Cause    string    // of the last failure
	Failed   time.Time // time of the last failure; zero: unknown
	Budget   int       // searches a day; 0: a budget is not the reason
	Portion  Portion   // of the budget, which is spent
}

// Portion is a portion of a budget that may be spent while others are left.
type Portion uint8

// The portions. The zero Portion is the whole day's budget.
const (
	WholeDay Portion = iota
	AnHour           // HourOf a budget
	OneAlone         // what a process may spend that cannot reach the shared count
	Unknown          // the count of the day cannot be read, so nothing may be spent
)

// Active reports whether the hold lasts at now.
func (h Hold) Active(now time.Time) bool { return h.Until.After(now) }

// String returns the reason, without the end.
func (h Hold) String() string {
	switch {
	case h.Budget > 0 && h.Portion == AnHour:
		return fmt.Sprintf("the %d searches that one hour may take of the day's %d are spent", HourOf(h.Budget), h.Budget)
	case h.Budget > 0 && h.Portion == OneAlone:
		return fmt.Sprintf("the part of the day's %d searches that this process may spend without Redis is spent", h.Budget)
	case h.Budget > 0 && h.Portion == Unknown:
		return "the number of searches spent today is unknown"
	case h.Budget > 1:
		return fmt.Sprintf("the day's budget of %d searches is spent", h.Budget)
	case h.Budget == 1:
		return "the day's budget of 1 search is spent"
	case h.Failures == 0:
		return "minimum wait of the server"
	}
	text := "back-off after a failure"
	switch {
	case h.Unsent && h.Failures > 1:
		text = fmt.Sprintf("the server could not be reached %d times in a row, the last", h.Failures)
	case h.Unsent:
		text = "the server could not be reached"
	case h.Failures > 1:
		text = fmt.Sprintf("back-off after %d failures in a row, the last", h.Failures)
	}
	if !h.Failed.IsZero() {
		text += " at " + say.Time(h.Failed)
	}
	if h.Cause != "" {
		text += ": " + h.Cause
	}
	return text
}
