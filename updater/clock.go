package updater

import "time"

// A Clock says when something may be asked of the server again.
type Clock struct {
	NotBefore time.Time     `json:"not_before"`
	Failures  int           `json:"failures"`         // in a row; 0 after a success
	Wait      time.Duration `json:"wait"`             // the server's last minimum wait
	Asking    bool          `json:"asking,omitempty"` // a fetch is under way, of which it is not known yet whether it fails
	Cause     string        `json:"cause,omitempty"`  // of the last failure, without the key; "": none
	Failed    time.Time     `json:"failed,omitzero"`  // when the last failure was; zero: none
}

// ListClock is the clock of one list.
type ListClock struct {
	Clock
	AtOnce   int       `json:"at_once"`         // fetches in a row for which no wait was given
	Rejected bool      `json:"rejected"`        // the last answer failed its checks: the next must be full
	Updated  time.Time `json:"updated"`         // last success; zero: never
	Alone    bool      `json:"alone,omitempty"` // refused, by itself or in a batch, and not fetched since: it is asked for by itself
}

// Floors for lists to which the server gave no minimum wait. It then asks for
// the next fetch at once, which makes sense while a size limit splits an update
// into steps; these floors hold off a loop with a server that never says a
// wait.
const (
	unchangedFloor = 30 * time.Minute
	changedFloor   = time.Minute
	maxAtOnce      = 32
	waitFloor      = time.Second // for a wait that is given and is next to none
)

// next is the clock after a success at now, with the minimum wait that the
// server gave (0: none) and whether the answer changed the list.
func (c ListClock) next(now time.Time, wait time.Duration, changed bool) ListClock {
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

// rejected is the clock of a list whose part of an answer, with the minimum wait
// that it gave, failed its checks with err. r is uniform in [0, 1).
func (c ListClock) rejected(now time.Time, wait time.Duration, r float64, err error) ListClock {
	c.Clock = c.failed(now, Backoff(c.Failures+1, r), wait).because(now, err)
	c.Rejected, c.AtOnce = true, 0
	return c
}

// failed is the clock after one more failure. A server that asks for a longer
// wait gets it.
func (c Clock) failed(now time.Time, wait, retryAfter time.Duration) Clock {
	return Clock{NotBefore: now.Add(max(wait, retryAfter)), Failures: c.Failures + 1, Wait: c.Wait}
}

// because is the clock with what the failure at now was.
func (c Clock) because(now time.Time, err error) Clock {
	c.Cause, c.Failed = causeOf(err), now
	return c
}

// succeeded is the end of a search that was answered at now.
func (c *Clock) succeeded(now time.Time, wait time.Duration, noted, together bool) {
	if !together {
		c.Failures, c.Cause, c.Failed = 0, "", time.Time{}
	}
	if noted {
		c.NotBefore = time.Time{}
	}
	if c.Wait = wait; wait > 0 && now.Add(wait).After(c.NotBefore) {
		c.NotBefore = now.Add(wait)
	}
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
