package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// tally counts different URLs by what becomes of them. URLs is Listed + NotListed + Unconfirmed, and
// Listed is ByHost + ByPath.
type tally struct {
	URLs        int `json:"urls"`
	Listed      int `json:"listed"`
	ByHost      int `json:"by_host"` // DNS can stop them
	ByPath      int `json:"by_path"` // DNS cannot: a page is listed, or a host that is an IP address
	NotListed   int `json:"not_listed"`
	Unconfirmed int `json:"unconfirmed"` // a list has a prefix, and the service has not been asked
}

// totals are what is counted of a feed.
type totals struct {
	tally
	Addresses  int       `json:"by_path_addresses"` // of by_path: the host is an IP address
	Private    int       `json:"private"`           // of not_listed: names of private networks, which are not looked up
	Duplicates int       `json:"duplicates"`
	Bad        int       `json:"bad"` // lines without a URL
	BadLines   []badLine `json:"bad_lines"`
	OwnAdds    int       `json:"own_adds"`   // the own lists block them, and the service does not by host
	OwnAllows  int       `json:"own_allows"` // of by_host: an exception lets them pass
}

// fate is what becomes of a URL.
type fate uint8

const (
	notListed fate = iota
	byHost
	byPath
	unconfirmed
)

func (t *tally) add(f fate) {
	t.URLs++
	*[...]*int{notListed: &t.NotListed, byHost: &t.ByHost, byPath: &t.ByPath, unconfirmed: &t.Unconfirmed}[f]++
	t.Listed = t.ByHost + t.ByPath
}

// row is a tally of some URLs.
type row struct {
	Name text `json:"name"`
	tally
}

// badLine is a line without a URL.
type badLine struct {
	Line int  `json:"line"`
	Why  text `json:"why"`
}

// maxBadLines is the most of them that are named.
const maxBadLines = 20

// page is a URL of the feed that has not been counted yet.
type page struct {
	host, suffix, domain string
	hosting              bool // the suffix belongs to a hosting service
	address, private     bool
	at                   time.Time
	hosts, paths         []lookup.FullHash // of its expressions; once looked up, those that a list holds
}

// counter takes the URLs of a feed, looks them up, and counts what is known.
type counter struct {
	ask  confirmer
	rule lookup.Rule
	now  time.Time

	total totals
	timed int

	bySuffix, byDomain, byList map[string]*tally
	hostings                   map[string]bool // the suffixes of hosting services
	byAge                      [len(ages)]tally

	seen     map[[16]byte]bool // the beginnings of the hashes of URLs
	batch    []page
	prefixes map[lookup.Prefix]bool // of batch
	hosts    map[string]bool        // of batch
	suspects []page                 // with a prefix that a list holds
	listed   map[lookup.Prefix]block.Listed
	own      map[string]block.OwnSay // of hosts that the operator decides on
}

func newCounter(ask confirmer, rule lookup.Rule, now time.Time) *counter {
	return &counter{
		ask: ask, rule: rule, now: now, total: totals{BadLines: []badLine{}}, seen: make(map[[16]byte]bool), prefixes: make(map[lookup.Prefix]bool), hosts: make(map[string]bool),
		bySuffix: make(map[string]*tally), byDomain: make(map[string]*tally), byList: make(map[string]*tally), hostings: make(map[string]bool),
		listed: make(map[lookup.Prefix]block.Listed), own: make(map[string]block.OwnSay),
	}
}

// schemes are those that browsers and downloads use. The others, such as chrome:// in a history, lead to
// no host of the web.
var schemes = []string{"http", "https", "ftp", "ws", "wss"}

