package protocol

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Dialect is a protocol that a server is asked by: all that other packages need to
// know of how it differs from the others. Dialects are read-only and compared by
// their addresses.
type Dialect struct {
	// Name is how the Corefile spells it.
	Name string
	// Title is the service and the version of the protocol.
	Title string
	// Service is what Google calls the service, and Advisory the URL of its words about
	// warnings, to be given with each one.
	Service, Advisory string
	// Endpoint is the address of Google's server.
	Endpoint string
	// Modes are what it can do, the default first.
	Modes []lookup.Mode
	// Rule makes the expressions of a host.
	Rule lookup.Rule
	// AsStored sends prefixes as long as the lists hold them, not cut to 4 bytes.
	AsStored bool
	// PerSearch is how many prefixes one search asks for at most; 0: lookup.MaxPrefixes.
	PerSearch int
	// Paid says that each search costs money.
	Paid bool
	// Tokens says that an OAuth access token may take the place of the API key.
	Tokens bool
	// Searches is how many searches may be under way at a time; 0: no limit.
	Searches int
	// SearchRules are its rules for searches.
	SearchRules updater.SearchRules
	// NewClient returns a client that searches in the given lists. Versions returns those
	// of all lists in force. The error says what is wrong with the configuration, without
	// the key in it.
	NewClient func(cfg Config, lists []string, versions func() [][]byte) (Client, error)
	// MaxEntries returns what a limit of entries of a list becomes for the server, which
	// may know certain numbers only; 0 is no limit.
	MaxEntries func(entries int) int

	suffix    string    // of the names of origins
	schedule  string    // the file of the schedule; "": updater's default
	lists     []string  // that it can name; nil: all
	continues *Dialect  // it knows the versions of lists that came by this one; nil: none
	ends      time.Time // its end at Google's server; zero: none is known
}

const (
	safeBrowsing         = "Safe Browsing"
	safeBrowsingAdvisory = "https://developers.google.com/safe-browsing/v4/advisory" // Safe Browsing terms
)

// DialectV5 is version 5 of Safe Browsing.
var DialectV5 = &Dialect{
	Name:        "v5",
	Title:       safeBrowsing + " v5",
	Service:     safeBrowsing,
	Advisory:    safeBrowsingAdvisory,
	Endpoint:    DefaultEndpoint,
	Modes:       []lookup.Mode{lookup.Local, lookup.RealTime, lookup.NoStorage},
	Rule:        lookup.RuleV5,
	SearchRules: updater.SearchRules{Backoff: updater.Strikes},
	continues:   DialectV4, // "Migration From V4"
	MaxEntries:  func(entries int) int { return entries },
	NewClient:   func(cfg Config, _ []string, _ func() [][]byte) (Client, error) { return NewV5(cfg) },
}

// DialectWebRisk is the Web Risk API. Its page "Request Frequency" has the first contact
// for searches, too, and leaves their back-off to the service level agreement.
var DialectWebRisk = &Dialect{
	Name:        "webrisk",
	Title:       "Web Risk",
	Service:     "Web Risk",
	Advisory:    "https://cloud.google.com/web-risk/docs/advisory", // Web Risk, "User warnings"
	Endpoint:    WebRiskEndpoint,
	Modes:       []lookup.Mode{lookup.Local},
	Rule:        lookup.RuleV4, // Web Risk, "Hashing URLs"
	PerSearch:   1,
	Paid:        true,
	Tokens:      true,
	SearchRules: updater.SearchRules{Backoff: updater.ServiceLevel, Published: true},
	suffix:      " webrisk",
	schedule:    "schedule-webrisk.json",
	lists:       WebRiskLists(),
	MaxEntries:  func(entries int) int { return powerOfTwo(entries, maxRiskEntries) },
	NewClient:   func(cfg Config, lists []string, _ func() [][]byte) (Client, error) { return NewWebRisk(cfg, lists) },
}

// dialects are all, the default first.
var dialects = []*Dialect{DialectV5, DialectV4, DialectWebRisk}

// Dialects returns all dialects, the default first.
func Dialects() []*Dialect { return slices.Clone(dialects) }

// DialectNames returns the names of all dialects, the default first.
func DialectNames() (names []string) {
	for _, d := range dialects {
		names = append(names, d.Name)
	}
	return names
}

// ParseDialect returns the dialect of a name.
func ParseDialect(name string) (*Dialect, error) {
	if i := slices.Index(DialectNames(), name); i >= 0 {
		return dialects[i], nil
	}
	return nil, fmt.Errorf("%q is not a protocol: the protocols are %s", name, strings.Join(DialectNames(), ", "))
}

