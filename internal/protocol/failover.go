package protocol

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Failover is a Client of several endpoints that are one service: they have the same
// lists with the same versions, and accept the same key. It asks the first endpoint. If
// that fails, it asks the next one within the same request, and leaves the failed one
// alone for a while, see rest. Only if all fail has the request failed.
//
//	request ──▶ order ──▶ 1. endpoints that work, and at most one whose rest has ended
//	                      2. endpoints whose rest may be cut short
//	                      (none that has told us to wait)
//
// Failover knows the rests of each endpoint only. The back-off and the minimum waits of
// the service are for the caller, as with any other Client. If all endpoints have failed,
// the minimum wait that comes with the error ends when the first of them may be asked
// again. It is safe for concurrent use.
type Failover struct {
	// Report, unless nil, is told when an endpoint is left and when it answers again. It
	// must be set before the first request. It must not call the Failover.
	Report func(EndpointEvent)

	mu        sync.Mutex
	endpoints []*endpoint // in the order of preference; mu guards what changes in them
	last      *endpoint   // that has answered; nil: none has; guarded by mu
	restsOf   *time.Time  // keyed, when lock was called last; guarded by mu

	keyed atomic.Pointer[time.Time] // when SetKey was called last; nil: never
}

// EndpointEvent says that an endpoint is left, or that it answers again.
type EndpointEvent struct {
	Endpoint string
	Err      error     // why it is left; nil: it answers again
	Instead  string    // the endpoint that has answered in its place
	Until    time.Time // Endpoint is not tried before, unless all others fail
}

// endpoint is one of several servers.
type endpoint struct {
	url    string
	client Client
	rests  [methods]rest
	left   bool // as reported
}

// NewFailover returns a Failover of clients, each for the endpoint of the same index. It
// closes them.
func NewFailover(endpoints []string, clients []Client) *Failover {
	f := new(Failover)
	for i, url := range endpoints {
		f.endpoints = append(f.endpoints, &endpoint{url: url, client: clients[i]})
	}
	return f
}

// Fetch implements updater.Source. If an endpoint fails in the middle of its answer, take
// is called again for the lists of the next one.
func (f *Failover) Fetch(ctx context.Context, wanted []updater.Want, take func(i int, u *updater.Update)) (minimumWait time.Duration, err error) {
	return f.ask(ctx, fetching, func(ctx context.Context, c Client) (time.Duration, error) {
		return c.Fetch(ctx, wanted, take)
	})
}

// Search implements lookup.Searcher. What one endpoint, a relay, knows without an answer about all
// prefixes is kept, and the next endpoint is asked about the others.
func (f *Failover) Search(ctx context.Context, prefixes []lookup.Prefix) (answer lookup.Answer, err error) {
	known, left := make(map[lookup.Prefix]lookup.EarlierAnswer), prefixes
	wait, err := f.ask(ctx, searching, func(ctx context.Context, c Client) (_ time.Duration, err error) {
		answer, err = c.Search(ctx, left)
		left = keep(known, answer.Earlier, left)
		if err != nil { // the next endpoint may hang
			lookup.Tell(ctx, slices.Collect(maps.Keys(answer.Earlier)), lookup.Answer{Earlier: known})
		}
		return answer.MinimumWait, err
	})
	for _, p := range left {
		if e, ok := known[p]; ok && err == nil { // some of its threats only: the last answer has the rest
			answer.Threats = append(answer.Threats, e.Threats...)
			delete(known, p)
		}
	}
	answer.Earlier = known
	answer.MinimumWait = wait
	return answer, err
}

// keep adds what an endpoint knows, and returns the prefixes that have no answer yet.
func keep(known, more map[lookup.Prefix]lookup.EarlierAnswer, asked []lookup.Prefix) (left []lookup.Prefix) {
	for _, p := range asked {
		e, ok := more[p]
		if ok {
			e.Threats = slices.Concat(e.Threats, known[p].Threats)
			known[p] = e
		}
		if !ok || e.TTL < 0 {
			left = append(left, p)
		}
	}
	return left
}

// Lists implements Client. It asks one endpoint after the other, whatever their rests.
func (f *Failover) Lists(ctx context.Context) ([]ListInfo, error) {
	var all []error
	for i, e := range f.endpoints {
		ctx, cancel := share(ctx, len(f.endpoints)-i)
		lists, err := e.client.Lists(ctx)
		cancel()
		if err == nil {
			return lists, nil
		}
		all = append(all, fmt.Errorf("%s: %w", e.url, err))
	}
	return nil, errors.Join(all...)
}

// Reach implements updater.Reacher: one endpoint that can be reached is enough.
func (f *Failover) Reach(ctx context.Context) error {
	var all failures
	for i, e := range f.endpoints {
		ctx, cancel := share(ctx, len(f.endpoints)-i)
		err := e.client.Reach(ctx)
		cancel()
		if err == nil {
			return nil
		}
		all = append(all, failure{endpoint: e, err: err})
	}
	return all.notSent()
}