// urlOf returns the URL of an entry, or why it is none. A word without a scheme needs a dot.
func urlOf(e feedEntry) (lookup.URL, error) {
	if e.Err != nil {
		return lookup.URL{}, e.Err
	}
	u, err := lookup.ParseURL(e.URL)
	if err != nil {
		return u, err
	}
	if scheme, _, _ := strings.Cut(u.String(), "://"); !slices.Contains(schemes, scheme) {
		return u, fmt.Errorf("%s:// is not of the web", scheme)
	}
	// No browser opens a host with | or ^ (https://url.spec.whatwg.org/#forbidden-host-code-point): it is a rule of a list.
	// None is longer than a name of the DNS may be (RFC 1035, section 2.3.4).
	if host := u.Host().String(); len(host) > 255 || strings.ContainsAny(host, "|^") || !hasScheme(e.URL) && !strings.ContainsAny(host, ".:") {
		return u, errors.New("not a URL")
	}
	return u, nil
}

// take takes the next entry of a feed. A URL that comes again, in any spelling, is not counted again.
func (c *counter) take(ctx context.Context, e feedEntry) error {
	u, err := urlOf(e)
	if err != nil {
		if c.total.Bad++; len(c.total.BadLines) < maxBadLines {
			c.total.BadLines = append(c.total.BadLines, badLine{e.Line, text(err.Error())})
		}
		return nil
	}
	sum := sha256.Sum256([]byte(u.String()))
	key := [16]byte(sum[:])
	if c.seen[key] {
		c.total.Duplicates++
		return nil
	}
	c.seen[key] = true
	p := c.pageOf(u, e.At)
	c.batch = append(c.batch, p)
	c.hosts[p.host] = true
	for _, hash := range slices.Concat(p.hosts, p.paths) {
		c.prefixes[hash.Prefix(4)] = true
	}
	if len(c.hosts) == block.MaxHosts || len(c.prefixes) > block.MaxPrefixes-30 { // a URL has 30 at most
		return c.flush(ctx)
	}
	return nil
}

func (c *counter) pageOf(u lookup.URL, at time.Time) page {
	p := page{host: u.Host().String(), at: at}
	_, err := netip.ParseAddr(strings.Trim(p.host, "[]"))
	p.address = err == nil
	p.suffix, p.domain, p.hosting = placeOf(p.host, p.address)
	if p.private = !u.Host().Public(); p.private {
		return p
	}
	for _, x := range u.Expressions(c.rule) {
		if hash := lookup.HashExpression(x.Text); x.DNS {
			p.hosts = append(p.hosts, hash)
		} else {
			p.paths = append(p.paths, hash)
		}
	}
	return p
}

// placeOf returns the public suffix of a host, or of a hosting service, which the private section of
// the Public Suffix List has, and else the registrable domain.
func placeOf(host string, address bool) (suffix, domain string, hosting bool) {
	if address {
		return "(IP address)", "", false
	}
	suffix, icann := publicsuffix.PublicSuffix(host)
	if !icann && strings.Contains(suffix, ".") {
		return suffix, "", true
	}
	domain, _ = publicsuffix.EffectiveTLDPlusOne(host)
	return suffix, domain, false
}

// flush looks up the URLs of the batch. URLs without a prefix that a list holds are counted at once.
func (c *counter) flush(ctx context.Context) error {
	if len(c.batch) == 0 {
		return nil
	}
	q := block.Question{Hosts: slices.Sorted(maps.Keys(c.hosts))}
	for p := range c.prefixes {
		q.Prefixes = append(q.Prefixes, p...)
	}
	found, err := c.ask.Listings(ctx, q)
	if err != nil {
		return err
	}
	for _, l := range found.Listed {
		prefix, err := hex.DecodeString(l.Prefix)
		if err != nil {
			return fmt.Errorf("the server names a prefix %q: %w", l.Prefix, err)
		}
		c.listed[lookup.Prefix(prefix)] = l
	}
	for _, o := range found.Own {
		c.own[o.Host] = o
	}
	unlisted := func(hash lookup.FullHash) bool { return c.listed[hash.Prefix(4)].Lists == nil }
	for _, p := range c.batch {
		p.hosts, p.paths = slices.DeleteFunc(p.hosts, unlisted), slices.DeleteFunc(p.paths, unlisted)
		if len(p.hosts)+len(p.paths) == 0 {
			c.settle(p, notListed, nil)
			continue
		}
		c.suspects = append(c.suspects, p)
	}
	c.batch = c.batch[:0]
	clear(c.prefixes)
	clear(c.hosts)
	return nil
}

