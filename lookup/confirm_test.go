package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// named returns the name, and the expression, of host i, which has no other.
func named(i int) string     { return fmt.Sprintf("h%d.example.", i) }
func expressed(i int) string { return fmt.Sprintf("h%d.example/", i) }
func prefixOf(i int) Prefix  { return HashExpression(expressed(i)).Prefix(4) }
func manyExpressed(n int) (all []string) {
	for i := range n {
		all = append(all, expressed(i))
	}
	return all
}

func TestPanicOfASearcherIsAnError(t *testing.T) {
	srv := searchFunc(func(context.Context, []Prefix) (Answer, error) { panic("broken") })
	c := checkerOf(t, Config{Searcher: srv, Searches: 1}, "example.com/")
	for range 3 { // its slot is free again
		got := decide(t, c, "example.com.")
		decided(t, "panic", got, Unsure, ByError)
		testkit.WantError(t, got.Err, "broken")
	}
}

// TestCheckingConfirmingAndPublishingAtOnce is for the race detector.
func TestCheckingConfirmingAndPublishingAtOnce(t *testing.T) {
	const hosts = 50
	var threats []ThreatHash
	for i := 0; i < hosts; i += 2 { // half of them are used once, and half of them for a moment: the next query asks again
		threats = append(threats, lasting(time.Duration(i/2%2), isThreat(expressed(i), Malware)))
	}
	srv := new(server)
	srv.knows(0, threats...)
	database := new(Database)
	snapshots := [][]List{nil, {listOf("a", manyExpressed(hosts)...)}, {listOf("b", manyExpressed(hosts/2)...), listOf("c", "x/")}}
	c := checkerOf(t, Config{Database: database, Searcher: searchFunc(srv.OnSearch), Searches: 2, Cache: 10})

	var stop atomic.Bool
	var publisher, workers sync.WaitGroup
	publisher.Go(func() {
		for i := 0; !stop.Load(); i++ {
			database.Publish(snapshots[i%len(snapshots)])
		}
	})
	for worker := range 8 {
		workers.Go(func() {
			for i := range 400 {
				host := (i*3 + worker) % hosts
				if got := decide(t, c, "www."+named(host)); got.Verdict == Unsafe && host%2 != 0 {
					t.Errorf("host %d: %+v, want it never unsafe", host, got)
				}
			}
		})
	}
	workers.Wait()
	stop.Store(true)
	publisher.Wait()
}

// Whether the name is answered SERVFAIL depends on whether a list holds one of those that cannot be confirmed.
func TestALateConfirmationDoesNotReplaceAGraverDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listed := HashExpression("www.example.com/").Prefix(4)
		broken := errors.New("status 500")
		srv := &server{t: t, OnSearch: func(ctx context.Context, prefixes []Prefix) (Answer, error) {
			if slices.Contains(prefixes, listed) {
				return Answer{}, broken
			}
			<-ctx.Done()
			return Answer{}, ctx.Err()
		}}
		c := checkerOf(t, Config{Mode: NoStorage, Searcher: srv}, "www.example.com/")
		c.Confirm(suspect(t, c, "example.com."), nil) // which is late
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got := c.Confirm(suspect(t, c, "www.example.com."), nil).Wait(ctx)
		testkit.Equal(t, "the gravest counts", got, Decision{Verdict: Unsure, By: ByError, List: "list", Err: broken})
	})
}

// What comes with an error counts for nothing, and the next query asks again. A search that was not sent is refunded.
func TestFailedSearchesAreUnsureAndNotCached(t *testing.T) {
	for _, tt := range []struct {
		err    error
		by     Decider
		unsent bool
	}{
		{errors.New("status 500"), ByError, false},
		{context.Canceled, ByError, false},
		{fmt.Errorf("searching: %w", context.DeadlineExceeded), ByTimeout, false},
		{ErrBackoff, ByBackoff, true},
		{fmt.Errorf("%w: 5s left", ErrBackoff), ByBackoff, true},
		{fmt.Errorf("searching: %w", ErrLimited), ByLimiter, true},
		{fmt.Errorf("%w: 10 of 10", ErrBudget), ByBudget, true},
		{fmt.Errorf("%w: no route", ErrNotSent), ByError, true},
		{ErrClosed, ByError, true},
	} {
		for _, perSearch := range []int{1, 30} {
			t.Run(fmt.Sprintf("%v, %d prefixes a search", tt.err, perSearch), func(t *testing.T) {
				srv := &server{t: t}
				srv.always(Answer{TTL: time.Hour, Threats: []ThreatHash{isThreat("example.com/", Malware)}}, tt.err)
				c := checkerOf(t, Config{Searcher: srv, PerSearch: perSearch}, "example.com/", "www.example.com/")
				var a account
				for range 2 {
					got := c.Confirm(suspect(t, c, "www.example.com."), a.admit).Wait(t.Context())
					testkit.Equal(t, tt.err, got, Decision{Verdict: Unsure, By: tt.by, List: "list", Err: tt.err})
				}
				sent := len(srv.searches())
				srv.knows(time.Hour)
				testkit.Equal(t, "when the server is back", decide(t, c, "www.example.com."), Decision{By: ByServer})
				c.Close() // the refund comes with the end
				want := account{charged: map[bool]int{true: 4, false: 2}[perSearch == 1]}
				if tt.unsent {
					want.refunded = want.charged
				}
				testkit.Equal(t, "searches, and what is charged and refunded", []any{sent, a}, []any{want.charged, want})
			})
		}
	}
}

func TestSearchesEndWithTheirTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 10 * time.Second, 3 * time.Second: 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := checkerOf(t, Config{Searcher: searchFunc(hanging), Timeout: timeout}, "example.com/")
			begin := time.Now()
			decided(t, timeout, decide(t, c, "example.com."), Unsure, ByTimeout)
			testkit.Equal(t, timeout, time.Since(begin), want)
		})
	}
}

// The second search waits for a slot, or collects prefixes.
func TestCloseEndsAndAwaitsSearches(t *testing.T) {
	for searches, after := range map[int]time.Duration{1: time.Minute, 2: 0} {
		inBubble(t, fmt.Sprint(searches), func(t *testing.T) {
			srv := &server{t: t, OnSearch: func(ctx context.Context, _ []Prefix) (Answer, error) {
				<-ctx.Done()
				time.Sleep(time.Second) // takes its time to leave
				return Answer{}, ctx.Err()
			}}
			c := checkerOf(t, Config{Searcher: srv, Searches: searches, Timeout: time.Hour}, manyExpressed(3)...)
			late := suspect(t, c, named(2))
			var a account
			waiting := []*Confirmation{c.Confirm(suspect(t, c, named(0)), nil), c.Confirm(suspect(t, c, named(1)), a.admit)}
			time.Sleep(after)
			begin := time.Now()
			c.Close()
			testkit.Equal(t, "Close, until the search has ended", time.Since(begin), time.Second)
			for i, want := range []error{context.Canceled, ErrClosed} {
				got := waiting[i].Wait(t.Context())
				decided(t, i, got, Unsure, ByError)
				testkit.Is(t, i, got.Err, want)
			}
			for _, candidates := range []*Candidates{late, suspect(t, c, named(0)), suspect(t, c, named(1))} {
				got := c.Confirm(candidates, a.admit).Wait(t.Context())
				testkit.Equal(t, "after Close", got, Decision{Verdict: Unsure, By: ByError, List: "list", Err: ErrClosed})
			}
			time.Sleep(time.Second)
			testkit.Equal(t, "searches, and what is charged and refunded", []any{len(srv.searches()), a}, []any{1, account{1, 1}})
		})
	}
}
