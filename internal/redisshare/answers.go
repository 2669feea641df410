// Package redisshare lets relays share over Redis what they have been told and whom they
// have served: answers to searches, and the limits of clients.
//
//	lookup.Checker ──▶ Answers ─┬─▶ Redis: known? else claim the search
//	                            └─▶ the server, about what no relay knows or asks about
//
// Where Redis is away each relay goes on by itself.
package redisshare

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/redis"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Answers asks a server only about prefixes that no relay knows. It is safe for
// concurrent use.
type Answers struct {
	// LeastPatience is how long a search of another relay may take at least until this one
	// asks by itself; zero: 250 ms. A test on a busy machine needs more.
	LeastPatience time.Duration

	client  *redis.Client
	next    lookup.Searcher
	id      string       // of this relay, in claims
	typical atomic.Int64 // nanoseconds that a search of the server takes
}

// NewAnswers returns a Searcher that looks into Redis before it asks next.
func NewAnswers(client *redis.Client, next lookup.Searcher) *Answers {
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
	clock   clock                           // zero: Redis has not answered
}

// clock is what the clock of Redis said. The zero clock says nothing.
type clock struct {
	redis time.Time
	at    time.Time // by this machine
}

// look returns the clock of Redis, and then for each prefix the value, or nil and since
// when another relay asks the server (in milliseconds), or -1: this relay has the claim now.
// A Redis that refuses to note the claim gives it to all.
var look = redis.NewScript(`
local n = #KEYS / 2
local now = redis.call('TIME')
local out = {now[1] * 1000 + math.floor(now[2] / 1000)}
local values = redis.call('MGET', unpack(KEYS, 1, n))
for i = 1, n do
  local value, since = values[i], -1
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

// store writes values, unless there is a younger one, and ends claims.
var store = redis.NewScript(`
local n = #KEYS / 2
for i = 1, n do
  local value, old = ARGV[2 * i], redis.call('GET', KEYS[i])
  local younger = old and #old > 9 and string.byte(old) == string.byte(value) and string.sub(old, 2, 9) > string.sub(value, 2, 9)
  if value ~= '' and not younger then
    redis.call('SET', KEYS[i], value, 'PXAT', ARGV[2 * i + 1])
  end
  if redis.call('GET', KEYS[n + i]) == ARGV[1] then
    redis.call('DEL', KEYS[n + i])
  end
end`)

// discard deletes a value, unless it has been replaced.
var discard = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end`)

// The words of operations in metrics.
const (
	opLook    = "lookup"
	opStore   = "store"
	opDiscard = "discard"
	opAdmit   = "admit"
	opRefund  = "refund"
)

// keysOf returns the keys of the values about prefixes, and then those of the claims. They
// hold prefixes, which are 4 bytes of a hash as a rule: no names.
func (a *Answers) keysOf(prefixes []lookup.Prefix) []string {
	keys := make([]string, 0, 2*len(prefixes))
	for _, kind := range []string{"answer:", "claim:"} {
		for _, p := range prefixes {
			keys = append(keys, a.client.Key(kind+hex.EncodeToString([]byte(p))))
		}
	}
	return keys
}

// look asks Redis about prefixes, in one round trip.
func (a *Answers) look(prefixes []lookup.Prefix) looked {
	begin := time.Now() // before Redis reads its clock: no answer becomes younger
	v, err := a.client.Fast(opLook, look, a.keysOf(prefixes), a.id, strconv.FormatInt(claimLife.Milliseconds(), 10))
	l := looked{known: make(map[lookup.Prefix]lookup.EarlierAnswer), claimed: make(map[lookup.Prefix]time.Duration)}
	parts := v.Array()
	if err != nil || len(parts) != 1+2*len(prefixes) {
		l.mine = prefixes
		return l
	}
	now, _ := parts[0].Int()
	l.clock = clock{redis: time.UnixMilli(now), at: time.Now()}
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

// believe returns the answer in a value, if it may still be used at now. A damaged value
// is deleted. One of a newer format is left to the relays that can read it.
func (a *Answers) believe(p lookup.Prefix, value []byte, redis, now time.Time) (lookup.EarlierAnswer, bool) {
	if value == nil {
		return lookup.EarlierAnswer{}, false
	}
	content, ok, newer := decode(p, value)
	if !ok && !newer {
		a.client.Later(opDiscard, discard, a.keysOf([]lookup.Prefix{p})[:1], string(value))
	}
	age := content.age(redis, now)
	if !ok || age >= content.life() {
		return lookup.EarlierAnswer{}, false
	}
	return lookup.EarlierAnswer{Received: now.Add(-age), TTL: content.ttl, Threats: content.threats}, true
}

// Search implements lookup.Searcher.
func (a *Answers) Search(ctx context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	l := a.look(prefixes)
	if len(l.known) == len(prefixes) {
		return lookup.Answer{Earlier: l.known}, nil
	}
	var others looked
	var wg sync.WaitGroup
	if len(l.claimed) > 0 {
		wg.Go(func() { others = a.await(ctx, l.claimed) })
	}
	answer, err := a.ask(ctx, l.mine, l.clock)
	wg.Wait()
	maps.Copy(l.known, others.known)
	if err == nil && len(others.mine) > 0 {
		var late lookup.Answer
		late, err = a.ask(ctx, others.mine, others.clock)
		answer = joined(answer, late, len(l.mine) > 0)
	} else if err != nil {
		a.release(others.mine)
	}
	answer.Earlier = l.known
	return answer, err
}

// joined returns what two searches have told. If first is not set, there was only the second.
func joined(a, b lookup.Answer, first bool) lookup.Answer {
	if !first {
		return b
	}
	b.Threats = append(a.Threats, b.Threats...)
	b.TTL = min(a.TTL, b.TTL)
	b.MinimumWait = max(a.MinimumWait, b.MinimumWait)
	return b
}

// ask asks the server about prefixes, if there are any, and tells the other relays.
func (a *Answers) ask(ctx context.Context, prefixes []lookup.Prefix, c clock) (lookup.Answer, error) {
	if len(prefixes) == 0 {
		return lookup.Answer{}, nil
	}
	begin := time.Now()
	found, err := a.next.Search(ctx, prefixes)
	if err != nil {
		a.release(prefixes)
		return found, err
	}
	received := time.Now()
	a.learn(received.Sub(begin))
	if c != (clock{}) {
		a.store(prefixes, found, c.redis.Add(received.Sub(c.at)), received)
	}
	return found, nil
}

// store writes what the server has told into Redis.
func (a *Answers) store(prefixes []lookup.Prefix, found lookup.Answer, byRedis, byWriter time.Time) {
	args := []string{a.id}
	for _, p := range prefixes {
		content := answer{byRedis: byRedis, byWriter: byWriter, ttl: found.TTL}
		for _, t := range found.Threats {
			if h := string(t.Hash[:len(p)]); h == string(p) {
				content.threats = append(content.threats, t)
			}
		}
		value := ""
		if content.life() > 0 && len(content.threats) <= maxThreats {
			value = string(content.encode(p))
		}
		args = append(args, value, strconv.FormatInt(byRedis.Add(content.life()).UnixMilli(), 10))
	}
	a.client.Later(opStore, store, a.keysOf(prefixes), args...)
}

// release ends the claims of searches that have failed, so that others do not wait.
func (a *Answers) release(prefixes []lookup.Prefix) {
	if len(prefixes) == 0 {
		return
	}
	args := []string{a.id}
	for range prefixes {
		args = append(args, "", "")
	}
	a.client.Later(opStore, store, a.keysOf(prefixes), args...)
}
