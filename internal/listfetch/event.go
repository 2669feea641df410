package listfetch

import "strings"

// Event is a change that a caller may want to log: Failed, Recovered or Waiting.
type Event interface{ event() }

// Failed says that an attempt brought no list that is believed. It is reported for the
// first of several failures in a row, and when doubt of a list follows another failure or
// the other way round.
type Failed struct {
	State             // Error says why, without secrets
	Doubt *DoubtError // a list came and is not believed; else nil
}

// Recovered says that a fetch has succeeded after failures.
type Recovered struct{ State }

// Waiting says that a list has waited for a minute to be downloaded, since others are. It is
// reported once for each wait.
type Waiting struct {
	State
	Others []string // the names of these
}

func (Failed) event()    {}
func (Waiting) event()   {}
func (Recovered) event() {}

// printable makes the words of a server fit for a log line and a state file.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0xfffd || r == '\u2028' || r == '\u2029' {
			return -1
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}
