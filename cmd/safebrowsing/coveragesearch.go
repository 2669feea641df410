package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// confirmer looks prefixes up and confirms them: it is a running CoreDNS over its door, or the folder of one.
type confirmer interface {
	Listings(ctx context.Context, q block.Question) (block.Listings, error)
	Confirm(ctx context.Context, q block.Question) (block.Confirmed, error)
}

// confirming asks the service about the prefixes of the suspects: in as few searches as it takes.
//
//	plan: cached answers, then hosts, then pages ──▶ batch ──▶ confirmer ──▶ state ──▶ batch …
//
// A page is not asked about once its host is known to be listed.
type confirming struct {
	*counter
	state     *state
	perSearch int
	most      int // searches of this run; 0: no limit
	tell      func(format string, args ...any)
	progress  func(searches int)

	confirmed map[lookup.FullHash]bool
	order     []lookup.Prefix
	ofPages   map[lookup.Prefix][]int // the suspects that need a prefix for a page only
	sent      int                     // in this run
	stopped   string                  // why not all are asked about; "": all are
	until     time.Time               // when more may be asked; zero: unknown
}

// plan sets the order in which prefixes are asked about, and returns how many searches that costs, or
// fewer.
func (c *confirming) plan() (prefixes, searches int) {
	c.confirmed, c.ofPages = make(map[lookup.FullHash]bool), make(map[lookup.Prefix][]int)
	of := make(map[lookup.Prefix]bool) // of hosts
	var cached, hosts, pages []lookup.Prefix
	asks := 0
	add := func(p lookup.Prefix, to *[]lookup.Prefix) {
		ask := c.listed[p].Ask
		switch {
		case c.state.has(p):
			return
		case ask == 0:
			cached = append(cached, p)
		default:
			*to = append(*to, p)
		}
		asks += ask
	}
	for _, s := range c.suspects {
		for _, hash := range s.hosts {
			if p := hash.Prefix(4); !of[p] {
				of[p] = true
				add(p, &hosts)
			}
		}
	}
	for i, s := range c.suspects {
		for _, hash := range s.paths {
			p := hash.Prefix(4)
			if c.ofPages[p] == nil && !of[p] {
				add(p, &pages)
			}
			c.ofPages[p] = append(c.ofPages[p], i)
		}
	}
	for p := range of {
		delete(c.ofPages, p)
	}
	for _, a := range c.state.Answers {
		c.learn(a.Threats)
	}
	c.order = slices.Concat(cached, hosts, pages)
	return len(of) + len(c.ofPages), (asks + c.perSearch - 1) / c.perSearch
}

// batch takes the next prefixes from the plan.
func (c *confirming) batch() (all []lookup.Prefix) {
	asks := 0
	for len(c.order) > 0 && len(all) < c.perSearch {
		p := c.order[0]
		if c.needed(p) {
			ask := c.listed[p].Ask
			if asks > 0 && asks+ask > c.perSearch {
				break
			}
			asks += ask
			all = append(all, p)
		}
		c.order = c.order[1:]
	}
	return all
}

// needed reports whether the answer about a prefix can change what becomes of a URL.
func (c *confirming) needed(p lookup.Prefix) bool {
	of := c.ofPages[p]
	return of == nil || slices.ContainsFunc(of, func(i int) bool {
		return !slices.ContainsFunc(c.suspects[i].hosts, func(hash lookup.FullHash) bool { return c.confirmed[hash] })
	})
}

// learn notes full hashes that the service lists.
func (c *confirming) learn(threats []string) {
	for _, t := range threats {
		var hash lookup.FullHash
		if n, err := hex.Decode(hash[:], []byte(t)); err == nil && n == len(hash) {
			c.confirmed[hash] = true
		}
	}
}

// Bounds of what run waits for.
const (
	longestWait = 10 * time.Minute // of the service or a budget; for longer it stops
	retryAfter  = 5 * time.Second  // after a failure without a wait
	mostRetries = 2                // of them in a row
)

