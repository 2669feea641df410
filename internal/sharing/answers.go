package sharing

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Relays share over Redis what they have been told and whom they
// have served: answers to searches, and the limits of clients.
//
//	lookup.Checker ──▶ Answers ─┬─▶ Redis: known? else claim the search
//	                            └─▶ the server, about what no relay knows or asks about
//
// Where Redis is away each relay continues by itself.

// Answers asks a server only about prefixes that no relay knows. It is safe for
// concurrent use.
type Answers struct {
	// LeastPatience is how long a search of another relay may take at least until this one
	// asks by itself; zero: 250 ms. A test on a busy machine needs more.
	LeastPatience time.Duration
	// Scope names what the server is asked about a prefix, such as threat types; "": it is asked
	// about all. Relays share answers only within a scope. It must not have the
	// letter ":", and not change after the first search.
	Scope string
	// Clock, unless nil, is told after each look into Redis by how much the wall clock of this machine
	// is ahead of Redis's at least; negative: behind. An answer is as old as the one of the two
	// says that makes it older: of relays with clocks that differ by more than its life, one does not
	// use it. It must be set before the first search, and be safe for concurrent use.
	Clock func(ahead time.Duration)

	client  *Client
	next    lookup.Searcher
	id      string       // of this relay, in claims
	typical atomic.Int64 // nanoseconds that a search of the server takes
}

// NewAnswers returns a Searcher that looks into Redis before it asks next.
func NewAnswers(client *Client, next lookup.Searcher) *Answers {
	var id [8]byte
	rand.Read(id[:]) // it never fails
	a := &Answers{client: client, next: next, id: hex.EncodeToString(id[:])}
	a.typical.Store(int64(100 * time.Millisecond))
	return a
}

// looked is what Redis knows about some prefixes.
type looked struct {
	known   map[lookup.Prefix]lookup.EarlierAnswer
	claimed map[lookup.Prefix]time.Duration // by another relay, so long ago
	mine    []lookup.Prefix                 // all others: this relay must ask
	clock   redisClock                      // zero: Redis has not answered
	late    bool                            // Redis has not answered in time
}

// redisClock is what the clock of Redis said. The zero redisClock says nothing.
type redisClock struct {
	redis time.Time
	at    time.Time // by this machine
}

// look returns the clock of Redis, and then for each prefix the value, or nil and since
// when another relay asks the server (in milliseconds), or -1: this relay has the claim now.
// A value of more than ARGV[3] bytes is deleted. A Redis that refuses to note the claim gives it to all.
var look = NewScript(`
local n = #KEYS / 2
local now = redis.call('TIME')
local out = {now[1] * 1000 + math.floor(now[2] / 1000)}
local values = redis.call('MGET', unpack(KEYS, 1, n))
for i = 1, n do
  local value, since = values[i], -1
  if value and #value > tonumber(ARGV[3]) then
    redis.call('DEL', KEYS[i])
    value = false
  end
  if not value then
    local set = redis.call('SET', KEYS[n + i], ARGV[1], 'NX', 'PX', ARGV[2])
    if not set and redis.call('GET', KEYS[n + i]) ~= ARGV[1] then
      since = math.max(0, ARGV[2] - redis.call('PTTL', KEYS[n + i]))
    end
  end
  out[2 * i] = value
  out[2 * i + 1] = since
end
return out`)

// store writes values, unless there is a younger one or one of a newer format, and ends claims. One
// that is younger than ARGV[2], in milliseconds, is from a time when the clock of Redis was ahead. Times are
// compared as numbers: Lua compares strings by the locale of Redis.
var store = NewScript(`
local n = #KEYS / 2
local function at(value)
  local high, low = struct.unpack('>I4I4', value, 2)
  return high * 4294967296 + low
end
for i = 1, n do
  local value, old = ARGV[2 * i + 1], redis.call('GET', KEYS[i])
  local stays = false
  if value ~= '' and old and #old > 9 then
    local have, new = string.byte(old), string.byte(value)
    stays = have > new or have == new and at(old) > at(value) and at(old) <= tonumber(ARGV[2])
  end
  if value ~= '' and not stays then
    redis.call('SET', KEYS[i], value, 'PXAT', ARGV[2 * i + 2])
  end
  if redis.call('GET', KEYS[n + i]) == ARGV[1] then
    redis.call('DEL', KEYS[n + i])
  end
end`)

