package sharing

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// exchange swaps a value for a new one if it is still as the caller knows it, and else returns what it is.
var exchange = NewScript(`
local now = redis.call('GET', KEYS[1]) or ''
if now ~= ARGV[1] then return now end
redis.call('SET', KEYS[1], ARGV[2], 'PX', 60000)`)

// BenchmarkFloodOfOneClient says why the rule of a limiter is a script, and not a value that relays
// swap: what an admission costs while two relays with so many requests each admit one client, whose
// address is flooded. Each relay starts from the value that it has seen last, so that a swap without
// a rival takes one call. "calls" are those of one admission.
func BenchmarkFloodOfOneClient(b *testing.B) {
	for _, way := range []string{"script", "swap"} {
		for _, requests := range []int{1, 8, 32} {
			b.Run(way+"/requests="+strconv.Itoa(requests), func(b *testing.B) {
				s := testkit.StartRedis(b)
				var calls atomic.Int64
				var relays []func()
				for range 2 {
					c := impatient(b, s.URL())
					if way == "script" {
						relays = append(relays, func() {
							calls.Add(1)
							if _, err := c.Eval(b.Context(), opAdmit, admit, []string{c.Key("level"), c.Key("share")}, "1e9", "1e9", "1", "0", "0", "0", "0"); err != nil {
								b.Error(err)
							}
						})
						continue
					}
					relays = append(relays, swapping(b, c, &calls))
				}
				b.ResetTimer()
				var wg sync.WaitGroup
				left := atomic.Int64{}
				left.Store(int64(b.N))
				for _, admit := range relays {
					for range requests {
						wg.Go(func() {
							for left.Add(-1) >= 0 {
								admit()
							}
						})
					}
				}
				wg.Wait()
				b.ReportMetric(float64(calls.Load())/float64(b.N), "calls/op")
			})
		}
	}
}

// swapping returns an admission of one relay that swaps the level of a bucket.
func swapping(b *testing.B, c *Client, calls *atomic.Int64) func() {
	var last atomic.Pointer[string]
	last.Store(new(string))
	return func() {
		for {
			old := *last.Load()
			level, _ := strconv.ParseFloat(old, 64) // "": 0
			next := strconv.FormatFloat(level+1, 'g', 17, 64)
			calls.Add(1)
			v, err := c.Eval(b.Context(), opAdmit, exchange, []string{c.Key("level")}, old, next)
			if err != nil {
				b.Error(err)
				return
			}
			if v.IsNil() {
				last.Store(&next)
				return
			}
			now := string(v.Bytes()) // of a rival
			last.Store(&now)
		}
	}
}
