package sharing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// One goroutine beats: it renews the lease or asks for it, and brings documents and heads into
// memory. Nothing else of this package reads them, so that no reader waits for Redis.

// format is the number of the form of all values. A relay leaves values of a higher one alone.
const format = 1

// keepFormat is how many leases long the format stays after the last beat of its writers: so a
// fleet can go back to an older version.
const keepFormat = 10

// maxValue is the most bytes of a document, and of all heads. Redis keeps larger ones to itself: the
// client would take it for one that lies.
const maxValue = 512 << 10

// beatScript takes or renews the lease, and returns the holder, its token, the time of Redis, the
// format, three documents, and the heads. Values of a wrong type or size are deleted, and a lease that
// would last longer than any, or for ever: the clock of Redis was set back since, or a copy of Redis has lost the
// ends of its keys, and its holder may be dead. The write of KEYS[8] finds out whether Redis is full or only a replica.
//
// KEYS: lease, token, format, three documents, heads, alive. ARGV: id, the milliseconds of a
// lease, whether it is wanted, format and writer, format, milliseconds of the format, most bytes of
// a value.
var beatScript = NewScript(`
local function get(key, command)
  local value = redis.pcall(command, key)
  local size = 0
  if type(value) == 'string' then
    size = #value
  elseif type(value) == 'table' then
    for _, part in ipairs(value) do size = size + #part end
  end
  if size > tonumber(ARGV[7]) or type(value) == 'table' and value.err then
    redis.call('DEL', key)
    return command == 'HGETALL' and {}
  end
  return value
end
local form = get(KEYS[3], 'GET')
if form and (tonumber(string.match(form, '^%d+')) or 0) > tonumber(ARGV[5]) then
  return {'newer', form}
end
redis.call('SET', KEYS[8], '1', 'PX', ARGV[2])
redis.call('SET', KEYS[3], ARGV[4], 'PX', ARGV[6])
local holder, token, left = get(KEYS[1], 'GET'), get(KEYS[2], 'GET'), redis.call('PTTL', KEYS[1])
if holder == ARGV[1] and token and ARGV[3] == '1' then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
elseif holder == ARGV[1] or holder and (left < 0 or left > 2 * ARGV[2]) then
  redis.call('DEL', KEYS[1])
  holder = false
end
if not holder and ARGV[3] == '1' then
  token = redis.pcall('INCR', KEYS[2])
  if type(token) == 'table' then
    redis.call('DEL', KEYS[2])
    token = redis.call('INCR', KEYS[2])
  end
  token = tostring(token)
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  holder = ARGV[1]
end
local now = redis.call('TIME')
return {'ok', holder, token, now[1], now[2], get(KEYS[4], 'GET'), get(KEYS[5], 'GET'), get(KEYS[6], 'GET'), get(KEYS[7], 'HGETALL')}
`)

// keys are the names of all keys except contents.
type keys struct {
	prefix, lease, token, format, heads, alive, channel string
	documents                                           []string
}

// keys returns the keys of the asker. The caller holds mu.
func (s *Store) keys() keys {
	p, o := Prefix(s.asker), s.cfg.Origin
	kind := o.Documents()[0] // names the protocol too
	return keys{prefix: p, lease: p + "lease:" + kind, token: p + "token:" + kind, format: p + "format", heads: p + "heads:" + kind,
		alive: p + "alive:" + s.id, channel: p + "news", documents: o.Documents()}
}

// connecting is how long a start waits for the first connection before Redis counts as lost.
const connecting = 2 * time.Second

