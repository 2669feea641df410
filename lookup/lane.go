package lookup

import (
	"context"
	"errors"
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
	if !c.searching.add(prefix, p, refund, c.cfg.PerSearch) {
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
	if asked && time.Since(at) < MaxUnanswered || !c.knowing.add(prefix, p, nil, c.cfg.PerSearch) {
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
		if wait := l.spacing(now, c.cfg.PerSearch); needed && wait > 0 {
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

// Idle waits until no query waits for a search to begin, and half of the slots for searches are free. A
// search that is no query's then begins at once, and the next queries find a slot. It returns ErrClosed,
// or the error of ctx if that ends first.
func (c *Checker) Idle(ctx context.Context) error {
	for {
		c.mu.Lock()
		l := c.searching
		if c.closed {
			c.mu.Unlock()
			return ErrClosed
		}
		if l.idle() {
			c.mu.Unlock()
			return nil
		}
		changed := make(chan struct{})
		l.watchers = append(l.watchers, changed)
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			c.mu.Lock()
			l.watchers = slices.DeleteFunc(l.watchers, func(other chan struct{}) bool { return other == changed })
			c.mu.Unlock()
			return ctx.Err()
		}
	}
}

// idle reports whether nothing waits and half of the slots are free.
func (l *lane) idle() bool { return len(l.queue) == 0 && 2*l.slots >= l.searches }

// tellIdle wakes those who wait in Idle, to look again. The caller holds Checker.mu.
func (l *lane) tellIdle() {
	for _, changed := range l.watchers {
		close(changed)
	}
	l.watchers = nil
}
