package lookup

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"
)

// lane is where searches of one kind wait and are under way: at the server, or for what
// the Searcher knows without it, see Config.Known. A server that hangs takes all slots of the first
// and none of the second. It is guarded by Checker.mu.
type lane struct {
	pending  map[Prefix]*part // under way or about to be
	queue    []*search        // wait for a free slot, the oldest first
	searches int              // most under way
	slots    int              // how many more may begin
	begun    time.Time        // when the last one began
	took     time.Duration    // how long the one took that ended last
	next     *time.Timer      // calls begin; nil: not yet needed
	watchers []chan struct{}  // closed when the lane is idle, see Checker.Idle, or closes
}

func newLane(searches int) *lane {
	return &lane{pending: make(map[Prefix]*part), searches: searches, slots: searches}
}

// maxQueued is the most prefixes that wait for a free slot, in searches of at most
// Config.PerSearch prefixes. One client within its rate limit cannot fill the queue and
// so cannot lock other clients out.
const maxQueued = 4 * MaxPrefixes

// enqueue adds a prefix to the searches of the server. If their queue is full, the part fails with
// ErrLimited. refund, unless nil, is called if the prefix is not sent. While the server takes all
// slots, what is known does not wait for it. The caller holds mu.
func (c *Checker) enqueue(prefix Prefix, refund func()) *part {
	p := &part{done: make(chan struct{})}
	if !c.searching.add(prefix, p, refund, c.perSearch) {
		if refund != nil {
			refund()
		}
		return ended(serverAnswer{}, ErrLimited)
	}
	if c.searching.slots == 0 {
		c.lookUp(prefix, ErrSlow)
	}
	return p
}

// refused returns the part about a prefix for which a search was not admitted. If the client's share
// is spent, the Searcher is asked for what it knows. The caller holds mu.
func (c *Checker) refused(p Prefix, err error) *part {
	if errors.Is(err, ErrShare) {
		return c.lookUp(p, err)
	}
	return ended(serverAnswer{}, err)
}

// lookUp asks the Searcher for what it knows about a prefix, at most once in MaxUnanswered. If it does
// not know all, the part fails with refusal. The caller holds mu.
func (c *Checker) lookUp(prefix Prefix, refusal error) *part {
	if c.knowing == nil {
		return ended(serverAnswer{}, refusal)
	}
	if under := c.knowing.pending[prefix]; under != nil {
		return under
	}
	at, asked := c.unknown.Get(prefix)
	p := &part{done: make(chan struct{}), refusal: refusal}
	if asked && time.Since(at) < MaxUnanswered || !c.knowing.add(prefix, p, nil, c.perSearch) {
		return ended(serverAnswer{}, refusal)
	}
	return p
}

// add adds a part to the last search in the queue, or to a new one if that is full. It reports
// whether there was room.
func (l *lane) add(prefix Prefix, p *part, refund func(), perSearch int) bool {
	last := len(l.queue) - 1
	if last < 0 || len(l.queue[last].prefixes) == perSearch {
		if len(l.queue) >= maxQueued/perSearch {
			return false
		}
		l.queue = append(l.queue, &search{lane: l})
		last++
	}
	s := l.queue[last]
	s.prefixes, s.parts = append(s.prefixes, prefix), append(s.parts, p)
	if refund != nil {
		s.refunds = append(s.refunds, refund)
	}
	l.pending[prefix] = p
	return true
}

// minSpacing is the least time between the beginnings of two searches that are under way
// together and not full. It is short for a user. In a flood it makes 200 searches a second
// out of thousands.
const minSpacing = 5 * time.Millisecond

// maxSpacing is the most time between them, while a server takes seconds: a query waits for its
// answer for only half a second by default, and the server may be fast again.
const maxSpacing = 50 * time.Millisecond

// begin starts waiting searches while slots are free. A search that still waits
// collects the prefixes of later queries. The caller holds mu.
func (c *Checker) begin() {
	c.beginIn(c.searching)
	if c.knowing != nil {
		c.beginIn(c.knowing)
	}
}

// beginIn is begin for one lane. The caller holds mu.
func (c *Checker) beginIn(l *lane) {
	for len(l.queue) > 0 && l.slots > 0 {
		s, now := l.queue[0], time.Now()
		needed := s.needed()
		if wait := l.spacing(now, c.perSearch); needed && wait > 0 {
			c.beginAfter(l, wait)
			return
		}
		l.queue = slices.Delete(l.queue, 0, 1)
		if !needed {
			s.giveBack()
			continue
		}
		l.slots--
		l.begun = now
		c.wg.Go(func() { c.run(s) })
	}
	if l.idle() {
		l.tellIdle()
	}
}

// needed leaves the prefixes that have been answered out of a search that has not begun, and reports
// whether any is left.
func (s *search) needed() bool {
	for i := len(s.parts) - 1; i >= 0; i-- {
		if s.parts[i].over.Load() {
			s.parts, s.prefixes = slices.Delete(s.parts, i, i+1), slices.Delete(s.prefixes, i, i+1)
		}
	}
	return len(s.parts) > 0
}

// spacing returns how long the next search collects prefixes before it begins. It begins
// at once if it is full or no other one is under way. Else the slots are spread evenly over
// the time that a search takes: with many queries, all slots would otherwise be taken by
// searches for one prefix each. Their answers would come, and wake the queries that wait, at
// the same time, and queries for clean names would have to wait for the processor.
func (l *lane) spacing(now time.Time, perSearch int) time.Duration {
	if l.slots == l.searches || len(l.queue[0].prefixes) == perSearch {
		return 0
	}
	return l.begun.Add(min(max(minSpacing, l.took/time.Duration(l.searches)), maxSpacing)).Sub(now)
}

// beginAfter calls begin after a while. A later call replaces the time. The caller holds mu.
func (c *Checker) beginAfter(l *lane, wait time.Duration) {
	if l.next != nil {
		l.next.Reset(wait)
		return
	}
	l.next = time.AfterFunc(wait, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.beginIn(l)
	})
}

// close ends the searches that wait for a free slot.
func (l *lane) close() {
	for _, s := range l.queue {
		s.giveBack()
		for _, p := range s.parts {
			if p.over.Load() {
				continue
			}
			p.err = ErrClosed
			p.over.Store(true)
			close(p.done)
		}
	}
	l.queue = nil
	l.tellIdle()
}

// How much of a budget is reserved for others, as values without a clock or a lock.

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
	maxUses    = 7 // days that are remembered
	hourlyPart = 5 // a fifth of an hour's searches is for those who come later in it
)

// JoinUses returns the last days of both, the earliest first: of the same date the higher numbers.
func JoinUses(a, b []Use) []Use {
	days := make(map[string]Use)
	for _, u := range slices.Concat(a, b) {
		other := days[u.Date]
		days[u.Date] = Use{u.Date, max(u.Clients, other.Clients), max(u.Kept, other.Kept), max(u.Refused, other.Refused)}
	}
	var all []Use
	for _, u := range days {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b Use) int { return cmp.Compare(a.Date, b.Date) })
	return all[max(0, len(all)-maxUses):]
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
