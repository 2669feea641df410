package block

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// A program on this machine may look up many prefixes in the lists, and confirm those that a list
// holds, as "safebrowsing coverage" does:
//
//	Question ──▶ Listings: which lists hold them, and what own lists say of hosts; sends nothing
//	Question ──▶ Confirm: one search, by the clocks and the budget of the service, after all queries that wait

// Question is what is asked at once.
type Question struct {
	Prefixes []byte   `json:"prefixes,omitempty"` // 4 bytes each
	Hosts    []string `json:"hosts,omitempty"`    // in canonical form
}

// The most of a Question.
const (
	MaxPrefixes = 4096 // of Listings; of Confirm it is Listings.PerSearch
	MaxHosts    = 256
	prefixBytes = 4
)

// Listings is what is known here. It sends nothing.
type Listings struct {
	Zones     string   `json:"zones"` // of the server block that answers
	Service   string   `json:"service"`
	Address   string   `json:"endpoint"`
	Protocol  string   `json:"protocol"` // whose rule makes expressions
	Mode      string   `json:"mode"`
	Missing   []string `json:"missing"`    // lists that are not in force
	PerSearch int      `json:"per_search"` // the most prefixes of a search
	Left      int      `json:"left"`       // searches that may be sent today; -1: there is no budget
	Listed    []Listed `json:"listed"`     // prefixes that a list holds
	Own       []OwnSay `json:"own"`        // hosts that the operator decides on
}

// Listed is a prefix that lists of the service hold.
type Listed struct {
	Prefix string   `json:"prefix"` // in hexadecimal
	Lists  []string `json:"lists"`
	Ask    int      `json:"ask"` // prefixes to ask the server about; 0: the answer is cached
}

// OwnSay is what the operator's lists say of a host, or that it is never blocked.
type OwnSay struct {
	Host  string `json:"host"`
	List  string `json:"list"`
	Allow bool   `json:"allow"`
}

// Confirmed is what the server says about prefixes.
type Confirmed struct {
	Answers  []PrefixAnswer `json:"answers"`  // those that are known
	Searches int            `json:"searches"` // that were sent
	Error    string         `json:"error"`    // why not all are known; "": all are
	Until    time.Time      `json:"until,omitzero"`
}

// PrefixAnswer is what the server says about a prefix.
type PrefixAnswer struct {
	Prefix  string        `json:"prefix"`  // in hexadecimal
	Threats []string      `json:"threats"` // full hashes, in hexadecimal
	TTL     time.Duration `json:"ttl"`     // how long the answer may be used, in nanoseconds
}

// errNoService says that there is nobody to ask.
var errNoService = errors.New("no server block uses Safe Browsing or Web Risk")

// Listings returns what is known about prefixes, and what the operator says of hosts.
func (b *Block) Listings(_ context.Context, q Question) (l Listings, err error) {
	prefixes, err := q.prefixes(MaxPrefixes)
	s := b.service.Load()
	switch {
	case err != nil:
		return l, err
	case len(q.Hosts) > MaxHosts:
		return l, fmt.Errorf("%d hosts at once, at most %d", len(q.Hosts), MaxHosts)
	case s == nil:
		return l, errNoService
	case b.Settings.Mode == lookup.NoStorage:
		return l, errors.New("mode nostorage keeps no lists: nothing can be looked up here")
	}
	now, d := time.Now(), b.Settings.Dialect()
	l = Listings{
		Zones: b.zones(), Service: d.Title, Address: b.Settings.Address(), Protocol: d.Name, Mode: b.Settings.Mode.String(), Missing: []string{},
		PerSearch: s.Checker.PerSearch(), Left: s.Left(now), Listed: []Listed{}, Own: []OwnSay{},
	}
	if prefixes == nil && q.Hosts == nil { // who asks for the first time
		for _, list := range s.Standing(now).Lists {
			if list.Missing() {
				l.Missing = append(l.Missing, list.Name)
			}
		}
	}
	for i, listing := range s.Checker.Listings(prefixes) {
		if listing.Lists != nil {
			l.Listed = append(l.Listed, Listed{hex.EncodeToString([]byte(prefixes[i])), listing.Lists, listing.Ask})
		}
	}
	for _, name := range q.Hosts {
		if own, ok := b.ownSay(name); ok {
			l.Own = append(l.Own, own)
		}
	}
	return l, nil
}