// run asks about all that is planned, until all is known, the limits allow no more, or ctx ends. It
// returns an error if the server cannot be asked, or ctx ends; all that is known is kept in the state.
func (c *confirming) run(ctx context.Context) (err error) {
	defer func() { err = cmp.Or(err, c.state.save()) }()
	retries := 0
	for batch := c.batch(); len(batch) > 0; batch = c.batch() {
		if c.most > 0 && c.sent >= c.most { // also where answers were cached: they may have expired
			c.stopped = fmt.Sprintf("%s sent, as many as -searches allows", say.Count(c.sent, "search is", "searches are"))
			return nil
		}
		answer, err := c.askAbout(ctx, batch)
		if err != nil {
			return err
		}
		if answer.Error == "" {
			retries = 0
			continue
		}
		wait := time.Until(answer.Until)
		if wait <= 0 { // none is given, or it has passed
			wait = retryAfter
			retries++
		}
		if wait > longestWait || retries > mostRetries {
			c.stopped, c.until = answer.Error, answer.Until
			return nil
		}
		c.tell("waiting until %s: %s", say.Time(time.Now().Add(wait)), answer.Error)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// askAbout asks about a batch, and puts back into the plan what has no answer.
func (c *confirming) askAbout(ctx context.Context, batch []lookup.Prefix) (answer block.Confirmed, err error) {
	var q block.Question
	for _, p := range batch {
		q.Prefixes = append(q.Prefixes, p...)
	}
	answer, err = c.ask.Confirm(ctx, q)
	if err == nil {
		err = ctx.Err()
	}
	c.sent += answer.Searches
	c.state.Searches += answer.Searches
	now := time.Now()
	for _, a := range answer.Answers {
		c.learn(a.Threats)
		c.state.add(a, now)
	}
	c.order = append(slices.DeleteFunc(batch, c.state.has), c.order...)
	c.progress(c.sent)
	return answer, cmp.Or(err, c.state.saveSometimes(now))
}

// state is what a run knows. It can be kept in a file, so that the next run continues from it.
type state struct {
	Service  string        `json:"service"` // with its address
	Searches int           `json:"searches"`
	Answers  []storedReply `json:"answers"`

	path  string // "": it is not kept
	saved time.Time
	known map[lookup.Prefix]bool
}

// storedReply is an answer about a prefix. It may be used from when it came until its end; before, if the clock
// was set back, and after that the service is asked again.
type storedReply struct {
	Prefix  string    `json:"prefix"`
	At      time.Time `json:"at"`
	Until   time.Time `json:"until"`
	Threats []string  `json:"threats"`
}

// maxState is the most bytes of the file.
const maxState = 256 << 20

// openState returns the state in a file, without the answers whose life has ended. With "" or without
// the file it is empty.
func openState(path, service string, now time.Time) (*state, error) {
	s := &state{Service: service, path: path, known: make(map[lookup.Prefix]bool)}
	if path == "" {
		return s, nil
	}
	raw, err := files.Read(path, maxState)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil:
		return nil, err
	}
	var saved state
	if err := json.Unmarshal(raw, &saved); err != nil || saved.Service == "" {
		return nil, fmt.Errorf("%s is not a file of -resume: name another one", path)
	}
	if saved.Service != service {
		return nil, fmt.Errorf("%s has answers of %s, and now %s is asked: name another file", path, saved.Service, service)
	}
	s.Searches = saved.Searches
	for _, a := range saved.Answers {
		if prefix, err := hex.DecodeString(a.Prefix); err == nil && !now.Before(a.At) && now.Before(a.Until) {
			s.Answers = append(s.Answers, a)
			s.known[lookup.Prefix(prefix)] = true
		}
	}
	return s, nil
}

// has reports whether the service has been asked about a prefix.
func (s *state) has(p lookup.Prefix) bool { return s.known[p] }

// add notes an answer that came at now.
func (s *state) add(a block.PrefixAnswer, now time.Time) {
	prefix, err := hex.DecodeString(a.Prefix)
	if err != nil {
		return
	}
	s.known[lookup.Prefix(prefix)] = true
	s.Answers = append(s.Answers, storedReply{a.Prefix, now, now.Add(a.TTL), a.Threats})
}

// save writes the file.
func (s *state) save() error {
	if s.path == "" {
		return nil
	}
	return files.Replace(s.path, func(f *os.File) error { return json.NewEncoder(f).Encode(s) })
}

// saveSometimes saves once a second: what a crash loses is asked again.
func (s *state) saveSometimes(now time.Time) error {
	if now.Sub(s.saved) < time.Second {
		return nil
	}
	s.saved = now
	return s.save()
}

// end removes the file.
func (s *state) end() error {
	if s.path == "" {
		return nil
	}
	return os.Remove(s.path)
}
