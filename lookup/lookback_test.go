package lookup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// remembering is a Checker without the names that p has, whose server knows threats.
func remembering(t *testing.T, cfg Config, threats ...ThreatHash) (*Checker, *Passed, *server) {
	srv := &server{t: t}
	srv.knows(5*time.Minute, threats...)
	cfg.Searcher = srv
	return checkerOf(t, cfg, "unrelated.example/"), NewPassed(64<<10, 24*time.Hour, nil), srv
}

// list publishes the list again, with expressions.
func (c *Checker) list(expressions ...string) {
	c.cfg.Database.Publish([]List{listOf("list", append(expressions, "unrelated.example/")...)})
}

func (c *Checker) wantLate(t *testing.T, p *Passed, want ...string) {
	t.Helper()
	late, err := c.LookBack(t.Context(), p, nil)
	var got []string
	for _, l := range late {
		got = append(got, fmt.Sprintf("%s %s %s", l.Asked.UTC().Format("15:04"), l.List, l.Threat))
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestANameThatIsListedLaterIsFoundOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it begins at midnight, 2000-01-01 UTC
		c, p, srv := remembering(t, Config{}, isThreat("evil.example/", SocialEngineering), isThreat("b.c.d.deep.example/", Malware))
		time.Sleep(4 * time.Minute)
		first, _ := p.Note(device1, FromQname("www.evil.example."), RuleV5)
		time.Sleep(2 * time.Minute)
		other := otherDevice(p)
		p.Note(other, FromQname("evil.example."), RuleV5)
		p.Note(other, FromQname("clean.example."), RuleV5)
		p.Note(other, FromQname("x.a.b.c.d.deep.example."), RuleV5) // its fifth expression is in a second record
		c.wantLate(t, p)
		time.Sleep(4 * time.Minute)
		c.list("evil.example/", "clean.example/")
		late, err := c.LookBack(t.Context(), p, nil)
		if err != nil || len(late) != 2 || late[0].Client == late[1].Client {
			t.Fatalf("%+v, %v", late, err)
		}
		got := []any{late[0].Pair, late[0].Hash, late[1].Threat, late[0].Asked.UTC().Minute()}
		testkit.Equal(t, "pair, hash, threat, minute", got, []any{first, HashExpression("evil.example/"), SocialEngineering, 4})
		testkit.Equal(t, "searches, prefixes", []int{len(srv.searches()), len(slices.Concat(srv.searches()...))}, []int{1, 2})
		c.list("evil.example/", "clean.example/", "b.c.d.deep.example/")
		c.wantLate(t, p, "00:06 list malware")
		time.Sleep(time.Hour)
		c.list("evil.example/", "clean.example/", "b.c.d.deep.example/", "another.example/")
		c.wantLate(t, p)
		testkit.Equal(t, "searches about what has no answer", len(srv.searches()), 2)
	})
}

// In mode realtime the server is asked before a list has the name. What it says then is no answer to what the list says later.
func TestAnAnswerFromBeforeTheListingSettlesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, srv := remembering(t, Config{Mode: RealTime})
		oneAnswer(t, c, "evil.example/")
		p.Note(device1, FromQname("evil.example."), RuleV5)
		srv.knows(5*time.Minute, isThreat("evil.example/", SocialEngineering))
		c.list("evil.example/")
		c.wantLate(t, p)
		time.Sleep(6 * time.Minute)
		c.wantLate(t, p, "00:00 list social engineering")
	})
}

// The server answers about each expression of a name: the name itself is no threat, its domain may be one.
func TestEachExpressionOfANameIsSettledOnce(t *testing.T) {
	for _, threats := range [][]ThreatHash{nil, {isThreat("evil.example/", Malware)}} {
		inBubble(t, fmt.Sprint(len(threats)), func(t *testing.T) {
			c, p, srv := remembering(t, Config{}, threats...)
			p.Note(device1, FromQname("s2.evil.example."), RuleV5) // its prefix comes before its domain's
			c.list("s2.evil.example/", "evil.example/")
			late, err := c.LookBack(t.Context(), p, nil)
			testkit.Equal(t, "late names, and an error", []any{len(late), err}, []any{len(threats), nil})
			time.Sleep(time.Hour)
			c.list("s2.evil.example/", "evil.example/", "another.example/")
			c.wantLate(t, p)
			testkit.Equal(t, "searches about what has no answer", len(srv.searches()), 1)
		})
	}
}

