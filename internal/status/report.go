// Package status is what a process says about itself: one value, which the page, the door of
// internal/control, answers by DNS and the command line show.
//
//	engines, server blocks ──▶ Report ──▶ Judge ──▶ Report ─┬─▶ JSON ──▶ Print: text
//	blocked queries ──▶ Recent ──▶ Names, Today             └─▶ page
//	a name ──▶ Why ──▶ JSON, text, page, TXT records
package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Report is what protects, at a time. Judge fills in State, Headline, Causes, Notes and Notices.
type Report struct {
	At        time.Time `json:"at"`
	Version   string    `json:"version"`
	State     State     `json:"state"`
	Headline  string    `json:"headline"`
	Since     time.Time `json:"since,omitzero"` // when State began; zero: unknown
	Causes    []Cause   `json:"causes"`         // what does not protect, each once
	Notes     []string  `json:"notes"`          // each a sentence that one may want to know
	Notices   []Words   `json:"notices"`        // of the services
	Services  []Service `json:"services"`
	Blocks    []Block   `json:"blocks"`
	Today     Day       `json:"today"`
	Hour      []Count   `json:"blocked_last_hour"` // by list, the most first
	Counted   time.Time `json:"counted_since"`     // when the process began to count
	Names     []Blocked `json:"names"`             // blocked in the last hour, the last first
	Late      []Late    `json:"listed_late"`       // of the last 24 hours, the last first, see look_back
	LooksBack bool      `json:"-"`                 // a server block has look_back
	Named     bool      `json:"-"`                 // pages show Names
	Devices   Devices   `json:"devices"`           // that ask for other resolvers
}

// maxShown is the most names that are told with a report.
const maxShown = 100

// Shown returns the report as it is told: with the last names only.
func (r Report) Shown() Report {
	r.Names = r.Names[:min(len(r.Names), maxShown)]
	return r
}

// WriteJSON writes the report as it is told, without secrets.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(say.MaskedWriter{W: w})
	e.SetEscapeHTML(false)
	return e.Encode(r.Shown())
}

// Cause is why names are not blocked that should be.
type Cause struct {
	Text  string    `json:"text"`           // a sentence
	Until time.Time `json:"until,omitzero"` // when it ends, or is looked at again; zero: unknown
	Cure  string    `json:"cure"`           // what to do, a sentence without its full stop; "": nothing
}

// String returns all of a cause in sentences.
func (c Cause) String() string {
	text := c.Text
	if !c.Until.IsZero() {
		text += " Until " + say.Time(c.Until) + "."
	}
	if c.Cure != "" {
		text += " " + c.Cure + "."
	}
	return text
}

// Service is a service such as Safe Browsing, as one server is asked for it.
type Service struct {
	Title    string   `json:"title"`    // of the protocol
	Address  string   `json:"endpoint"` // of the server, or of several joined by a space
	Mode     string   `json:"mode"`
	Folder   string   `json:"db"` // of the lists; "": they are in memory only
	Lists    []List   `json:"lists"`
	Follows  bool     `json:"follows"` // another process fetches the lists into Folder
	Unknown  bool     `json:"-"`       // the lists are in the memory of another process
	Fetch    Hold     `json:"fetch"`   // why no list is fetched
	Search   Hold     `json:"search"`  // why no name is confirmed
	Budget   int      `json:"budget"`  // searches a day; 0: no limit
	Left     int      `json:"budget_remaining"`
	Spent    int      `json:"searches_today"` // or reserved
	Paid     bool     `json:"paid"`           // each search costs money
	InPart   string   `json:"-"`              // sentences: which clients have spent their shares, or that a relay does not answer about all names; "": none
	Costly   []Costly `json:"costly"`         // names that most searches were made for today, as far as names are kept
	Ending   string   `json:"ending"`         // that the service ends or has ended, and what to do, as a sentence; "": it does not
	Ended    bool     `json:"ended"`
	Notice   string   `json:"-"`        // in whose words its lists name hosts, with Advisory at its end; "": Google does not provide them
	Advisory string   `json:"advisory"` // URL of Google's words about warnings
}

// List is a list of a service.
type List struct {
	Name      string    `json:"name"`
	Title     string    `json:"title"` // what it holds, see say.TitleOf
	InForce   bool      `json:"in_force"`
	Old       bool      `json:"old"`
	Entries   int       `json:"entries"`
	Updated   time.Time `json:"updated,omitzero"`    // zero: never, or unknown
	NotBefore time.Time `json:"not_before,omitzero"` // when it may be fetched
}

// Missing reports whether none of its names is blocked.
func (l List) Missing() bool { return !l.InForce }

// Hold says until when something is not done, and why. The zero Hold stops nothing.
type Hold struct {
	Until    time.Time `json:"until,omitzero"`
	Why      string    `json:"reason"`
	Failures int       `json:"failures"` // in a row; 0: it is no failure
}

// Active reports whether the hold lasts at now.
func (h Hold) Active(now time.Time) bool { return h.Until.After(now) }

