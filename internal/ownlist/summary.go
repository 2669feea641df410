package ownlist

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// Summary says what the reader found in a list.
type Summary struct {
	Entries     int       // distinct names
	Ended       int       // how many of Entries have expired
	Seems       string    // what the file seems to be if it is not a list: "is UTF-16"; "": it is one
	Cure        string    // what the operator can do about that: "save it as UTF-8"
	Bad         Lines     // lines in none of the formats, and lines that are too long
	Unsupported []Lines   // well-formed lines that are not supported, by kind, in the order of their first lines
	Elsewhere   Lines     // lines of hosts files with an address that does not block
	LocalData   Lines     // RPZ records with an answer of their own: the name is blocked, the answer is not used
	Wide        WideLines // lines that match a whole public suffix or every name
	LeftOut     WideLines // such lines of a fetched list that may not have them: they have no effect
	Modified    time.Time // modification time of the file; zero: hosts of the Corefile

	lines     int    // read so far
	leftOut   uint64 // the sum of the entries of LeftOut
	tracker   tracker
	onPurpose bool // a comment says that it may have no entries
}

// Line is one line of a file.
type Line struct {
	Number int    // from 1
	Text   string // at most 80 bytes, valid UTF-8; "" for a fetched list: nothing of it is quoted
}

// String returns the number and the text: line 3: "the text".
func (l Line) String() string {
	if l.Text == "" {
		return fmt.Sprintf("line %d", l.Number)
	}
	return fmt.Sprintf("line %d: %q", l.Number, l.Text)
}

// Lines counts the lines of a kind and keeps the first one.
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

// WideLines are lines that match a whole public suffix or every name.
type WideLines struct {
	First []string // "line 3 blocks every name"; at most maxWide
	More  int      // the number of lines that are not in First
}

func (w *WideLines) add(number int, does string) {
	if len(w.First) == maxWide {
		w.More++
		return
	}
	w.First = append(w.First, fmt.Sprintf("line %d %s", number, does))
}

// Count returns the number of lines.
func (w WideLines) Count() int { return len(w.First) + w.More }

// String names the lines: "line 3 blocks every name; and 1 more line". It is "" for none.
func (w WideLines) String() string {
	text := strings.Join(w.First, "; ")
	if w.More > 0 {
		text += fmt.Sprintf("; and %s", say.Count(w.More, "more line", "more lines"))
	}
	return text
}

// The bounds of a Summary: a file of any size or content must not fill memory or a log
// line.
const (
	maxText  = 80 // bytes of Line.Text
	maxKinds = 12 // kinds in Unsupported; the rest is kindOther
	maxWide  = 5  // lines in WideLines.First
)

// lineOf returns a Line with text that a log line can quote.
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

// NotSupported returns the number of unsupported lines of all kinds.
func (s Summary) NotSupported() (lines int) {
	for _, l := range s.Unsupported {
		lines += l.Count
	}
	return lines
}

// InForce returns the number of distinct names that have not expired.
func (s Summary) InForce() int { return s.Entries - s.Ended }

// Nothing says why InForce is 0, such as "is empty". It returns "" if it is not 0, or if a
// comment of the list says that it is empty on purpose.
func (s Summary) Nothing() string {
	switch {
	case s.InForce() > 0, s.onPurpose && s.Entries == 0:
		return ""
	case s.Seems != "":
		return s.Seems
	case s.Entries > 0:
		return "has only entries that have ended"
	case s.LeftOut.Count() > 0:
		return "has only lines that are left out: " + s.LeftOut.String()
	case s.Bad.Count+s.NotSupported()+s.Elsewhere.Count > 0:
		return "has no usable line"
	case s.lines == 0:
		return "is empty"
	}
	return "has only comments"
}

