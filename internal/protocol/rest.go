package protocol

import (
	"errors"
	"net/http"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// method is a kind of request with waits of its own.
type method uint8

const (
	fetching method = iota
	searching
	methods // how many there are
)

// rest is how long one endpoint of several is left alone by a method. The zero rest is
// that of an endpoint that works.
type rest struct {
	failures  int       // in a row; requests that were under way together count once, those that were not sent never
	refusals  int       // of those, with status 403 or 429
	failed    time.Time // last
	notBefore time.Time // the rules allow no request before; zero: they do
	until     time.Time // no request before, unless no other endpoint answers
	err       error     // of the last failure
}

// works reports whether the endpoint answered last.
func (r rest) works() bool { return r.err == nil }

// searchRest is how long an endpoint that has failed is left alone by searches, and one that was
// not reached by fetches too, at least; at most twice as long.
const searchRest = time.Minute

// after returns the rest after a request, sent at sent, has failed at now with err. wait is the
// minimum wait in what came of its answer, 0 if there was none: the server may not be asked
// earlier, whatever became of the rest ("Request Frequency").
// random is uniform in [0, 1), a new one for each failure.
//
// The back-off is at its lower bound, which no request may undercut ("Request
// Frequency"): the caller's own back-off, which comes on top when all have failed, is
// random.
func (r rest) after(m method, sent, now time.Time, wait time.Duration, err error, random float64) rest {
	status, _ := errors.AsType[*updater.StatusError](err)
	refused := status != nil && (status.Code == http.StatusForbidden || status.Code == http.StatusTooManyRequests)
	if !sent.Before(r.failed) && !isNotSent(err) {
		r.failures++
		if refused {
			r.refusals++
		}
	}
	if status != nil {
		wait = max(wait, status.Obeyed(m == searching))
	}
	switch {
	case isNotSent(err): // no rule speaks of it
	case m == fetching:
		wait = max(wait, updater.Backoff(r.failures, 0))
	case refused:
		wait = max(wait, updater.Backoff(r.refusals, 0))
	}
	r.failed, r.err = now, err
	if until := now.Add(wait); wait > 0 && until.After(r.notBefore) {
		r.notBefore = until
	}
	r.until = r.notBefore
	if until := now.Add(time.Duration(float64(searchRest) * (1 + random))); (m == searching || isNotSent(err)) && until.After(r.until) {
		r.until = until
	}
	return r
}
