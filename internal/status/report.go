// Package status says whether a process protects its network, by what, and what is next:
// in a value that the command line prints, and as a page.
//
//	engines, server blocks ──▶ Report ──▶ Find ──▶ Findings ──▶ page, command line
//	                                                Pages: one HTTP server for each address
//	blocked queries ──▶ Recent ──▶ Report.Hour, Report.Names
package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Report is what protects, at a time.
type Report struct {
	At       time.Time
	Version  string
	Services []Service
	Blocks   []Block
	Hour     []Count   // blocked in the last hour, the most first
	Counted  time.Time // since when they are counted
	Names    []Name    // blocked in the last hour, the last first
	Named    bool      // names are kept
}

// Service is a service such as Safe Browsing, as one server is asked for it.
type Service struct {
	Title    string // of the protocol
	Address  string // of the server, or of several joined by a space
	Mode     string
	Folder   string // of the lists; "": they are in memory only
	Lists    []updater.ListStatus
	Follows  bool         // another process fetches the lists into Folder
	Unknown  bool         // the lists are in the memory of another process
	Fetch    updater.Hold // why no list is fetched
	Search   updater.Hold // why no name is confirmed
	Budget   int          // searches a day; 0: no limit
	Left     int          // of them, today
	Spent    int          // searches today, or reserved
	Paid     bool         // each search costs money
	InPart   string       // a sentence: which clients have spent their shares; "": none
	Costly   []Costly     // names that most searches were made for today, as far as names are kept
	Ending   string       // that the service ends or has ended, and what to do, as a sentence; "": it does not
	Ended    bool         // it has ended
	Notice   string       // in whose words its lists name hosts, with Advisory at its end; "": Google does not provide them
	Advisory string       // URL of Google's words about warnings
}

// NoGuarantee is to be told wherever Google's verdicts are (Safe Browsing terms, Web Risk "User
// warnings").
const NoGuarantee = "Google cannot guarantee that its information is complete and free of errors: it may name harmless sites, and miss dangerous ones."

// Block is a server block.
type Block struct {
	Zones   string    // joined by a space
	Service int       // index into Report.Services; -1: none
	Own     []OwnList // of the operator
	Monitor bool      // it blocks nothing
	Paused  time.Time // until when it blocks nothing; zero: it is not paused
}

// OwnList is a list of the operator.
type OwnList struct {
	Name    string
	Allow   bool
	Entries int
	Trouble string // why the file cannot be used; "": it can
	Nothing string // why no name is in force although some should be, such as "is empty"; or ""
}

func (o OwnList) does() string {
	if o.Allow {
		return "allows"
	}
	return "blocks"
}

// State is how much of the network is protected.
type State uint8

// The states, the best first.
const (
	Protected State = iota
	InPart
	NotProtected
)

// String returns the word of JSON and of the class of the page.
func (s State) String() string { return [...]string{"protected", "in_part", "not_protected"}[s] }

// Findings are what a Report means.
type Findings struct {
	State    State
	Headline string
	Problems []string // each a sentence: what does not protect, until when, and what to do
	Notes    []string // each a sentence that one may want to know
	Notices  []Words  // of the services
}

// Words are a text that may end with a URL, which is then a link on the page.
type Words struct{ Text, URL string }

// Before returns the text before the URL.
func (w Words) Before() string { return strings.TrimSuffix(w.Text, w.URL) }

// Find returns what a report means.
func Find(r Report) Findings {
	var f Findings
	for i := range r.Services {
		f.service(&r.Services[i], r.At)
	}
	working := 0
	by := make(map[string]bool)
	for _, b := range r.Blocks {
		if f.block(r, b, by) {
			working++
		}
	}
	switch {
	case working == 0:
		f.State, f.Headline = NotProtected, "NOT protected"
	case len(f.Problems) > 0:
		f.State, f.Headline = InPart, "Protected in part, by "+joined(by)
	default:
		f.Headline = "Protected by " + joined(by)
	}
	if len(r.Blocks) == 0 {
		f.Problems = append(f.Problems, "No server block has safebrowsing.")
	}
	return f
}