// Remarks says in words which lines are not used and how many entries have expired.
func (s Summary) Remarks() (all []string) {
	if n := s.NotSupported(); n > 0 {
		var kinds []string
		for _, l := range s.Unsupported {
			kinds = append(kinds, fmt.Sprintf("%s, first at line %d", say.Count(l.Count, l.kind.one, l.kind.many), l.First.Number))
		}
		all = append(all, fmt.Sprintf("%s not supported (%s)", say.Count(n, "line is", "lines are"), strings.Join(kinds, "; ")))
	}
	if l := s.Elsewhere; l.Count > 0 {
		all = append(all, fmt.Sprintf("%s an address other than 0.0.0.0, 127.0.0.1 or the sinkhole and %s nothing (first at %s)",
			say.Count(l.Count, "line has", "lines have"), say.Plural(l.Count, "blocks", "block"), l.First))
	}
	if l := s.LocalData; l.Count > 0 {
		all = append(all, fmt.Sprintf("%s (first at line %d)", say.Count(l.Count,
			"record with local data is not sent, but its name is blocked", "records with local data are not sent, but their names are blocked"), l.First.Number))
	}
	if l := s.Bad; l.Count > 0 {
		all = append(all, fmt.Sprintf("%s (first at %s)", say.Count(l.Count, "line is not a list entry", "lines are not list entries"), l.First))
	}
	if s.Ended > 0 {
		all = append(all, say.Count(s.Ended, "entry has ended", "entries have ended"))
	}
	return all
}

// LeftOutRemark says which lines are left out because they match a whole public suffix or
// every name, or returns "".
func (s Summary) LeftOutRemark() string {
	n := s.LeftOut.Count()
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s left out, which a list by URL may not have unless the word wide follows it in the Corefile: %s", say.Count(n, "line is", "lines are"), s.LeftOut)
}

// Survey reads a list to its end and keeps nothing of it: it takes the same memory for any
// number of entries. Summary.Entries counts a name once for each time that it occurs. names
// is equal for lists with the same entries in any order, those that are left out too, and probably not
// for others; it does not depend on the process. Survey returns the error of reading r.
func Survey(r io.Reader, c Config) (sum Summary, names uint64, err error) {
	err = scan(r, c, &sum, func(e entry) {
		sum.Entries++
		names += e.sum()
	})
	return sum, names + sum.leftOut, err
}

// sum returns a hash of the entry: 64-bit FNV-1a, which hash/fnv would compute through an
// interface.
func (e entry) sum() uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, c := range e.name {
		h = (h ^ uint64(c)) * prime
	}
	says := uint64(e.scope)<<8 | uint64(e.response)<<16
	if e.allow {
		says |= 1
	}
	h = (h ^ says) * prime
	if !e.until.IsZero() {
		h = (h ^ uint64(e.until.Unix())) * prime
	}
	return h ^ h>>32
}

// maxSuffix is the most bytes of a public suffix that wide finds.
const maxSuffix = 40

// wide says in words what an entry does if it matches a whole public suffix, such as com
// or co.uk, or every name: "blocks the whole top-level domain com". For all other entries
// it returns "".
//
// It looks for suffixes of several labels only under country codes, where nearly all of
// them are. The lookup takes longer than the rest of a line.
func (e entry) wide() string {
	does := "blocks"
	if e.allow {
		does = "allows"
	}
	if len(e.name) == 0 {
		return does + " every name"
	}
	n := labels(e.name)
	if len(e.name) > maxSuffix || n > 3 || n > 1 && (e.scope&below == 0 || e.name[max(0, len(e.name)-3)] != '.') {
		return ""
	}
	name := string(e.name)
	switch {
	case !IsPublicSuffix(name):
		return ""
	case e.scope&below == 0:
		return fmt.Sprintf("%s the name %s itself, but no name below it: to %s these too, write .%s", does, name, strings.TrimSuffix(does, "s"), name)
	case strings.Contains(name, "."):
		return fmt.Sprintf("%s the whole public suffix %s", does, name)
	}
	return fmt.Sprintf("%s the whole top-level domain %s", does, name)
}

