package updater

import "time"

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
