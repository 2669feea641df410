package relay

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// searchPatience is how long a client waits for the server's answer. A client gives a search up after ten
// seconds, five if it has two relays, and counts it as a failure: before that the relay says that it
// does not know yet. The search goes to its end, for the next request about its prefixes.
const searchPatience = 4 * time.Second

// search answers hashes.search from the cache, or by a search of the server.
func (h *handler) search(r *http.Request, client netip.Addr, q query) (reply, *failure) {
	if len(q.prefixes) == 0 {
		return reply{}, invalid("no parameter hashPrefixes")
	}
	var prefixes []lookup.Prefix
	for _, p := range q.prefixes {
		prefixes = append(prefixes, lookup.Prefix(p))
	}
	if !h.ready() { // it would answer that no list holds the prefixes
		unknown := slices.Repeat([]lookup.PrefixAnswer{{Err: protocol.ErrNoLists}}, len(prefixes))
		return h.partly(r, prefixes, unknown, protocol.ErrNoLists)
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), searchPatience, lookup.ErrSlow)
	defer cancel()
	answers, err := h.checker.Search(ctx, prefixes, !h.complete(), h.admission(r, client), func() (func(), bool) { return h.searching.Take(client, "") })
	for i, a := range answers {
		if a.Err == nil {
			h.metrics.searches.WithLabelValues(a.From.String()).Inc()
		}
		if a.From == lookup.FromServer { // also without an answer: it may be charged for
			h.metrics.asked.WithLabelValues(a.Reason.String()).Inc()
			h.costs.note(prefixes[i], a.Reason, time.Now())
		}
	}
	if err != nil {
		return h.partly(r, prefixes, answers, err)
	}
	if h.onlyLists {
		h.lacking.noteSearch(answers, addressOf(r), time.Now())
	}
	return encoded(searchResponse(answers))
}

// partly tells what is known about prefixes while err keeps the relay from answers about some.
// Version 5 has no such answer. If a threat is known, the client must see it: it is told with a
// life of 0, so that a client which does not read the header asks again. Else an answer would
// make all prefixes look safe.
func (h *handler) partly(r *http.Request, prefixes []lookup.Prefix, answers []lookup.PrefixAnswer, err error) (reply, *failure) {
	f := h.unanswered(r, err)
	u := protocol.Unanswered{Wait: f.retryAfter, Life: 24 * time.Hour, Reason: err}
	if isChained(err) && errors.Is(err, lookup.ErrShare) { // the share of this relay, not of its client
		u.Reason = lookup.ErrBudget
	}
	threats := false
	for i, a := range answers {
		if a.Err != nil {
			u.Prefixes = append(u.Prefixes, prefixes[i])
		}
		if threats = threats || len(a.Threats) > 0; a.Err == nil || len(a.Threats) > 0 {
			u.Life = min(u.Life, a.TTL)
		}
	}
	f.unanswered = u.String()
	if !threats {
		return reply{}, f
	}
	response := searchResponse(answers)
	response.CacheDuration = durationpb.New(0)
	told, bad := encoded(response)
	told.unanswered, told.outcome = f.unanswered, f.outcome
	return told, bad
}

// admission returns what decides whether a request of a client may cause searches.
func (h *handler) admission(r *http.Request, client netip.Addr) lookup.AdmitAll {
	if r.Header.Get(protocol.OnlyKnownHeader) == "?1" { // the client has a client whose share is spent
		return func(int) (int, func(), error) { return 0, nil, lookup.ErrShare }
	}
	if h.limits != nil {
		return h.told(r, client, h.limits.Admit(client))
	}
	return h.told(r, client, lookup.AdmitBy(h.limiter, h.shares, client).All())
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
	i := slices.IndexFunc(all, func(f *sbv5.FullHash) bool { return bytes.Equal(f.FullHash, t.Hash[:]) })
	if i < 0 {
		i, all = len(all), append(all, &sbv5.FullHash{FullHash: bytes.Clone(t.Hash[:])})
	}
	for threat := lookup.Malware; threat <= lookup.PotentiallyHarmfulApplication; threat++ {
		if !t.Threats.Contains(threat) {
			continue
		}
		detail := &sbv5.FullHash_FullHashDetail{ThreatType: threatTypes[threat]}
		if t.FrameOnly {
			detail.Attributes = []sbv5.ThreatAttribute{sbv5.ThreatAttribute_FRAME_ONLY}
		}
		all[i].FullHashDetails = append(all[i].FullHashDetails, detail)
	}
	return all
}

