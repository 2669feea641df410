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
			what := fmt.Sprintf("%v, %d prefixes a search: ", tt.err, perSearch)
			srv := &server{t: t}
			srv.always(Answer{TTL: time.Hour, Threats: []ThreatHash{isThreat("example.com/", Malware)}}, tt.err)
			c := checkerOf(t, Config{Searcher: srv, PerSearch: perSearch}, "example.com/", "www.example.com/")
			var a account
			for range 2 {
				got := c.Confirm(suspect(t, c, "www.example.com."), a.admit).Wait(t.Context())
				testkit.Equal(t, what+"decided", got, Decision{Verdict: Unsure, By: tt.by, List: "list", Err: tt.err})
			}
			sent := len(srv.searches())
			srv.knows(time.Hour)
			testkit.Equal(t, what+"when the server is back", decide(t, c, "www.example.com."), Decision{By: ByServer})
			c.Close() // the refund comes with the end
			want := account{charged: map[bool]int{true: 4, false: 2}[perSearch == 1]}
			if tt.unsent {
				want.refunded = want.charged
			}
			testkit.Equal(t, what+"searches, and what is charged and refunded", []any{sent, a}, []any{want.charged, want})
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

// Limited says what Wait says if no search is admitted.
func TestLimitedCandidatesAreThoseOfWhichNoneIsAdmitted(t *testing.T) {
	for _, tt := range []struct {
		name    string
		lists   []List
		verdict Verdict
		list    string
	}{
		{"the host is in a list", []List{listOf("host", "www.example.com/")}, Unsure, "host"},
		{"its domain is", []List{listOf("domain", "example.com/")}, Unsure, "domain"},
		{"both are, in two lists", []List{listOf("domain", "example.com/"), listOf("host", "www.example.com/")}, Unsure, "host"},
		{"none is", []List{listOf("list", "other.example/")}, Safe, ""},
	} {
		c := checkerOf(t, Config{Mode: NoStorage, Database: databaseOf(tt.lists...)})
		candidates := suspect(t, c, "www.example.com.")
		refuse := func() (func(), error) { return nil, ErrLimited }
		got := []Decision{candidates.Limited(), c.Confirm(candidates, refuse).Wait(t.Context())}
		want := Decision{Verdict: tt.verdict, By: ByLimiter, List: tt.list, Err: ErrLimited}
		testkit.Equal(t, tt.name, got, []Decision{want, want})
	}
}

// The exact host comes first. A name and its subdomains have the prefix of the shortest listed expression in common.
func TestFirstAndShortestOfTheCandidates(t *testing.T) {
	c := checkerOf(t, Config{Database: databaseOf(listOf("domain", "example.com/"), listOf("host", "a.example.com/", "b.a.example.com/"))})
	shortest := HashExpression("example.com/").Prefix(4)
	for name, want := range map[string][2]string{
		"a.example.com.": {"host", "a.example.com/"}, "b.a.example.com.": {"host", "b.a.example.com/"},
		"example.com.": {"domain", "example.com/"}, "other.example.com.": {"domain", "example.com/"},
	} {
		candidates := suspect(t, c, name)
		list, expression := candidates.First()
		testkit.Equal(t, name, []any{list, expression, candidates.Shortest()}, []any{want[0], want[1], shortest})
	}
}

// storedAs returns a list of prefixes of the hash of an expression, of the widths.
func storedAs(t testing.TB, name, expression string, widths ...int) List {
	t.Helper()
	hash := HashExpression(expression)
	var entries [][]byte
	for _, width := range widths {
		entries = append(entries, hash[:width])
	}
	return List{Name: name, Set: setOf(entries)}
}

func TestPrefixesAreAskedAsTheyAreStored(t *testing.T) {
	const host = "example.com/"
	likelySafe := storedAs(t, "safe", host, 4)
	likelySafe.LikelySafe = true
	for _, tt := range []struct {
		name  string
		lists []List
		first string // the list in the decision; "": none, in a mode that asks about every host
		size  int    // bytes of the prefix that is sent with AsStored
	}{
		{"in no list", []List{storedAs(t, "a", "example.net/", 8)}, "", 4},
		{"four bytes", []List{storedAs(t, "a", host, 4)}, "a", 4},
		{"five bytes", []List{storedAs(t, "a", host, 5)}, "a", 5},
		{"a whole hash", []List{storedAs(t, "a", host, 32)}, "a", 32},
		{"the shortest of a list", []List{storedAs(t, "a", host, 6, 8, 32)}, "a", 6},
		{"the shortest of two lists, in the first", []List{storedAs(t, "a", host, 5, 16), storedAs(t, "b", host, 8)}, "a", 5},
		{"the shortest of two lists, in the second", []List{storedAs(t, "a", host, 16), storedAs(t, "b", host, 7, 32)}, "a", 7},
		{"another list that does not match", []List{storedAs(t, "a", "example.net/", 4), storedAs(t, "b", host, 9)}, "b", 9},
		{"a list of likely safe ones does not count", []List{likelySafe, storedAs(t, "b", host, 10)}, "b", 10},
	} {
		for asStored, size := range map[bool]int{false: 4, true: tt.size} {
			srv := &server{t: t}
			srv.knows(time.Hour, isThreat(host, Malware))
			mode := map[bool]Mode{true: NoStorage, false: Local}[tt.first == ""]
			c := checkerOf(t, Config{Database: databaseOf(tt.lists...), Searcher: srv, AsStored: asStored, Mode: mode})
			got := decide(t, c, "example.com.")
			testkit.Equal(t, tt.name+": verdict and list", []any{got.Verdict, got.List}, []any{Unsafe, tt.first})
			want := [][]Prefix{{HashExpression(host).Prefix(size)}}
			testkit.Equal(t, fmt.Sprint(tt.name, ", as stored ", asStored, ": asked about"), srv.searches(), want)
		}
	}
}

