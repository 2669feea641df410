package sharing

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strconv"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Rule limits how many searches one client may cause: a leaky bucket, or an EMA. The zero
// Rule is no limit.
type Rule struct {
	Bucket lookup.LeakyBucket // Rate 0: none
	EMA    lookup.EMA         // Threshold 0: none; else the bucket does not count
}

// Limiter returns a limiter that applies the rule to each client, or nil without a rule.
func (r Rule) Limiter() lookup.Limiter {
	switch {
	case r.EMA.Threshold > 0:
		return lookup.PerClient(r.EMA.Admit)
	case r.Bucket.Rate > 0:
		return lookup.PerClient(r.Bucket.Admit)
	}
	return nil
}

// kind begins the key of a client's state: relays with different rules do not share it.
func (r Rule) kind() string {
	if r.EMA.Threshold > 0 {
		return "ema:"
	}
	return "bucket:"
}

// Limits are the rules for one client that hold over all relays: a Rule, and a share of the
// day's budget, beyond which it may have what no other client of this relay needs. While Redis is away each relay applies them by itself. It is
// safe for concurrent use.
type Limits struct {
	client *Client
	rule   Rule

	own    lookup.Limiter // of this relay; nil: none
	ownDay *lookup.Shares // of this relay; nil: none
}

// NewLimits returns Limits. The zero Rule and nil shares are no limits.
func NewLimits(client *Client, rule Rule, shares *lookup.Shares) *Limits {
	return &Limits{client: client, rule: rule, own: rule.Limiter(), ownDay: shares}
}

// The reasons in an answer of the script admit.
const (
	admitted = iota // all
	limited
	shareSpent
)

// admit decides as lookup.AdmitBy does about ARGV[3] searches in a row, by the clock of
// Redis. It returns how many of them are admitted and why no more. Numbers are computed as Go
// computes them, to the last bit. It is a script, and no value that relays swap: under a flood of one
// client a swap has to be tried 13 to 46 times, measured with two relays.
//
//	KEYS[1]  state of the rule: of a bucket the level in searches; of an EMA the gaps
//	         learnt, mean and variance; of both when, in microseconds
//	KEYS[2]  searches of the day
//	ARGV     rate a second (0: no bucket), capacity, searches, share (0: none), life of the
//	         share in milliseconds, threshold (0: no EMA), searches beyond the share
var admit = NewScript(admitText)

const admitText = `
local rate, capacity, searches, share = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local threshold, beyond = tonumber(ARGV[6]), tonumber(ARGV[7])
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]

local function seconds(passed)
  return math.floor(passed / 1000000) + (passed % 1000000) * 1000 / 1e9
end
local function exact(number) return string.format('%.17g', number) end

local function bucket()
  local state = redis.call('HMGET', KEYS[1], 'level', 'at')
  local level, at = tonumber(state[1] or 0), tonumber(state[2] or now)
  at = math.min(at, now + 60000000) -- a clock that was set back stops the leak for a minute at most
  local at_last = math.max(now, at)
  level = math.max(0, level - rate * seconds(at_last - at))
  return function()
    if level + 1 > capacity then return false end
    level = level + 1
    return true
  end, function()
    redis.call('HSET', KEYS[1], 'level', exact(level), 'at', exact(at_last))
    return math.ceil(level / rate * 1000) + 1000
  end
end

local function ema()
  local state = redis.call('HMGET', KEYS[1], 'seen', 'mean', 'variance', 'last')
  local seen, mean, variance = tonumber(state[1] or 0), tonumber(state[2] or 0), tonumber(state[3] or 0)
  local last = tonumber(state[4])
  return function()
    if not last then last = now return true end
    local gap = seconds(math.max(0, now - last))
    local deviation = math.max(math.sqrt(variance), 0.1 * mean)
    local admitted = seen < 10 or mean - gap <= threshold * deviation
    last = now
    if seen == 0 then
      mean = gap
    else
      local difference = gap - mean
      mean = mean + 0.1 * difference
      variance = (1 - 0.1) * (variance + 0.1 * difference * difference)
    end
    seen = math.min(seen + 1, 10)
    return admitted
  end, function()
    redis.call('HSET', KEYS[1], 'seen', seen, 'mean', exact(mean), 'variance', exact(variance), 'last', exact(last))
    return 86400000
  end
end

local allows, save
if threshold > 0 then allows, save = ema() elseif rate > 0 then allows, save = bucket() end
local spent = tonumber(redis.call('GET', KEYS[2]) or 0)
local answer, taken = 0, 0
for i = 1, searches do
  if allows and not allows() then answer = 1 break end
  if share > 0 and spent + taken >= share and taken >= beyond then answer = 2 break end
  taken = taken + 1
end
if save then redis.call('PEXPIRE', KEYS[1], save()) end
if share > 0 and taken > 0 then
  redis.call('SET', KEYS[2], spent + taken, 'PX', ARGV[5])
end
return {taken, answer}`

// refund takes one search back from a share. The bucket keeps it, as in lookup.
var refund = NewScript(`
local spent = tonumber(redis.call('GET', KEYS[1]) or 0)
if spent > 0 then redis.call('SET', KEYS[1], spent - 1, 'KEEPTTL') end`)

// shareLife is how long the count of a day lives.
const shareLife = 25 * time.Hour

// keys returns the keys of a client. They hold a hash of the client's address: it is no secret, but
// need not be read by chance.
func (l *Limits) keys(client netip.Addr, now time.Time) []string {
	sum := sha256.Sum256([]byte(l.client.Key(lookup.Site(client).String())))
	id := hex.EncodeToString(sum[:8])
	return []string{l.client.Key(l.rule.kind() + id), l.client.Key("share:" + now.Local().Format(time.DateOnly) + ":" + id)}
}

// Admit returns the admission of a client, for lookup.Checker.Search.
func (l *Limits) Admit(client netip.Addr) lookup.AdmitAll {
	if l.own == nil && l.ownDay == nil {
		return nil
	}
	return func(n int) (int, func(), error) {
		now := time.Now()
		keys := l.keys(client, now)
		share, beyond := 0, 0
		if l.ownDay != nil {
			share, beyond = l.ownDay.Split(client, now)
		}
		number := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
		v, err := l.client.Fast("admit", admit, keys, number(l.rule.Bucket.Rate), number(l.rule.Bucket.Capacity), strconv.Itoa(n),
			strconv.Itoa(share), strconv.FormatInt(shareLife.Milliseconds(), 10), number(l.rule.EMA.Threshold), strconv.Itoa(beyond))
		own := lookup.AdmitBy(l.own, l.ownDay, client).All()
		taken, why, ok := admittedOf(v.Array())
		if err != nil || !ok || taken < 0 || taken > n || (taken < n) != (why != nil) {
			return own(n)
		}
		// This relay has admitted no more than all have. It counts along, for a time
		// without Redis.
		counted, back, _ := own(taken)
		return taken, func() {
			if l.ownDay != nil {
				l.client.Later("refund", refund, keys[1:])
			}
			if counted > 0 {
				counted--
				back()
			}
		}, why
	}
}

// admittedOf returns the answer of the script admit: how many searches, and why no more.
func admittedOf(answer []Value) (n int, why error, ok bool) {
	if len(answer) != 2 {
		return 0, nil, false
	}
	taken, ok := answer[0].Int()
	reason, known := answer[1].Int()
	switch reason {
	case admitted:
	case limited:
		why = lookup.ErrLimited
	case shareSpent:
		why = lookup.ErrShare
	default:
		known = false
	}
	return int(taken), why, ok && known
}
