package ownlist

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // zones with daylight saving time, wherever the test runs
)

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	must(t, err)
	return loc
}

func TestUntilEndsInTheZoneItIsMeantIn(t *testing.T) {
	berlin, auckland := location(t, "Europe/Berlin"), location(t, "Pacific/Auckland")
	for _, tc := range []struct {
		name, text string
		loc        *time.Location
		want       string // UTC
	}{
		{"a day, UTC", "2027-01-31", time.UTC, "2027-02-01T00:00:00Z"},
		{"a day, east of UTC", "2027-01-31", berlin, "2027-01-31T23:00:00Z"},
		{"a day, far east of UTC", "2027-01-31", auckland, "2027-01-31T11:00:00Z"},
		{"the last day of a year", "2027-12-31", time.UTC, "2028-01-01T00:00:00Z"},
		{"a leap day", "2028-02-29", time.UTC, "2028-03-01T00:00:00Z"},
		{"the day of 23 hours", "2027-03-28", berlin, "2027-03-28T22:00:00Z"},
		{"the day of 25 hours", "2027-10-31", berlin, "2027-10-31T23:00:00Z"},
		{"a time of day", "2027-01-31T18:00", berlin, "2027-01-31T17:00:00Z"},
		{"a time of day with seconds", "2027-07-31T18:00:30", berlin, "2027-07-31T16:00:30Z"},
		{"a time in UTC, whatever the zone", "2027-01-31T18:00:00Z", berlin, "2027-01-31T18:00:00Z"},
		{"a time with an offset", "2027-01-31T18:00:00-05:00", berlin, "2027-01-31T23:00:00Z"},
		{"an offset without seconds", "2027-01-31T18:00+02:00", berlin, "2027-01-31T16:00:00Z"},
		{"a day long gone", "2020-01-01", time.UTC, "2020-01-02T00:00:00Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseUntil(tc.text, tc.loc)
			must(t, err)
			if utc := got.UTC().Format(time.RFC3339); utc != tc.want {
				t.Errorf("Expected %s, got %s", tc.want, utc)
			}
		})
	}
}

func TestUntilRefusesWhatIsNoTime(t *testing.T) {
	for _, text := range []string{
		"", "tomorrow", "2027-02-30", "2027-13-01", "2027-1-31", "31.01.2027", "2027-01-31T25:00",
		"2027-01-31 18:00", "18:00", "2027-01-31T", "2027-01-31,",
	} {
		got, err := ParseUntil(text, time.UTC)
		if err == nil || !strings.Contains(err.Error(), "2027-01-31T18:00") {
			t.Errorf("%q: Expected an error that shows the right form, got %v %v", text, got, err)
		}
	}
}