// IsPublicSuffix reports whether registries sell the names directly below a canonical name, as they do below com
// and co.uk, or those below each of these, as they do below np (Public Suffix List, ICANN's section).
func IsPublicSuffix(name string) bool {
	suffix, icann := publicsuffix.PublicSuffix("x." + name)
	return icann && len(suffix) >= len(name)
}

// kind names a kind of unsupported line, in the singular and in the plural.
type kind struct{ one, many string }

var (
	kindRegexp    = kind{"regular expression", "regular expressions"}
	kindURL       = kind{"URL with a path or a port", "URLs with a path or a port"}
	kindPattern   = kind{"pattern for a part of a name", "patterns for a part of a name"}
	kindElement   = kind{"rule for parts of a page", "rules for parts of a page"}
	kindDnsmasq   = kind{"dnsmasq setting", "dnsmasq settings"}
	kindUnbound   = kind{"unbound setting", "unbound settings"}
	kindRPZAction = kind{"unknown RPZ action", "unknown RPZ actions"}
	kindClass     = kind{"record of a class other than IN", "records of a class other than IN"}
	kindOther     = kind{"line of another kind", "lines of other kinds"}
)

// with returns the kind of lines that hold a word: "2 with $client".
func with(word string) kind { return kind{"with " + word, "with " + word} }

// records returns the kind of records of a type.
func records(rrtype string) kind { return kind{rrtype + " record", rrtype + " records"} }

// unsupported notes the kind of a line and returns the outcome unsupported.
func (p *parser) unsupported(k kind) outcome {
	p.kind = k
	return unsupported
}

// maxOption is the most bytes of the name of an adblock option.
const maxOption = 20

// optionKind returns the kind of an adblock rule with an option: $client=… or
// $~third-party. It returns kindOther if the text cannot be the name of an option: the
// words of a kind reach the log.
func optionKind(option []byte) kind {
	name, _, _ := bytes.Cut(bytes.TrimPrefix(bytes.TrimSpace(option), []byte("~")), []byte("="))
	isName := len(name) > 0 && len(name) <= maxOption
	for _, c := range name {
		isName = isName && (letter[c] != 0 && c != '.')
	}
	if !isName {
		return kindOther
	}
	return with("$" + string(bytes.ToLower(name)))
}

// Where the makers of a list want to be told of mistakes is in the comments at its head, such as
// "# Issues: https://github.com/hagezi/dns-blocklists/issues" and "! Homepage: https://oisd.nl".

const (
	headLines  = 64  // of a list, in which a tracker is looked for
	maxTracker = 200 // bytes of a URL
)

// trackerWords are the words before the URL, the best first. A home page is better than nothing.
var trackerWords = []string{"issues", "report issues", "github issues", "report an issue", "false positives", "support", "homepage", "home page", "project home page", "website"}

// tracker is where mistakes of a list are to be reported.
type tracker struct {
	url  string
	rank int // of its word, from 1; 0: there is none
}

// note takes a comment at the head of a list.
func (t *tracker) note(comment []byte) {
	word, value, ok := bytes.Cut(bytes.TrimLeft(comment, "#!; \t"), []byte(":"))
	if !ok || len(word) > maxText {
		return
	}
	word = bytes.ToLower(bytes.TrimSpace(word))
	for i, w := range trackerWords {
		if string(word) == w && (t.rank == 0 || i+1 < t.rank) {
			if u := trackerURL(string(bytes.TrimSpace(value))); u != "" {
				t.url, t.rank = u, i+1
			}
		}
	}
}

// trackerURL returns a URL that people may be led to, "" if the text is none: by HTTP, with a host, and
// without a user and a query, since a list by URL may be what only this machine may read.
func trackerURL(text string) string {
	if len(text) > maxTracker || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"'<>`\\", r) }) {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return ""
	}
	return u.String()
}

// Tracker returns where the head of the list of a name says that mistakes are reported; "": it does not,
// or none of the files has the name. It is safe for concurrent use.
func Tracker(all []*File, name string) string {
	for _, f := range all {
		if f.name == name {
			return f.content.Load().summary.tracker.url
		}
	}
	return ""
}
