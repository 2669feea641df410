package ownlist

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Summary is what was found in a list when it was read.
type Summary struct {
	Entries     int       // distinct names
	Ended       int       // of Entries, those that have ended
	Seems       string    // what the file is instead of a list: "is UTF-16"; "": a list
	Cure        string    // what to do about that: "save it as UTF-8"
	Bad         Lines     // in none of the formats, or too long
	Unsupported []Lines   // well-formed, but not supported; by kind, in the order of their first lines
	Elsewhere   Lines     // of hosts files, with an address that does not block
	LocalData   Lines     // of RPZ, with records of their own: their names are blocked, the records are not used
	Wide        []string  // what lines do that are about a whole top-level domain, another public suffix or all names; the first few
	MoreWide    int       // how many more of those there are
	Modified    time.Time // when the file was last changed

	empty bool // it has no lines at all
}

// Line is one line of a file.
type Line struct {
	Number int    // from 1
	Text   string // at most 80 bytes, valid UTF-8
}

// Lines is how many lines there are of a kind, and the first one.
type Lines struct {
	Count int
	First Line
	kind  kind
}

func (l *Lines) add(number int, raw []byte) {
	if l.Count++; l.Count == 1 {
		l.First = lineOf(number, raw)
	}
}

// maxText is how many bytes of a line are kept, maxKinds how many kinds of lines
// are told apart, and maxWide how many entries for many names are kept.
const (
	maxText  = 80
	maxKinds = 12
	maxWide  = 5
)

func lineOf(number int, raw []byte) Line {
	text := strings.TrimSpace(string(raw[:min(len(raw), maxLine)]))
	return Line{number, strings.ToValidUTF8(text[:min(len(text), maxText)], "")}
}

func (s *Summary) addUnsupported(k kind, number int, raw []byte) {
	of := func(k kind) int { return slices.IndexFunc(s.Unsupported, func(l Lines) bool { return l.kind == k }) }
	i := of(k)
	if i < 0 && len(s.Unsupported) >= maxKinds {
		k = kindOther
		i = of(k)
	}
	if i < 0 {
		i = len(s.Unsupported)
		s.Unsupported = append(s.Unsupported, Lines{kind: k})
	}
	s.Unsupported[i].add(number, raw)
}

func (s *Summary) addWide(number int, does string) {
	if len(s.Wide) == maxWide {
		s.MoreWide++
		return
	}
	s.Wide = append(s.Wide, fmt.Sprintf("line %d %s", number, does))
}

// NotSupported returns the number of lines of all kinds that are not supported.
func (s Summary) NotSupported() (lines int) {
	for _, l := range s.Unsupported {
		lines += l.Count
	}
	return lines
}

// InForce returns the number of distinct names that have not ended.
func (s Summary) InForce() int { return s.Entries - s.Ended }

// Nothing says why no entry is in force: "is empty"; or "" if one is.
func (s Summary) Nothing() string {
	switch {
	case s.InForce() > 0:
		return ""
	case s.Seems != "":
		return s.Seems
	case s.Entries > 0:
		return "has only entries that have ended"
	case s.Bad.Count+s.NotSupported()+s.Elsewhere.Count > 0:
		return "has no line that can be used"
	case s.empty:
		return "is empty"
	}
	return "has only comments"
}

// Remarks says in words what of the list is not used, and what has ended.
func (s Summary) Remarks() (all []string) {
	if n := s.NotSupported(); n > 0 {
		var kinds []string
		for _, l := range s.Unsupported {
			kinds = append(kinds, fmt.Sprintf("%s, first at line %d", Plural(l.Count, l.kind.one, l.kind.many), l.First.Number))
		}
		all = append(all, fmt.Sprintf("%s not supported (%s)", Plural(n, "line is", "lines are"), strings.Join(kinds, "; ")))
	}
	if l := s.Elsewhere; l.Count > 0 {
		all = append(all, fmt.Sprintf("%s with another address than 0.0.0.0, 127.0.0.1 or the sinkhole %s (first at line %d: %q)",
			Plural(l.Count, "line", "lines"), plural(l.Count, "blocks nothing", "block nothing"), l.First.Number, l.First.Text))
	}
	if l := s.LocalData; l.Count > 0 {
		all = append(all, fmt.Sprintf("%s not sent, but the names are blocked (first at line %d)",
			Plural(l.Count, "record of a zone's own is", "records of a zone's own are"), l.First.Number))
	}
	if l := s.Bad; l.Count > 0 {
		all = append(all, fmt.Sprintf("%s (first at line %d: %q)", Plural(l.Count, "line is not a list entry", "lines are not list entries"), l.First.Number, l.First.Text))
	}
	if s.Ended > 0 {
		all = append(all, Plural(s.Ended, "entry has ended", "entries have ended"))
	}
	return all
}

// WideRemark says what lines do that are about very many names, or returns "".
func (s Summary) WideRemark() string {
	text := strings.Join(s.Wide, "; ")
	if s.MoreWide > 0 {
		text += fmt.Sprintf("; and %s", Plural(s.MoreWide, "more line", "more lines"))
	}
	return text
}

// Plural returns a count with the words for it: "1 entry", "2 entries".
func Plural(n int, one, many string) string { return fmt.Sprintf("%d %s", n, plural(n, one, many)) }

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
