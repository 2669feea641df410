package engine

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// start logs the line that says what protects: at the start of an engine, and when it
// takes over from another process. It is a warning if a list is missing or old, or if a
// budget is spent or missing. The caller holds mu.
func (r *reporter) start(kind updater.Kind) {
	if r.again {
		r.again = false
		return
	}
	r.started = true
	names := r.settings.Stored()
	now := time.Now()
	lists, missing := r.inForce(names, now)
	budget, hold := r.budget(now), r.searchHold()
	parts := []string{fmt.Sprintf("%s is on: %s, mode %s", r.settings.Dialect().Title, strings.Join(r.settings.Endpoints(), ", then "), r.settings.Mode), lists, "db " + cmp.Or(r.settings.DB, "off"), r.next(kind, names, now)}
	if budget != "" {
		parts = append(parts, budget)
	}
	if hold.Active(now) {
		parts = append(parts, fmt.Sprintf("confirmations are paused until %s (%v)", say.Time(hold.Until), hold))
	}
	say := log.Infof
	if missing || hold.Budget > 0 || r.settings.Dialect().Paid && r.settings.Budget == 0 {
		say = log.Warningf
	}
	say("%s", strings.Join(parts, "; "))
}

// searchHold is Service.SearchHold. It is safe for concurrent use.
func (r *reporter) searchHold() updater.Hold {
	return (&Service{settings: r.settings, Schedule: r.schedule, ledger: r.ledger}).SearchHold()
}

// standing returns the lists, whether another process fetches them, and in a sentence that a relay does
// not answer about all names. It is safe for concurrent use.
func (r *reporter) standing() (lists []updater.ListStatus, follows bool, inPart string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.settings.Stored() {
		lists = append(lists, r.list(name))
	}
	if age := time.Since(r.unanswered); age >= 0 && age < time.Hour { // else nobody has asked since, and it may be over
		inPart = fmt.Sprintf("Names are confirmed in part (%v): suspected names that the relay does not know pass. The relay's log says until when.", r.unknown)
	}
	return lists, r.follows, inPart
}

// startsAgain lets the next start log nothing: tokens change every hour, and nothing else
// does with them.
func (r *reporter) startsAgain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.again = true
}

// inForce describes the lists, and reports whether one is missing or old.
func (r *reporter) inForce(names []string, now time.Time) (lists string, missing bool) {
	found := 0
	var each []string
	for _, name := range names {
		l := r.list(name)
		if !l.Missing() {
			found++
		}
		missing = missing || l.Old(now)
		each = append(each, describe(l, now))
	}
	switch {
	case len(names) == 0:
		return "no lists are kept", false
	case found == 0:
		return "NO list is in force yet (" + strings.Join(names, ", ") + "): " + r.settings.Dialect().Service + " blocks nothing until the first update", true
	}
	return "lists " + strings.Join(each, ", "), missing || found < len(names)
}

// budget describes the budget. It returns "" if there is none and need not be.
func (r *reporter) budget(now time.Time) string {
	switch perDay := r.settings.Budget; {
	case perDay > 0:
		return fmt.Sprintf("budget of %s a day, %d left today", say.Count(perDay, "search", "searches"), r.ledger.Remaining(perDay, now))
	case r.settings.Dialect().Paid:
		return "NO budget: searches cost money, and their number is not limited"
	}
	return ""
}

// roundedLimit says if the server is asked for another number of entries than the
// Corefile says.
func (r *reporter) roundedLimit() {
	s := r.settings
	if asked := s.Dialect().MaxEntries(s.MaxEntries); asked != s.MaxEntries {
		log.Infof("max_entries %d is rounded to %d: protocol %s has powers of two only", s.MaxEntries, asked, s.Dialect())
	}
}

// list returns what is known about a list. The caller holds mu.
func (r *reporter) list(name string) updater.ListStatus {
	e := r.lists[name]
	l := updater.ListStatus{Name: name, Entries: e.Entries, Updated: e.Updated, NotBefore: e.Due}
	if e.Entries == 0 && e.Updated.IsZero() {
		l.Err = fs.ErrNotExist
	}
	return l
}

// describe returns a list in words: its entries and its age.
func describe(l updater.ListStatus, now time.Time) string {
	switch {
	case l.Missing():
		return l.Name + " (not yet)"
	case l.Updated.IsZero():
		return fmt.Sprintf("%s (%s, of unknown age)", l.Name, say.Count(l.Entries, "entry", "entries"))
	case l.Old(now):
		return fmt.Sprintf("%s (%s, OLD: updated %s ago)", l.Name, say.Count(l.Entries, "entry", "entries"), say.Age(now.Sub(l.Updated)))
	}
	return fmt.Sprintf("%s (%s, updated %s ago)", l.Name, say.Count(l.Entries, "entry", "entries"), say.Age(now.Sub(l.Updated)))
}

// next says when the first request is allowed, and why not before.
func (r *reporter) next(kind updater.Kind, names []string, now time.Time) string {
	hold := r.schedule.FetchHold(names)
	switch {
	case len(names) == 0:
		return "the server is asked about each name"
	case kind == updater.LockBusy:
		text := "another process uses db and fetches the lists; this one reads them from there"
		if slices.ContainsFunc(names, func(name string) bool { l := r.list(name); return l.Missing() }) {
			text += ". Lists that the other does not name never come: write the same mode and lists in both, or give this one another db"
		}
		return text
	case kind == updater.LeaseBusy:
		return "another relay fetches the lists, or is about to; this one takes them over"
	case hold.Until.After(now.Add(time.Minute)):
		return fmt.Sprintf("next request not before %s (%v)", say.Time(hold.Until), hold)
	}
	return "next request within a minute (first contact)"
}
