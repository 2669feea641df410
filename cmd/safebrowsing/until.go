package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
)

// maxFor is the longest duration of an exception. A longer one is better written as a date.
const maxFor = 366 * 24 * time.Hour

// endOf returns when an exception ends by -for and -until; the zero time if both are "".
func endOf(length, until string, now time.Time) (time.Time, error) {
	switch {
	case length != "" && until != "":
		return time.Time{}, errors.New("-for and -until are both given: keep one of the two")
	case length != "":
		d, err := durationOf(length, maxFor)
		return now.Add(d).Round(time.Second), err
	case until != "":
		return timeOf(until, now)
	}
	return time.Time{}, nil
}

// durationOf reads a duration such as 30m or 7d, of at least a second.
func durationOf(written string, longest time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(written)
	if days, ok := strings.CutSuffix(written, "d"); ok {
		var n int64 // an int has 32 bits on some machines
		n, err = strconv.ParseInt(days, 10, 64)
		d = time.Duration(min(n, 1<<16)) * 24 * time.Hour
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration such as 30m, 2h or 7d", written)
	case d < time.Second:
		return 0, fmt.Errorf("%q is less than a second", written)
	case d > longest:
		return 0, fmt.Errorf("%q is more than %d days", written, longest/(24*time.Hour))
	}
	return d, nil
}

// timeOf reads a time in the time zone of now: 18:00 is the next one, and the other forms
// are those of an own list, with a space in place of the T if the user prefers.
func timeOf(written string, now time.Time) (time.Time, error) {
	for _, layout := range []string{"15:04", time.TimeOnly} {
		clock, err := time.Parse(layout, written)
		if err != nil {
			continue
		}
		at := func(day int) time.Time {
			return time.Date(now.Year(), now.Month(), day, clock.Hour(), clock.Minute(), clock.Second(), 0, now.Location())
		}
		if today := at(now.Day()); today.After(now) {
			return today, nil
		}
		return at(now.Day() + 1), nil
	}
	end, err := ownlist.ParseUntil(strings.Replace(strings.TrimSpace(written), " ", "T", 1), now.Location())
	if err != nil {
		return end, fmt.Errorf("-until: %q is not a time such as 18:00, 2026-11-22 or \"2026-11-22 18:00\"", written)
	}
	if !end.After(now) {
		return end, fmt.Errorf("-until: %s is in the past", written)
	}
	return end.In(now.Location()), nil
}
