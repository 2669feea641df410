package block

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// pages are the status pages of the process, which all show the same: what its server
// blocks protect by.
var pages statusPages

// statusPages implements status.Source. It is safe for concurrent use.
type statusPages struct {
	status.Pages
	recent status.Recent
	costs  status.Costs
	open   atomic.Int32 // holds on pages
	since  atomic.Int64 // when the first of them was opened, in seconds since 1970
}

// openStatus serves the status page that the Corefile names, if it does. The result ends
// that. A page that cannot be served is logged: it must not keep CoreDNS from serving.
func (b *Block) openStatus() (end func()) {
	if b.Config.Status == "" {
		return func() {}
	}
	at, release, err := pages.Open(b.Config.Status, &pages)
	if err != nil {
		log.Errorf("There is no status page at %s: %v. Names are checked as always. Choose another address for status, then restart CoreDNS", b.Config.Status, err)
		return func() {}
	}
	if pages.open.Add(1) == 1 {
		pages.since.Store(time.Now().Unix())
	}
	if at != nil {
		log.Infof("The status page is at http://%s/", at)
	}
	return func() {
		release()
		if pages.open.Add(-1) == 0 {
			pages.recent.Forget()
		}
	}
}

// Passed notes a query for a host that is in no list. It takes no lock and does not allocate.
func (b *Block) Passed(h lookup.Host) { loud.familiar.count(h) }

// Blocked notes a query that is blocked: for the page, while there is one that shows it, and to
// log what may be a mistake of Safe Browsing.
func (b *Block) Blocked(q dns.Question, d lookup.Decision, now time.Time) {
	loud.blocked(q, d, now)
	if pages.open.Load() == 0 {
		return
	}
	name := ""
	if b.Config.StatusNames {
		name = shown(q.Name)
	}
	pages.recent.Blocked(d.List, name, now)
}

// Searched notes that the decision about a name took so many searches, while there is a page
// that may show what they cost.
func (b *Block) Searched(qname string, d lookup.Decision, searches int) {
	if b.Config.StatusNames && b.Settings.Dialect().Paid && (d.By == lookup.ByServer || d.By == lookup.ByCache) && pages.open.Load() > 0 && searches > 0 {
		pages.costs.Searched(shown(qname), searches, time.Now())
	}
}

// shown returns a name as pages show it.
func shown(qname string) string { return strings.ToLower(strings.TrimSuffix(qname, ".")) }

// ShareSpent logs that a client has spent its share of the budget: the first one of each day.
func (b *Block) ShareSpent(client netip.Addr, now time.Time) {
	if s := b.service.Load(); s != nil {
		b.shares.Log(s, client, now)
	}
}

// Report implements status.Source.
func (p *statusPages) Report() status.Report {
	blocks, now := started.all(), time.Now()
	r := Report(blocks, now)
	r.Version, r.Counted = say.Version, time.Unix(p.since.Load(), 0)
	r.Hour, r.Names = p.recent.Hour(now)
	for i, b := range blocks {
		r.Named = r.Named || b.Config.StatusNames
		if n := r.Blocks[i].Service; n >= 0 && r.Services[n].Paid && b.Config.StatusNames {
			r.Services[n].Costly = p.costs.Most(now)
		}
	}
	return r
}

// Explain implements status.Source.
func (p *statusPages) Explain(h lookup.Host) (all []status.Answer) {
	qname := h.String() + "."
	for _, b := range started.all() {
		if b.InScope(qname) {
			all = append(all, b.answer(h, qname))
		}
	}
	if all == nil {
		all = append(all, status.Answer{Zones: "other zones", Text: h.String() + " is not checked: no server block checks its zone"})
	}
	return all
}
