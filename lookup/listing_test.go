package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestListingsSayWhichListsHoldAPrefixAndWhatIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t}
		srv.knows(5*time.Minute, isThreat("bad.example/", Malware))
		database := new(Database)
		safe := listOf("gc-32b", "good.example/", "safe.example/")
		safe.LikelySafe = true
		database.Publish([]List{listOf("se-4b", "bad.example/", "both.example/"), listOf("mw-4b", "both.example/"), safe})
		c := checkerOf(t, Config{Database: database, Searcher: srv})
		prefixes := []Prefix{
			HashExpression("clean.example/").Prefix(4), HashExpression("bad.example/").Prefix(4),
			HashExpression("both.example/").Prefix(4), HashExpression("safe.example/").Prefix(4),
		}
		want := []Listing{{}, {[]string{"se-4b"}, 1}, {[]string{"se-4b", "mw-4b"}, 1}, {}}
		same := func(a, b Listing) bool { return slices.Equal(a.Lists, b.Lists) && a.Ask == b.Ask }
		if got := c.Listings(prefixes); !slices.EqualFunc(got, want, same) {
			t.Errorf("before a search: %v, want %v", got, want)
		}
		if len(srv.asked) > 0 {
			t.Errorf("a listing has asked about %x", srv.asked)
		}
		oneAnswer(t, c, "bad.example/")
		want[1].Ask = 0
		if got := c.Listings(prefixes); !slices.EqualFunc(got, want, same) {
			t.Errorf("after a search: %v, want %v", got, want)
		}
		time.Sleep(5*time.Minute + time.Nanosecond)
		want[1].Ask = 1
		if got := c.Listings(prefixes); !slices.EqualFunc(got, want, same) {
			t.Errorf("when the answer has expired: %v, want %v", got, want)
		}
	})
}

// What nobody waits for begins when no query waits, and leaves slots for those that come.
func TestIdleWaitsForTheQueriesThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		srv := &server{t: t, OnSearch: func(ctx context.Context, _ []Prefix) (Answer, error) {
			select {
			case <-answer:
			case <-ctx.Done():
			}
			return Answer{TTL: time.Minute}, ctx.Err()
		}}
		names := []string{"a.example/", "b.example/", "c.example/", "d.example/"}
		c := checkerOf(t, Config{Searcher: srv, Searches: 2, Timeout: time.Hour}, names...)
		if err := c.Idle(t.Context()); err != nil {
			t.Errorf("without a query: %v", err)
		}
		for _, name := range names {
			go searchOf(t, c, nil, name)
			time.Sleep(time.Second) // each begins a search, or waits for a slot
		}
		idle := make(chan error, 1)
		go func() { idle <- c.Idle(t.Context()) }()
		for answered := range 3 { // two under way, and one search of the other two
			synctest.Wait()
			select {
			case err := <-idle:
				if answered < 2 || err != nil {
					t.Errorf("idle after %d answers, %v", answered, err)
				}
				return
			default:
			}
			answer <- struct{}{}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if err := <-idle; err != nil {
			t.Error(err)
		}
	})
}

func TestIdleEndsWithItsContextAndWithTheChecker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t, OnSearch: func(ctx context.Context, _ []Prefix) (Answer, error) {
			<-ctx.Done()
			return Answer{}, ctx.Err()
		}}
		c := checkerOf(t, Config{Searcher: srv, Searches: 1, Timeout: time.Hour}, "a.example/")
		go searchOf(t, c, nil, "a.example/")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Idle(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the error of the context", err)
		}
		if n := len(c.searching.watchers); n != 0 {
			t.Errorf("%d watchers are left", n)
		}
		idle := make(chan error, 1)
		go func() { idle <- c.Idle(t.Context()) }()
		synctest.Wait()
		c.Close()
		if err := <-idle; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want %v", err, ErrClosed)
		}
		if err := c.Idle(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("afterwards: %v, want %v", err, ErrClosed)
		}
	})
}

// BenchmarkListings measures a prefix in three lists with a million entries in all.
func BenchmarkListings(b *testing.B) {
	var all [3][]string
	for i := range 1_000_000 {
		all[i%3] = append(all[i%3], fmt.Sprintf("host%d.example/", i))
	}
	database := new(Database)
	database.Publish([]List{listOf("se-4b", all[0]...), listOf("mw-4b", all[1]...), listOf("uws-4b", all[2]...)})
	c := checkerOf(b, Config{Database: database})
	var prefixes []Prefix
	for i := range 4096 {
		prefixes = append(prefixes, HashExpression(fmt.Sprintf("clean%d.example/", i)).Prefix(4))
	}
	for b.Loop() {
		c.Listings(prefixes)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(prefixes)), "ns/prefix")
}
