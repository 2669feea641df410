package protocol

import (
	"errors"
	"math"
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// The server names noon as its time t, which is half an hour after its answer. What
// differs is our clock, and what the header says.
func TestATimeOfTheServerBecomesADuration(t *testing.T) {
	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	answered := noon.Add(-30 * time.Minute)
	date := answered.Format(http.TimeFormat)
	for _, test := range []struct {
		name        string
		date, age   string
		now         time.Time     // by our clock
		took        time.Duration // by the request
		until       time.Time
		least, most time.Duration
	}{
		{"both clocks are right", date, "", answered, 0, noon, 30 * time.Minute, 30 * time.Minute},
		{"Date has whole seconds, our clock has more", date, "", answered.Add(400 * time.Millisecond), 0, noon, 30*time.Minute - 400*time.Millisecond, 30*time.Minute - 400*time.Millisecond},
		{"the answer was under way for 3 s", date, "", answered.Add(3500 * time.Millisecond), 3 * time.Second, noon, 30*time.Minute - 3500*time.Millisecond, 30*time.Minute - 3500*time.Millisecond},
		{"our clock is 2 h behind", date, "", answered.Add(-2 * time.Hour), 3 * time.Second, noon, 30*time.Minute - 4*time.Second, 30 * time.Minute},
		{"our clock is 2 h ahead", date, "", answered.Add(2 * time.Hour), 3 * time.Second, noon, 30*time.Minute - 4*time.Second, 30 * time.Minute},
		{"our clock is 2 s behind", date, "", answered.Add(-2 * time.Second), 0, noon, 30*time.Minute - time.Second, 30 * time.Minute},
		{"our clock is 2 s ahead", date, "", answered.Add(2 * time.Second), 0, noon, 30*time.Minute - time.Second, 30 * time.Minute},
		{"our clock shows 1970", date, "", time.Unix(60, 0), 0, noon, 30*time.Minute - time.Second, 30 * time.Minute},
		{"a cache has had the answer for 10 minutes", answered.Add(-10 * time.Minute).Format(http.TimeFormat), "600", answered, 0, noon, 30 * time.Minute, 30 * time.Minute},
		{"an Age that is wrong", date, "-600", answered, 0, noon, 30 * time.Minute, 30 * time.Minute},
		{"no Date", "", "", answered.Add(time.Minute), 0, noon, 29 * time.Minute, 29 * time.Minute},
		{"a Date that is wrong", "yesterday", "", answered.Add(time.Minute), 0, noon, 29 * time.Minute, 29 * time.Minute},
		{"a Date of 1970", time.Unix(60, 0).UTC().Format(http.TimeFormat), "", answered, 0, noon, 30 * time.Minute, 30 * time.Minute},
		{"a Date of 2036", answered.AddDate(10, 0, 0).Format(http.TimeFormat), "", answered, 0, noon, 30 * time.Minute, 30 * time.Minute},
		{"three days, by both clocks", date, "", answered, 0, answered.Add(72 * time.Hour), 72 * time.Hour, 72 * time.Hour},
		{"three days, and our clock shows 1970", date, "", time.Unix(60, 0), 0, answered.Add(72 * time.Hour), 72*time.Hour - time.Second, 72 * time.Hour},
		{"three days, and our clock is five days ahead", date, "", answered.AddDate(0, 0, 5), 0, answered.Add(72 * time.Hour), 72*time.Hour - time.Second, 72 * time.Hour},
		{"past by both clocks", date, "", answered, 0, answered.Add(-time.Minute), 0, 0},
		{"past by the clock of the server", date, "", answered.Add(-time.Hour), 0, answered.Add(-time.Minute), 0, 0},
		{"past by our clock, without Date", "", "", answered, 0, answered.Add(-time.Minute), 0, 0},
		{"the first time there is", date, "", answered, 0, time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), 0, 0},
		{"the last time there is", date, "", answered, 0, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), math.MaxInt64, math.MaxInt64},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newServerClock(http.Header{"Date": {test.date}, "Age": {test.age}}, test.now.Add(-test.took), test.now)
			life, err := c.life(timestamppb.New(test.until))
			wait, waitErr := c.wait(timestamppb.New(test.until))
			if life != test.least || wait != test.most || errors.Join(err, waitErr) != nil {
				t.Errorf("it may be kept for %s, want %s; it is to be waited for %s, want %s; %v, %v", life, test.least, wait, test.most, err, waitErr)
			}
		})
	}
}

func TestATimeThatIsAbsentIsNoneAndOneThatCannotBeIsAnError(t *testing.T) {
	c := newServerClock(http.Header{}, time.Now(), time.Now())
	for name, test := range map[string]struct {
		t    *timestamppb.Timestamp
		want error
	}{
		"absent":         {nil, nil},
		"1970":           {&timestamppb.Timestamp{}, nil},
		"year 0":         {&timestamppb.Timestamp{Seconds: -62135596801}, updater.ErrMalformed},
		"year 10000":     {&timestamppb.Timestamp{Seconds: 253402300800}, updater.ErrMalformed},
		"negative nanos": {&timestamppb.Timestamp{Seconds: 1 << 33, Nanos: -1}, updater.ErrMalformed},
		"greatest nanos": {&timestamppb.Timestamp{Seconds: 1 << 33, Nanos: math.MaxInt32}, updater.ErrMalformed},
	} {
		life, err := c.life(test.t)
		wait, waitErr := c.wait(test.t)
		if life != 0 || wait != 0 || !errors.Is(err, test.want) || !errors.Is(waitErr, test.want) {
			t.Errorf("%s: %s, %v and %s, %v", name, life, err, wait, waitErr)
		}
	}
}
