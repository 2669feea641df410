package updater

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// The rules of waiting as pure functions of values ("Request Frequency"). Schedule adds the
// lock and the file. The JSON names are the format of that file: a new name for a field would
// lose the waits that an older version has saved.

// A Clock says when the server may be asked for something again. It is a value.
type Clock struct {
	// NotBefore is zero if a request is allowed at any time. In memory it follows the
	// monotonic clock, in a file the wall clock.
	NotBefore time.Time     `json:"not_before"`
	Failures  int           `json:"failures"`          // in a row; 0 after a success
	Refusals  int           `json:"refusals,omitzero"` // of them, with status 403 or 429; of searches only
	Wait      time.Duration `json:"wait"`              // the last minimum wait of the server
	Asking    bool          `json:"asking,omitempty"`  // a request has been sent and counts as failed until it is answered; see asked
	Cause     string        `json:"cause,omitempty"`   // of the last failure, without the key; "": none
	Failed    time.Time     `json:"failed,omitzero"`   // time of the last failure; zero: none
	Denied    bool          `json:"denied,omitempty"`  // the last failure was status 401 or 403
	Away      away          `json:"away,omitzero"`     // of requests that were not sent

	Attempt  uint64 `json:"attempt,omitzero"`   // grows with each change; 0: of a version that did not count
	FailedIn uint64 `json:"failed_in,omitzero"` // the attempt of the last failure
	// Besides is what NotBefore is without the last failure, if that is Denied: another token ends
	// only that.
	Besides time.Time `json:"besides,omitzero"`
}

// ListClock is the clock of one list. It is a value.
type ListClock struct {
	Clock
	AtOnce   int       `json:"at_once"`         // fetches in a row whose answers gave no wait
	Rejected bool      `json:"rejected"`        // the last answer failed its checks: the next update must be full
	Updated  time.Time `json:"updated"`         // last success; zero: never
	Alone    bool      `json:"alone,omitempty"` // refused, alone or in a batch, and not fetched since: it is asked for alone
}

// Minimum waits of our own. An answer without one allows the next fetch at once
// (version 5, minimum_wait_duration), which makes sense while a size limit splits an
// update into steps. These floors stop a loop with a server that never gives a wait.
const (
	unchangedFloor = 30 * time.Minute
	changedFloor   = time.Minute
	maxAtOnce      = 32
	waitFloor      = time.Second // for a wait that the server gives, however short
)

// next is the clock after a success at now. wait is the server's minimum wait, 0 if
// it gave none; changed says that the answer changed the list.
func (c ListClock) next(now time.Time, wait time.Duration, changed bool) ListClock {
	// The new clock has no failures: a success ends the back-off ("Request Frequency").
	n := ListClock{Clock: Clock{Wait: wait}, Updated: now}
	switch {
	case wait > 0:
		n.NotBefore = now.Add(max(wait, waitFloor))
	case !changed:
		n.NotBefore = now.Add(unchangedFloor)
	case c.AtOnce < maxAtOnce:
		n.NotBefore, n.AtOnce = now, c.AtOnce+1
	default:
		n.NotBefore, n.AtOnce = now.Add(changedFloor), c.AtOnce
	}
	return n
}

// rejected is the clock of a list whose update failed its checks at now with err.
// wait is the minimum wait of that update, 0 if it gave none; r is uniform in [0, 1).
func (c ListClock) rejected(now time.Time, wait time.Duration, r float64, err error) ListClock {
	c.Clock = c.failed(now, Backoff(c.Failures+1, r), wait).because(now, err)
	c.Rejected, c.AtOnce = true, 0
	return c
}

// failed is the clock after one more failure: it waits for the longer of our back-off
// and the server's own wait.
func (c Clock) failed(now time.Time, backoff, serverWait time.Duration) Clock {
	return Clock{NotBefore: now.Add(max(backoff, serverWait)), Failures: c.Failures + 1, Refusals: c.Refusals, Wait: c.Wait, Away: c.Away, Attempt: c.Attempt, FailedIn: c.FailedIn}
}

// because is the clock with the cause of the failure at now.
func (c Clock) because(now time.Time, err error) Clock {
	c.Cause, c.Failed, c.Denied = causeOf(err), now, denied(err)
	c.Away = away{} // it was sent
	return c
}

// succeeded sets the clock of searches after a search that was answered at now. wait
// is the minimum wait of the answer, 0 if it gave none; together says that the search was
// under way when another one failed, so that it does not end the back-off.
func (c *Clock) succeeded(now time.Time, wait time.Duration, together bool) {
	if !together {
		c.Failures, c.Refusals, c.Cause, c.Failed, c.Denied = 0, 0, "", time.Time{}, false
	}
	c.Away = away{}
	if c.Wait = wait; wait > 0 && now.Add(wait).After(c.NotBefore) {
		c.NotBefore = now.Add(wait)
	}
}