// service adds what there is to say about a service.
func (f *Findings) service(s *Service, now time.Time) {
	if notice := (Words{s.Notice, s.Advisory}); s.Notice != "" && !slices.Contains(f.Notices, notice) {
		f.Notices = append(f.Notices, notice)
	}
	for _, l := range s.Lists {
		switch {
		case s.Unknown:
		case l.Missing():
			f.problem("List %s is not in force: none of its names is blocked. %s", l.Name, s.nextFetch(now))
		case l.Old(now):
			f.problem("List %s is old, so new threats pass: it was last fetched %s ago. %s", l.Name, Age(now.Sub(l.Updated)), s.nextFetch(now))
		}
	}
	switch {
	case s.Ended:
		f.problem("%s.", s.Ending)
	case s.Ending != "":
		f.note("%s.", s.Ending)
	}
	if s.Unknown {
		f.problem("The lists of %s are only in the memory of CoreDNS (db off): look at its status page or its metrics.", s.Title)
	}
	if s.Search.Active(now) {
		f.problem("Confirmations are paused until %s (%v): suspected names pass.", say.Time(s.Search.Until), s.Search)
	}
	if s.InPart != "" {
		f.problem("%s", s.InPart)
	}
	if s.Fetch.Active(now) && s.Fetch.Failures > 0 {
		f.note("Lists of %s are not fetched before %s (%v).", s.Title, say.Time(s.Fetch.Until), s.Fetch)
	}
	if s.Follows {
		f.note("Another process fetches the lists into %s, and this one reads them there.", s.Folder)
	}
}

// nextFetch says when lists are fetched again.
func (s *Service) nextFetch(now time.Time) string {
	if s.Fetch.Active(now) {
		return fmt.Sprintf("The server is not asked before %s (%v).", say.Time(s.Fetch.Until), s.Fetch)
	}
	return "It is fetched within a minute while CoreDNS runs. If it is not, the log says why."
}

// block adds what there is to say about a server block, and to by what protects its
// clients. It reports whether something does.
func (f *Findings) block(r Report, b Block, by map[string]bool) (works bool) {
	for _, own := range b.Own {
		if own.Trouble != "" {
			f.note("The list %s cannot be used: %s. The %s in force.", own.Name, own.Trouble, say.Count(own.Entries, "entry read before stays", "entries read before stay"))
		}
		if own.Nothing != "" {
			f.note("The list %s %s nothing: it %s.", own.Name, own.does(), own.Nothing)
		}
	}
	switch {
	case b.Paused.After(r.At):
		f.problem("Blocking is paused until %s for the zones %s: every name passes. To end the pause: safebrowsing pause off", say.Time(b.Paused), b.Zones)
		return false
	case b.Monitor:
		f.problem("The server block for %s has monitor: it logs what it would block, and blocks nothing.", b.Zones)
		return false
	}
	for _, own := range b.Own {
		if !own.Allow && own.Entries > 0 {
			by["own lists"], works = true, true
		}
	}
	if b.Service < 0 {
		f.note("The server block for %s has own lists only: no service is asked.", b.Zones)
	} else if s := &r.Services[b.Service]; s.works(r.At) {
		by[s.Title], works = true, true
	}
	if !works {
		f.problem("The server block for %s blocks nothing for now.", b.Zones)
	}
	return works
}

// works reports whether a service blocks names.
func (s *Service) works(now time.Time) bool {
	if s.Unknown || s.Search.Active(now) {
		return false
	}
	for _, l := range s.Lists {
		if !l.Missing() {
			return true
		}
	}
	return len(s.Lists) == 0 // the server is asked about each name
}

func (f *Findings) problem(format string, args ...any) { add(&f.Problems, format, args) }
func (f *Findings) note(format string, args ...any)    { add(&f.Notes, format, args) }

// add adds a sentence, once: server blocks may be alike.
func add(all *[]string, format string, args []any) {
	text := fmt.Sprintf(format, args...)
	for _, other := range *all {
		if other == text {
			return
		}
	}
	*all = append(*all, text)
}

// joined returns what protects, services first.
func joined(by map[string]bool) string {
	var all []string
	for what := range by {
		if what != "own lists" {
			all = append(all, what)
		}
	}
	if by["own lists"] {
		all = append(all, "own lists")
	}
	return cmp.Or(strings.Join(all, " and "), "nothing")
}

// Age prints a duration, to two units at most.
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "under a minute"
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
}
