package sharing

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// refusing is a server that answers each search with err, and counts them.
type refusing struct {
	asked atomic.Int32
	err   error
}

// Search implements lookup.Searcher.
func (r *refusing) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	r.asked.Add(1)
	return lookup.Answer{}, r.err
}

// seen waits for the first beat of a relay.
func (r *relay) seen(t *testing.T) {
	t.Helper()
	testkit.Until(t, "a beat", func() bool {
		_, err := r.Read(origin.Documents()[0])
		return err == nil
	})
}

// The wall clock of a machine that is set between two beats ends no wait early.
func TestAWallClockThatIsSetBetweenTwoBeatsEndsNoSharedWait(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"back": -time.Hour, "not": 0, "forward": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testkit.StartRedis(t)
			var skew atomic.Int64
			machine := func(change func(*StoreConfig), answers *refusing) (lookup.Searcher, *updater.Schedule, *relay) {
				r := openStore(t, server.URL(), change)
				r.seen(t)
				store := openFolder(t, r.folder)
				store.Share(r.Store)
				s, err := updater.NewSchedule(store)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Flush)
				return updater.Pace(answers, s, updater.SearchRules{Backoff: updater.Strikes}, func(updater.Event) {}), s, r
			}
			first := &refusing{err: &updater.StatusError{Code: 429, RetryAfter: 30 * time.Minute}}
			a, schedule, relayA := machine(func(c *StoreConfig) {
				c.Beat, c.Lease = time.Minute, 3*time.Minute
				c.wall = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
			}, first)
			second := new(refusing)
			b, _, relayB := machine(nil, second)
			skew.Store(int64(step))
			_, _ = a.Search(t.Context(), []lookup.Prefix{"abcd"}) // it is refused
			schedule.Flush()
			kind := origin.Documents()[1]
			testkit.Until(t, "the clock of searches", func() bool {
				written, _ := relayA.Read(kind)
				read, _ := relayB.Read(kind)
				return len(written) > 0 && string(written) == string(read)
			})
			if _, err := b.Search(t.Context(), []lookup.Prefix{"abcd"}); first.asked.Load() != 1 || second.asked.Load() != 0 || err == nil {
				t.Errorf("Expected that nobody asks the server for half an hour, got %d and %d searches, %v", first.asked.Load(), second.asked.Load(), err)
			}
		})
	}
}

// A suspend between two beats counts: the monotonic clock may stand still during it.
func TestTheClockOfRedisGoesOnDuringASuspend(t *testing.T) {
	t.Parallel()
	server := testkit.StartRedis(t)
	var suspended atomic.Int64
	r := openStore(t, server.URL(), func(c *StoreConfig) {
		c.Beat, c.Lease = time.Minute, 3*time.Minute
		begun := time.Now()
		c.sinceBoot = func() time.Duration { return time.Minute + time.Since(begun) + time.Duration(suspended.Load()) }
		c.wall = func() time.Time { return time.Unix(0, 0) }
	})
	r.seen(t)
	if got := time.Until(r.Now()); got.Abs() > time.Minute {
		t.Errorf("Expected the clock of Redis, got one that is %s ahead", got)
	}
	suspended.Store(int64(time.Hour))
	if got := time.Until(r.Now()); (got - time.Hour).Abs() > time.Minute {
		t.Errorf("Expected a clock that is an hour ahead of the one that stood still, got %s", got)
	}
}
