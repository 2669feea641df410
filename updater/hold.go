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

// hold returns the clock as a Hold.
func (c Clock) hold() Hold {
	if c.NotBefore.IsZero() {
		return Hold{}
	}
	h := Hold{Until: c.NotBefore, Failures: c.Failures, Cause: c.Cause, Failed: c.Failed}
	if c.Asking {
		h.Cause = "a request has been sent and is not answered yet"
	}
	return h
}

// FetchHold returns why none of the lists may be fetched now: the hold that ends
// first, of those lists. It is safe for concurrent use.
func (s *Schedule) FetchHold(lists []string) Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.fetchHold(lists)
}

func (s *scheduleState) fetchHold(lists []string) (first Hold) {
	for i, name := range lists {
		hold := s.Fetch.hold()
		if own := s.Lists[name].Clock.hold(); own.Until.After(hold.Until) {
			hold = own
		}
		if i == 0 || hold.Until.Before(first.Until) {
			first = hold
		}
	}
	return first
}

// SearchHold returns why no full hashes may be searched for now. It is safe for
// concurrent use.
func (s *Schedule) SearchHold() Hold {
	s.mu.Lock()
	hold, last := s.state.Search.hold(), s.last
	if s.succeeds {
		last = nil
	}
	s.mu.Unlock()
	if last != nil { // it may still be in use, and told to wait
		if other := last.SearchHold(); other.Until.After(hold.Until) {
			return other
		}
	}
	return hold
}