// Who asked for a host is told by all bits of its record: not for a name above or below it, also where that has two records.
func TestWhoAskedForAHostIsKnownUntilItIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPassed(8<<20, 2*time.Hour, nil) // 10,000 names overfill no bucket
		first, _ := p.Note(device1, FromQname("www.example.org."), RuleV5)
		time.Sleep(10 * time.Minute)
		p.Note(otherDevice(p), FromQname("www.example.org."), RuleV5)
		p.Note(device1, FromQname("www.example.org."), RuleV5) // again
		p.Note(device1, FromQname("x.a.b.c.d.deep.example."), RuleV5)
		for i := range 10_000 {
			p.Note(device1, FromQname(fmt.Sprintf("n%d.example.org.", i)), RuleV5)
		}
		asked := func(name string) []Late { return p.Asked(FromQname(name), RuleV5) }
		all := asked("www.example.org.")
		if len(all) != 2 || all[0].Client == all[1].Client || all[0].Pair != first {
			t.Fatalf("Expected two clients, got %+v", all)
		}
		testkit.Equal(t, "minutes", []int{all[0].Asked.UTC().Minute(), all[1].Asked.UTC().Minute()}, []int{0, 10})
		for _, name := range []string{"example.org.", "a.www.example.org.", "ww.example.org.", "d.deep.example.", "c.d.deep.example.", "b.c.d.deep.example.", "deep.example."} {
			testkit.Equal(t, name, len(asked(name)), 0)
		}
		testkit.Equal(t, "a name with two records", len(asked("x.a.b.c.d.deep.example.")), 1)
		time.Sleep(2*time.Hour - 9*time.Minute)
		testkit.Equal(t, "when the first one is forgotten", len(asked("www.example.org.")), 1)
		before := p.Len()
		p.Forget()
		testkit.Equal(t, "records that are left", p.Len(), before-1)
	})
}

// The server confirms that something begins with the prefix. The name that was asked for does not.
func TestANameThatOnlySharesAPrefixIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, srv := remembering(t, Config{})
		p.Note(device1, FromQname("clean.example."), RuleV5)
		other := ThreatHash{Hash: HashExpression("clean.example/"), Threats: AllThreats}
		reported := 0
		for i := range 64 { // hashes with its prefix
			other.Hash[20], other.Hash[9] = byte(i), byte(i+1)
			srv.knows(0, other)
			c.list("clean.example/")
			p.Note(device1, FromQname("clean.example."), RuleV5)
			late, err := c.LookBack(t.Context(), p, nil)
			testkit.Must(t, err)
			reported += len(late)
			p = NewPassed(1, time.Hour, nil) // with other keys
			p.Note(device1, FromQname("clean.example."), RuleV5)
		}
		testkit.Between(t, "names of 64 that share a prefix and are reported, where 0.06 are expected", reported, 0, 5)
		testkit.Equal(t, "searches", len(srv.searches()), 64)
	})
}

func TestWhatIsNotConfirmedIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, srv := remembering(t, Config{})
		p.Note(device1, FromQname("evil.example."), RuleV5)
		c.list("evil.example/")
		for _, trouble := range []error{ErrBackoff, ErrBudget, errors.New("no answer")} {
			srv.always(Answer{}, trouble)
			before := len(srv.searches())
			late, err := c.LookBack(t.Context(), p, nil)
			testkit.Is(t, fmt.Sprint(late), err, trouble)
			testkit.Equal(t, "late names", len(late), 0)
			for range 11 { // not within a minute
				time.Sleep(5 * time.Second)
				c.wantLate(t, p)
			}
			testkit.Equal(t, "searches in a minute", len(srv.searches())-before, 1)
			time.Sleep(10 * time.Second)
		}
		_, err := c.LookBack(t.Context(), p, shareSpent)
		testkit.Is(t, "what is not admitted", err, ErrShare)
		time.Sleep(time.Minute)
		srv.knows(time.Minute, isThreat("evil.example/", SocialEngineering))
		c.wantLate(t, p, "00:00 list social engineering")
	})
}

// A name that passed because the server did not answer in time is in the list already.
func TestANameThatCouldNotBeConfirmedIsLookedAtSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, _ := remembering(t, Config{}, isThreat("evil.example/", Malware))
		c.list("evil.example/")
		c.wantLate(t, p)
		time.Sleep(time.Second)
		p.Note(device1, FromQname("evil.example."), RuleV5)
		p.LookSoon()
		c.wantLate(t, p)
		time.Sleep(time.Minute)
		c.wantLate(t, p, "00:00 list malware")
	})
}