// SetKey implements Client. It takes no lock.
func (f *Failover) SetKey(key string) error {
	for _, e := range f.endpoints {
		if err := e.client.SetKey(key); err != nil {
			return err // for the first one: all take the same keys
		}
	}
	f.keyed.Store(new(time.Now()))
	return nil
}

// Keep implements updater.Keyed: all endpoints take the same keys.
func (f *Failover) Keep(ctx context.Context) context.Context { return f.endpoints[0].client.Keep(ctx) }

// lock locks mu, and ends the rests if the key has changed: a rest belongs to the key that was
// asked with.
func (f *Failover) lock() {
	f.mu.Lock()
	if keyed := f.keyed.Load(); keyed != f.restsOf {
		f.restsOf = keyed
		for _, e := range f.endpoints {
			e.rests = [methods]rest{}
		}
	}
}

// Advisory implements Client, for the endpoint that has answered last.
func (f *Failover) Advisory() (url string, known bool) {
	f.mu.Lock()
	last := f.last
	f.mu.Unlock()
	if last != nil {
		return last.client.Advisory()
	}
	for _, e := range f.endpoints { // that has answered in part
		if url, known = e.client.Advisory(); known {
			break
		}
	}
	return url, known
}

// Close implements Client.
func (f *Failover) Close() {
	for _, e := range f.endpoints {
		e.client.Close()
	}
}

// ask sends a request to one endpoint after the other, until one has answered, all have
// failed, or ctx ends. request returns the minimum wait in an answer, also if it failed later: it
// belongs to this endpoint, as the back-off does. ask returns the wait of the endpoint that has answered.
// If all have failed it returns how long to wait.
func (f *Failover) ask(ctx context.Context, m method, request func(context.Context, Client) (time.Duration, error)) (wait time.Duration, _ error) {
	var all failures
	var unanswered error // of an endpoint that works
	tries := f.order(m, time.Now())
	for i, e := range tries {
		if err := ctx.Err(); err != nil { // an endpoint that was not asked has not failed
			return 0, cmp.Or(unanswered, fmt.Errorf("asking %s: %w", e.url, err))
		}
		sent, r := time.Now(), f.restOf(e, m)
		if sent.Before(r.notBefore) { // another request was told to wait
			continue
		}
		wait, err := try(ctx, e, m == searching && !r.works(), len(tries)-i, request)
		if err == nil {
			f.answered(e, m, sent, all)
			return wait, nil
		}
		if _, ok := errors.AsType[*lookup.UnansweredError](err); ok { // the next one may have an answer
			f.answered(e, m, sent, all)
			unanswered = sooner(unanswered, err)
			continue
		}
		if errors.Is(ctx.Err(), context.Canceled) || isOfRequest(err) {
			return wait, fmt.Errorf("%s: %w", e.url, err)
		}
		all = append(all, failure{e, sent, wait, err})
		if m != fetching || !lacksList(err) {
			f.failed(m, all[len(all)-1:])
		}
	}
	if unanswered != nil {
		return 0, unanswered
	}
	return f.error(m, time.Now(), all)
}

// probeTimeout is how long an endpoint that has failed may take for a search, unless it
// is the last one that can be asked.
const probeTimeout = time.Second

// try sends a request to one of the endpoints that are left.
func try(ctx context.Context, e *endpoint, probe bool, left int, request func(context.Context, Client) (time.Duration, error)) (time.Duration, error) {
	ctx, cancel := share(ctx, left)
	defer cancel()
	if probe && left > 1 {
		ctx, cancel = context.WithTimeout(ctx, probeTimeout)
		defer cancel()
	}
	return request(ctx, e.client)
}

// share returns a context for one of the tries that are left. It has an equal share of the time, so
// that an endpoint that never answers leaves time for the others.
func share(ctx context.Context, left int) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok || left == 1 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
}

func (f *Failover) restOf(e *endpoint, m method) rest {
	f.lock()
	defer f.mu.Unlock()
	return e.rests[m]
}

// order returns the endpoints that may be asked now, in the order in which to ask them.
// Of those that have failed and may be back, only one request at a time asks, and it asks
// one.
func (f *Failover) order(m method, now time.Time) (tries []*endpoint) {
	f.lock()
	defer f.mu.Unlock()
	var last []*endpoint
	probes := false
	for _, e := range f.endpoints {
		switch r := &e.rests[m]; {
		case now.Before(r.notBefore):
		case r.works():
			tries = append(tries, e)
		case probes || now.Before(r.until):
			last = append(last, e)
		default:
			probes = true
			r.until = now.Add(searchRest)
			tries = append(tries, e)
		}
	}
	return append(tries, last...)
}

