package updater

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Searches keep rules of their own, since the two methods have separate clocks ("Request
// Frequency"). Unlike fetches they run at the same time, in many goroutines and processes, so
// the outcome of one may arrive after a later one's.

// Keyed is implemented by a Searcher whose key can be replaced while it is asked, see
// Schedule.Rekey.
type Keyed interface {
	// Keep returns a context in which requests carry the key that is in use now. It must not
	// block, nor call a Schedule. It is safe for concurrent use.
	Keep(ctx context.Context) context.Context
}

// SearchRules are a server's rules for searches.
type SearchRules struct {
	Backoff SearchBackoff // required
	// Published says that the server publishes rules for searches, as version 4 does
	// ("Request Frequency"): the random delay after a start holds for searches too,
	// and an answer may have a minimum wait. So the first search after a start or a
	// wake-up waits for the first contact, and a search whose answer may have a wait
	// is saved as failed before it is sent.
	Published bool
	// FirstContact draws how long the first search waits. Nil: uniform in [0, 1 min).
	FirstContact func() time.Duration
}

// pacedSearcher is a Searcher that keeps the server's rules for searches.
type pacedSearcher struct {
	searcher lookup.Searcher
	schedule *Schedule
	rules    SearchRules
	report   func(Event)
	answered atomic.Bool  // a search has succeeded since the start
	underWay atomic.Int32 // searches that were noted as failed and are not answered yet
	looking  atomic.Bool  // a search looks for a server that could not be reached; it guards seen
	seen     time.Time    // last look

	contactMu sync.Mutex
	asker     string // whose first contact it is; guarded by contactMu
	// Time of the last check for a suspend, on the monotonic clock and on the clock
	// that runs during a suspend; guarded by contactMu.
	looked    time.Time
	booted    time.Duration
	sinceBoot func() time.Duration // tests replace it to simulate a suspend
}

// Pace returns a Searcher that asks s, unless the schedule does not allow a search:
// then it sends nothing and returns a *HeldError. It reports
// each search. An answer does not wait until its effect on the schedule is saved, see
// Schedule.Flush. An error of saving is reported from another goroutine, so report
// must be safe for concurrent use. The Searcher is safe for concurrent use if s is.
func Pace(s lookup.Searcher, schedule *Schedule, rules SearchRules, report func(Event)) lookup.Searcher {
	if rules.FirstContact == nil {
		rules.FirstContact = firstContact
	}
	p := &pacedSearcher{searcher: s, schedule: schedule, rules: rules, report: report, sinceBoot: SinceBoot}
	p.looked, p.booted = time.Now(), p.sinceBoot()
	p.asker, _ = schedule.contactOf()
	if !rules.Published {
		return p
	}
	if last := schedule.hand.sameServer(); last != nil { // a reload is no start
		_, contact := last.contactOf()
		schedule.setContact(contact)
	} else {
		schedule.setContact(p.looked.Add(rules.FirstContact()))
	}
	return p
}

// Search implements lookup.Searcher.
func (p *pacedSearcher) Search(ctx context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	now := time.Now()
	// First the file: the server may have told another process to wait.
	p.schedule.lookAtSearches()
	kept, asker, wait := p.schedule.turn(ctx, p.searcher, now)
	if wait := p.contactWait(now); wait > 0 {
		return lookup.Answer{}, held(now, wait, " until the first contact")
	}
	if wait > 0 && p.arrived(ctx, now) {
		return p.Search(ctx, prefixes)
	}
	if ctx = kept; wait > 0 {
		if p.underWay.Load() > 0 { // the wait belongs to a failure, which is noted before the search has failed
			return lookup.Answer{}, errUnderWay
		}
		return lookup.Answer{}, held(now, wait, "")
	}
	sent := sentSearch{at: now}
	if p.rules.Published && (!p.answered.Load() || p.schedule.searchClock().mayWait()) {
		p.underWay.Add(1)
		defer p.underWay.Add(-1)
		if sent.note = p.note(ctx, now, asker); sent.note == 0 {
			return lookup.Answer{}, errUnderWay
		}
	}
	sent.attempt = p.schedule.searchClock().Attempt
	answer, err := p.searcher.Search(ctx, prefixes)
	if p.schedule.askerNow() != asker { // the clock belongs to the new key
		return answer, err
	}
	switch {
	case errors.Is(err, context.Canceled): // a shutdown is not a failure, but the server may have sent a wait
		p.cut(time.Now(), sent, !isNotSent(err))
		return answer, err
	case isNotSent(err):
		p.notSent(time.Now(), sent, err)
		p.report(Event{Kind: Searched, Err: err, Took: time.Since(now)})
		return answer, err
	}
	failure := err
	if _, ok := errors.AsType[*lookup.UnansweredError](err); ok {
		failure = nil // a relay works: other prefixes than those without an answer do not wait
	}
	p.answered.Store(p.answered.Load() || failure == nil)
	p.searched(sent, time.Now(), answer.MinimumWait, failure)
	p.report(Event{Kind: Searched, Err: err, Took: time.Since(now)})
	if wait := answer.MinimumWait; wait > maxBackoff {
		p.report(Event{Kind: LongWait, Wait: wait, Due: time.Now().Add(wait)})
	}
	return answer, err
}

// sentSearch is a search that is under way. It is a value.
type sentSearch struct {
	at      time.Time
	note    uint64 // number of its note; 0: it has none
	attempt uint64 // of the clock, after that
}

// contactWait returns how long a search must wait for the first contact after a start,
// a suspend or a change of the key.
func (p *pacedSearcher) contactWait(now time.Time) time.Duration {
	if !p.rules.Published {
		return 0
	}
	p.contactMu.Lock()
	defer p.contactMu.Unlock()
	booted := p.sinceBoot()
	asker, contact := p.schedule.contactOf()
	if suspended := booted - p.booted - now.Sub(p.looked); suspended > overshoot || asker != p.asker {
		contact = now.Add(p.rules.FirstContact())
		p.schedule.setContact(contact)
	}
	p.looked, p.booted, p.asker = now, booted, asker
	return contact.Sub(now)
}

// failedToSave reports an error of saving.
func (p *pacedSearcher) failedToSave(err error) { p.report(Event{Kind: StoreFailed, Err: err}) }

// note notes a search as failed before it is sent, so that a process that crashes on
// the answer backs off after its restart. It returns the number of the note, 0 if another search,
// of any process, was noted or has failed meanwhile, or if the asker is another one: then this one
// must not be sent. If the disk hangs, note does not wait for it.
func (p *pacedSearcher) note(ctx context.Context, now time.Time, asker uint64) (number uint64) {
	s := p.schedule
	// Until it must have ended, too: with a short back-off the next one could be sent while
	// nobody knows what this one brings.
	var end time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		end = deadline.Sub(now)
	}
	w := s.changeSearch(func(a *asked) {
		if s.askers != asker || a.held().NotBefore.After(now) {
			return
		}
		s.asks++
		number = s.asks
		*a = a.noting(s.writer, number, now, func(failures int) time.Duration {
			return max(p.rules.Backoff(failures, 0, s.random()), a.Wait, end)
		})
	}, p.failedToSave)
	if number == 0 {
		return 0
	}
	s.searches.await(ctx, w)
	s.mu.Lock()
	late := s.askers == asker && s.state.Search.apart(s.writer).held().NotBefore.After(now)
	s.mu.Unlock()
	if late {
		s.changeSearch(func(a *asked) { *a, _ = a.answered(s.writer, number) }, p.failedToSave)
		return 0
	}
	return number
}