// Look-back comes after all queries that wait, and while it waits it holds nobody up.
func TestLookBackComesAfterQueriesThatWait(t *testing.T) {
	for _, searches := range []int{1, 16} {
		inBubble(t, fmt.Sprint(searches), func(t *testing.T) {
			c, p, srv := remembering(t, Config{Searches: searches, PerSearch: 1})
			srv.OnSearch = slowly(time.Second, Answer{TTL: time.Minute})
			p.Note(device1, FromQname("late.example."), RuleV5)
			c.list(append(manyExpressed(60), "late.example/")...)
			for i := range 38 {
				c.Confirm(suspect(t, c, named(i)), nil)
			}
			done := make(chan error)
			go func() {
				_, err := c.LookBack(t.Context(), p, nil)
				done <- err
			}()
			time.Sleep(time.Millisecond)
			for i := range 10 { // these come after look-back has begun to wait
				c.Confirm(suspect(t, c, named(38+i)), nil)
			}
			err, late := <-done, []Prefix{HashExpression("late.example/").Prefix(4)}
			asked := slices.IndexFunc(srv.searches(), func(prefixes []Prefix) bool { return slices.Equal(prefixes, late) })
			if searches == 1 { // for half a minute there was no time without a query that waits
				testkit.Equal(t, "the number of the search", asked, -1)
			} else { // after three rounds of 16: searches of one moment have no order
				testkit.Equal(t, "the number of the search", []any{asked, err}, []any{48, nil})
			}
			time.Sleep(time.Minute)
		})
	}
}

// A query for the name that look-back asks about shares its search.
func TestAQuerySharesASearchOfLookBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, srv := remembering(t, Config{})
		srv.OnSearch = slowly(time.Second, Answer{TTL: time.Minute, Threats: []ThreatHash{isThreat("evil.example/", Malware)}})
		p.Note(device1, FromQname("evil.example."), RuleV5)
		c.list("evil.example/")
		go c.LookBack(t.Context(), p, nil)
		time.Sleep(100 * time.Millisecond)
		c.wantLate(t, p) // one at a time
		testkit.Equal(t, "verdict and searches", []any{decide(t, c, "evil.example.").Verdict, len(srv.searches())}, []any{Unsafe, 1})
		time.Sleep(time.Second)
	})
}

// Lists of one's own server may hold longer prefixes, and version 4 mixes them.
func TestLookBackKnowsPrefixesOfAllLengths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, width := range []int{4, 5, 8, 16, 32} {
			for _, asStored := range []bool{false, true} {
				c, p, _ := remembering(t, Config{AsStored: asStored}, isThreat("evil.example/", Malware))
				p.Note(0, FromQname("www.evil.example."), RuleV5)
				hash := HashExpression("evil.example/")
				c.cfg.Database.Publish([]List{{Name: "list", Set: setOf([][]byte{hash[:width]})}})
				c.wantLate(t, p, "00:00 list malware")
			}
		}
	})
}

const device1, device2 = uint64(0x9e3779b97f4a7c15), uint64(0x61c8864680b583eb)

// otherDevice returns a client that p tells from device1: one in 262,144 has the same bits by chance.
func otherDevice(p *Passed) uint64 {
	other := device2
	for p.device(other) == p.device(device1) {
		other++
	}
	return other
}

func TestARecordHas24Bytes(t *testing.T) {
	testkit.Equal(t, "bytes of a bucket of 8 records", 3*unsafe.Sizeof(eight{}), 8*passedBytes)
	testkit.Between(t, "records in 4 MiB", 8*len(NewPassed(4<<20, time.Hour, nil).pair), 174_000, 4<<20/passedBytes)
	NewPassed(1, time.Hour, nil).Note(device1, FromQname("www.example.com."), RuleV5) // has one bucket
}

func TestAPairIsRememberedOnce(t *testing.T) {
	p := NewPassed(64<<10, time.Hour, nil)
	seen := make(map[Pair]bool)
	for _, client := range []uint64{device1, device2, 0} {
		for _, name := range []string{"www.example.com.", "example.com.", "com.", "a.b.c.d.example.com.", "a.b.c.d.e.f.g.example.com."} {
			pair, added := p.Note(client, FromQname(name), RuleV5)
			if !added || seen[pair] {
				t.Errorf("%x, %s: new %v, pair %x", client, name, added, pair)
			}
			seen[pair] = true
			_, again := p.Note(client, FromQname(name), RuleV5)
			testkit.Equal(t, name+" is remembered again", again, false)
		}
	}
	testkit.Equal(t, "records: each name has one, with more than three expressions two", p.Len(), 3*(3+2*2))
	_, added := p.Note(device1, Host{}, RuleV5)
	testkit.Equal(t, "a host without a name is remembered", added, false)
	again := func() { p.Note(device1, FromQname("www.example.com."), RuleV5) }
	testkit.Equal(t, "allocations for a pair that is there", testing.AllocsPerRun(100, again), 0)
}