func TestMoreThanMaxFilteredPrefixesAreJoined(t *testing.T) {
	lists := func() []List {
		return []List{listOf("a", "a.example/", "b.example/"), listOf("b", "b.example/", "c.example/"),
			{Name: "safe", Set: listOf("safe", "d.example/").Set, LikelySafe: true}}
	}
	for _, test := range []struct {
		name        string
		maxFiltered int
		lists       []List
		joined      bool
	}{
		{"none has a filter", -1, lists(), true},
		{"by default", 0, lists(), false},
		{"one more than have a filter", 3, lists(), true},
		{"as many as have a filter", 4, lists(), false},
		{"no list", -1, nil, false},
	} {
		d := &Database{MaxFiltered: test.maxFiltered}
		held := func() (all string) {
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				if d.snapshot().holdsAny([]FullHash{HashExpression(name + ".example/")}) {
					all += name
				}
			}
			return all
		}
		some := len(test.lists) > 0
		want := map[bool]string{true: "abc"}[some]
		testkit.Equal(t, test.name+": replaced, held", []any{d.PublishApart(test.lists), held()}, []any{false, want})
		testkit.Equal(t, test.name+": joined, held", []any{d.Join(), held()}, []any{test.joined, want})
		testkit.Equal(t, test.name+": replaced again", d.PublishApart(lists()), some)
	}
}

// Version 4 and Web Risk name each threat of a full hash in an entry of its own, version 5 all in one.
func TestWhichThreatsBlockAndHowTheyAreTold(t *testing.T) {
	const name, parent, half = "www.example.com/", "example.com/", 30 * time.Minute
	const se, mw, uws, pha = SocialEngineering, Malware, UnwantedSoftware, PotentiallyHarmfulApplication
	type hashes = []ThreatHash
	type threats = []Threat
	is := isThreat
	framed := func(expression string, threat Threat) ThreatHash {
		h := is(expression, threat)
		h.FrameOnly, h.TTL = true, time.Second
		return h
	}
	both := Threats(0).With(Malware).With(SocialEngineering)
	for _, tt := range []struct {
		name      string
		count     Threats // zero: all
		listed    []ThreatHash
		want      []Threat
		frameOnly bool
		lasts     time.Duration
	}{
		{"no full hash", both, nil, nil, false, 0},
		{"another full hash with the prefix", 0, hashes{{Hash: neighbour(HashExpression(name), 31), Threats: AllThreats}}, nil, false, 0},
		{"a full hash without a threat", 0, hashes{is(name)}, nil, false, 0},
		{"all count by default", 0, hashes{is(name, pha)}, threats{pha}, false, half},
		{"one that does not count", both, hashes{is(name, uws)}, nil, false, 0},
		{"one of two in one entry counts", both, hashes{is(name, uws, se)}, threats{se}, false, half},
		{"one of two in two entries counts", both, hashes{lasting(1, is(name, uws)), is(name, mw)}, threats{mw}, false, half},
		{"two in one entry", both, hashes{is(name, se, mw)}, threats{mw, se}, false, half},
		{"two entries, until the first ends", both, hashes{is(name, se), lasting(9, is(name, mw))}, threats{mw, se}, false, 9},
		{"marked FRAME_ONLY", both, hashes{framed(name, mw)}, threats{mw}, true, time.Second},
		{"marked, then not", both, hashes{framed(name, mw), is(name, se)}, threats{se}, false, half},
		{"not marked, then marked", both, hashes{is(name, se), framed(name, mw)}, threats{se}, false, half},
		{"a domain that is marked, of a name that is not", both, hashes{is(name, mw), framed(parent, mw)}, threats{mw}, false, half},
		{"a name that is marked, in a domain that is not", both, hashes{framed(name, mw), is(parent, mw)}, threats{mw}, true, time.Second},
		{"marked, besides one that does not count", both, hashes{is(name, uws), framed(name, mw)}, threats{mw}, true, time.Second},
		{"marked, and does not count", both, hashes{framed(name, uws)}, nil, false, 0},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			srv := &server{t: t}
			srv.knows(time.Hour, tt.listed...)
			c := checkerOf(t, Config{Searcher: srv, Threats: tt.count}, name, parent)
			for _, by := range []Decider{ByServer, ByCache} {
				got, want := decide(t, c, "www.example.com."), Decision{By: by}
				if tt.want != nil {
					want = Decision{Verdict: Unsafe, By: by, Threat: tt.want[0], List: "list", Expression: name}
					want.FrameOnly, want.Expires = tt.frameOnly, time.Now().Add(tt.lasts)
				}
				if want.Also = got.Also; got != want || !slices.Equal(got.Threats(), tt.want) {
					t.Errorf("got %+v, want %+v for %v", got, want, tt.want)
				}
			}
		})
	}
}

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
