// Package policy is what one server block decides about names: by its zones and
// exceptions, the operator's own lists, test names, and then Safe Browsing.
//
//	InScope ──▶ Check ──▶ own lists, test names ──▶ lookup.Checker ─┬─▶ Decision
//	                                                                └─▶ Candidates ──▶ Confirm
//	Explain: the same, in words
//
// The plugin and the command line both decide by it.
package policy

import (
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Policy is what one server block decides. It is safe for concurrent use.
type Policy struct {
	block  *config.Block
	own    atomic.Pointer[own]           // the operator's lists, set by Open
	source atomic.Pointer[Source]        // set by Use; nil: Safe Browsing is off
	needed atomic.Pointer[config.Needed] // set by Need; nil: none

	finding sync.Mutex // held while the line of an entry is looked for
}

// Source gives the verdicts of Safe Browsing.
type Source struct {
	Checker *lookup.Checker // required
	Shares  *lookup.Shares  // of the day's budget of searches; nil: none
	// FetchHold and SearchHold say why the server is not asked now. Only Explain needs
	// them.
	FetchHold, SearchHold func() updater.Hold
}

// New returns the policy of a server block, whose own lists are not open yet. The
// block must not be changed while the policy is in use.
func New(b *config.Block) *Policy { return &Policy{block: b} }

// Open puts the operator's own lists in force and keeps them fresh. Close ends it.
func (p *Policy) Open() error { return p.open(true) }

// OpenStored is Open without requests: lists by URL are as a CoreDNS has fetched them last.
func (p *Policy) OpenStored() error { return p.open(false) }

func (p *Policy) open(fetch bool) error {
	var early opening
	lists, err := openOwn(p.block, fetch, func(e ownlist.Event) {
		reportOwn(e)
		if loaded, ok := e.(ownlist.Loaded); ok && early.ended(loaded.Named) {
			p.reportNeeded(loaded.Named)
		}
	})
	if err != nil {
		return err
	}
	p.own.Store(lists)
	for _, list := range early.end() {
		p.reportNeeded(list)
	}
	return nil
}

// opening keeps the names of lists that are loaded while lists are opened. It is safe for
// concurrent use.
type opening struct {
	mu    sync.Mutex
	over  bool     // guarded by mu
	lists []string // guarded by mu
}

// ended reports whether all lists are open; if not, it keeps the name of one.
func (o *opening) ended(list string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		o.lists = append(o.lists, list)
	}
	return o.over
}

// end returns the names that were kept. No more will be.
func (o *opening) end() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	return o.lists
}

// Close closes the operator's own lists, if they are open. They still decide, but are
// not read again.
func (p *Policy) Close() {
	if lists := p.own.Load(); lists != nil {
		lists.close()
	}
}

// Use has the policy decide by Safe Browsing too.
func (p *Policy) Use(s Source) { p.source.Store(&s) }

// NeededList is the name, as a list, of the names that Need names.
const NeededList = "needed"

// Need has the policy tell which names neither Safe Browsing nor a list by URL may block.
func (p *Policy) Need(n config.Needed) { p.needed.Store(&n) }

// Needed returns what a host is needed for, or "". Check does not ask this, since few
// names are suspected: for a decision that is not the operator's, Spare does.
func (p *Policy) Needed(h lookup.Host) string {
	if n := p.needed.Load(); n != nil {
		return n.What(h)
	}
	return ""
}

// Spare returns what becomes of a decision about a needed host: it is safe, unless the
// operator's own lists decided.
func Spare(d lookup.Decision) lookup.Decision {
	if d.Verdict == lookup.Safe || IsOwn(d) {
		return d
	}
	return lookup.Decision{By: lookup.ByAllow, List: NeededList}
}

// IsOwn reports whether the operator decided, and not Safe Browsing.
func IsOwn(d lookup.Decision) bool {
	return d.By == lookup.ByAllow || d.By == lookup.ByBlock || d.By == lookup.ByTest
}

