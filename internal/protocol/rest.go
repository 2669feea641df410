package protocol

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

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
// one for an endpoint that works.
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

// serverClock turns a time that an answer names into a duration. Our own clock may be
// wrong by hours, the header Date says what the server's clock showed. The duration is
// counted from now, when the answer has been read.
type serverClock struct {
	now   time.Time
	asked time.Time // when the request was sent; by our clock, as now
	date  time.Time // Date plus Age (RFC 9110 section 6.6.1, RFC 9111 section 5.1); zero: not given
}

// newServerClock reads the header of an answer to a request that was sent at asked.
func newServerClock(header http.Header, asked, now time.Time) serverClock {
	c := serverClock{asked: asked, now: now}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		age, _ := strconv.ParseUint(header.Get("Age"), 10, 31)
		c.date = date.Add(time.Duration(age) * time.Second)
	}
	return c
}

// farAway is how far away a time by Date must be to look like a wrong Date.
const farAway = 24 * time.Hour

// until returns how long it is until t, which may be absent or past: least is how long something
// that expires then may be kept, and most how long to wait so as not to ask before. They are never
// less than 0. Both are the time by our clock if there is no Date, if Date contradicts it by no more
// than its own inaccuracy, or if only Date puts t more than a day away. Date is
// inaccurate by less than a second, and is as old as the answer.
func (c serverClock) until(t *timestamppb.Timestamp) (least, most time.Duration, err error) {
	if t == nil {
		return 0, 0, nil
	}
	if t.CheckValid() != nil {
		return 0, 0, fmt.Errorf("%w: a time of %d s and %d ns", updater.ErrMalformed, t.GetSeconds(), t.GetNanos())
	}
	ours, theirs := t.AsTime().Sub(c.now), t.AsTime().Sub(c.date)
	if c.date.IsZero() || theirs.Abs() > farAway && ours.Abs() <= farAway {
		return max(0, ours), max(0, ours), nil
	}
	most = max(0, theirs)
	least = max(0, most-time.Second-c.now.Sub(c.asked))
	if least <= ours && ours <= most {
		return ours, ours, nil
	}
	return least, most, nil
}
