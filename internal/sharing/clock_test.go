package sharing

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// On a busy machine an answer is late, or its call was. What is written by the clock is then not too early
// and what is read not too late, also when somebody has set the clock of Redis, which the next call tells.
func TestTheClockOfRedisIsBetweenItsBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		delay := func() time.Duration {
			if r.IntN(4) > 0 {
				return time.Duration(r.IntN(int(time.Millisecond)))
			}
			return time.Duration(r.IntN(int(time.Second)))
		}
		for range 200 {
			var c clock
			var set time.Duration // by how much the clock of Redis is ahead
			best := time.Hour     // the shortest call since it was set
			redis := func() time.Time { return time.Now().Add(set).Round(0) }
			for call := range 20 {
				if r.IntN(10) == 0 {
					set, best = set+time.Duration(2+r.IntN(3600))*time.Duration(1-2*r.IntN(2))*time.Second, time.Hour
				}
				begun := time.Now()
				time.Sleep(delay())
				told := redis()
				time.Sleep(delay())
				c = c.next(told, begun, 0)
				best = min(best, time.Since(begun))
				time.Sleep(delay())
				now := c.now(0)
				if now.earliest.After(redis()) || now.latest.Before(redis()) || now.latest.Sub(now.earliest) > best {
					t.Fatalf("call %d, and the best took %s: the clock is from %s to %s after the one of Redis", call, best, now.earliest.Sub(redis()), now.latest.Sub(redis()))
				}
			}
		}
	})
}