// String returns the name.
func (d *Dialect) String() string { return d.Name }

// CheckList returns why the server must not be asked for a list as a threat list, or
// nil. Google says that the server is Google's, see CheckThreatList.
func (d *Dialect) CheckList(name string, google bool) error {
	if d.lists == nil {
		return CheckThreatList(name, google)
	}
	if slices.Contains(d.lists, name) {
		return nil
	}
	near := ""
	if meant := NearestList(name); slices.Contains(d.lists, meant) {
		near = ": did you mean " + meant + "?"
	}
	return fmt.Errorf("protocol %s has no list %q, only %s%s", d, name, strings.Join(d.lists, ", "), near)
}

// Origin names lists that came by this dialect from the server at an address, and the
// origins whose lists serve until those are there. Asker tells keys apart.
func (d *Dialect) Origin(address, asker string) updater.Origin {
	o := updater.Origin{Name: address + d.suffix, Schedule: d.schedule, Asker: asker}
	for _, other := range dialects {
		if other != d {
			o.Predecessors = append(o.Predecessors, updater.Predecessor{Name: d.AddressBy(other, address) + other.suffix, Continues: d.Continues(other)})
		}
	}
	return o
}

// Serves reports whether a server at an endpoint can speak this dialect: of Google's
// servers one only. "" stands for that.
func (d *Dialect) Serves(endpoint string) bool {
	by := hosts[hostOf(endpoint)]
	return by == "" || by == d.Endpoint
}

// AddressBy returns where the server at an address of this dialect is asked by another
// one: at the same address, unless it is Google's.
func (d *Dialect) AddressBy(other *Dialect, address string) string {
	if address == d.Endpoint {
		return other.Endpoint
	}
	return address
}

// Continues reports whether servers of this dialect know the versions of lists that
// came by the other one.
func (d *Dialect) Continues(other *Dialect) bool { return d.continues == other }

// SplitOrigin returns the address and the dialect in the name of an origin.
func SplitOrigin(origin string) (address string, d *Dialect) {
	for _, d := range dialects {
		if address, ok := strings.CutSuffix(origin, d.suffix); ok && d.suffix != "" {
			return address, d
		}
	}
	return origin, dialects[0]
}

// Provider is the service of Google's that says what a server says. The zero Provider is any other
// server, whose verdicts must not be said to be Google's (Safe Browsing terms).
type Provider struct {
	Service  string // what Google calls it
	Advisory string // URL of its words about warnings, to be given with each one
}

// hosts are the names of Google's servers, each with the endpoint of its service. Those with mtls
// are for clients with a certificate (Google's AIP-4114).
var hosts = map[string]string{
	hostOf(DefaultEndpoint):            DefaultEndpoint,
	"safebrowsing.mtls.googleapis.com": DefaultEndpoint,
	hostOf(WebRiskEndpoint):            WebRiskEndpoint,
	"webrisk.mtls.googleapis.com":      WebRiskEndpoint,
}

// ProviderOf returns the provider whose advisory has this URL, and the zero Provider for any other
// text. So no words of a server, or of a file, are ever shown.
func ProviderOf(advisory string) Provider {
	for _, d := range dialects {
		if d.Advisory == advisory {
			return d.provider()
		}
	}
	return Provider{}
}

// provider returns Google's service that the dialect is for.
func (d *Dialect) provider() Provider { return Provider{d.Service, d.Advisory} }

// ProviderAt returns Google's service at an endpoint that this dialect is spoken with, and the
// zero Provider if Google does not run the server. "" is Google's.
func (d *Dialect) ProviderAt(endpoint string) Provider {
	if !IsGoogle(endpoint) {
		return Provider{}
	}
	return d.provider()
}

// heard is the advisory that a server told of last. The zero heard has not heard from it. It is
// safe for concurrent use.
type heard struct{ advisory atomic.Pointer[string] }

// hear notes the AdvisoryHeader of a good answer. One without it comes from a server that
// is not Google's, or from a relay that has not asked its server yet: its next answer will tell.
func (h *heard) hear(value string) {
	advisory := ProviderOf(value).Advisory
	if last := h.advisory.Load(); last == nil || *last != advisory {
		h.advisory.Store(&advisory)
	}
}

// Advisory implements Client.
func (h *heard) Advisory() (url string, known bool) {
	if last := h.advisory.Load(); last != nil {
		return *last, true
	}
	return "", false
}

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
		return fmt.Sprintf("Google has ended %s on %s: its server may stop at any time, and then lists are not updated and names are not confirmed. %s. DNS and your own lists keep working", e.title, day, e.Advice())
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

