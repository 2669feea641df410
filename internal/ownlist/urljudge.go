package ownlist

import (
	"fmt"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// doubtFor is how long a list that has lost too much must stay so to be believed.
const doubtFor = time.Hour

// DoubtError says why a list that came is not believed.
type DoubtError struct {
	Why string // "it looks like an HTML page"
	// From is when the same list is believed; zero: never.
	From time.Time
}

// Error implements error.
func (e *DoubtError) Error() string { return doubtWords + e.Why }

// doubtWords begin the text of each DoubtError, so that a State tells it from others.
const doubtWords = "the list that came is not believed: "

// judge says why a list that came is not believed, or returns nil. The answer of a failing
// server must not replace a good list. doubt is what to remember for the next one.
//
// An HTML page, another file that is not a list and an empty answer are never believed. A
// list that has lost more than half of its entries is, when it comes a second time after
// doubtFor.
func judge(s URLState, came Summary, now time.Time) (doubt *Doubt, err error) {
	nothing := came.Nothing()
	switch {
	case came.Seems != "":
		return s.Doubt, &DoubtError{Why: "it " + came.Seems}
	case came.Entries > maxEntries:
		return s.Doubt, &DoubtError{Why: fmt.Sprintf("it has %d entries, and a list may have %d", came.Entries, maxEntries)}
	case came.Entries == 0 && nothing != "" && (s.Changed.IsZero() || nothing != onlyComments):
		return s.Doubt, &DoubtError{Why: "it " + nothing}
	case 2*came.Entries >= s.Entries:
		return nil, nil
	}
	doubt = s.Doubt
	if doubt == nil || 2*came.Entries < doubt.Entries || now.Before(doubt.Since) {
		doubt = &Doubt{Entries: came.Entries, Since: now}
	}
	from := doubt.Since.Add(doubtFor)
	if !now.Before(from) {
		return nil, nil
	}
	return doubt, &DoubtError{
		Why:  fmt.Sprintf("it has %s, and the one before had %d", say.Count(came.Entries, "entry", "entries"), s.Entries),
		From: from,
	}
}

// onlyComments is Summary.Nothing of a list that its makers may have emptied. "" is that of
// one whose comment says that it is empty on purpose.
const onlyComments = "has only comments"
