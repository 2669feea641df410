package updater

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// SearchRules are those of a server for searches.
type SearchRules struct {
	Backoff SearchBackoff // required
	// Published says that the server publishes rules for searches, as in version 4:
	// a search may be the initial request for data, and its answer may have a minimum
	// wait. So the first one after a start or a wake-up waits for the first contact,
	// and one that may be told to wait is noted on disk before it is sent.
	Published bool
	// FirstContact draws how long that one waits. Nil: uniform in [0, 1 min).
	FirstContact func() time.Duration
}

// pacedSearcher is a Searcher that keeps the server's rules for searches.
type pacedSearcher struct {
	searcher lookup.Searcher
	schedule *Schedule
	rules    SearchRules
	report   func(Event)
	answered atomic.Bool // a search has been, since the start

	contactMu sync.Mutex
	contact   time.Time // of the first contact; guarded by contactMu
	// When it was looked whether the machine had been suspended, by the running clock
	// and by that which goes on during a suspend; guarded by contactMu.
	looked    time.Time
	booted    time.Duration
	sinceBoot func() time.Duration // replaced where a test simulates a suspend
}

// Pace returns a Searcher that asks s, unless the schedule says that the server
// must be left alone: then it returns lookup.ErrBackoff and sends nothing. Each
// search is reported. An answer does not wait for the disk, see Schedule.Flush. It is
// safe for concurrent use if s and report are.
func Pace(s lookup.Searcher, schedule *Schedule, rules SearchRules, report func(Event)) lookup.Searcher {
	if rules.FirstContact == nil {
		rules.FirstContact = firstContact
	}
	p := &pacedSearcher{searcher: s, schedule: schedule, rules: rules, report: report, sinceBoot: sinceBoot}
	p.looked, p.booted = time.Now(), p.sinceBoot()
	if rules.Published && schedule.hand.previous() == nil { // else this process has had its first contact
		p.contact = p.looked.Add(rules.FirstContact())
	}
	return p
}

// Search implements lookup.Searcher.
func (p *pacedSearcher) Search(ctx context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	now := time.Now()
	if wait := p.contactWait(now); wait > 0 {
		return lookup.Answer{}, fmt.Errorf("%w: %s left until the first contact", lookup.ErrBackoff, wait.Round(time.Second))
	}
	p.schedule.lookAtSearches()
	if wait := p.schedule.searchWait(now); wait > 0 {
		return lookup.Answer{}, fmt.Errorf("%w: %s left", lookup.ErrBackoff, wait.Round(time.Second))
	}
	asker := p.schedule.askerNow()
	noted := p.rules.Published && (!p.answered.Load() || p.schedule.searchMayWait())
	if noted && !p.note(ctx, now) {
		return lookup.Answer{}, fmt.Errorf("%w: another search is under way, after which there may be a wait", lookup.ErrBackoff)
	}
	answer, err := p.searcher.Search(ctx, prefixes)
	if p.schedule.askerNow() != asker { // its clock is not that of the new one
		return answer, err
	}
	if errors.Is(err, context.Canceled) { // shutting down: no failure, but there may have been a wait
		p.cut(time.Now(), noted)
		return answer, err
	}
	p.answered.Store(p.answered.Load() || err == nil)
	p.searched(now, time.Now(), answer.MinimumWait, noted, err)
	p.report(Event{Kind: Searched, Err: err, Took: time.Since(now)})
	if wait := answer.MinimumWait; wait > maxBackoff {
		p.report(Event{Kind: LongWait, Wait: wait, Due: time.Now().Add(wait)})
	}
	return answer, err
}

// contactWait returns how long the first search after a start, or after a suspend
// since the last look, has to wait.
func (p *pacedSearcher) contactWait(now time.Time) time.Duration {
	if !p.rules.Published {
		return 0
	}
	p.contactMu.Lock()
	defer p.contactMu.Unlock()
	booted := p.sinceBoot()
	if suspended := booted - p.booted - now.Sub(p.looked); suspended > overshoot {
		p.contact = now.Add(p.rules.FirstContact())
	}
	p.looked, p.booted = now, booted
	return p.contact.Sub(now)
}

// failedToSave reports an error of the disk.
func (p *pacedSearcher) failedToSave(err error) { p.report(Event{Kind: StoreFailed, Err: err}) }

// note notes, before a search is sent, that it has failed, so that a process that
// dies of the answer backs off when it is restarted. It returns false if another
// search was noted or failed meanwhile, of this process or of another. A disk that
// hangs does not keep the search.
func (p *pacedSearcher) note(ctx context.Context, now time.Time) bool {
	r := p.schedule.random()
	var late atomic.Bool
	saved := p.schedule.changeSearch(func(c *Clock) {
		if c.NotBefore.After(now) {
			late.Store(true)
			return
		}
		*c = c.failed(now, max(p.rules.Backoff(c.Failures+1, false, r), c.Wait), 0)
		c.Asking, c.Failed = true, now
	}, p.failedToSave)
	timeout := time.NewTimer(searchLockTimeout)
	defer timeout.Stop()
	select {
	case <-saved:
	case <-timeout.C:
	case <-ctx.Done():
	}
	return !late.Load()
}

// searched notes the end, at now, of a search that was sent before, with the
// minimum wait that its answer gave (0: none). Searches that were under way
// together when one failed say nothing new: further failures do not count, and a
// success does not end the wait.
func (p *pacedSearcher) searched(sent, now time.Time, wait time.Duration, noted bool, err error) {
	s := p.schedule
	if err == nil && wait <= 0 && !noted && !s.searchWaits(sent) {
		return
	}
	r := s.random()
	together := s.failedTogether(sent, now, err)
	s.changeSearch(func(c *Clock) {
		noted := noted && c.Asking // else another one has failed since
		c.Asking = c.Asking && !noted
		if err == nil {
			c.succeeded(now, wait, noted, together)
			return
		}
		if !together && !noted { // a failure that was noted has been counted
			c.Failures++
		}
		backoff := max(p.rules.Backoff(c.Failures, refused(err), r), retryAfter(err), wait)
		*c = c.because(now, err)
		if noted {
			c.NotBefore = now
		}
		if until := now.Add(backoff); until.After(c.NotBefore) && (!together || refused(err) || wait > 0) {
			c.NotBefore = until
		}
	}, p.failedToSave)
}

// cut notes that a search was cancelled, which may have been answered with a wait
// that was not read any more: the last one is kept once more.
func (p *pacedSearcher) cut(now time.Time, noted bool) {
	if !noted && !p.schedule.searchMayWait() {
		return
	}
	p.schedule.changeSearch(func(c *Clock) {
		if noted && c.Asking {
			c.Asking, c.NotBefore, c.Failures = false, time.Time{}, max(0, c.Failures-1)
		}
		if until := now.Add(c.Wait); c.Wait > 0 && until.After(c.NotBefore) {
			c.NotBefore = until
		}
	}, p.failedToSave)
}