// googleLists are the threat lists that Google documents for all clients (Safe
// Browsing v5, "Local Database": Available Lists). Names never change.
var googleLists = []string{"se-4b", "mw-4b", "uws-4b", "uwsa-4b", "pha-4b"}

// GlobalCache is Google's list of hosts that are likely safe (Safe Browsing v5,
// "Local Database": Available Lists).
const GlobalCache = "gc-32b"

// likelySafe are the lists that hold likely safe hosts, by the part of their name
// before the width: the global cache, and the allow lists of Chrome's client-side
// and download checks.
var likelySafe = []string{"gc", "csda", "csdda"}

// clientsOwn are lists that only Google's own clients have been seen to ask for.
var clientsOwn = []string{"bi-4b", "mwb-4b", "srf-4b", "sus-4b", "mcrx-16b"}

// threatsOfV4 are the names of version 4 for what a list holds, and the words
// that people use.
var threatsOfV4 = map[string]string{
	"social_engineering": "se-4b", "phishing": "se-4b",
	"malware":                         "mw-4b",
	"unwanted_software":               "uws-4b",
	"potentially_harmful_application": "pha-4b",
}

// IsGoogle reports whether an endpoint is Google's server, for Safe Browsing or for
// Web Risk. "" is: it is the default.
func IsGoogle(endpoint string) bool {
	if endpoint == "" {
		return true
	}
	return hosts[hostOf(endpoint)] != ""
}

// TakesCertificates reports whether a server of Google is for clients with a certificate.
func TakesCertificates(endpoint string) bool { return strings.Contains(hostOf(endpoint), ".mtls.") }

// hostOf returns the host of an endpoint in lower case, "" if it is not a URL.
func hostOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
}

// CheckThreatList returns why a list must not be asked for as a threat list, or
// nil. Lists of likely safe hosts are refused whatever server has them: they
// would block what should pass. Of Google (google is set) only the threat lists
// that it documents may be asked for: it refuses a request that names another
// one, and with it all other lists of the request.
func CheckThreatList(name string, google bool) error {
	base, _, _ := strings.Cut(name, "-")
	switch {
	case slices.Contains(likelySafe, base):
		return fmt.Errorf("%s lists hosts that are likely safe: it cannot be used to block", name)
	case !google || slices.Contains(googleLists, name):
		return nil
	case slices.Contains(clientsOwn, name):
		return fmt.Errorf("%s is only for Google's own clients: use some of %s", name, strings.Join(googleLists, ", "))
	}
	if near := NearestList(name); near != "" {
		return fmt.Errorf("list %q is not one of Google's: did you mean %s? (the lists are %s)", name, near, strings.Join(googleLists, ", "))
	}
	return fmt.Errorf("list %q is not one of Google's: the lists are %s", name, strings.Join(googleLists, ", "))
}

// ThreatsOf returns the threats that lists of these names hold. A list whose
// name is not one of Google's may hold any.
func ThreatsOf(lists []string) (threats lookup.Threats) {
	for _, name := range lists {
		base, _, _ := strings.Cut(name, "-")
		threat, ok := threatOfBase[base]
		if !ok {
			return lookup.AllThreats
		}
		threats = threats.With(threat)
	}
	return threats
}

// threatOfBase has the threats of Google's lists, by their names without the width.
var threatOfBase = map[string]lookup.Threat{
	"se": lookup.SocialEngineering, "mw": lookup.Malware, "uws": lookup.UnwantedSoftware, "uwsa": lookup.UnwantedSoftware,
	"pha": lookup.PotentiallyHarmfulApplication,
}

// NearestList returns the threat list of Google that a mistyped name was probably
// meant to be: one edit away, or two if the name is long, or the list for a
// threat that is named in words. It returns "" if there is none, and for a name
// that is right or that only Google's own clients use. It is safe for concurrent
// use.
func NearestList(name string) string {
	if slices.Contains(googleLists, name) || slices.Contains(clientsOwn, name) {
		return ""
	}
	lower := strings.ToLower(name)
	base, width, _ := strings.Cut(lower, "-")
	if strings.Contains(width, "-") { // more than a width, as in se-ext-4b of Web Risk and in lists of one's own
		base = ""
	}
	if list, ok := threatsOfV4[base]; ok {
		return list
	}
	if slices.Contains(googleLists, base+"-4b") { // the width is wrong or missing
		return base + "-4b"
	}
	near, edits := say.Nearest(lower, googleLists)
	// All names of two letters are two edits from each other.
	if edits <= 1 || edits == 2 && len(base) > 3 {
		return near
	}
	return ""
}
