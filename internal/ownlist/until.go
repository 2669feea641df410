package ownlist

import (
	"fmt"
	"time"
)

// untilLayouts are the layouts of ParseUntil with a time of day. A layout without a time
// zone uses loc.
var untilLayouts = []string{
	time.RFC3339,
	"2006-01-02T15:04Z07:00",
	"2006-01-02T15:04:05",
	"2006-01-02T15:04",
}

// ParseUntil returns when an entry "until" text expires: the first moment at which it is
// no longer valid. Text is one word:
//
//	2027-01-31            the end of that day in loc
//	2027-01-31T18:00      that time in loc
//	2027-01-31T18:00:00Z  that time in its own time zone (RFC 3339)
//
// The result may be in the past; its time zone is the one of text. A nil loc is the time
// zone of the machine. It is safe for concurrent use.
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
