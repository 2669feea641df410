package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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

func TestPrefixesRideAlongWhileAllSlotsAreBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queues, prefixes = 4, 240 // as in docs/blocking.md
		const queued = queues * prefixes
		const sent = 1 + prefixes // the first search begins at once, the second one when it is full
		const hosts = sent + queued + 5
		srv := &server{t: t, OnSearch: slowly(time.Second, Answer{TTL: time.Minute, Threats: []ThreatHash{isThreat(expressed(0), Malware), isThreat(expressed(7), Malware)}})}
		c := checkerOf(t, Config{Searcher: srv, Searches: 2}, manyExpressed(hosts)...)
		begin := time.Now()
		var confirmations []*Confirmation
		for i := range hosts {
			confirmations = append(confirmations, c.Confirm(suspect(t, c, named(i)), nil))
		}
		for i := sent + queued; i < hosts; i++ {
			got := confirmations[i].Wait(t.Context())
			want := Decision{Verdict: Unsure, By: ByLimiter, List: "list", Err: ErrLimited}
			if got != want || time.Now() != begin {
				t.Errorf("host %d: %+v after %v, want %+v at once", i, got, time.Since(begin), want)
			}
		}
		for i := range sent + queued {
			want := Safe
			if i == 0 || i == 7 {
				want = Unsafe
			}
			if got := confirmations[i].Wait(t.Context()); got.Verdict != want || got.By != ByServer {
				t.Errorf("host %d: %+v, want %v by server", i, got, want)
			}
		}
		var sizes []int
		for _, prefixes := range srv.searches() {
			sizes = append(sizes, len(prefixes))
		}
		want := append([]int{1}, slices.Repeat([]int{prefixes}, 1+queues)...)
		slices.Sort(sizes) // those that begin together come in any order
		if !slices.Equal(sizes, want) {
			t.Errorf("searches for %v prefixes, want %v", sizes, want)
		}
		if got := time.Since(begin); got != (1+queues/2)*time.Second {
			t.Errorf("all took %v, want the time of searches two by two", got)
		}
		if got := decide(t, c, named(hosts-1)); got.Verdict != Safe || got.By != ByServer {
			t.Errorf("who was turned away asks again: %+v, want safe by server", got)
		}
	})
}

func TestOnlyNewRequestsNeedToBeAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t, OnSearch: slowly(time.Second, Answer{TTL: time.Minute, Threats: []ThreatHash{isThreat("example.com/", Malware)}})}
		c := checkerOf(t, Config{Searcher: srv}, "example.com/", "www.example.com/", "mail.example.com/")
		asked := 0
		admit := func(allow bool) Admit {
			return func() (func(), error) {
				if asked++; !allow {
					return nil, ErrLimited
				}
				return nil, nil
			}
		}
		want := Decision{Verdict: Unsure, By: ByLimiter, List: "list", Err: ErrLimited}

		host, sibling := suspect(t, c, "www.example.com."), suspect(t, c, "mail.example.com.")
		if got := c.Confirm(host, admit(false)).Wait(t.Context()); got != want || asked != 1 {
			t.Errorf("refused: %+v after asking %d times, want %+v after one", got, asked, want)
		}
		if n := len(srv.searches()); n != 0 {
			t.Errorf("%d searches, want none", n)
		}

		asked = 0
		first := c.Confirm(host, admit(true))
		if asked != 1 {
			t.Errorf("admit was asked %d times for one request of two prefixes, want 1", asked)
		}
		second := c.Confirm(host, admit(false))
		if asked != 1 {
			t.Error("admit was asked about prefixes that are under way")
		}
		third := c.Confirm(sibling, admit(false)) // its parent is under way
		if asked != 2 {
			t.Errorf("admit was asked %d times in all, want 2", asked)
		}
		for i, confirmation := range []*Confirmation{first, second, third} {
			if got := confirmation.Wait(t.Context()); got.Verdict != Unsafe || got.Expression != "example.com/" {
				t.Errorf("confirmation %d: %+v, want unsafe", i+1, got)
			}
		}

		if got := c.Confirm(host, admit(false)).Wait(t.Context()); got.Verdict != Unsafe || asked != 2 {
			t.Errorf("with an answer in the cache: %+v, admit asked %d times, want unsafe and 2", got, asked)
		}
		if n := len(srv.searches()); n != 1 {
			t.Errorf("%d searches, want 1", n)
		}
	})
}

func TestSearchOutlivesItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t, OnSearch: func(ctx context.Context, _ []Prefix) (Answer, error) {
			select {
			case <-ctx.Done():
				return Answer{}, ctx.Err()
			case <-time.After(time.Second):
			}
			return Answer{TTL: time.Minute, Threats: []ThreatHash{isThreat("example.com/", Malware)}}, nil
		}}
		c := checkerOf(t, Config{Searcher: srv}, "example.com/")
		candidates := suspect(t, c, "example.com.")
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		want := Decision{Verdict: Unsure, By: ByTimeout, List: "list", Err: context.DeadlineExceeded}
		if got := c.Confirm(candidates, nil).Wait(ctx); got != want || time.Since(begin) != 400*time.Millisecond {
			t.Errorf("%+v after %v, want %+v after 400ms", got, time.Since(begin), want)
		}
		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		if got := decide(t, c, "example.com."); got.Verdict != Unsafe || got.By != ByCache {
			t.Errorf("later: %+v, want unsafe by cache", got)
		}
	})
}

func TestFailedSearchesAreUnsureAndNotCached(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want Decider
	}{
		{"back-off", ErrBackoff, ByBackoff},
		{"wrapped back-off", fmt.Errorf("searching: %w", ErrBackoff), ByBackoff},
		{"limited", fmt.Errorf("searching: %w", ErrLimited), ByLimiter},
		{"budget", fmt.Errorf("searching: %w", ErrBudget), ByBudget},
		{"deadline", fmt.Errorf("searching: %w", context.DeadlineExceeded), ByTimeout},
		{"cancelled", context.Canceled, ByError},
		{"closed", ErrClosed, ByError},
		{"anything else", errors.New("status 500"), ByError},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := &server{t: t}
			// What comes with an error counts for nothing.
			srv.always(Answer{TTL: time.Hour, Threats: []ThreatHash{isThreat("example.com/", Malware)}}, tt.err)
			c := checkerOf(t, Config{Searcher: srv}, "example.com/", "www.example.com/")
			want := Decision{Verdict: Unsure, By: tt.want, List: "list", Err: tt.err}
			for n := 1; n <= 2; n++ {
				if got := decide(t, c, "www.example.com."); got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
				if got := len(srv.searches()); got != n {
					t.Errorf("%d searches, want %d", got, n)
				}
			}
			srv.knows(time.Hour)
			if got := decide(t, c, "www.example.com."); got != (Decision{By: ByServer}) {
				t.Errorf("when the server is back: %+v, want safe by server", got)
			}
		})
	}
}

func TestSearchesEndWithTheirTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{0, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			srv := &server{t: t, OnSearch: func(ctx context.Context, _ []Prefix) (Answer, error) {
				<-ctx.Done()
				return Answer{}, fmt.Errorf("searching: %w", ctx.Err())
			}}
			c := checkerOf(t, Config{Searcher: srv, Timeout: timeout}, "example.com/")
			begin := time.Now()
			got := decide(t, c, "example.com.")
			if got.Verdict != Unsure || got.By != ByTimeout {
				t.Errorf("%+v, want unsure by time-out", got)
			}
			want := timeout
			if want == 0 {
				want = 10 * time.Second
			}
			if time.Since(begin) != want {
				t.Errorf("after %v, want %v", time.Since(begin), want)
			}
		})
	}
}

func TestPanicOfASearcherIsAnError(t *testing.T) {
	srv := &server{t: t}
	srv.OnSearch = func(context.Context, []Prefix) (Answer, error) { panic("broken") }
	c := checkerOf(t, Config{Searcher: srv, Searches: 1}, "example.com/")
	for range 3 { // its slot is free again
		got := decide(t, c, "example.com.")
		if got.Verdict != Unsure || got.By != ByError || got.Err == nil {
			t.Errorf("%+v, want unsure by error", got)
		}
	}
}