// ownSay returns what the operator decides on a host, if that is so.
func (b *Block) ownSay(name string) (OwnSay, bool) {
	h, ok := lookup.ParseHost(name)
	if !ok || !b.InScope(h.String()+".") {
		return OwnSay{}, false
	}
	var d lookup.Decision
	if b.checkOwn(h, &d) {
		return OwnSay{name, d.List, d.By == lookup.ByAllow}, true
	}
	if b.needed.What(h) != "" {
		return OwnSay{name, neededList, true}, true
	}
	return OwnSay{}, false
}

// Confirm confirms prefixes that lists hold, in one search at most, if the caller asks for no more
// than Listings.PerSearch. It waits until ctx ends. It returns an error about the question only.
func (b *Block) Confirm(ctx context.Context, q Question) (c Confirmed, err error) {
	s := b.service.Load()
	if s == nil {
		return c, errNoService
	}
	prefixes, err := q.prefixes(s.Checker.PerSearch())
	if err != nil {
		return c, err
	}
	ctx, cancel := context.WithTimeout(ctx, prefixTimeout)
	defer cancel()
	answers, searches, err := s.Confirm(ctx, prefixes)
	c = Confirmed{Answers: []PrefixAnswer{}, Searches: searches}
	if err != nil {
		c.Error, c.Until = "queries for names wait to be confirmed", time.Now().Add(busyWait)
		return c, nil
	}
	for i, a := range answers {
		if a.Err != nil {
			err = a.Err
			continue
		}
		answer := PrefixAnswer{Prefix: hex.EncodeToString([]byte(prefixes[i])), Threats: []string{}, TTL: a.TTL}
		for _, t := range a.Threats {
			answer.Threats = append(answer.Threats, hex.EncodeToString(t.Hash[:]))
		}
		c.Answers = append(c.Answers, answer)
	}
	if err != nil {
		c.Error = err.Error()
		if hold := s.SearchHold(); hold.Active(time.Now()) {
			c.Error, c.Until = hold.String(), hold.Until
		}
	}
	return c, nil
}

// busyWait is how long a program waits before it asks again while queries wait.
const busyWait = 10 * time.Second

// prefixTimeout is how long a program waits for Confirm, at most: a search takes 10 seconds.
const prefixTimeout = 15 * time.Second

// prefixes returns the prefixes of a question, most at most.
func (q Question) prefixes(most int) (all []lookup.Prefix, err error) {
	if len(q.Prefixes)%prefixBytes != 0 {
		return nil, fmt.Errorf("prefixes have %d bytes each", prefixBytes)
	}
	if n := len(q.Prefixes) / prefixBytes; n > most {
		return nil, fmt.Errorf("%d prefixes at once, at most %d", n, most)
	}
	for i := 0; i < len(q.Prefixes); i += prefixBytes {
		all = append(all, lookup.Prefix(q.Prefixes[i:i+prefixBytes]))
	}
	return all, nil
}

// asked returns the server block that answers programs: the first one with a service.
func (p *Process) asked() (*Block, error) {
	for _, b := range p.all() {
		if b.service.Load() != nil {
			return b, nil
		}
	}
	return nil, errNoService
}

// Listings calls the first server block with a service.
func (p *Process) Listings(ctx context.Context, q Question) (Listings, error) {
	b, err := p.asked()
	if err != nil {
		return Listings{}, err
	}
	return b.Listings(ctx, q)
}

// Confirm calls the first server block with a service, for one caller at a time.
func (p *Process) Confirm(ctx context.Context, q Question) (Confirmed, error) {
	b, err := p.asked()
	if err != nil {
		return Confirmed{}, err
	}
	if !p.confirming.TryLock() {
		return Confirmed{}, errors.New("another program confirms prefixes: wait until it has ended")
	}
	defer p.confirming.Unlock()
	return b.Confirm(ctx, q)
}
