package lookup

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// began is a Searcher that notes when each search began and for how many prefixes.
type began struct {
	takes func(n int) time.Duration // the nth search, from 0

	mu    sync.Mutex
	since time.Time
	at    []time.Duration
	sizes []int
}

func (b *began) Search(ctx context.Context, prefixes []Prefix) (Answer, error) {
	b.mu.Lock()
	n := len(b.at)
	b.at, b.sizes = append(b.at, time.Since(b.since)), append(b.sizes, len(prefixes))
	b.mu.Unlock()
	return slowly(b.takes(n), Answer{TTL: time.Hour})(ctx, prefixes)
}

const ms = time.Millisecond

// always is how long each search takes.
func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func TestSearchesBeginOneAfterAnother(t *testing.T) {
	for _, test := range []struct {
		name     string
		searches int
		takes    func(n int) time.Duration
		queries  []time.Duration // when each one comes
		at       []time.Duration // when each search begins
		sizes    []int
	}{
		{"alone", 16, always(50 * ms), []time.Duration{0}, []time.Duration{0}, []int{1}},
		{"one after the other has ended", 16, always(ms), []time.Duration{0, 2 * ms, 4 * ms}, []time.Duration{0, 2 * ms, 4 * ms}, []int{1, 1, 1}},
		{"together", 16, always(50 * ms), []time.Duration{0, 0, ms, 2 * ms, 6 * ms}, []time.Duration{0, 5 * ms, 10 * ms}, []int{1, 3, 1}},
		{"further apart than that", 16, always(50 * ms), []time.Duration{0, 7 * ms, 13 * ms}, []time.Duration{0, 7 * ms, 13 * ms}, []int{1, 1, 1}},
		{"a slow server", 10, always(1000 * ms), []time.Duration{0, 1000 * ms, 1001 * ms, 1030 * ms, 1250 * ms}, []time.Duration{0, 1000 * ms, 1050 * ms, 1250 * ms}, []int{1, 1, 2, 1}},
		{"a server that takes some time", 10, always(300 * ms), []time.Duration{0, 300 * ms, 301 * ms, 320 * ms, 350 * ms}, []time.Duration{0, 300 * ms, 330 * ms, 360 * ms}, []int{1, 1, 2, 1}},
		{"a server that is fast again", 10, func(n int) time.Duration { return []time.Duration{1000 * ms, 20 * ms, 20 * ms}[n] },
			[]time.Duration{0, 1000 * ms, 1001 * ms}, []time.Duration{0, 1000 * ms, 1020 * ms}, []int{1, 1, 1}},
		{"a slot is free before the spacing has passed", 2, always(3 * ms), []time.Duration{0, ms}, []time.Duration{0, 3 * ms}, []int{1, 1}},
		{"one search at a time", 1, always(50 * ms), []time.Duration{0, ms, 2 * ms}, []time.Duration{0, 50 * ms}, []int{1, 2}},
		{"a full search", 16, always(50 * ms), append([]time.Duration{0}, slices.Repeat([]time.Duration{ms}, MaxPrefixes+1)...), []time.Duration{0, ms, 6 * ms}, []int{1, MaxPrefixes, 1}},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			b := &began{takes: test.takes, since: time.Now()}
			c := checkerOf(t, Config{Searcher: b, Searches: test.searches}, manyExpressed(len(test.queries))...)
			for i, at := range test.queries {
				time.Sleep(time.Until(b.since.Add(at)))
				synctest.Wait()
				c.Confirm(suspect(t, c, named(i)), nil)
			}
			time.Sleep(10 * time.Second)
			c.Close()
			testkit.Equal(t, "when searches begin, for how many prefixes", []any{b.at, b.sizes}, []any{test.at, test.sizes})
		})
	}
}

// asking starts n queries for one prefix, with a timeout, and returns when each ended and what decided.
func asking(t *testing.T, c *Checker, n int, timeout time.Duration) (after []time.Duration, by map[Decider]int) {
	by = make(map[Decider]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	begun := time.Now()
	for range n {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			d := c.Confirm(suspect(t, c, named(0)), nil).Wait(ctx)
			mu.Lock()
			defer mu.Unlock()
			after = append(after, time.Since(begun))
			by[d.By]++
		})
	}
	all.Wait()
	return after, by
}

// Queries that are woken together all want the processor, and those for clean names wait behind them.
func TestQueriesOfOneSearchWakeAFewAtATime(t *testing.T) {
	const queries = 1_000
	for _, test := range []struct {
		name    string
		timeout time.Duration
		last    time.Duration // when the last query continues
		most    int           // that go on together
	}{
		{"all have time", time.Second, (50 + queries/16) * ms, 16},
		// A search that has ended counts, though not all that wait for it have been woken.
		{"the timeout comes meanwhile", 60*ms + ms/2, 60*ms + ms/2, queries - 11*16},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			b := &began{takes: always(50 * ms)}
			c := checkerOf(t, Config{Searcher: b}, expressed(0))
			after, by := asking(t, c, queries, test.timeout)
			together := make(map[time.Duration]int)
			most := 0
			for _, d := range after {
				together[d]++
				most = max(most, together[d])
			}
			testkit.Equal(t, "together, from, to", []any{most, slices.Min(after), slices.Max(after)}, []any{test.most, 50 * ms, test.last})
			testkit.Equal(t, "decided by the answer of one search", []any{by[ByServer], len(b.at)}, []any{queries, 1})
		})
	}
}

// Close does not wait until all queries have been woken in their turn.
func TestCloseWakesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &began{takes: always(time.Hour)}
		c := checkerOf(t, Config{Searcher: b, Timeout: time.Hour}, expressed(0))
		begun := time.Now()
		time.AfterFunc(time.Second, c.Close)
		after, by := asking(t, c, 1_000, time.Minute)
		testkit.Equal(t, "ended by Close, at once", []any{by[ByError], slices.Max(after)}, []any{1_000, time.Second})
		testkit.Equal(t, "the end", time.Since(begun), time.Second)
	})
}
