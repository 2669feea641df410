package lookup

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// ErrBudget says that a budget of searches is spent, for the day.
var ErrBudget = errors.New("the day's budget of searches is spent")

// ErrShare is ErrBudget for one client: its share is spent.
var ErrShare = fmt.Errorf("%w for this client", ErrBudget)

// Admit decides whether a client may cause one search. The error, ErrLimited or
// ErrBudget, says why not. refund, which may be nil, takes the search back, because it
// was not sent; it is called at most once.
type Admit func() (refund func(), err error)

// AdmitAll is Admit for n searches of one client. It admits as many as may be sent, 0 to n;
// with fewer than n err says why. refund, which may be called once for each that was admitted,
// takes one of them back. Unlike an Admit it may take its time.
type AdmitAll func(n int) (admitted int, refund func(), err error)

// All returns the AdmitAll that calls a once for each search, until one is refused, or nil if a
// is nil. Its refunds must not be called at the same time.
func (a Admit) All() AdmitAll {
	if a == nil {
		return nil
	}
	return func(n int) (admitted int, refund func(), err error) {
		var refunds []func()
		refund = func() {
			if len(refunds) > 0 {
				refunds[0]()
				refunds = refunds[1:]
			}
		}
		for ; admitted < n; admitted++ {
			one, err := a()
			if err != nil {
				return admitted, refund, err
			}
			if one != nil {
				refunds = append(refunds, one)
			}
		}
		return n, refund, nil
	}
}

// AdmitBy returns an Admit for one client that asks the limiter, and then takes a search
// from the share of the client. Either may be nil; if both are, the Admit is nil and
// admits everything.
func AdmitBy(limiter Limiter, shares *Shares, client netip.Addr) Admit {
	if limiter == nil && shares == nil {
		return nil
	}
	return func() (refund func(), err error) {
		now := time.Now()
		switch {
		case limiter != nil && !limiter.Admit(client, now):
			return nil, ErrLimited
		case shares == nil:
			return nil, nil
		case !shares.Take(client, now):
			return nil, ErrShare
		}
		return func() { shares.GiveBack(client, now) }, nil
	}
}

// Shares bounds how many searches each client may cause on one day, a date of local
// time, so that no client alone can spend a budget. Clients are told apart as by
// PerClient, and are kept in memory only: no file tells who has asked for something.
// It is safe for concurrent use.
type Shares struct {
	perClient int

	mu    sync.Mutex
	spent *lru.Cache[netip.Addr, int] // on date, by site; guarded by mu
	date  string                      // the latest date that was seen; guarded by mu
}

// NewShares returns Shares of perClient searches a day, at least 1.
func NewShares(perClient int) *Shares {
	return &Shares{perClient: max(1, perClient), spent: bySite[int]()}
}

// Take takes one search from the share of the client for the date of now, and reports
// whether there was one left.
func (s *Shares) Take(client netip.Addr, now time.Time) bool {
	key, date := Site(client), dateOf(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if date > s.date { // a clock that is set back renews nothing
		s.spent.Purge()
		s.date = date
	}
	spent, _ := s.spent.Get(key)
	if spent >= s.perClient {
		return false
	}
	s.spent.Add(key, spent+1)
	return true
}

// GiveBack gives back a search that Take has taken at taken, because it was not sent.
func (s *Shares) GiveBack(client netip.Addr, taken time.Time) {
	key, date := Site(client), dateOf(taken)
	s.mu.Lock()
	defer s.mu.Unlock()
	if spent, ok := s.spent.Peek(key); ok && date == s.date {
		s.spent.Add(key, max(0, spent-1))
	}
}

// dateOf returns the operator's date.
func dateOf(now time.Time) string { return now.Local().Format(time.DateOnly) }
