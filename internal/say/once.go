package say

import (
	"strings"
	"sync"
	"time"
)

// Trouble remembers what was said about something that is looked at again and again, so that each
// trouble is said once, and its end once. The zero Trouble is that all is well. It is not safe for
// concurrent use.
type Trouble struct{ said string }

// Note takes the result of a look, and reports whether it is a trouble that has not been said yet, or
// the end of one.
func (t *Trouble) Note(err error) (began, ended bool) {
	last := t.said
	if t.said = ""; err != nil {
		t.said = err.Error()
	}
	return err != nil && t.said != last, err == nil && last != ""
}

// Lasts reports whether the last look brought a trouble.
func (t *Trouble) Lasts() bool { return t.said != "" }

// Daily says which things have not been said on a day yet. The zero Daily is ready to use. It is safe
// for concurrent use.
type Daily struct {
	mu   sync.Mutex
	day  string
	said map[string]bool // at most maxDaily
}

// maxDaily is the most things that are said in a day.
const maxDaily = 100

// First reports whether a thing is to be said at now. Case does not count: clients may choose a name's
// at random (draft-vixie-dnsext-dns0x20).
func (d *Daily) First(what string, now time.Time) bool {
	what = strings.ToLower(what)
	d.mu.Lock()
	defer d.mu.Unlock()
	if day := now.Format(time.DateOnly); d.day != day {
		d.day, d.said = day, make(map[string]bool)
	}
	if d.said[what] || len(d.said) >= maxDaily {
		return false
	}
	d.said[what] = true
	return true
}