// searched records that a search sent at sent ended at now. wait is the minimum wait of
// its answer, 0 if there is none.
//
// When one of several concurrent searches has failed, the others carry no news: their
// failures are not counted again, and their success does not end the back-off.
func (p *pacedSearcher) searched(sent sentSearch, now time.Time, wait time.Duration, err error) {
	s := p.schedule
	if err == nil && wait <= 0 && sent.note == 0 && !s.searchWaits(sent.at) {
		return
	}
	together := s.failedTogether(sent.at, now, err)
	s.changeSearch(func(a *asked) {
		next, noted := a.answered(s.writer, sent.note)
		*a = next
		c := &a.Clock
		if err == nil {
			c.succeeded(now, wait, together || c.FailedIn > sent.attempt)
			return
		}
		// A search that has worked meanwhile has ended the back-off of the others: a refusal begins its own.
		if !together || noted || refused(err) && c.Failures == 0 {
			c.Failures++
		}
		refusals := 0
		if refused(err) {
			if !together || c.Refusals == 0 {
				c.Refusals++
			}
			refusals = c.Refusals
		}
		told := max(retryAfter(err, true), wait)
		backoff := max(p.rules.Backoff(c.Failures, refusals, s.random()), told)
		*c = c.because(now, err)
		// Of failures that came together, only one that was noted, a refusal or one with a wait of the
		// server's makes the wait longer.
		if until := now.Add(backoff); until.After(c.NotBefore) && (!together || noted || refused(err) || told > 0) {
			c.NotBefore = until
		}
	}, p.failedToSave)
}

// notSent records a search that was not sent. Of those that were under way together one counts.
func (p *pacedSearcher) notSent(now time.Time, sent sentSearch, err error) {
	p.schedule.changeSearch(func(a *asked) {
		*a, _ = a.answered(p.schedule.writer, sent.note)
		if !a.Away.Until.After(now) {
			a.Clock = a.notSent(now, p.schedule.random(), err)
		}
	}, p.failedToSave)
}

// arrived ends a wait that a search which was not sent has begun, and returns true, if the server
// can be reached again. A look is taken at most every 15 seconds, by one search, which waits for it.
func (p *pacedSearcher) arrived(ctx context.Context, now time.Time) bool {
	server, ok := p.searcher.(Reacher)
	if !ok || !p.looking.CompareAndSwap(false, true) {
		return false
	}
	defer p.looking.Store(false)
	c := p.schedule.searchClock()
	if !c.seeks(now) || now.Sub(c.Away.Tried) < seekEvery || now.Sub(p.seen) < seekEvery {
		return false
	}
	p.seen = now
	ctx, cancel := context.WithTimeout(ctx, seekTimeout)
	defer cancel()
	if server.Reach(ctx) != nil {
		return false
	}
	p.schedule.changeSearch(func(a *asked) { a.Away = away{} }, p.failedToSave)
	return true
}

// cut records that a search was cancelled. If it reached the server, the server may have answered already,
// with a wait that was not read. So the last known wait is kept once more.
func (p *pacedSearcher) cut(now time.Time, sent sentSearch, arrived bool) {
	if sent.note == 0 && !p.schedule.searchClock().mayWait() {
		return
	}
	p.schedule.changeSearch(func(a *asked) {
		*a, _ = a.answered(p.schedule.writer, sent.note)
		if until := now.Add(a.Wait); arrived && a.Wait > 0 && until.After(a.NotBefore) {
			a.NotBefore = until
		}
	}, p.failedToSave)
}