// run beats until ctx ends.
func (s *Store) run(ctx context.Context) {
	for begun := time.Now(); s.beat(ctx, time.Since(begun) < connecting) && ctx.Err() == nil; {
		time.Sleep(20 * time.Millisecond) // the client connects in the background
	}
	close(s.first)
	for ; ; s.beat(ctx, false) {
		timer := time.NewTimer(s.pause())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-s.kicks:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// pause returns the time to the next beat: half more or less than the mean, so that relays do not
// beat at once. A lease is renewed three times at least before it ends.
func (s *Store) pause() time.Duration {
	return min(time.Duration(float64(s.cfg.Beat)*(0.5+rand.Float64())), s.cfg.Lease/3)
}

// beat looks at Redis once. If it may be early, it reports whether there is no connection yet,
// which is no failure then.
func (s *Store) beat(ctx context.Context, early bool) (again bool) {
	s.mu.Lock()
	k, want, asker := s.keys(), s.want, s.asker
	s.mu.Unlock()
	begun := time.Now() // the lease counts from before the call
	v, err := s.look(ctx, k, want)
	if ctx.Err() != nil {
		return false
	}
	if early && errors.Is(err, ErrAway) {
		return true
	}
	s.mu.Lock()
	if s.asker != asker {
		s.mu.Unlock()
		s.kick()
		return false
	}
	answer := v.Array()
	var events []Event
	var write func()
	switch {
	case err != nil:
		events, write = s.failed(err)
	case len(answer) == 2:
		err = fmt.Errorf("%w %s", errNewer, answer[1].Bytes())
		events, write = s.failed(err)
	case len(answer) < 9:
		events, write = s.failed(errors.New("redis gave a short answer"))
	default:
		events, write = s.saw(answer, k, want, begun)
	}
	s.mu.Unlock()
	if write != nil {
		write()
	}
	s.report(events)
	if err == nil {
		s.renewParts(ctx)
	}
	return false
}

// look is the call of a beat.
func (s *Store) look(ctx context.Context, k keys, want bool) (Value, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.timeout)
	defer cancel()
	wanted := "0"
	if want {
		wanted = "1"
	}
	form := strconv.Itoa(format)
	names := []string{k.lease, k.token, k.format, k.prefix + k.documents[0], k.prefix + k.documents[1], k.prefix + k.documents[2], k.heads, k.alive}
	return s.cfg.Client.Eval(ctx, "lease", beatScript, names, s.id, strconv.FormatInt(s.cfg.Lease.Milliseconds(), 10), wanted, form+" "+s.cfg.Writer, form,
		strconv.FormatInt((keepFormat*s.cfg.Lease).Milliseconds(), 10), strconv.Itoa(maxValue))
}

// errNewer says that relays of a newer version use the keys.
var errNewer = errors.New("the keys have a newer format, written by")

// failed notes that Redis cannot be used. The caller holds mu.
func (s *Store) failed(err error) (events []Event, write func()) {
	now := time.Now()
	newer := errors.Is(err, errNewer)
	if s.down == nil || newer != errors.Is(s.down, errNewer) || Cure(s.down) != Cure(err) {
		e := Event{Kind: Lost, Err: err}
		if newer {
			e = Event{Kind: Newer, Holder: strings.TrimPrefix(err.Error(), errNewer.Error()+" ")}
		}
		events = append(events, e)
	}
	s.down = err
	if newer { // Redis works, and those relays fetch
		s.downAt = time.Time{}
		return append(events, s.dropLease("")...), s.remember(note{Seen: true})
	}
	if s.downAt.IsZero() {
		s.downAt = now
	}
	events = append(events, s.goAlone(now)...)
	next := note{Away: s.downAt.Round(0), Until: now.Round(0)}
	if s.note.Asker == s.asker {
		next.HeldLast, next.Seen = s.note.HeldLast, s.note.Seen
		if !s.note.Away.IsZero() {
			next.Away = s.note.Away
		}
	}
	return events, s.remember(next)
}

// saw takes over the answer of a beat. The caller holds mu.
func (s *Store) saw(answer []Value, k keys, want bool, begun time.Time) (events []Event, write func()) {
	holder, token := string(answer[1].Bytes()), string(answer[2].Bytes())
	if s.down != nil || s.mirror.beats == 0 {
		events = append(events, Event{Kind: Back})
		s.down, s.downAt = nil, time.Time{}
	}
	if s.alone { // it yields to whoever holds the lease, itself too
		events = append(events, s.dropLease(holder)...)
	}
	if told, ok := timeOf(answer[3], answer[4]); ok {
		s.clock = s.clock.next(told, begun, s.cfg.sinceBoot())
	}
	before := s.mirror
	s.mirror.take(answer[5:], k, s.cfg.Spread)
	// Redis may name other lists at each beat.
	maps.DeleteFunc(s.mirror.missing, func(list string, _ bool) bool { return !s.kept[list] })
	if s.published.After(begun) { // Redis may have answered before this process published
		s.mirror.heads, s.mirror.missing = before.heads, before.missing
	}
	switch mine := holder == s.id && want && s.want; {
	case mine:
		events = append(events, s.extend(token, begun)...)
	default:
		events = append(events, s.dropLease(holder)...)
		if holder != "" && holder != s.holder && holder != s.id {
			events = append(events, Event{Kind: Follows, Holder: holder})
		}
	}
	s.holder = holder
	heldLast := holder == s.id || holder == "" && s.note.HeldLast && s.note.Asker == s.asker
	return events, s.remember(note{HeldLast: heldLast, Seen: true})
}

// extend notes that the lease lasts from begun. The caller holds mu.
func (s *Store) extend(token string, begun time.Time) (events []Event) {
	if s.token != token { // a new lease, also if the last one was this process's own
		events = s.dropLease(s.id)
		if s.token = token; len(events) == 0 {
			events = []Event{{Kind: LeaseTaken}}
		} else {
			events = nil
		}
		s.since = time.Now()
		s.renewed = s.since
	}
	s.until = begun.Add(s.cfg.Lease - s.cfg.Lease/10) // clocks run at slightly different speeds
	s.timer.Reset(time.Until(s.until))
	if s.damaged() && time.Since(s.repaired) > s.cfg.Lease {
		s.repaired = time.Now()
		clear(s.heads)
		clear(s.mirror.missing)
		s.endTurn() // the next one publishes what is missing
		events = append(events, Event{Kind: Repaired})
	}
	return events
}

// listen triggers a beat at once when another process announces news, until ctx ends. Messages
// can be lost, so the beats do not depend on them.
func (s *Store) listen(ctx context.Context) {
	for ctx.Err() == nil {
		listening, cancel := context.WithCancel(ctx)
		s.mu.Lock()
		channel := s.keys().channel
		s.deafen = cancel
		s.mu.Unlock()
		_ = s.cfg.Client.Subscribe(listening, channel, func(from string) {
			if from != s.id {
				s.kick()
			}
		})
		timer := time.NewTimer(s.pause())
		select {
		case <-listening.Done(): // also with ctx
		case <-timer.C:
		}
		timer.Stop()
		cancel()
	}
}

// mirror is what the last beat saw.
type mirror struct {
	beats     int
	documents map[string][]byte
	heads     map[string]seenHead
	missing   map[string]bool // lists that this process keeps, whose head was removed, and not published again since
}

// take replaces the mirror by what a beat saw: three documents, then names and heads in turn.
func (m *mirror) take(answer []Value, k keys, spread time.Duration) {
	m.beats++
	m.documents = make(map[string][]byte)
	for i, name := range k.documents {
		if !answer[i].IsNil() {
			m.documents[name] = answer[i].Bytes()
		}
	}
	before := m.heads
	m.heads = make(map[string]seenHead)
	pairs := answer[len(k.documents)].Array()
	for i := 0; i+1 < len(pairs); i += 2 {
		name, raw := string(pairs[i].Bytes()), string(pairs[i+1].Bytes())
		last, known := before[name]
		if known && last.raw == raw {
			m.heads[name] = last
			continue
		}
		h := seenHead{raw: raw}
		if json.Unmarshal([]byte(raw), &h.head) != nil || h.head.Format > format || h.head.List != name {
			h.head = head{}
		}
		if known { // otherwise this process may have no list at all
			h.visible = time.Now().Add(time.Duration(rand.Float64() * float64(spread)))
		}
		m.heads[name] = h
	}
	m.missing = maps.Clone(m.missing)
	if m.missing == nil {
		m.missing = make(map[string]bool)
	}
	for name := range before {
		m.missing[name] = true
	}
	for name := range m.heads {
		delete(m.missing, name)
	}
}
