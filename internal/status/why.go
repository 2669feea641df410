package status

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Why is what a process says about a name.
type Why struct {
	Name    string    `json:"name"`
	At      time.Time `json:"at"`
	Verdict string    `json:"verdict"` // the gravest one of Answers
	Text    string    `json:"text"`    // of that answer
	Answers []Answer  `json:"answers"` // of the server blocks that check the name, or one that says that none does
	Last    *Blocked  `json:"last_blocked,omitempty"`
	Asked   *Asked    `json:"asked,omitempty"` // while it passed; nil: nobody looks back, or this must not be told
	Allow   string    `json:"allow"`           // a command that lets a blocked name pass; "": there is none
	Report  string    `json:"report"`          // where to report a mistake of the service; ""
}

// The verdicts, the gravest first. A name is Unknown where no list could tell, and not safe.
const (
	VerdictBlocked   = "blocked"
	VerdictSuspected = "suspected" // the server is asked about it on a query
	VerdictUnknown   = "unknown"
	VerdictPasses    = "passes"
)

var verdicts = []string{VerdictBlocked, VerdictSuspected, VerdictUnknown, VerdictPasses}

// Answer is what one server block does with a name.
type Answer struct {
	Zones      string    `json:"zones"`
	Place      string    `json:"place"` // of the server block in the Corefile
	Verdict    string    `json:"verdict"`
	Text       string    `json:"text"`       // a sentence without its full stop
	DecidedBy  string    `json:"decided_by"` // as metrics have it; "": no list of threats has the name
	List       string    `json:"list"`
	Line       int       `json:"line"`       // of an own list; 0: unknown
	Expression string    `json:"expression"` // that matched, or is suspected
	Target     string    `json:"target"`     // the alias that matched; "": the name itself
	Threat     string    `json:"threat"`
	Warning    Words     `json:"warning"` // in the words of the service
	Note       string    `json:"note"`
	Confirmed  time.Time `json:"confirmed,omitzero"` // when the server said so
	Expires    time.Time `json:"expires,omitzero"`   // until when this holds without asking again
	Unblock    string    `json:"unblock"`            // what lets it pass
}

// Where names the server block of the answer.
func (a *Answer) Where() string { return located(a.Zones, a.Place) }

// located returns the zones of a server block, and its place if that is known.
func located(zones, place string) string {
	if place == "" {
		return zones
	}
	return zones + " at " + place
}

// Blocked reports whether the name is blocked.
func (a *Answer) Blocked() bool { return a.Verdict == VerdictBlocked }

// Say sets the sentence of the answer about a name.
func (a *Answer) Say(name string) {
	if a.Text = name + " is " + a.Verdict; a.Verdict == VerdictPasses {
		a.Text = name + " passes"
	}
	if a.Target != "" {
		a.Text += ": it is an alias of " + a.Target
	}
}

// Reasons returns the lines of the answer for people, each "Word: value".
func (a *Answer) Reasons(now time.Time) (all []string) {
	add := func(form, value string) {
		if value != "" {
			all = append(all, fmt.Sprintf(form, value))
		}
	}
	add("%s", a.Note)
	list := shortList(a.List)
	if a.Line > 0 {
		list += fmt.Sprintf(", line %d", a.Line)
	}
	add("List: %s", list)
	add("Entry: %s", strings.TrimSuffix(a.Expression, "/"))
	if a.DecidedBy != lookup.ByNobody.String() && a.DecidedBy != lookup.ByList.String() { // of these the note says why
		add("Decided by: %s", a.DecidedBy)
	}
	if !a.Confirmed.IsZero() {
		add("Confirmed by the server: %s", say.Time(a.Confirmed))
	}
	if a.Expires.After(now) {
		add("This decision holds for: %s", say.Age(a.Expires.Sub(now)))
	}
	add("To let it pass: %s", a.Unblock)
	return all
}

// decided are the words of verdicts, as metrics and metadata have them.
var decided = map[string]string{
	VerdictBlocked: lookup.Unsafe.String(), VerdictSuspected: lookup.Unsure.String(), VerdictPasses: lookup.Safe.String(), VerdictUnknown: VerdictUnknown,
}