// answered notes that an endpoint has answered a request, after the failures of others.
func (f *Failover) answered(by *endpoint, m method, sent time.Time, before failures) {
	// Another endpoint has the lists: that these do not is their own fault.
	for i := range before {
		if m == fetching && lacksList(before[i].err) {
			f.failed(m, before[i:i+1])
		}
	}
	f.lock()
	defer f.mu.Unlock()
	f.last = by
	r := &by.rests[m]
	if sent.Before(r.failed) { // a later request has failed
		return
	}
	rested := !r.works()
	*r = rest{}
	if by.left && (rested || by.rests[fetching].works() && by.rests[searching].works()) { // SetKey ends all rests
		by.left = false
		f.report(EndpointEvent{Endpoint: by.url})
	}
	now := time.Now()
	for _, e := range f.endpoints {
		if e == by {
			return
		}
		if r := e.rests[m]; !r.works() && !e.left {
			e.left = true
			until := slices.MaxFunc([]time.Time{r.until, now}, time.Time.Compare)
			f.report(EndpointEvent{Endpoint: e.url, Err: r.err, Instead: by.url, Until: until})
		}
	}
}

// failed notes failures, after which endpoints rest. One of a request before the last SetKey says
// nothing about the key in use.
func (f *Failover) failed(m method, all failures) {
	f.lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, one := range all {
		if f.restsOf != nil && one.sent.Before(*f.restsOf) {
			continue
		}
		r := &one.endpoint.rests[m]
		*r = r.after(m, one.sent, now, one.wait, one.err, rand.Float64())
	}
}

// report calls Report. The caller holds mu, so that events come in their order.
func (f *Failover) report(e EndpointEvent) {
	if f.Report != nil {
		f.Report(e)
	}
}

// failure is a try that has failed.
type failure struct {
	endpoint *endpoint
	sent     time.Time
	wait     time.Duration // the minimum wait in the part of an answer; 0: none
	err      error
}

type failures []failure

// error returns the error of a request that no endpoint has answered, and how long it is
// until the first of all endpoints may be asked. The error says what each one did. In
// errors.Is and errors.As it is the error of the endpoint that may be asked again first,
// without Retry-After: the caller must not wait longer for the sake of another endpoint.
func (f *Failover) error(m method, now time.Time, all failures) (wait time.Duration, _ error) {
	f.lock()
	defer f.mu.Unlock()
	byRest := func(a, b *endpoint) int { return a.rests[m].notBefore.Compare(b.rests[m].notBefore) }
	wait = max(0, slices.MinFunc(f.endpoints, byRest).rests[m].notBefore.Sub(now))
	if len(all) == 0 {
		return wait, fmt.Errorf("%w: each endpoint has asked to wait", lookup.ErrBackoff)
	}
	if err := all.notSent(); err != nil {
		return wait, err
	}
	// An endpoint that was not reached may be asked first, but says nothing about the others.
	sent := slices.DeleteFunc(slices.Clone(all), func(one failure) bool { return isNotSent(one.err) })
	e := &reworded{text: all.text(), err: slices.MinFunc(sent, func(a, b failure) int { return byRest(a.endpoint, b.endpoint) }).err}
	if status, ok := errors.AsType[*updater.StatusError](e.err); ok {
		e.err = &updater.StatusError{Code: status.Code, Message: status.Message, LacksList: status.LacksList}
	}
	return wait, e
}

// text says what each endpoint did.
func (all failures) text() string {
	var texts []string
	for _, one := range all {
		texts = append(texts, one.endpoint.url+": "+one.err.Error())
	}
	return strings.Join(texts, "; ")
}

// notSent returns an *updater.NotSentError if no endpoint was sent anything, and else nil.
func (all failures) notSent() error {
	e := &updater.NotSentError{Err: &reworded{text: all.text(), err: all[0].err}}
	for _, one := range all {
		err, ok := errors.AsType[*updater.NotSentError](one.err)
		if !ok {
			return nil
		}
		e.Reached = e.Reached || err.Reached
	}
	return e
}

func isNotSent(err error) bool {
	_, ok := errors.AsType[*updater.NotSentError](err)
	return ok
}

// isOfRequest reports whether an error is about the request and not about the endpoint:
// all endpoints would refuse it. It is not if the endpoint may lack our key, which
// reaches the endpoints at different times, or a list or the whole service, as an
// ingress without a server behind it; nor if the endpoint asks to come later.
func isOfRequest(err error) bool {
	status := statusOf(err)
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return status >= 400 && status < 500
}

// sooner returns of two errors that are unanswered the one whose wait ends first. a may be nil.
func sooner(a, b error) error {
	first, ok := errors.AsType[*lookup.UnansweredError](a)
	second, _ := errors.AsType[*lookup.UnansweredError](b)
	if ok && first.Until.Before(second.Until) {
		return a
	}
	return b
}

// lacksList reports whether an endpoint may lack one of the lists that it was asked for.
// If all endpoints say so, that is about the list and not about them.
func lacksList(err error) bool { return statusOf(err) == http.StatusNotFound }

// statusOf returns the status in an error, 0 if there is none.
func statusOf(err error) int {
	if e, ok := errors.AsType[*updater.StatusError](err); ok {
		return e.Code
	}
	return 0
}
