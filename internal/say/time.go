package say

import "time"

// TimeForm is how texts for people have a time, which is local: as logs of the system and clocks on
// the wall have it, with the zone. Files, JSON and answers by DNS have RFC 3339 in UTC instead.
const TimeForm = "2006-01-02 15:04:05 MST"

// Time returns a time as texts for people have it, see TimeForm; "never" for the zero time.
// It is safe for concurrent use.
func Time(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Local().Format(TimeForm)
}
