package safebrowsing

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/policy"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// corefileOf returns the Corefile of a generation and its server blocks, or nil if there is none.
// In setup a plugin sees its own stanza only.
func corefileOf(generation uint64) (file string, blocks []caddyfile.ServerBlock) {
	for _, i := range caddy.Instances() {
		i.StorageMu.RLock()
		ours, ok := i.Storage[instanceKey{}].(*instance)
		i.StorageMu.RUnlock()
		input := i.Caddyfile()
		if !ok || ours.generation != generation || input == nil {
			continue
		}
		blocks, err := caddyfile.Parse(input.Path(), bytes.NewReader(input.Body()), nil)
		if err != nil { // CoreDNS has read it already
			return "", nil
		}
		return input.Path(), blocks
	}
	return "", nil
}

// needed has a query for a needed name pass. It is confirmed all the same, but nothing
// waits for that: the log tells of a name that would have been blocked.
func (s *SafeBrowsing) needed(ctx context.Context, w dns.ResponseWriter, r *dns.Msg, shown *shownDecision, d lookup.Decision, candidates *lookup.Candidates, what string) (way, *query) {
	if candidates == nil {
		s.observe(ctx, shown, s.spare(r.Question[0].Name, d, what))
		return passed, nil
	}
	q := s.newQuery(ctx, w, r, shown, candidates)
	q.needed = what
	return watch, q
}

// spare returns what becomes of a decision about a needed name, and logs that once a day
// if the name would have been blocked.
func (s *SafeBrowsing) spare(name string, d lookup.Decision, what string) lookup.Decision {
	if d.Verdict == lookup.Unsafe && !policy.IsOwn(d) && s.sparedNames.first(name, time.Now()) {
		log.Warningf("%s passes, although Safe Browsing lists it (%s, list %s): it is %s. If you want to block it all the same, add it to a list of block", name, d.Threat, d.List, what)
	}
	return policy.Spare(d)
}

// dayLog says which names have not been logged on a day yet. The zero value is ready to
// use; it is safe for concurrent use.
type dayLog struct {
	mu   sync.Mutex
	day  string
	seen map[string]bool // at most maxDayLog; guarded by mu
}

// maxDayLog is the most names that a dayLog tells of in a day.
const maxDayLog = 100

// first reports whether a name is to be logged now. Case does not count: clients may choose it
// at random (draft-vixie-dnsext-dns0x20).
func (l *dayLog) first(name string, now time.Time) bool {
	name = strings.ToLower(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if day := now.Format(time.DateOnly); l.day != day {
		l.day, l.seen = day, make(map[string]bool)
	}
	if l.seen[name] || len(l.seen) >= maxDayLog {
		return false
	}
	l.seen[name] = true
	return true
}