// unanswered says why there is no answer, and when the client may ask again: within a minute,
// however long the relay itself must wait. Its answer costs nothing, and it may know by then
// what it does not know now.
func (h *handler) unanswered(r *http.Request, err error) *failure {
	f := &failure{code: http.StatusServiceUnavailable, outcome: outcomeUnavailable, message: "the relay could not ask its server"}
	hold := h.searchHold()
	f.retryAfter = time.Until(hold.Until) // the failure may have begun a back-off
	switch {
	case r.Context().Err() != nil:
		f.outcome = outcomeCancelled
	case errors.Is(err, protocol.ErrNoLists):
		f.message, f.retryAfter = "the relay has no lists yet", notYet
	case errors.Is(err, lookup.ErrSlow):
		f.message, f.retryAfter = "the server has not answered the relay yet", time.Second
	case errors.Is(err, lookup.ErrLimited): // not 429, after which clients wait for 15 minutes at least (updater.Strikes)
		f.outcome, f.message, f.retryAfter = outcomeLimited, "this client causes too many searches", h.limitedFor()
	case errors.Is(err, lookup.ErrShare) && !isChained(err):
		f.outcome, f.message, f.retryAfter = outcomeBudget, "this client has spent its share of the day's budget", lookup.MaxUnanswered
	case errors.Is(err, lookup.ErrBudget):
		f.outcome, f.message = outcomeBudget, "the relay's budget allows no search now"
	case errors.Is(err, lookup.ErrBackoff):
		f.outcome, f.message, f.retryAfter = outcomeBackoff, "the relay must not ask its server now", heldFor(err, hold)
	case errors.Is(err, context.DeadlineExceeded): // a search that had begun before the request
		f.message = "the server did not answer the relay in time"
	}
	if upstream, ok := errors.AsType[*lookup.UnansweredError](err); ok {
		f.message, f.retryAfter = "the relay that this relay asks has no answer: "+upstream.Reason.Error(), time.Until(upstream.Until)
	}
	f.retryAfter = min(max(f.retryAfter, time.Second), lookup.MaxUnanswered)
	return f
}

// isChained reports whether an error is the refusal of another relay, which this one asks.
func isChained(err error) bool {
	_, ok := errors.AsType[*lookup.UnansweredError](err)
	return ok
}

// heldFor returns how long the relay must not ask its server: until a first contact or the end of
// a wait, or not at all while a search that is under way is not answered.
func heldFor(err error, hold updater.Hold) time.Duration {
	until := hold.Until
	if held, ok := errors.AsType[*updater.HeldError](err); ok {
		until = held.Until
	}
	return time.Until(until)
}

// limitedFor returns after what time the limiter admits one more search. An EMA, for which
// there may be no rate, admits the next one that is not a burst.
func (h *handler) limitedFor() time.Duration {
	if h.rate == 0 {
		return time.Second
	}
	return max(time.Second, time.Duration(float64(time.Second)/h.rate))
}

// told is admit, but logs that the client has spent its share. admit may be nil.
func (h *handler) told(r *http.Request, client netip.Addr, admit lookup.AdmitAll) lookup.AdmitAll {
	if admit == nil || h.shareSpent == nil {
		return admit
	}
	return func(n int) (admitted int, refund func(), err error) {
		admitted, refund, err = admit(n)
		if errors.Is(err, lookup.ErrShare) {
			h.shareSpent(client, addressOf(r))
		}
		return admitted, refund, err
	}
}

// announce tells a client in the header what is left of the budget for it, if there is a budget.
func (h *handler) announce(header http.Header, client netip.Addr) {
	if h.shares == nil {
		return
	}
	if b, known := h.shares.For(client, time.Now()); known {
		header.Set(protocol.BudgetHeader, protocol.FormatBudget(b))
	}
}
