package lookup

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// ErrBudget says that a budget of searches is spent, for the day.
var ErrBudget = errors.New("the day's budget of searches is spent")

// ErrShare is ErrBudget for one client: its share is spent.
var ErrShare = fmt.Errorf("%w for this client", ErrBudget)

// DefaultShare is the part of a budget that is each client's own unless another is set, in percent. A
// client may use more, if the others do not need it: see Shares.
const DefaultShare = 10

// SearchesPerDollar is how many searches of a paid service cost 1 US-$: 1,000 of Web Risk cost 50
// (https://cloud.google.com/web-risk/pricing, in 2026).
const SearchesPerDollar = 20

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

// Program stands for the programs of this machine, which take searches of Shares, too. It is the address
// of no client, as the zero Addr is.
var Program = netip.IPv4Unspecified()

// noClient reports whether a site has a share, but is not counted among the clients: nobody loses an
// answer if it is refused a search.
func noClient(site netip.Addr) bool { return !site.IsValid() || site == Program }

// Shares keep what others need of a budget of searches from each client: a share is a
// reservation, not a wall. Each client may use its share, and all that is not reserved for the
// others, see reservedFor. Clients are told apart as by PerClient, and are kept in memory only: no
// file tells who has asked for something. It is safe for concurrent use.
type Shares struct {
	percent int
	left    func(now time.Time) (b Budget, known bool)
	noted   func() // called when the first client of a day is refused; may be nil

	mu    sync.Mutex                       // not held while left or noted is called
	spent *lru.Cache[netip.Addr, spending] // on the date of today, by site
	usual *lru.Cache[netip.Addr, int]      // the most of its share that a site took on an earlier date
	today Use
	seen  []string // dates that were today before, and may be again if the clock is set back
	past  []Use    // of earlier dates and of other processes, the earliest first
	burst burst
}

// spending is what one client has taken.
type spending struct {
	day     int
	hour    int
	at      int64 // the hour, since 1970
	refused bool  // one more, once
}

// in returns the searches in an hour.
func (s spending) in(hour int64) int {
	if s.at != hour {
		return 0
	}
	return s.hour
}

// burst counts searches that were taken so lately that what is left may not know of them yet.
type burst struct {
	n    int
	at   int64 // when it began, in seconds since 1970
	left int   // what was left then
}

// underWay returns the searches that are not counted in what is left. It is a pure function.
func (u burst) underWay(left int) int { return max(0, u.n-max(0, u.left-left)) }

// NewShares returns Shares of percent, from 1 to 100, of a budget. left returns what is left of it;
// known is false where there is no budget for now, and nothing is reserved. With 100 nothing is
// reserved either. noted, which may be nil, is called when the first client of a day is
// refused.
func NewShares(percent int, left func(now time.Time) (b Budget, known bool), noted func()) *Shares {
	return &Shares{percent: percent, left: left, noted: noted, spent: bySite[spending](), usual: bySite[int]()}
}

// Remember tells what was used on other days, or by an earlier process.
func (s *Shares) Remember(past []Use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past = slices.Clone(past)
}

// Take takes one search for the client at now, and reports whether it may have one. If nothing at
// all is left, it may: who counts the budget refuses it.
func (s *Shares) Take(client netip.Addr, now time.Time) bool {
	b, known := s.left(now)
	if !known {
		return true
	}
	key, hour := Site(client), now.Unix()/3600
	s.mu.Lock()
	s.turn(dateOf(now), b)
	own, _ := s.spent.Get(key)
	first := false
	if second := now.Unix(); second != s.burst.at && second != s.burst.at+1 {
		s.burst = burst{at: second, left: b.Left}
	}
	if s.percent < 100 && b.Now > 0 && !s.free(b, key, own, now).any() {
		if !own.refused && !noClient(key) {
			first = s.today.Refused == 0
			s.today.Refused++
		}
		own.refused = true
		s.spent.Add(key, own)
		s.mu.Unlock()
		if first && s.noted != nil {
			s.noted()
		}
		return false
	}
	if own.day == 0 && !noClient(key) {
		s.today.Clients++
	}
	if own.day < b.share(s.percent) && !noClient(key) {
		s.today.Kept++
	}
	s.burst.n++
	s.spent.Add(key, spending{day: own.day + 1, hour: own.in(hour) + 1, at: hour, refused: own.refused})
	s.mu.Unlock()
	return true
}

