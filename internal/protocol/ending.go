package protocol

import (
	"fmt"
	"time"
)

// Ending is the end of a protocol at Google's server. The zero Ending is none.
type Ending struct {
	At    time.Time
	title string
	name  string
	next  *Dialect // to ask by from then on
}

// EndingAt returns the end of the dialect at an endpoint, "" for Google's: a server of the
// operator's own may speak it for longer. A nil Dialect has none.
func (d *Dialect) EndingAt(endpoint string) Ending {
	if d == nil || d.ends.IsZero() || !IsGoogle(endpoint) {
		return Ending{}
	}
	return Ending{d.ends, d.Title, d.Name, dialects[0]}
}

// Over reports whether the end has come.
func (e Ending) Over(now time.Time) bool { return !e.At.IsZero() && !now.Before(e.At) }

// Text says in a sentence when the protocol ends or has ended, and what to write; "" for none.
func (e Ending) Text(now time.Time) string {
	day := e.At.Format("2 January 2006")
	switch {
	case e.At.IsZero():
		return ""
	case e.Over(now):
		return fmt.Sprintf("Google has ended %s on %s: its server may stop at any time, and then lists are not updated and names are not confirmed. %s. DNS and your own lists go on", e.title, day, e.Advice())
	}
	days := int((e.At.Sub(now) + 24*time.Hour - 1) / (24 * time.Hour))
	in := fmt.Sprintf("in %d days", days)
	if days == 1 {
		in = "tomorrow"
	}
	return fmt.Sprintf("Google ends %s on %s, %s: from then on its server may stop at any time, and then lists are not updated and names are not confirmed. %s: the lists stay in force", e.title, day, in, e.Advice())
}

// Advice says what to write.
func (e Ending) Advice() string {
	return fmt.Sprintf("Change protocol %s to %s", e.name, e.next.Name)
}