// settle counts a URL. lists are those that list it.
func (c *counter) settle(p page, f fate, lists []string) {
	c.total.add(f)
	tallyOf(c.bySuffix, p.suffix).add(f)
	c.hostings[p.suffix] = p.hosting
	if p.domain != "" {
		tallyOf(c.byDomain, p.domain).add(f)
	}
	for _, list := range lists {
		tallyOf(c.byList, list).add(f)
	}
	if !p.at.IsZero() {
		c.timed++
		c.byAge[ageOf(c.now.Sub(p.at))].add(f)
	}
	if p.private {
		c.total.Private++
	}
	if p.address && f == byPath {
		c.total.Addresses++
	}
	own, decided := c.own[p.host]
	switch {
	case !decided || p.address:
	case own.Allow && f == byHost:
		c.total.OwnAllows++
	case !own.Allow && f != byHost:
		c.total.OwnAdds++
	}
}

func tallyOf(all map[string]*tally, name string) *tally {
	if all[name] == nil {
		all[name] = new(tally)
	}
	return all[name]
}

// finish counts the suspects by the full hashes that the service has confirmed. answered reports whether
// it has been asked about a prefix.
func (c *counter) finish(confirmed map[lookup.FullHash]bool, answered func(lookup.Prefix) bool) {
	for _, p := range c.suspects {
		f := p.fateBy(confirmed, answered)
		var lists []string
		if f == byHost || f == byPath {
			for _, hash := range slices.Concat(p.hosts, p.paths) {
				if confirmed[hash] {
					lists = append(lists, c.listed[hash.Prefix(4)].Lists...)
				}
			}
			slices.Sort(lists)
		}
		c.settle(p, f, slices.Compact(lists))
	}
	c.suspects = nil
}

// fateBy returns what becomes of a suspect. A page whose host is not confirmed yet may be one that DNS
// can stop.
func (p *page) fateBy(confirmed map[lookup.FullHash]bool, answered func(lookup.Prefix) bool) fate {
	is := func(hash lookup.FullHash) bool { return confirmed[hash] }
	unanswered := func(hash lookup.FullHash) bool { return !answered(hash.Prefix(4)) }
	switch {
	case slices.ContainsFunc(p.hosts, is) && p.address:
		return byPath
	case slices.ContainsFunc(p.hosts, is):
		return byHost
	case slices.ContainsFunc(p.hosts, unanswered):
		return unconfirmed
	case slices.ContainsFunc(p.paths, is):
		return byPath
	case slices.ContainsFunc(p.paths, unanswered):
		return unconfirmed
	}
	return notListed
}

// ages are the names of the ages of URLs, and ageEnds where each ends; the last one has no end.
var (
	ages    = [...]string{"under 1 hour", "1 to 24 hours", "1 to 7 days", "7 to 30 days", "over 30 days"}
	ageEnds = [len(ages) - 1]time.Duration{time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour}
)

// ageOf returns the index of an age.
func ageOf(age time.Duration) int {
	for i, end := range ageEnds {
		if age < end {
			return i
		}
	}
	return len(ageEnds)
}

// rowsOf returns tallies as rows, those with the most URLs first, at most maxRows.
func rowsOf(all map[string]*tally) []row {
	rows := []row{}
	for name, t := range all {
		rows = append(rows, row{text(name), *t})
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(b.URLs, a.URLs), cmp.Compare(a.Name, b.Name)) })
	return rows[:min(len(rows), maxRows)]
}
