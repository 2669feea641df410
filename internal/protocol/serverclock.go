package protocol

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

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

// until returns how long it is until t, at least and at most; never less than 0. Both
// are the time by our clock if there is no Date, if Date contradicts it by no more
// than its own inaccuracy, or if only Date puts t more than a day away. Date is
// inaccurate by less than a second, and is as old as the answer.
func (c serverClock) until(t time.Time) (least, most time.Duration) {
	ours, theirs := t.Sub(c.now), t.Sub(c.date)
	if c.date.IsZero() || theirs.Abs() > farAway && ours.Abs() <= farAway {
		return max(0, ours), max(0, ours)
	}
	most = max(0, theirs)
	least = max(0, most-time.Second-c.now.Sub(c.asked))
	if least <= ours && ours <= most {
		return ours, ours
	}
	return least, most
}

// wait returns how long to wait so as not to ask before t. A time that is absent or
// past is no wait.
func (c serverClock) wait(t *timestamppb.Timestamp) (time.Duration, error) {
	_, most, err := c.read(t)
	return most, err
}

// life returns how long something may be kept that expires at t. What has no such time
// may not be kept.
func (c serverClock) life(t *timestamppb.Timestamp) (time.Duration, error) {
	least, _, err := c.read(t)
	return least, err
}

func (c serverClock) read(t *timestamppb.Timestamp) (least, most time.Duration, err error) {
	if t == nil {
		return 0, 0, nil
	}
	if t.CheckValid() != nil {
		return 0, 0, fmt.Errorf("%w: a time of %d s and %d ns", updater.ErrMalformed, t.GetSeconds(), t.GetNanos())
	}
	least, most = c.until(t.AsTime())
	return least, most, nil
}
