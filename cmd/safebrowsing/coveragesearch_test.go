package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// scripted answers as told, and then knows everything.
type scripted struct {
	nobody
	answers []block.Confirmed
	asked   []time.Time
}

func (s *scripted) confirm(_ context.Context, q block.Question) (c block.Confirmed, err error) {
	s.asked = append(s.asked, time.Now())
	if len(s.answers) > 0 {
		c, s.answers = s.answers[0], s.answers[1:]
		return c, nil
	}
	c.Searches = 1
	for i := 0; i < len(q.Prefixes); i += 4 {
		c.Answers = append(c.Answers, block.PrefixAnswer{Prefix: fmt.Sprintf("%x", q.Prefixes[i:i+4]), TTL: time.Minute})
	}
	return c, nil
}

// A short wait of the service is waited for, a long one ends the run, and what fails is tried three times.
func TestCoverageWaitsForAShortWhileOnly(t *testing.T) {
	in := func(d time.Duration) block.Confirmed {
		return block.Confirmed{Error: "back-off", Until: time.Now().Add(d)}
	}
	failed := block.Confirmed{Error: "status 503"}
	for name, tc := range map[string]struct {
		answers func() []block.Confirmed
		asked   []time.Duration // after the begin
		stopped string
	}{
		"a minute":       {func() []block.Confirmed { return []block.Confirmed{in(time.Minute)} }, []time.Duration{0, time.Minute}, ""},
		"an hour":        {func() []block.Confirmed { return []block.Confirmed{in(time.Hour)} }, []time.Duration{0}, "back-off"},
		"two failures":   {func() []block.Confirmed { return []block.Confirmed{failed, failed} }, []time.Duration{0, retryAfter, 2 * retryAfter}, ""},
		"three failures": {func() []block.Confirmed { return []block.Confirmed{failed, failed, failed} }, []time.Duration{0, retryAfter, 2 * retryAfter}, "status 503"},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun, hash := time.Now(), lookup.HashExpression("a.example/")
			server := &scripted{answers: tc.answers()}
			c := newCounter(server, lookup.RuleV5, begun)
			c.suspects = []page{{host: "a.example", hosts: []lookup.FullHash{hash}}}
			c.listed[hash.Prefix(4)] = block.Listed{Lists: []string{"se-4b"}, Ask: 1}
			s := &state{known: make(map[lookup.Prefix]bool)}
			search := &confirming{counter: c, state: s, perSearch: 240, tell: func(string, ...any) {}, progress: func(int) {}}
			if prefixes, searches := search.plan(); prefixes != 1 || searches != 1 {
				t.Errorf("%s: %d prefixes in %d searches", name, prefixes, searches)
			}
			if err := search.run(t.Context()); err != nil || search.stopped != tc.stopped {
				t.Errorf("%s: stopped %q, %v", name, search.stopped, err)
			}
			var asked []time.Duration
			for _, at := range server.asked {
				asked = append(asked, at.Sub(begun))
			}
			if !slices.Equal(asked, tc.asked) {
				t.Errorf("%s: asked after %v, want %v", name, asked, tc.asked)
			}
			c.finish(search.confirmed, s.has)
			if c.total.Unconfirmed != map[bool]int{true: 1}[tc.stopped != ""] || c.total.URLs != 1 {
				t.Errorf("%s: %+v", name, c.total)
			}
		})
	}
}
