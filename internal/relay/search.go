package relay

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// search answers hashes.search from the cache, or by a search of the server.
func (h *handler) search(r *http.Request, client netip.Addr, q query) (reply, *failure) {
	if len(q.prefixes) == 0 {
		return reply{}, invalid("no parameter hashPrefixes")
	}
	if !h.ready() { // it would answer that no list holds the prefixes
		return reply{}, &failure{code: http.StatusServiceUnavailable, outcome: outcomeUnavailable, message: "the relay has no lists yet", retryAfter: notYet}
	}
	var prefixes []lookup.Prefix
	for _, p := range q.prefixes {
		prefixes = append(prefixes, lookup.Prefix(p))
	}
	answers, err := h.checker.Search(r.Context(), prefixes, !h.complete(), h.admission(client), func() (func(), bool) { return h.searching.take(client) })
	if err != nil {
		return reply{}, h.unanswered(r, err)
	}
	for _, a := range answers {
		h.metrics.searches.WithLabelValues(a.From.String()).Inc()
	}
	if h.onlyLists {
		h.lacking.noteSearch(answers, client, time.Now())
	}
	return encoded(searchResponse(answers))
}

// admission returns what decides whether a client may cause searches.
func (h *handler) admission(client netip.Addr) lookup.AdmitAll {
	if h.limits != nil {
		return h.limits.Admit(client)
	}
	return lookup.AdmitBy(h.limiter, h.shares, client).All()
}

// searchResponse puts answers about prefixes into one message. Its TTL is for all of them,
// so it is the shortest one; it is in whole seconds, rounded down.
func searchResponse(answers []lookup.PrefixAnswer) *sbv5.SearchHashesResponse {
	response := new(sbv5.SearchHashesResponse)
	ttl := answers[0].TTL
	for _, a := range answers {
		ttl = min(ttl, a.TTL)
		for _, t := range a.Threats {
			response.FullHashes = appendThreat(response.FullHashes, t)
		}
	}
	response.CacheDuration = durationpb.New(ttl.Truncate(time.Second))
	return response
}

// threatTypes are the threats in the words of version 5.
var threatTypes = map[lookup.Threat]sbv5.ThreatType{
	lookup.Malware:                       sbv5.ThreatType_MALWARE,
	lookup.SocialEngineering:             sbv5.ThreatType_SOCIAL_ENGINEERING,
	lookup.UnwantedSoftware:              sbv5.ThreatType_UNWANTED_SOFTWARE,
	lookup.PotentiallyHarmfulApplication: sbv5.ThreatType_POTENTIALLY_HARMFUL_APPLICATION,
}

// appendThreat appends a full hash, or adds to the one that is there.
func appendThreat(all []*sbv5.FullHash, t lookup.ThreatHash) []*sbv5.FullHash {
	var full *sbv5.FullHash
	for _, f := range all {
		if bytes.Equal(f.FullHash, t.Hash[:]) {
			full = f
		}
	}
	if full == nil {
		full = &sbv5.FullHash{FullHash: bytes.Clone(t.Hash[:])}
		all = append(all, full)
	}
	for threat := lookup.Malware; threat <= lookup.PotentiallyHarmfulApplication; threat++ {
		if !t.Threats.Contains(threat) {
			continue
		}
		detail := &sbv5.FullHash_FullHashDetail{ThreatType: threatTypes[threat]}
		if t.FrameOnly {
			detail.Attributes = []sbv5.ThreatAttribute{sbv5.ThreatAttribute_FRAME_ONLY}
		}
		full.FullHashDetails = append(full.FullHashDetails, detail)
	}
	return all
}

// unanswered says why there is no answer, and when the client may ask again.
func (h *handler) unanswered(r *http.Request, err error) *failure {
	f := &failure{code: http.StatusServiceUnavailable, outcome: outcomeUnavailable, message: "the relay could not ask its server"}
	hold := h.searchHold()
	switch {
	case r.Context().Err() != nil:
		f.outcome = outcomeCancelled
	case errors.Is(err, lookup.ErrLimited): // not 429, after which clients wait for 15 minutes at least (updater.Strikes)
		f.outcome, f.message, f.retryAfter = outcomeLimited, "this client causes too many searches", h.limitedFor()
	case errors.Is(err, lookup.ErrShare):
		f.outcome, f.message, f.retryAfter = outcomeBudget, "this client has spent its share of the day's budget", time.Until(midnight(time.Now()))
	case errors.Is(err, lookup.ErrBudget):
		f.outcome, f.message, f.retryAfter = outcomeBudget, "the relay's budget is spent for today", max(time.Until(hold.Until), time.Second)
	case errors.Is(err, lookup.ErrBackoff):
		f.outcome, f.message, f.retryAfter = outcomeBackoff, "the relay must not ask its server now", heldFor(err, hold)
	case errors.Is(err, context.DeadlineExceeded):
		f.message = "the server did not answer the relay in time"
	}
	if f.retryAfter == 0 && f.outcome == outcomeUnavailable {
		f.retryAfter = max(0, time.Until(hold.Until)) // the failure may have begun a back-off
	}
	return f
}

// heldFor returns how long the relay must not ask its server, at least a second: until a first
// contact or the end of a wait, or until a search that is under way is answered.
func heldFor(err error, hold updater.Hold) time.Duration {
	until := hold.Until
	if held, ok := errors.AsType[*updater.HeldError](err); ok {
		until = held.Until
	}
	return max(time.Until(until), time.Second)
}

// limitedFor returns after what time the limiter admits one more search. An EMA, for which
// there may be no rate, admits the next one that is not a burst.
func (h *handler) limitedFor() time.Duration {
	if h.rate == 0 {
		return time.Second
	}
	return max(time.Second, time.Duration(float64(time.Second)/h.rate))
}

// midnight returns the begin of the operator's next day, when budgets are renewed.
func midnight(now time.Time) time.Time {
	y, m, d := now.Local().Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, time.Local)
}
