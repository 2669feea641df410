package ownlist

import (
	"fmt"
	"time"
)

// untilLayouts are the times of day that ParseUntil reads. A layout without a
// zone is read in the zone that the caller names.
var untilLayouts = []string{
	time.RFC3339,
	"2006-01-02T15:04Z07:00",
	"2006-01-02T15:04:05",
	"2006-01-02T15:04",
}

// ParseUntil returns when an entry ends that is allowed "until" text: the first
// moment at which it no longer holds. Text is one word:
//
//	2027-01-31            to the end of that day in loc
//	2027-01-31T18:00      that time in loc
//	2027-01-31T18:00:00Z  that time in its own zone (RFC 3339)
//
// The result is in the zone that text is in. It may be in the past. A nil loc is
// the zone of the machine. It is safe for concurrent use.
func ParseUntil(text string, loc *time.Location) (time.Time, error) {
	if loc == nil {
		loc = time.Local
	}
	if day, err := time.ParseInLocation(time.DateOnly, text, loc); err == nil {
		return time.Date(day.Year(), day.Month(), day.Day()+1, 0, 0, 0, 0, loc), nil
	}
	for _, layout := range untilLayouts {
		if t, err := time.ParseInLocation(layout, text, loc); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a date such as 2027-01-31 nor a time such as 2027-01-31T18:00", text)
}
