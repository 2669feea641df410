package ownlist

import "strings"

// URLEvent is a change that a caller may want to log: Failed, Recovered or Waiting.
type URLEvent interface{ event() }

// URLFailed says that an attempt brought no list that is believed. It is reported for the
// first of several failures in a row, and when doubt of a list follows another failure or
// the other way round.
type URLFailed struct {
	URLState             // Error says why, without secrets
	Doubt    *DoubtError // a list came and is not believed; else nil
}

// URLRecovered says that a fetch has succeeded after failures.
type URLRecovered struct{ URLState }

// URLWaiting says that a list has waited for a minute to be downloaded, since others are. It is
// reported once for each wait.
type URLWaiting struct {
	URLState
	Others []string // the names of these
}

func (URLFailed) event()    {}
func (URLWaiting) event()   {}
func (URLRecovered) event() {}

// printable makes the words of a server fit for a log line and a state file.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0xfffd || r == '\u2028' || r == '\u2029' {
			return -1
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), maxURLState)], "")
}