// GiveBack gives back a search that Take has taken at taken, because it was not sent.
func (s *Shares) GiveBack(client netip.Addr, taken time.Time) {
	b, _ := s.left(taken)
	key := Site(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	own, ok := s.spent.Peek(key)
	if !ok || own.day == 0 || dateOf(taken) != s.today.Date {
		return
	}
	if own.day--; own.day < b.share(s.percent) && !noClient(key) {
		s.today.Kept = max(0, s.today.Kept-1)
	}
	if own.day == 0 && !noClient(key) {
		s.today.Clients = max(0, s.today.Clients-1)
	}
	if own.at == taken.Unix()/3600 {
		own.hour = max(0, own.hour-1)
	}
	s.burst.n = max(0, s.burst.n-1)
	s.spent.Add(key, own)
}

// unreserved returns what is left for a client beyond its share: what is not reserved for others.
// The caller holds mu.
func (s *Shares) unreserved(b Budget, site netip.Addr, own spending, now time.Time) Budget {
	soon := s.burst.underWay(b.Left)
	usual, _ := s.usual.Peek(site)
	a := asker{own.day, usual, s.usual.Len() == 0}
	if noClient(site) { // all clients are others
		a = asker{}
	}
	b.Left -= soon + reservedFor(b, s.percent, s.past, s.today, a, now)
	b.Now -= soon + b.forLater()
	return b
}

// free returns what a client that has taken own may still take. The caller holds mu.
func (s *Shares) free(b Budget, site netip.Addr, own spending, now time.Time) Budget {
	free := s.unreserved(b, site, own, now)
	free.Left = max(0, min(b.Left, max(free.Left, b.share(s.percent)-own.day)))
	free.Now = max(0, min(b.Now, free.Left, max(free.Now, percentOf(b.Hour, s.percent)-own.in(now.Unix()/3600), 1-own.in(now.Unix()/3600))))
	return free
}

// Split returns the searches of a day that are the client's own, and how many it may have at now
// beyond them. It is for those who count what a client has taken elsewhere, too. Own 0 means that
// nothing is reserved.
func (s *Shares) Split(client netip.Addr, now time.Time) (own, beyond int) {
	b, known := s.left(now)
	if !known || s.percent >= 100 {
		return 0, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(dateOf(now), b)
	taken, _ := s.spent.Peek(Site(client))
	free := s.unreserved(b, Site(client), taken, now)
	return b.share(s.percent), max(0, min(free.Left, free.Now))
}

// For returns what is left for a client at now, at most what is left for all; known comes from
// left.
func (s *Shares) For(client netip.Addr, now time.Time) (b Budget, known bool) {
	if b, known = s.left(now); known && s.percent < 100 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.turn(dateOf(now), b)
		own, _ := s.spent.Peek(Site(client))
		b = s.free(b, Site(client), own, now)
	}
	b.Left = min(b.Left, b.Day) // see Stale
	return b, known
}

// Taken returns how many searches a client has taken on the date of now.
func (s *Shares) Taken(client netip.Addr, now time.Time) int {
	b, _ := s.left(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(dateOf(now), b)
	own, _ := s.spent.Peek(Site(client))
	return own.day
}

// Uses returns what was used on the last days, today included.
func (s *Shares) Uses(now time.Time) []Use {
	b, _ := s.left(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(dateOf(now), b)
	return JoinUses(s.past, []Use{s.today})
}

// turn continues with another date. A clock that jumped ahead and comes back renews nothing, and
// does not keep later dates from being new. The caller holds mu.
func (s *Shares) turn(date string, b Budget) {
	if date == s.today.Date {
		return
	}
	if date < s.today.Date || slices.Contains(s.seen, date) {
		s.today.Date = date
		return
	}
	s.seen = slices.DeleteFunc(append(s.seen, s.today.Date), func(other string) bool { return other > date })
	s.seen = append(s.seen, date)
	s.seen = s.seen[max(0, len(s.seen)-maxUses):]
	if s.today.Clients > 0 {
		s.past = JoinUses(s.past, []Use{s.today})
	}
	for _, site := range s.spent.Keys() {
		if noClient(site) {
			continue
		}
		own, _ := s.spent.Peek(site)
		usual, _ := s.usual.Peek(site)
		s.usual.Add(site, max(usual, min(own.day, b.share(s.percent))))
	}
	s.today = Use{Date: date}
	s.spent.Purge()
}

// dateOf returns the operator's date.
func dateOf(now time.Time) string { return now.Local().Format(time.DateOnly) }

// Budget is what is left of a budget of searches at a time. It is a value.
type Budget struct {
	Day, Left int // searches a day, and how many are left
	Hour, Now int // searches of an hour at most, and how many may be sent now, at most Left
}

// Least returns the lower numbers of both.
func (b Budget) Least(other Budget) Budget {
	return Budget{min(b.Day, other.Day), min(b.Left, other.Left), min(b.Hour, other.Hour), min(b.Now, other.Now)}
}

// Stale returns the budget once what is left is known no more: one search may be made, to learn it.
func (b Budget) Stale() Budget { return Budget{b.Day, 2 * b.Day, b.Hour, b.forLater() + 1} }

// forLater returns the searches of an hour that are for those who come later in it.
func (b Budget) forLater() int {
	if b.Hour >= b.Day {
		return 0
	}
	return max(1, b.Hour/hourlyPart)
}

// share returns the searches of a day that are a client's own, at least 1.
func (b Budget) share(percent int) int { return max(1, percentOf(b.Day, percent)) }

// any reports whether a search is left.
func (b Budget) any() bool { return b.Left > 0 && b.Now > 0 }

// percentOf returns a percentage of n, rounded down. On 32 bits the product needs 64.
func percentOf(n, percent int) int { return int(int64(n) * int64(percent) / 100) }

// Use is what the clients used of a budget on one day. It names no client.
type Use struct {
	Date    string `json:"date"`              // of local time
	Clients int    `json:"clients"`           // that caused a search
	Kept    int    `json:"kept"`              // their searches, of each client no more than its share
	Refused int    `json:"refused,omitempty"` // clients that were refused one more, because it is kept for others
}

const (
	maxUses    = 7           // the last days, which count
	keptUses   = 4 * maxUses // days that are remembered: a clock that was ahead for three weeks must not hide the last ones
	hourlyPart = 5           // a fifth of an hour's searches is for those who come later in it
)

// JoinUses returns the latest days of both, the earliest first: of the same date the higher numbers.
func JoinUses(a, b []Use) []Use {
	days := make(map[string]Use)
	for _, u := range slices.Concat(a, b) {
		other := days[u.Date]
		days[u.Date] = Use{u.Date, max(u.Clients, other.Clients), max(u.Kept, other.Kept), max(u.Refused, other.Refused)}
	}
	var all []Use
	for _, date := range slices.Sorted(maps.Keys(days)) {
		all = append(all, days[date])
	}
	return all[max(0, len(all)-keptUses):]
}

// asker is what is known of a client that asks for one search more.
type asker struct {
	own   int  // searches that it has taken on the date of now
	usual int  // the most of its own share that it took on one of the last days
	new   bool // usual is not known: the process has not lived through a day
}

// reservedFor returns how many of the searches that are left are for the others of a client. A
// client needs its share at most: more is nobody's own. It is a pure function.
//
// The others need what all used on the busiest of the last days, without what the client itself
// used, less what they have had today. So a lone client, as a forwarder is, leaves nothing to
// nobody. Where the last days are not known, each client that was seen today needs its share, and
// so does one that may still come: less the later in the day.
func reservedFor(b Budget, percent int, past []Use, today Use, a asker, now time.Time) int {
	share := b.share(percent)
	had := max(0, today.Kept-min(a.own, share))
	date, since := dateOf(now), dateOf(now.AddDate(0, 0, -maxUses))
	need, known, others := 0, false, today.Clients
	if a.own > 0 {
		others--
	}
	for _, u := range past {
		if u.Clients <= 0 || u.Date < since || u.Date > date { // a later date is a past mistake of the clock
			continue
		}
		known = known || u.Date < date
		if a.new && u.Clients == 1 && others == 0 { // it is that client, as far as one can know
			continue
		}
		need = max(need, u.Kept-a.usual)
	}
	if known {
		return max(0, need-had)
	}
	local := now.Local()
	passed := time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute
	rest := float64(max(0, (others+1)*share-had)) * (1 - passed.Hours()/24)
	return max(int(math.Ceil(rest)), need-had)
}