func TestCloseEndsAndAwaitsSearches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t, OnSearch: func(ctx context.Context, _ []Prefix) (Answer, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // takes its time to leave
			return Answer{}, ctx.Err()
		}}
		c := checkerOf(t, Config{Searcher: srv, Searches: 1, Timeout: time.Hour}, manyExpressed(3)...)
		late := suspect(t, c, named(2))
		waiting := []*Confirmation{
			c.Confirm(suspect(t, c, named(0)), nil),
			c.Confirm(suspect(t, c, named(1)), nil), // has no slot
		}
		time.Sleep(time.Minute)
		begin := time.Now()
		c.Close()
		if got := time.Since(begin); got != time.Second {
			t.Errorf("Close took %v, want the second that the search needs to end", got)
		}
		for i, want := range []error{context.Canceled, ErrClosed} {
			got := waiting[i].Wait(t.Context())
			if got.Verdict != Unsure || got.By != ByError || !errors.Is(got.Err, want) {
				t.Errorf("confirmation %d: %+v, want unsure by error, for %v", i, got, want)
			}
		}
		want := Decision{Verdict: Unsure, By: ByError, List: "list", Err: ErrClosed}
		for i, candidates := range []*Candidates{late, suspect(t, c, named(0)), suspect(t, c, named(1))} {
			if got := c.Confirm(candidates, nil).Wait(t.Context()); got != want {
				t.Errorf("confirmation %d after Close: %+v, want %+v", i, got, want)
			}
		}
		if n := len(srv.searches()); n != 1 {
			t.Errorf("%d searches, want 1", n)
		}
	})
}

// TestNoPrefixIsAskedTwiceWhileFresh leaves the judgement to the server.
func TestNoPrefixIsAskedTwiceWhileFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t, OnSearch: func(_ context.Context, prefixes []Prefix) (Answer, error) {
			time.Sleep(50 * time.Millisecond)
			answer := Answer{TTL: 5 * time.Minute}
			if slices.Contains(prefixes, prefixOf(3)) {
				answer.Threats = []ThreatHash{isThreat(expressed(3), Malware)}
			}
			return answer, nil
		}}
		c := checkerOf(t, Config{Searcher: srv, Searches: 2}, manyExpressed(20)...)
		early := suspect(t, c, named(3)) // checked before the answer came, confirmed after
		var wg sync.WaitGroup
		for worker := range 10 {
			wg.Go(func() {
				for i := range 2_000 {
					decide(t, c, named((i*7+worker)%20))
					time.Sleep(time.Duration(worker+1) * 37 * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		n := len(srv.searches())
		if got := c.Confirm(early, nil).Wait(t.Context()); got.Verdict != Unsafe || len(srv.searches()) != n {
			t.Errorf("%+v after %d further searches, want unsafe after none", got, len(srv.searches())-n)
		}
		wg.Wait()
		if n := len(srv.searches()); n < 20/MaxPrefixes+2 {
			t.Errorf("%d searches: the answers never expired", n)
		}
	})
}

// TestCheckingConfirmingAndPublishingAtOnce is for the race detector.
func TestCheckingConfirmingAndPublishingAtOnce(t *testing.T) {
	const hosts = 50
	srv := &server{t: t, OnSearch: func(_ context.Context, prefixes []Prefix) (Answer, error) {
		var answer Answer // used once: the next query asks again
		for i := range hosts {
			if i%2 == 0 && slices.Contains(prefixes, prefixOf(i)) {
				answer.Threats = append(answer.Threats, isThreat(expressed(i), Malware))
			}
		}
		if prefixes[0][0]%2 == 0 {
			answer.TTL = time.Nanosecond
			for i := range answer.Threats {
				answer.Threats[i].TTL = time.Nanosecond
			}
		}
		return answer, nil
	}}
	database := new(Database)
	snapshots := [][]List{nil, {listOf("a", manyExpressed(hosts)...)}, {listOf("b", manyExpressed(hosts/2)...), listOf("c", "x/")}}
	c := checkerOf(t, Config{Database: database, Searcher: searchFunc(srv.OnSearch), Searches: 2, Cache: 10})

	stop := make(chan struct{})
	var publisher, workers sync.WaitGroup
	publisher.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				database.Publish(snapshots[i%len(snapshots)])
			}
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
	close(stop)
	publisher.Wait()
}

// If several candidates cannot be confirmed, the gravest decision counts: whether the
// name is answered SERVFAIL depends on whether a list holds one of them.
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
		if want := (Decision{Verdict: Unsure, By: ByError, List: "list", Err: broken}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}