// hold returns the clock as a Hold.
func (c Clock) hold() Hold {
	if c.Away.Until.After(c.NotBefore) {
		return c.Away.hold()
	}
	if c.NotBefore.IsZero() {
		return Hold{}
	}
	h := Hold{Until: c.NotBefore, Failures: c.Failures, Cause: c.Cause, Failed: c.Failed}
	if c.Asking {
		h.Cause = "a request has been sent and is not answered yet"
	}
	return h
}

// hold returns the clock as a Hold.
func (c ListClock) hold() Hold {
	h := c.Clock.hold()
	if c.Failures == 0 && c.Wait == 0 {
		h.Cause = "wait of the client: the server gave none"
	}
	return h
}

// The lengths of waits, as pure functions of a number of failures and a random number. Clock
// counts the failures and keeps the end of a wait. Searches have functions of their own,
// since version 5 publishes no rule for searches.

const (
	backoffUnit = 15 * time.Minute
	maxBackoff  = 24 * time.Hour
	// From cappedFailures on the wait is maxBackoff for every random number:
	// 2^7 × 15 min is 32 h. This also keeps the shift from overflowing.
	cappedFailures = 8
)

// Backoff returns how long to wait after a number of failures in a row:
// MIN(2^(failures-1) × 15 min × (r+1), 24 h) ("Request Frequency", back-off mode).
// r is uniform in [0, 1), a new one for each failure. Without failures it returns 0.
func Backoff(failures int, r float64) time.Duration {
	if failures < 1 {
		return 0
	}
	if failures >= cappedFailures {
		return maxBackoff
	}
	wait := float64(backoffUnit<<(failures-1)) * (r + 1)
	return min(time.Duration(wait), maxBackoff)
}

// Strikes pauses as Chromium's hash_realtime_service does.
const (
	searchStrikes    = 3
	searchPause      = 5 * time.Minute
	maxSearchPause   = 30 * time.Minute
	cappedSearchRuns = 3 // 2^3 × 5 min is 40 min
)

// SearchBackoff returns how long the next search waits after failures in a row, at
// least one. refusals is how many of them were refusals (status 403 or 429) if the last
// one was, otherwise 0. r is uniform in [0, 1). It must be safe for concurrent use.
type SearchBackoff func(failures, refusals int, r float64) time.Duration

// Strict is the SearchBackoff of version 4, the same as for list updates ("Request Frequency",
// back-off mode).
func Strict(failures, _ int, r float64) time.Duration { return Backoff(failures, r) }

// Strikes is the SearchBackoff of servers that publish no rule for searches, as in
// version 5. A refusal counts as in list updates. Other failures pause searches as
// Chromium pauses its real-time look-ups: for 5 minutes after the third in a row,
// doubling with each further one, to at most 30.
func Strikes(failures, refusals int, r float64) time.Duration {
	if refusals > 0 {
		return Backoff(failures, r)
	}
	if failures < searchStrikes {
		return 0
	}
	runs := min(failures-searchStrikes, cappedSearchRuns)
	return min(searchPause<<runs, maxSearchPause)
}

const (
	serviceLevelUnit   = time.Second
	cappedServiceLevel = 5 // 2^5 × 1 s is 32 s, where the doubling ends
)

// ServiceLevel is the SearchBackoff of Web Risk. Its page "Request Frequency" leaves the
// back-off to Google Cloud's service level agreements ("Back-off Requirements"): at least a
// second after the first error, doubling up to 32. A quarter at most is added, so that
// clients do not come back together. Refusals, which do not heal within seconds, count as
// failures of list updates do, but by themselves: the errors before them came too fast.
func ServiceLevel(failures, refusals int, r float64) time.Duration {
	if refusals > 0 {
		return Backoff(refusals, r)
	}
	wait := serviceLevelUnit << min(max(failures, 1)-1, cappedServiceLevel)
	return wait + time.Duration(float64(wait)*r/4)
}

// firstContact draws how long the first request after a start or a wake-up waits:
// uniform in [0, 1 min) ("Request Frequency").
func firstContact() time.Duration { return rand.N(time.Minute) }

// A Hold explains to people what a Clock or a Ledger has decided. It decides nothing itself.

// Hold says until when the schedule or a budget allows no request, and why. The zero Hold does not
// stop anything. It is a value.
type Hold struct {
	Until    time.Time
	Failures int       // in a row, which caused a back-off; 0: it is a minimum wait, or what Cause says
	Unsent   bool      // they are requests that were not sent, see NotSentError
	Cause    string    // of the last failure, or of a wait without one
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

// told returns the hold with times by the clock that shows now.
func (h Hold) told(now time.Time) Hold {
	h.Until, h.Failed = say.ByClock(h.Until, now), say.ByClock(h.Failed, now)
	return h
}

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
	case h.Budget > 0:
		return fmt.Sprintf("the day's budget of %s is spent", say.Count(h.Budget, "search", "searches"))
	case h.Failures == 0 && h.Cause != "":
		return h.Cause
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