// InUse reports whether Use has been called.
func (p *Policy) InUse() bool { return p.source.Load() != nil }

// OwnLists returns the states of the operator's own lists: the hosts that the Corefile
// allows, then the files in its order.
func (p *Policy) OwnLists() (all []ownlist.State) {
	if lists := p.own.Load(); lists != nil {
		for _, f := range lists.files {
			all = append(all, f.State())
		}
	}
	return all
}

// OwnList returns how a file of the operator's lists is read, by its name in decisions.
func (p *Policy) OwnList(name string) ownlist.Config { return p.ownList(name, true) }

// ownList returns how a list is read: of two of a name, the one that allows if allow is
// set, else the other one. If there is none, its path is "".
func (p *Policy) ownList(name string, allow bool) ownlist.Config {
	lists := p.own.Load()
	if lists == nil {
		return ownlist.Config{}
	}
	if c, ok := lists.configs[which{name, allow}]; ok {
		return c
	}
	return lists.configs[which{name, !allow}]
}

// InScope reports whether this server block checks a name: it is in the zones and in
// none of the exceptions. The name has its final dot; case does not count.
func (p *Policy) InScope(qname string) bool {
	b := p.block
	if len(b.Except) == 0 && len(b.Zones) == 1 && b.Zones[0] == "." { // the common case
		return true
	}
	qname = strings.ToLower(qname)
	return b.Zones.Contains(qname) && !b.Except.Contains(qname)
}

// Check decides on a host by what is known here. If it returns candidates, the
// decision is not made until Confirm has asked about them.
func (p *Policy) Check(h lookup.Host) (lookup.Decision, *lookup.Candidates) {
	if d, ok := p.checkOwn(h); ok {
		return d, nil
	}
	s := p.source.Load()
	if s == nil {
		return lookup.Decision{}, nil
	}
	return s.Checker.CheckWith(h, p.block.Frames)
}

// Confirm asks the server about candidates that Check has returned, within the limit and
// the share of the client, see lookup.Checker. Clients without an address count as one.
// Before each search it calls room, and asks for nothing if that returns an error.
func (p *Policy) Confirm(candidates *lookup.Candidates, client netip.Addr, room func() error) *lookup.Confirmation {
	s := p.source.Load()
	admit := lookup.AdmitBy(p.block.Limiter, s.Shares, client)
	return s.Checker.Confirm(candidates, func() (refund func(), err error) {
		if err := room(); err != nil || admit == nil {
			return nil, err
		}
		return admit()
	})
}

// checkOwn decides on a host by the operator's own lists and by test names. Of the
// entries of own lists the most specific one wins. A list by URL blocks no needed name:
// others write it, and this server may need the name to get the next version of the list.
func (p *Policy) checkOwn(h lookup.Host) (lookup.Decision, bool) {
	var match ownlist.Match
	var found bool
	if lists := p.own.Load(); lists != nil && len(lists.files) > 0 {
		match, found = ownlist.Best(lists.files, h, time.Now())
	}
	if found && match.Fetched && !match.Allow && p.Needed(h) != "" {
		if match, found = ownlist.Best(p.own.Load().local, h, time.Now()); !found && !p.isTest(h) {
			return lookup.Decision{By: lookup.ByAllow, List: NeededList}, true
		}
	}
	if found && match.Allow {
		return lookup.Decision{By: lookup.ByAllow, List: match.File}, true
	}
	if p.isTest(h) {
		return lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByTest, List: config.TestList, Expression: h.String() + "/"}, true
	}
	if found {
		return lookup.Decision{
			Verdict: lookup.Unsafe, By: lookup.ByBlock, List: match.File, Expression: match.Name(h) + "/", Answer: uint8(match.Answer),
		}, true
	}
	return lookup.Decision{}, false
}

// isTest reports whether h is a test name or a name below one.
func (p *Policy) isTest(h lookup.Host) bool {
	if p.block.Tests == nil {
		return false
	}
	_, found := p.block.Tests.Match(h, time.Time{}) // test names have no end
	return found
}