// Words returns the answer for clients that ask by DNS, each "word=value".
func (a *Answer) Words(now time.Time) (all []string) {
	add := func(word, value string) {
		if value != "" && value != "." {
			all = append(all, word+"="+value)
		}
	}
	add("verdict", decided[a.Verdict])
	add("decided_by", a.DecidedBy)
	add("warning", a.Warning.Text)
	add("threat", a.Threat)
	add("list", filepath.Base(a.List)) // clients need not know where the operator keeps files
	if a.Line > 0 {
		add("line", strconv.Itoa(a.Line))
	}
	add("expression", a.Expression)
	add("alias_of", a.Target)
	if !a.Confirmed.IsZero() {
		add("confirmed", a.Confirmed.UTC().Format(time.RFC3339))
	}
	if !a.Expires.IsZero() {
		add("remaining", fmt.Sprint(max(0, a.Expires.Sub(now).Round(time.Second))))
	}
	add("unblock", a.Unblock)
	add("note", a.Note)
	return all
}

// shortList returns a list as people read it: a file without its folder, and what a list of a
// service holds.
func shortList(list string) string {
	if title := say.TitleOf(list); title != list {
		return fmt.Sprintf("%s (%s)", list, title)
	}
	if strings.Contains(list, "://") || list == "" {
		return list
	}
	return filepath.Base(list)
}

// Asked is who asked for a name while it passed, as far as look-back remembers. Of the questions of a device it
// knows the first one.
type Asked struct {
	Devices int       `json:"devices"`
	First   time.Time `json:"first,omitzero"`  // of the first device, to the minute
	Latest  time.Time `json:"latest,omitzero"` // of the device that asked last for the first time
	Clients []string  `json:"clients"`         // their addresses, where they are kept
}

// Add adds a device, and its address if that is known.
func (a *Asked) Add(at time.Time, client string) {
	a.Devices++
	if a.First.IsZero() || at.Before(a.First) {
		a.First = at
	}
	if at.After(a.Latest) {
		a.Latest = at
	}
	if client != "" && !slices.Contains(a.Clients, client) {
		a.Clients = append(a.Clients, client)
	}
}

// String says it in a sentence without its full stop.
func (a *Asked) String() string {
	if a.Devices == 0 {
		return "No device got it lately, as far as look_back remembers"
	}
	text := say.Count(a.Devices, "device", "devices")
	if len(a.Clients) > 0 {
		text += " (" + strings.Join(a.Clients, ", ") + ")"
	}
	text += " asked for it and got it, first at " + say.Time(a.First)
	if a.Latest.After(a.First) {
		text += ", the last one of them first at " + say.Time(a.Latest)
	}
	return text
}

// Judge fills in what the answers mean together.
func (w *Why) Judge() {
	w.Verdict = VerdictPasses
	for _, verdict := range verdicts {
		for _, a := range w.Answers {
			if a.Verdict == verdict {
				w.Verdict, w.Text = verdict, a.Text
				return
			}
		}
	}
}

// Longer reports whether N counts for longer than an hour: a name that is blocked each hour is kept.
func (b *Blocked) Longer(now time.Time) bool { return now.Sub(b.First) >= hour*time.Minute }

// by names the list that blocked the name.
func (b *Blocked) by() string { return cmp.Or(shortList(b.List), noList) }

// noList is called what blocks a name without a list: with mode nostorage the server is asked about each.
const noList = "the server"

// Since says how often and when a name was blocked, and who asked last, where that is known.
func (b *Blocked) Since(now time.Time) string {
	from := "in the last hour"
	if b.Longer(now) {
		from = "since " + say.Time(b.First)
	}
	text := fmt.Sprintf("blocked %s %s, last %s ago at %s, by %s", say.Count(b.N, "time", "times"), from, say.Age(now.Sub(b.Last)), say.Time(b.Last), b.by())
	if b.Target != "" {
		text += ", because it is an alias of " + b.Target
	}
	if b.Threat != "" {
		text += ", as " + b.Threat
	}
	if !b.Confirmed.IsZero() {
		text += ", confirmed at " + say.Time(b.Confirmed)
	}
	if b.Client != "" {
		text += ", asked by " + b.Client
	}
	return text
}
