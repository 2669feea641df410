package safebrowsing

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/version"
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
func (s *SafeBrowsing) openStatus() (end func()) {
	if s.cfg.Status == "" {
		return func() {}
	}
	at, release, err := pages.Open(s.cfg.Status, &pages)
	if err != nil {
		log.Errorf("There is no status page at %s: %v. Names are checked as always. Choose another address for status, then restart CoreDNS", s.cfg.Status, err)
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

// blocked counts a query that is blocked, while there is a page that shows it.
func (p *statusPages) blocked(list, qname string, named bool) {
	if p.open.Load() == 0 {
		return
	}
	if !named {
		qname = ""
	}
	p.recent.Blocked(list, strings.ToLower(strings.TrimSuffix(qname, ".")), time.Now())
}

// searched counts searches for a name, while there is a page that may show it.
func (p *statusPages) searched(qname string, n int) {
	if p.open.Load() > 0 && n > 0 {
		p.costs.Searched(strings.ToLower(strings.TrimSuffix(qname, ".")), n, time.Now())
	}
}

// Report implements status.Source.
func (p *statusPages) Report() status.Report {
	now := time.Now()
	r := status.Report{At: now, Version: version.Number, Counted: time.Unix(p.since.Load(), 0)}
	r.Hour, r.Names = p.recent.Hour(now)
	services := make(map[*engine.Engine]int)
	for _, s := range sortedBlocks() {
		r.Named = r.Named || s.cfg.StatusNames
		r.Blocks = append(r.Blocks, s.standing(services, &r))
	}
	return r
}

// standing returns what a server block protects by. It adds its engine to the report once.
func (s *SafeBrowsing) standing(services map[*engine.Engine]int, r *status.Report) status.Block {
	b := status.Block{Zones: strings.Join(s.cfg.Zones, " "), Service: -1, Monitor: s.cfg.Monitor}
	b.Paused, _ = s.pausedUntil()
	if e := s.engine.Load(); e != nil {
		i, ok := services[e]
		if !ok {
			i = len(r.Services)
			services[e] = i
			service := e.Service()
			if service.Paid && s.cfg.StatusNames {
				service.Costly = pages.costs.Most(r.At)
			}
			r.Services = append(r.Services, service)
		}
		b.Service = i
	}
	for _, own := range s.policy.OwnLists() {
		o := status.OwnList{Name: own.Named, Allow: own.Allow, Entries: own.InForce()}
		if own.Err != nil {
			o.Trouble = own.Err.Error()
		}
		b.Own = append(b.Own, o)
	}
	return b
}

// sortedBlocks returns the server blocks that have started, by their zones.
func sortedBlocks() []*SafeBrowsing {
	return slices.SortedFunc(slices.Values(serving.blocks()), func(a, b *SafeBrowsing) int {
		return cmp.Compare(strings.Join(a.cfg.Zones, " "), strings.Join(b.cfg.Zones, " "))
	})
}

// Explain implements status.Source.
func (p *statusPages) Explain(h lookup.Host) (all []status.Answer) {
	qname := h.String() + "."
	for _, s := range sortedBlocks() {
		if s.policy.InScope(qname) {
			all = append(all, s.answerAbout(h, qname))
		}
	}
	if all == nil {
		all = append(all, status.Answer{Zones: "other zones", Text: h.String() + " is not checked: no server block checks its zone"})
	}
	return all
}

// answerAbout returns what the server block decides about a host, in words.
func (s *SafeBrowsing) answerAbout(h lookup.Host, qname string) status.Answer {
	e := s.explain(h, qname)
	a := status.Answer{Zones: strings.Join(s.cfg.Zones, " "), Text: h.String() + " passes"}
	switch {
	case e.Verdict == lookup.Unsafe && s.cfg.Monitor:
		a.Text = h.String() + " would be blocked, but monitor lets it pass"
	case e.Verdict == lookup.Unsafe:
		a.Blocked, a.Text = true, h.String()+" is blocked"
	case e.Suspected:
		a.Text = h.String() + " is suspected"
	}
	add := func(format string, value any) {
		if text := fmt.Sprint(value); text != "" && text != "." {
			a.Reasons = append(a.Reasons, fmt.Sprintf(format, text))
		}
	}
	reply := s.reply()
	a.Words.Text = reply.Warning(e.Decision)
	if strings.HasSuffix(a.Words.Text, reply.Advisory) {
		a.Words.URL = reply.Advisory
	}
	add("%s", e.Note)
	add("List: %s", filepath.Base(e.List))
	add("Entry: %s", strings.TrimSuffix(e.Expression, "/"))
	switch {
	case e.By == lookup.ByNobody || e.Suspected && e.By == lookup.ByList: // the note says why
	case e.By == lookup.ByList:
		add("%s", "It is in no list.")
	default:
		add("Decided by: %s", e.By)
	}
	if !e.Confirmed.IsZero() {
		add("Confirmed by the server: %s", status.Moment(e.Confirmed))
	}
	if !e.Expires.IsZero() {
		add("This decision holds for: %s", status.Age(max(0, time.Until(e.Expires))))
	}
	add("To let it pass: %s", unblock(e))
	return a
}
