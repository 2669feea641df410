package protocol

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Headers between relays and their clients, of answers except for OnlyKnownHeader and AsStoredHeader. Google's servers
// do not know them: a client sends and reads them only if its endpoint is not Google's.
const (
	// UnansweredHeader names the prefixes of hashes.search that have no answer. Version 5 has no
	// such answer of its own. With status 200 the body has the threats that are known, for use
	// once, so that other clients see them and keep nothing. With status 503 none is known.
	UnansweredHeader = "Safebrowsing-Unanswered"
	// ListsHeader has the names of the relay's lists, separated by spaces. It is in the refusal of
	// a request for a list that the relay lacks.
	ListsHeader = "Safebrowsing-Lists"
	// BudgetHeader is a header of answers to hashes.search: what is left of the budget of the relay for
	// the client that asks, as FormatBudget writes it.
	BudgetHeader = "Safebrowsing-Budget"
	// OnlyKnownHeader is a header of requests of hashes.search, with the value ?1: a relay answers from
	// what it and the relays that it asks know, and sends no search to Google's server.
	OnlyKnownHeader = "Safebrowsing-Only-Known"
	// AsStoredHeader is a header of requests for lists, with the value ?1: a relay may answer with entries
	// that are longer than the name of the list says, see AppendLonger. Without it they are cut.
	AsStoredHeader = "Safebrowsing-As-Stored"

	// AdvisoryHeader has the URL of Google's words about warnings by its service, if Google runs
	// the server at the end of the chain of relays: one of a Provider's. It is in every answer.
	AdvisoryHeader = "Safebrowsing-Advisory"
)

// Unanswered is what UnansweredHeader says, for example (RFC 9651, an item with parameters)
//
//	:OIjgUVdXr3E=:;life=290;wait=60;why=budget
//
// with the prefixes one after the other in base64, and times in seconds.
type Unanswered struct {
	Prefixes []lookup.Prefix // of 4 bytes, sorted, at least one; threats below them may be known
	Life     time.Duration   // how long what is known may be cached, rounded down to seconds
	Wait     time.Duration   // after which Prefixes may be asked about again, from 1 s to lookup.MaxUnanswered
	Reason   error           // why they have no answer
}

var (
	// ErrNoLists is the Reason of a relay that has no lists yet.
	ErrNoLists  = errors.New("it has no lists yet")
	errNoServer = errors.New("its server has not answered")
)

// reasons are the words for why there is no answer, the special ones first.
var reasons = []struct {
	word string
	err  error
}{
	{"share", lookup.ErrShare}, {"budget", lookup.ErrBudget}, {"limit", lookup.ErrLimited}, {"backoff", lookup.ErrBackoff},
	{"lists", ErrNoLists}, {"server", errNoServer},
}

// String returns the value of the header. A reason that has no word becomes the reason of a server
// which has not answered.
func (u Unanswered) String() string {
	var raw []byte
	for _, p := range u.Prefixes {
		raw = append(raw, p...)
	}
	word := reasons[len(reasons)-1].word
	for _, r := range reasons {
		if errors.Is(u.Reason, r.err) {
			word = r.word
			break
		}
	}
	return fmt.Sprintf(":%s:;life=%d;wait=%d;why=%s", base64.StdEncoding.EncodeToString(raw), int(u.Life.Seconds()), seconds(u.Wait), word)
}

// seconds rounds a wait up, to at least a second and at most the longest.
func seconds(wait time.Duration) int {
	return int(min(max(wait+time.Second-1, time.Second), lookup.MaxUnanswered).Seconds())
}

// parseUnanswered reads the header of an answer about prefixes. It returns
// updater.ErrMalformed if the header is damaged or names others.
func parseUnanswered(value string, asked []lookup.Prefix) (u Unanswered, err error) {
	malformed := fmt.Errorf("%w: header %s", updater.ErrMalformed, UnansweredHeader)
	item, parameters, _ := strings.Cut(value, ";")
	item, begins := strings.CutPrefix(strings.TrimSpace(item), ":")
	encoded, ends := strings.CutSuffix(item, ":")
	if !begins || !ends {
		return u, malformed
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(raw) == 0 || len(raw)%4 != 0 {
		return u, malformed
	}
	for p := range slices.Chunk(raw, 4) {
		if !slices.Contains(asked, lookup.Prefix(p)) {
			return u, malformed
		}
		u.Prefixes = append(u.Prefixes, lookup.Prefix(p))
	}
	u.Wait, u.Reason = lookup.MaxUnanswered, errNoServer
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, text, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		number, err := strconv.ParseUint(text, 10, 24)
		switch {
		case name == "life" && err == nil:
			u.Life = time.Duration(number) * time.Second
		case name == "wait" && err == nil:
			u.Wait = min(max(time.Duration(number)*time.Second, time.Second), lookup.MaxUnanswered)
		case name == "life" || name == "wait":
			return u, malformed
		case name == "why":
			for _, r := range reasons {
				if r.word == text {
					u.Reason = r.err
				}
			}
		}
	}
	return u, nil
}