// dropIf deletes a value, unless it has been replaced.
var dropIf = NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end`)

// keysOf returns the keys of the values about prefixes, then of the claims. They
// hold prefixes, which are 4 bytes of a hash as a rule: no names.
func (a *Answers) keysOf(prefixes []lookup.Prefix) []string {
	keys := make([]string, 0, 2*len(prefixes))
	scope := ""
	if a.Scope != "" {
		scope = a.Scope + ":"
	}
	for _, kind := range []string{"answer:", "claim:"} {
		for _, p := range prefixes {
			keys = append(keys, a.client.Key(kind+scope+hex.EncodeToString([]byte(p))))
		}
	}
	return keys
}

// look asks Redis about prefixes, in one round trip.
func (a *Answers) look(prefixes []lookup.Prefix) looked {
	begin := time.Now() // before Redis reads its clock: no answer becomes younger
	v, err := a.client.Fast("lookup", look, a.keysOf(prefixes), a.id, strconv.FormatInt(a.claimLife().Milliseconds(), 10), strconv.Itoa(maxSize))
	l := looked{known: make(map[lookup.Prefix]lookup.EarlierAnswer), claimed: make(map[lookup.Prefix]time.Duration)}
	parts := v.Array()
	if err != nil || len(parts) != 1+2*len(prefixes) {
		l.mine, l.late = prefixes, errors.Is(err, context.DeadlineExceeded)
		return l
	}
	now, _ := parts[0].Int()
	l.clock = redisClock{redis: time.UnixMilli(now), at: time.Now()}
	if a.Clock != nil {
		a.Clock(ahead(l.clock.redis, begin, l.clock.at))
	}
	for i, p := range prefixes {
		value := parts[1+2*i].Bytes()
		since, _ := parts[2+2*i].Int()
		if earlier, ok := a.believe(p, value, l.clock.redis, begin); ok {
			l.known[p] = earlier
		} else if value == nil && since >= 0 {
			l.claimed[p] = time.Duration(since) * time.Millisecond
		} else {
			l.mine = append(l.mine, p)
		}
	}
	return l
}

// ahead returns by how much this machine's wall clock is ahead of Redis's at least, which
// told redis between begin and end; negative: behind.
func ahead(redis, begin, end time.Time) time.Duration {
	// Redis tells milliseconds, cut.
	return max(0, begin.Sub(redis)-time.Millisecond) + min(0, end.Sub(redis))
}

// believe returns the answer in a value, if it may still be used at now. A damaged value
// is deleted. One of a newer format is left to the relays that can read it.
func (a *Answers) believe(p lookup.Prefix, value []byte, redis, now time.Time) (lookup.EarlierAnswer, bool) {
	if value == nil {
		return lookup.EarlierAnswer{}, false
	}
	content, ok, newer := decode(p, value)
	if !ok && !newer {
		a.client.Later("discard", dropIf, a.keysOf([]lookup.Prefix{p})[:1], string(value))
	}
	age := content.age(redis, now)
	if !ok || age >= content.life() {
		return lookup.EarlierAnswer{}, false
	}
	return lookup.EarlierAnswer{Received: now.Add(-age), TTL: content.ttl, Threats: content.threats}, true
}

// Search implements lookup.Searcher. What Redis knows holds although the server does not answer
// about the rest, and is told before it does.
func (a *Answers) Search(ctx context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	l := a.look(prefixes)
	if len(l.known) == len(prefixes) {
		return lookup.Answer{Earlier: l.known}, nil
	}
	l.tell(ctx)
	var others looked
	var wg sync.WaitGroup
	if len(l.claimed) > 0 {
		wg.Go(func() { others = a.await(ctx, l.claimed) })
	}
	found := a.ask(ctx, l.mine, l.clock)
	if found.err == nil && len(l.claimed) > 0 {
		lookup.Tell(ctx, found.prefixes, found.answer)
	}
	wg.Wait()
	maps.Copy(l.known, others.known)
	if found.allowsMore() {
		found = joined(found, a.ask(ctx, others.mine, others.clock))
	} else {
		a.release(others.mine)
	}
	maps.Copy(l.known, found.answer.Earlier)
	found.answer.Earlier = l.known
	return found.answer, found.err
}

// tell tells the Checker what Redis knows.
func (l *looked) tell(ctx context.Context) {
	lookup.Tell(ctx, slices.Collect(maps.Keys(l.known)), lookup.Answer{Earlier: l.known})
}

// asked is a search of the server that has ended.
type asked struct {
	prefixes []lookup.Prefix
	answer   lookup.Answer
	err      error
	received time.Time
}

// allowsMore reports whether the server may be asked about other prefixes, too: it has answered,
// or it is a relay that works.
func (s *asked) allowsMore() bool {
	_, unanswered := errors.AsType[*lookup.UnansweredError](s.err)
	return s.err == nil || unanswered
}

// about returns what the search has told about a prefix.
func (s *asked) about(p lookup.Prefix) (e lookup.EarlierAnswer, ok bool) {
	if e, ok = s.answer.Earlier[p]; ok || s.err != nil {
		return e, ok
	}
	e = lookup.EarlierAnswer{Received: s.received, TTL: s.answer.TTL}
	for _, t := range s.answer.Threats {
		if string(t.Hash[:len(p)]) == string(p) {
			e.Threats = append(e.Threats, t)
		}
	}
	return e, true
}

// joined returns what two searches have told. If one has failed, the other still holds.
func joined(a, b asked) asked {
	switch {
	case len(b.prefixes) == 0:
		return a
	case len(a.prefixes) == 0:
		return b
	}
	both := asked{prefixes: slices.Concat(a.prefixes, b.prefixes), err: cmp.Or(a.err, b.err)}
	both.answer.MinimumWait = max(a.answer.MinimumWait, b.answer.MinimumWait)
	both.answer.Earlier = make(map[lookup.Prefix]lookup.EarlierAnswer)
	if both.err == nil {
		both.answer.Threats = slices.Concat(a.answer.Threats, b.answer.Threats)
		both.answer.TTL = min(a.answer.TTL, b.answer.TTL)
	}
	for _, one := range []asked{a, b} {
		maps.Copy(both.answer.Earlier, one.answer.Earlier)
		for _, p := range one.prefixes {
			if e, ok := one.about(p); ok && both.err != nil {
				both.answer.Earlier[p] = e
			}
		}
	}
	return both
}

// ask asks the server about prefixes, if there are any, and tells the other relays.
func (a *Answers) ask(ctx context.Context, prefixes []lookup.Prefix, c redisClock) asked {
	if len(prefixes) == 0 {
		return asked{}
	}
	begin := time.Now()
	s := asked{prefixes: prefixes}
	s.answer, s.err = a.next.Search(ctx, prefixes)
	s.received = time.Now()
	if s.err == nil {
		a.learn(s.received.Sub(begin))
	}
	if s.err != nil || c != (redisClock{}) {
		a.store(&s, c)
	}
	return s
}

// store writes what the server has told into Redis, and ends the claims of all prefixes.
func (a *Answers) store(s *asked, c redisClock) {
	soon := c.redis.Add(time.Since(c.at) + time.Minute) // the clocks of two relays are not read at once
	args := []string{a.id, strconv.FormatInt(soon.UnixMilli(), 10)}
	for _, p := range s.prefixes {
		value, until := "", ""
		e, ok := s.about(p)
		content := answer{byRedis: c.redis.Add(e.Received.Sub(c.at)), byWriter: e.Received, ttl: e.TTL, threats: e.Threats}
		if ok && c != (redisClock{}) && content.life() > 0 && len(content.threats) <= maxThreats {
			value, until = string(content.encode(p)), strconv.FormatInt(content.byRedis.Add(content.life()).UnixMilli(), 10)
		}
		args = append(args, value, until)
	}
	a.client.Later("store", store, a.keysOf(s.prefixes), args...)
}

// release ends the claims of searches that are not made, so that others do not wait.
func (a *Answers) release(prefixes []lookup.Prefix) {
	if len(prefixes) > 0 {
		a.store(&asked{prefixes: prefixes, err: errLate}, redisClock{})
	}
}

// A claim in Redis tells that a relay asks the server about a prefix. The script look makes
// it, and the script store ends it.

const (
	// minClaimLife is how long a claim tells that a relay asks the server: longer than
	// others wait for it.
	minClaimLife = 2 * time.Second
	// A relay waits for the search of another one for at most so long, see
	// Answers.patience. The least is above what a busy machine adds; the most is below
	// the time that a name server waits for a confirmation.
	minPatience = 250 * time.Millisecond
	maxPatience = 500 * time.Millisecond
)

// claimLife is the life of this relay's claims: longer than its patience, whatever that is.
func (a *Answers) claimLife() time.Duration { return max(minClaimLife, 2*a.LeastPatience) }

// learn notes how long a search took.
func (a *Answers) learn(took time.Duration) {
	old := a.typical.Load()
	a.typical.Store(old + (int64(took)-old)/8) // a lost update does not matter
}

// patience returns how long a search of another relay may take until this one asks by
// itself: twice the time that searches take. It is waited in vain only if a relay dies
// during a search, or if the server is late.
func (a *Answers) patience() time.Duration {
	least := cmp.Or(a.LeastPatience, minPatience)
	return min(max(time.Duration(a.typical.Load())*2, least), max(least, maxPatience))
}

// errLate says that another relay has not answered in time.
var errLate = errors.New("another relay has not answered in time")

// await waits for what other relays ask the server about. Their searches began before one
// of its own would, so that waiting for them costs no time. The patience counts from when
// they began. In mine is what is left to ask about.
func (a *Answers) await(ctx context.Context, claimed map[lookup.Prefix]time.Duration) looked {
	patience := a.patience()
	result := looked{known: make(map[lookup.Prefix]lookup.EarlierAnswer)}
	waiting, oldest := slices.Collect(maps.Keys(claimed)), slices.Max(slices.Collect(maps.Values(claimed)))
	ctx, cancel := context.WithTimeoutCause(ctx, max(0, patience-oldest), errLate)
	defer cancel()
	tick := time.NewTicker(min(max(patience/100, 2*time.Millisecond), 5*time.Millisecond))
	defer tick.Stop()
	for len(waiting) > 0 {
		select {
		case <-ctx.Done():
			result.mine = append(result.mine, waiting...)
			return result
		case <-tick.C:
		}
		l := a.look(waiting)
		if l.late { // the others may have asked all the same
			continue
		}
		l.tell(ctx)
		maps.Copy(result.known, l.known)
		result.mine = append(result.mine, l.mine...)
		if l.clock != (redisClock{}) {
			result.clock = l.clock
		}
		waiting = slices.Collect(maps.Keys(l.claimed))
	}
	return result
}
