package block

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// What people write of a Change, who may sit at a terminal or at the door.

// EntryHost returns the host that people name for an entry. It refuses hosts that would make an entry
// about very many names.
func EntryHost(text string) (lookup.Host, error) {
	h, ok := lookup.ParseHost(text)
	if _, err := netip.ParseAddr(strings.Trim(h.String(), "[]")); ok && err == nil {
		return h, fmt.Errorf("%q is an address: write the name that is asked for", text)
	}
	if !ok || strings.ContainsAny(text, "/*:@") || strings.Contains(text, "..") || strings.HasPrefix(text, ".") || strings.HasPrefix(text, "-") {
		return h, fmt.Errorf("%q is not a host: write a name such as www.example.org", text)
	}
	if ownlist.IsPublicSuffix(h.String()) {
		return h, fmt.Errorf("%s is a public suffix: an entry would be about every name below it; if you want that, write it into the file by hand", h)
	}
	return h, nil
}

// maxFor is the longest duration of an exception. A longer one is better written as a date.
const maxFor = 366 * 24 * time.Hour

// EndOf returns when an exception ends by -for and -until; the zero time if both are "".
func EndOf(length, until string, now time.Time) (time.Time, error) {
	switch {
	case length != "" && until != "":
		return time.Time{}, errors.New("-for and -until are both given: keep one of the two")
	case length != "":
		d, err := say.Duration(length, maxFor)
		return now.Add(d).Round(time.Second), err
	case until != "":
		return timeOf(until, now)
	}
	return time.Time{}, nil
}

// timeOf reads a time in the time zone of now: 18:00 is the next one, and the other forms
// are as in an own list, with a space instead of the T if the user prefers.
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