// The oldest in its bucket goes, so with one bucket the eight last ones stay.
func TestTheOldestIsForgottenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPassed(1, time.Hour, nil)
		for i := range 20 {
			_, added := p.Note(device1, FromQname(named(i)), RuleV5)
			testkit.Equal(t, i, added, true)
			time.Sleep(time.Minute)
		}
		for i := range 8 {
			_, added := p.Note(device1, FromQname(named(12+i)), RuleV5)
			testkit.Equal(t, fmt.Sprint(12+i, " of 20 is new again"), added, false)
		}
	})
}

// A router asks for names before its clock is set. A machine may be suspended, and has another clock for that.
func TestMinutesAreThoseThatPassWhateverTheClockShows(t *testing.T) {
	const hour, days = time.Hour, 72 * time.Hour
	for _, test := range []struct {
		after     time.Duration // by the monotonic clock
		suspended time.Duration
		set       time.Duration // the wall clock
		kept      bool
	}{
		{30 * time.Minute, 0, 0, true}, {30 * time.Minute, 0, days, true}, {30 * time.Minute, 0, -days, true},
		{62 * time.Minute, 0, 0, false}, {62 * time.Minute, 0, days, false}, {62 * time.Minute, 0, -days, false},
		{30 * time.Minute, 20 * time.Minute, 20 * time.Minute, true}, {30 * time.Minute, hour, hour, false},
		{30 * time.Minute, hour, -days, false},
	} {
		booted := 5 * hour
		p := NewPassed(64<<10, hour, func() time.Duration { return booted })
		begun, host := time.Now(), FromQname("evil.example.")
		p.Note(device1, host, RuleV5)
		booted += test.after + test.suspended
		now := testkit.ClockSet(begun.Add(test.after), test.set)
		found, _ := p.listed(func(uint32) bool { return true }, now, 10)
		testkit.Equal(t, test, p.Len() == 1, test.kept)
		for _, one := range found {
			asked := now.Round(0).Add(-test.after - test.suspended)
			testkit.Between(t, fmt.Sprintf("%+v: told, after it was asked", test), one[0].Asked.Sub(asked).Abs(), 0, 2*time.Minute-1)
		}
	}
}

// A reader sees a record that is being replaced as another one, or as none: not as one that was asked for.
func TestNotingFromManyGoroutines(t *testing.T) {
	p := NewPassed(8<<10, time.Hour, nil)
	c := checkerOf(t, Config{}, manyExpressed(50)...)
	var wg sync.WaitGroup
	for worker := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(worker, 1))
			for range 5_000 {
				p.Note(device1, FromQname(named(r.IntN(2_000))), RuleV5)
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			c.wantLate(t, p)
			p.lookedAt, p.looked = time.Time{}, nil
		}
	})
	wg.Wait()
	testkit.Between(t, "records", p.Len(), 8*len(p.pair)*9/10, 8*len(p.pair))
}

// BenchmarkNote prints what a query costs more, and how many bytes a pair of a household's day takes.
func BenchmarkNote(b *testing.B) {
	hosts := benchHosts()
	run := func(name string, pairs int, note func(p *Passed, i int)) {
		b.Run(name, func(b *testing.B) {
			p := NewPassed(4<<20, 24*time.Hour, nil)
			for _, h := range hosts[:pairs] {
				p.Note(device1, h, RuleV5)
			}
			b.ReportMetric(float64(p.Len()*passedBytes)/float64(max(1, pairs)), "B/pair")
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				note(p, i)
				i++
			}
		})
	}
	run("remembered", 1, func(p *Passed, _ int) { p.Note(device1, hosts[0], RuleV5) })
	run("remembered, 10,000 pairs", 10_000, func(p *Passed, i int) { p.Note(device1, hosts[i%10_000], RuleV5) })
	run("new", 0, func(p *Passed, i int) { p.Note(1+uint64(i>>8)*device1, hosts[i%len(hosts)], RuleV5) })
	lists, now := benchLists(4_000_000), time.Now()
	run("look-back, 10,000 pairs, 4M entries", 10_000, func(p *Passed, _ int) {
		found, _ := p.listed(holdsPrefix(lists), now, 10_000)
		benchFound = len(found) > 0
	})
}