// refusal is the answer of a relay that knows no threat below the prefixes of a search, and not all
// of them.
type refusal struct {
	*updater.StatusError
	unanswered string // the value of UnansweredHeader
}

// Unwrap makes it an updater.StatusError.
func (r *refusal) Unwrap() error { return r.StatusError }

// answer returns what a relay has told about prefixes: an answer about those that it knows, and the
// error of the others. threats are all that came with it.
func (u Unanswered) answer(asked []lookup.Prefix, threats []lookup.ThreatHash) (lookup.Answer, error) {
	now := time.Now()
	known := make(map[lookup.Prefix]lookup.EarlierAnswer)
	for _, p := range asked {
		e := lookup.EarlierAnswer{Received: now, TTL: u.Life}
		for _, t := range threats {
			if string(t.Hash[:len(p)]) == string(p) {
				t.TTL = u.Life
				e.Threats = append(e.Threats, t)
			}
		}
		missing := slices.Contains(u.Prefixes, p)
		if missing {
			e.TTL = -1
		}
		if !missing || len(e.Threats) > 0 {
			known[p] = e
		}
	}
	return lookup.Answer{Earlier: known}, &lookup.UnansweredError{Until: now.Add(u.Wait), Reason: u.Reason}
}

// searchPath is the path of hashes.search.
const searchPath = "/v5/hashes:search"

// FormatBudget returns the value of BudgetHeader, a dictionary of integers (RFC 9651), for example
//
//	day=100, left=75, hour=25, now=5
//
// They are the fields of a lookup.Budget.
func FormatBudget(b lookup.Budget) string {
	return fmt.Sprintf("day=%d, left=%d, hour=%d, now=%d", b.Day, b.Left, b.Hour, b.Now)
}

// ParseBudget reads the value of BudgetHeader. It reports whether it is one: numbers of a budget,
// in any order. Other members are ignored.
func ParseBudget(value string) (b lookup.Budget, ok bool) {
	for member := range strings.SplitSeq(value, ",") {
		name, text, _ := strings.Cut(strings.TrimSpace(member), "=")
		n, err := strconv.ParseUint(text, 10, 31)
		field := map[string]*int{"day": &b.Day, "left": &b.Left, "hour": &b.Hour, "now": &b.Now}[name]
		if field == nil {
			continue
		}
		if err != nil {
			return lookup.Budget{}, false
		}
		*field = int(n)
	}
	if ok = 0 < b.Hour && b.Hour <= b.Day && b.Left <= b.Day && b.Now <= b.Left; !ok {
		return lookup.Budget{}, false
	}
	return b, true
}

// Announced is what a relay has said last about its budget. The zero value has heard nothing. It
// is safe for concurrent use.
type Announced struct {
	mu sync.Mutex
	b  lookup.Budget // zero: the relay has none
	at time.Time
}

// announcementLife is for how long an announcement counts: a relay whose budget is raised is asked
// again within a minute. A question that it refuses costs nothing.
const announcementLife = time.Minute

// Left returns what is left of the budget at now, as far as is known; known is false if there is
// none. Once the announcement is old, one search at a time may be made that brings a new one.
func (a *Announced) Left(now time.Time) (b lookup.Budget, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch age := now.Sub(a.at); {
	case a.b == lookup.Budget{}:
		return a.b, false
	case age < 0 || age >= announcementLife:
		return a.b.Stale(), true
	}
	return a.b, true
}

// hear notes the announcement of an answer to hashes.search, or that there is none.
func (a *Announced) hear(h http.Header, now time.Time) {
	b, _ := ParseBudget(h.Get(BudgetHeader))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.b, a.at = b, now
}

// Announce implements Client.
func (c *caller) Announce(a *Announced) { c.announced.Store(a) }

// Announce implements Client. The endpoint that has answered last counts.
func (f *Failover) Announce(a *Announced) {
	for _, e := range f.endpoints {
		e.client.Announce(a)
	}
}

// listen notes what an answer announces, unless Google runs the server.
func (c *caller) listen(path string, answer *http.Response) {
	if a := c.announced.Load(); a != nil && path == searchPath && !c.google {
		a.hear(answer.Header, time.Now())
	}
}