// cure says what the operator can do about a hold.
func (h Hold) cure() string {
	code := 0
	if _, cause, ok := strings.Cut(h.Why, ": status "); ok {
		_, _ = fmt.Sscan(cause, &code) // 0 if it is no number
	}
	switch {
	case strings.HasPrefix(h.Why, "the day's budget"):
		return "Raise budget to confirm more names a day"
	case strings.Contains(h.Why, " that one hour may take of the day's "):
		return "Raise budget if this happens often; find out who asks"
	case strings.HasPrefix(h.Why, "the number of searches spent today is unknown"):
		return "Wait, or stop CoreDNS, delete the file that its log names, and start CoreDNS: then the day begins with the whole budget"
	case h.Failures == 0:
		return ""
	case code == 400 || code == 401 || code == 403 || code == 404:
		return "Correct the key, the endpoint or the lists: \"safebrowsing doctor\" says which. A changed key is tried within a minute after a start, or after api_key_file changes"
	}
	return "It is tried again by itself; \"safebrowsing doctor\" tries now"
}

// NoGuarantee is to be told wherever Google's verdicts are (Safe Browsing terms, Web Risk "User
// warnings").
const NoGuarantee = "Google cannot guarantee that its information is complete and free of errors: it may name harmless sites, and miss dangerous ones."

// Block is a server block.
type Block struct {
	Zones   string    `json:"zones"`   // joined by a space
	Place   string    `json:"place"`   // in the Corefile, such as Corefile:5: blocks of the same zones differ in it
	Service int       `json:"service"` // index into Report.Services; -1: none
	Own     []OwnList `json:"own"`     // of the operator
	Monitor bool      `json:"monitor"` // it blocks nothing
	Paused  time.Time `json:"paused_until,omitzero"`
	Fails   bool      `json:"-"`        // it answers SERVFAIL to a suspected name that is not confirmed
	Led     bool      `json:"led_away"` // keep_clients off: an upstream may lead clients to ask it instead
}

// OwnList is a list of the operator.
type OwnList struct {
	Name    string    `json:"name"`
	Allow   bool      `json:"allow"`
	Entries int       `json:"entries"`
	Updated time.Time `json:"updated,omitzero"` // when its content changed
	Trouble string    `json:"trouble"`          // why the file, or what its URL has now, cannot be used; "": it can
	Nothing string    `json:"nothing"`          // why no name is in force although some should be, such as "is empty"; or ""
}

func (o OwnList) does() string {
	if o.Allow {
		return "allows"
	}
	return "blocks"
}

// Protects reports whether the network is protected, and nothing is missing.
func (r *Report) Protects() bool { return r.State == Protected }

// OwnListsOnly reports whether only lists of the operator protect, of many names.
func (r *Report) OwnListsOnly() bool { return r.State == OwnLists }

// State is how much of the network is protected.
type State uint8

// The states, the best first.
const (
	Protected State = iota
	InPart
	OwnLists // only lists of the operator, of many names, protect
	NotProtected
)

var stateWords = [...]string{"protected", "in_part", "own_lists", "not_protected"}

// String returns the word of JSON and of the class of the page.
func (s State) String() string { return stateWords[s] }

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(text []byte) error {
	for i, word := range stateWords {
		if word == string(text) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("%q is not a state", text)
}

// Words are a text that may end with a URL, which is then a link on the page.
type Words struct {
	Text string `json:"text"`
	URL  string `json:"url"`
}

// Before returns the text before the URL.
func (w Words) Before() string { return strings.TrimSuffix(w.Text, w.URL) }

// Dollars prints what searches cost, without the currency.
func Dollars(searches int) string {
	cents := int64(searches) * (100 / lookup.SearchesPerDollar)
	return fmt.Sprintf("%d.%02d", cents/100, cents%100)
}

// Cost says in a sentence without its full stop what today's searches cost; "": nothing. The
// searches that a process has reserved count.
func (s *Service) Cost() string {
	if !s.Paid || s.Budget == 0 {
		return ""
	}
	return fmt.Sprintf("Today %s, %s US-$ of at most %s", say.Count(s.Spent, "search", "searches"), Dollars(s.Spent), Dollars(s.Budget))
}

// Costly is a name that searches were made for.
type Costly struct {
	Name     string `json:"name"`
	Searches int    `json:"searches"`
}

// Dollars prints what the searches cost.
func (c Costly) Dollars() string { return Dollars(c.Searches) }

// maxCostly is the most names that are counted.
const maxCostly = 512

// Costs counts the searches of each name, or of each prefix, on one day, in memory only. When there are
// too many names, a new one takes the place of the one with the fewest, and of its count. The zero
// value is ready to use; it is safe for concurrent use.
type Costs struct {
	mu       sync.Mutex
	date     string
	searches map[string]int
}

// Searched counts searches for a name.
func (c *Costs) Searched(name string, n int, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(now)
	if _, ok := c.searches[name]; !ok && len(c.searches) == maxCostly {
		fewest := ""
		for other, m := range c.searches {
			if least := c.searches[fewest]; fewest == "" || m < least || m == least && other < fewest {
				fewest = other
			}
		}
		n += c.searches[fewest]
		delete(c.searches, fewest)
	}
	c.searches[name] += n
}

// Most returns the n names with the most searches today, the highest first.
func (c *Costs) Most(now time.Time, n int) []Costly {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(now)
	all := []Costly{} // in JSON it is a list
	for name, n := range c.searches {
		all = append(all, Costly{name, n})
	}
	slices.SortFunc(all, func(a, b Costly) int { return cmp.Or(b.Searches-a.Searches, cmp.Compare(a.Name, b.Name)) })
	return all[:min(len(all), n)]
}

// turn forgets another day. The caller holds mu.
func (c *Costs) turn(now time.Time) {
	if date := now.Local().Format(time.DateOnly); date != c.date || c.searches == nil {
		c.date, c.searches = date, make(map[string]int)
	}
}
