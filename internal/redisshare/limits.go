package redisshare

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strconv"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/redis"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Limits are the rules for one client that hold over all relays: a leaky bucket, and a
// share of the day's budget. While Redis is away each relay applies them by itself. It is
// safe for concurrent use.
type Limits struct {
	client *redis.Client
	bucket lookup.LeakyBucket // Rate 0: none
	shares int                // searches of one client a day; 0: no limit

	own    lookup.Limiter // of this relay; nil: none
	ownDay *lookup.Shares // nil: none
}

// NewLimits returns Limits. A bucket of rate 0 and 0 shares are no limits.
func NewLimits(client *redis.Client, bucket lookup.LeakyBucket, shares int) *Limits {
	l := &Limits{client: client, bucket: bucket, shares: shares}
	if bucket.Rate > 0 {
		l.own = lookup.PerClient(bucket.Admit)
	}
	if shares > 0 {
		l.ownDay = lookup.NewShares(shares)
	}
	return l
}

// The answers of the script admit.
const (
	admitted = iota
	limited
	shareSpent
)

// admit decides as lookup.AdmitBy does about ARGV[3] searches in a row, by the clock of
// Redis. Numbers are computed as Go computes them, to the last bit.
//
//	KEYS[1]  bucket: level in searches, and when, in microseconds
//	KEYS[2]  searches of the day
//	ARGV     rate a second (0: no bucket), capacity, searches, share (0: none),
//	         life of the share in milliseconds
var admit = redis.NewScript(admitText)

const admitText = `
local rate, capacity, searches, share = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local state = redis.call('HMGET', KEYS[1], 'level', 'at')
local level, at = tonumber(state[1] or 0), tonumber(state[2] or now)
if now > at then
  local passed = now - at
  level = math.max(0, level - rate * (math.floor(passed / 1000000) + (passed % 1000000) * 1000 / 1e9))
else
  now = at
end
local spent = tonumber(redis.call('GET', KEYS[2]) or 0)
local answer, taken = 0, 0
for i = 1, searches do
  if rate > 0 and level + 1 > capacity then answer = 1 break end
  level = level + 1
  if share > 0 and spent + taken >= share then answer = 2 break end
  taken = taken + 1
end
if rate > 0 then
  redis.call('HSET', KEYS[1], 'level', string.format('%.17g', level), 'at', string.format('%.0f', now))
  redis.call('PEXPIRE', KEYS[1], math.ceil(level / rate * 1000) + 1000)
end
if share > 0 and answer == 0 then
  redis.call('SET', KEYS[2], spent + taken, 'PX', ARGV[5])
end
return answer`

// refund takes one search back from a share. The bucket keeps it, as in lookup.
var refund = redis.NewScript(`
local spent = tonumber(redis.call('GET', KEYS[1]) or 0)
if spent > 0 then redis.call('SET', KEYS[1], spent - 1, 'KEEPTTL') end`)

// keys returns the keys of a client, and how long its share lives. They hold a hash of the
// client's address: it is no secret, but need not be read by chance.
func (l *Limits) keys(client netip.Addr, now time.Time) (keys []string, life time.Duration) {
	sum := sha256.Sum256([]byte(l.client.Key(lookup.Site(client).String())))
	id := hex.EncodeToString(sum[:8])
	return []string{l.client.Key("bucket:" + id), l.client.Key("share:" + now.Local().Format(time.DateOnly) + ":" + id)}, 25 * time.Hour
}

// Admit returns the admission of a client, for lookup.Checker.Search.
func (l *Limits) Admit(client netip.Addr) lookup.AdmitAll {
	if l.own == nil && l.ownDay == nil {
		return nil
	}
	return func(n int) (func(), error) {
		keys, life := l.keys(client, time.Now())
		number := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
		v, err := l.client.Fast(opAdmit, admit, keys, number(l.bucket.Rate), number(l.bucket.Capacity), strconv.Itoa(n),
			strconv.Itoa(l.shares), strconv.FormatInt(life.Milliseconds(), 10))
		answer, ok := v.Int()
		own := lookup.AdmitBy(l.own, l.ownDay, client).All()
		switch {
		case err != nil || !ok:
			return own(n)
		case answer == limited:
			return nil, lookup.ErrLimited
		case answer == shareSpent:
			return nil, lookup.ErrShare
		}
		// This relay has admitted no more than all have. It counts along, for a time
		// without Redis.
		back, err := own(n)
		return func() {
			if l.ownDay != nil {
				l.client.Later(opRefund, refund, keys[1:])
			}
			if err == nil {
				back()
			}
		}, nil
	}
}
