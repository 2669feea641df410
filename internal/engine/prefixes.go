package engine

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// A program on this machine that has prefixes confirmed counts as one client: the loopback address.

// Left returns how many searches a program on this machine may still cause today, or -1 if there is no
// budget.
func (s *Service) Left(now time.Time) int {
	if s.Shares != nil {
		if b, known := s.Shares.For(netip.IPv6Loopback(), now); known {
			return b.Left
		}
	}
	if s.ledger == nil {
		return -1
	}
	return s.ledger.Remaining(s.settings.Budget, now)
}

// Confirm asks the server about prefixes of 4 bytes that lists here hold, after all queries that wait,
// within the budget and the share of one client. It returns the answers in the order of the prefixes,
// with the threats only that block here, and how many searches were sent. It waits until ctx ends, and
// longer for the answer to none. The error says that a query still waited then; nothing was sent. Else
// answers have their own.
func (s *Service) Confirm(ctx context.Context, prefixes []lookup.Prefix) (answers []lookup.PrefixAnswer, searches int, err error) {
	if err := s.Checker.Idle(ctx); err != nil {
		return nil, 0, err
	}
	var sent atomic.Int64
	share := lookup.AdmitBy(nil, s.Shares, netip.IPv6Loopback()).All()
	answers = s.search(ctx, prefixes, func(n int) (admitted int, refund func(), err error) {
		admitted, back := n, func() {}
		if share != nil {
			admitted, back, err = share(n)
		}
		sent.Add(int64(admitted))
		return admitted, func() { sent.Add(-1); back() }, err
	})
	threats := cmp.Or(threatsOf(strings.Fields(s.settings.Lists)), lookup.AllThreats)
	for i := range answers {
		answers[i].Threats = blocking(answers[i].Threats, threats)
	}
	return answers, int(sent.Load()), nil
}

// search is the Search of the checker, which does not let a threat wait for the rest, until all have
// been answered.
func (s *Service) search(ctx context.Context, prefixes []lookup.Prefix, admit lookup.AdmitAll) []lookup.PrefixAnswer {
	answers, _ := s.Checker.Search(ctx, prefixes, false, admit, nil) // each answer has its error
	var slow []int
	var rest []lookup.Prefix
	for i, a := range answers {
		if errors.Is(a.Err, lookup.ErrSlow) {
			slow, rest = append(slow, i), append(rest, prefixes[i])
		}
	}
	if len(rest) == 0 || len(rest) == len(prefixes) || ctx.Err() != nil {
		return answers
	}
	for i, a := range s.search(ctx, rest, admit) { // they are under way: it joins their search
		answers[slow[i]] = a
	}
	return answers
}

// blocking returns the full hashes with one of the threats.
func blocking(all []lookup.ThreatHash, threats lookup.Threats) (kept []lookup.ThreatHash) {
	for _, t := range all {
		if t.Threats &= threats; t.Threats != 0 {
			kept = append(kept, t)
		}
	}
	return kept
}
