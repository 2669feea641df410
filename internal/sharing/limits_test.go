package sharing

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// walled returns shares that let one client take n a day, and no more: the rest is reserved for others. 0: none.
func walled(n int) *lookup.Shares {
	if n == 0 {
		return nil
	}
	b := lookup.Budget{Day: 100 * n, Left: 100 * n, Hour: 100 * n, Now: 100 * n}
	s := lookup.NewShares(1, func(time.Time) (lookup.Budget, bool) { return b, true }, nil)
	var past []lookup.Use
	for _, date := range []time.Time{time.Now().AddDate(0, 0, -1), time.Date(2026, 11, 21, 0, 0, 0, 0, time.Local)} {
		past = append(past, lookup.Use{Date: date.Format(time.DateOnly), Clients: 2, Kept: 1 << 30})
	}
	s.Remember(past)
	return s
}

// admitAt is admit with the clock ARGV[8] and ARGV[9], in seconds and microseconds. What it keeps must not expire by Redis's clock.
var admitAt = NewScript(strings.NewReplacer("redis.call('TIME')", "{ARGV[8], ARGV[9]}", "save())", "save() + 3600000)").Replace(admitText))

// The script decides as lookup does, about any sequence. Its clock is set by the test.
func TestTheScriptDecidesAsLookup(t *testing.T) {
	t.Parallel()
	c := openRedis(t, testkit.StartRedis(t).URL())
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, seed))
	decisions := make(map[string]int)
	for sequence := range 120 {
		bucket := lookup.LeakyBucket{Rate: []float64{0.1, 1, 3, 20}[rng.IntN(4)], Capacity: []float64{1, 5, 20.5}[rng.IntN(3)]}
		rule := Rule{Bucket: bucket}
		if sequence%2 == 1 {
			rule.EMA.Threshold = []float64{0.1, 0.5, 1, 3}[rng.IntN(4)]
		}
		perClient := []int{0, 1, 10, 1000}[rng.IntN(4)]
		shares := walled(perClient)
		now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.Local)
		limiter := rule.Limiter()
		keys := []string{c.Key(fmt.Sprint("b", sequence)), c.Key(fmt.Sprint("s", sequence))}
		for step := range 40 {
			switch rng.IntN(5) {
			case 0: // at once
			case 1:
				now = now.Add(time.Duration(float64(time.Second) / bucket.Rate).Truncate(time.Microsecond)) // one leaks out, to the microsecond
			case 2:
				now = now.Add(-time.Second) // the clock is set back
			default:
				now = now.Add(time.Duration(rng.Int64N(int64(3 * time.Second))).Truncate(time.Microsecond))
			}
			n := 1 + rng.IntN(3)
			want, refused := decide(limiter, shares, now, n)
			v, err := c.Eval(t.Context(), "admit", admitAt, keys, fmt.Sprint(bucket.Rate), fmt.Sprint(bucket.Capacity), strconv.Itoa(n), strconv.Itoa(perClient), "100000", fmt.Sprint(rule.EMA.Threshold), "0",
				strconv.FormatInt(now.Unix(), 10), strconv.Itoa(now.Nanosecond()/1000))
			got, why, ok := admittedOf(v.Array())
			if err != nil || !ok || got != want || why != refused {
				t.Fatalf("Seed %d, sequence %d, step %d, %+v, share %d, %d searches: expected %d and %v, got %d and %v, %v", seed, sequence, step, rule, perClient, n, want, refused, got, why, err)
			}
			decisions[fmt.Sprint(rule.kind(), refused)]++
		}
	}
	for _, kind := range []string{"bucket:", "ema:"} {
		for _, why := range []error{nil, lookup.ErrLimited, lookup.ErrShare} {
			testkit.Between(t, fmt.Sprint("decisions of ", kind, why), decisions[fmt.Sprint(kind, why)], 100, 120*40)
		}
	}
}

// A clock of Redis that is set back by an hour refuses a client that keeps asking for a minute more, not for that hour.
func TestABucketLeaksThoughTheClockOfRedisWasSetBack(t *testing.T) {
	t.Parallel()
	c := openRedis(t, testkit.StartRedis(t).URL())
	now := time.Now()
	var admitted []int
	for _, at := range []time.Duration{0, -time.Hour, -time.Hour + 90*time.Second} {
		unix := strconv.FormatInt(now.Add(at).Unix(), 10)
		v, err := c.Eval(t.Context(), "admit", admitAt, []string{c.Key("b"), c.Key("s")}, "1", "1", "1", "0", "100000", "0", "0", unix, "0")
		testkit.Must(t, err)
		n, _, _ := admittedOf(v.Array())
		admitted = append(admitted, n)
	}
	testkit.Equal(t, "admitted", admitted, []int{1, 0, 1})
}

// decide decides as lookup.AdmitBy, at a time of the test.
func decide(bucket lookup.Limiter, shares *lookup.Shares, now time.Time, n int) (admitted int, why error) {
	client := addr("192.0.2.1")
	for i := range n {
		if !bucket.Admit(client, now) {
			return i, lookup.ErrLimited
		}
		if shares != nil && !shares.Take(client, now) {
			return i, lookup.ErrShare
		}
	}
	return n, nil
}

// admits returns why one more search of a client is not admitted, or nil.
func (l *Limits) admits(client string) error {
	_, _, err := l.Admit(addr(client))(1)
	return err
}

// pairOf returns the limits of two relays on one Redis.
func pairOf(t *testing.T, s *testkit.Redis, rule Rule, perClient int) (one, two *Limits) {
	t.Helper()
	return NewLimits(openRedis(t, s.URL()), rule, walled(perClient)), NewLimits(openRedis(t, s.URL()), rule, walled(perClient))
}

func TestLimitsHoldOverAllRelays(t *testing.T) {
	t.Parallel()
	testkit.SameDay(t)
	s := testkit.StartRedis(t)
	slow := Rule{Bucket: lookup.LeakyBucket{Rate: 0.001, Capacity: 4}}
	for _, tt := range []struct {
		name   string
		rule   Rule
		shares int
		want   error
	}{
		{"the rate", slow, 0, lookup.ErrLimited},
		{"the share", Rule{}, 4, lookup.ErrShare},
		{"both", slow, 4, lookup.ErrLimited},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.Do("FLUSHALL")
			one, two := pairOf(t, s, tt.rule, tt.shares)
			for _, l := range []*Limits{one, two, one, two} {
				testkit.Must(t, l.admits("2001:db8::1"))
			}
			for _, l := range []*Limits{one, two} {
				testkit.Is(t, "a search of the same site", l.admits("2001:db8:0:ff::9"), tt.want)
				testkit.Must(t, l.admits("192.0.2.1"))
			}
		})
	}
	testkit.Equal(t, "no admission where there is no limit", NewLimits(nil, Rule{}, walled(0)).Admit(addr("192.0.2.1")) == nil, true)
}

func TestASearchThatIsNotSentIsGivenBackToAllRelays(t *testing.T) {
	t.Parallel()
	testkit.SameDay(t)
	s := testkit.StartRedis(t)
	one, two := pairOf(t, s, Rule{}, 2)
	_, refund, err := one.Admit(addr("192.0.2.1"))(2)
	testkit.Must(t, err)
	testkit.Is(t, "a third search", two.admits("192.0.2.1"), lookup.ErrShare)
	refund()
	testkit.Until(t, "one search more", func() bool { return two.admits("192.0.2.1") == nil })
	testkit.Is(t, "a second search more", two.admits("192.0.2.1"), lookup.ErrShare)
}

// Without Redis a relay continues from what it has admitted itself, and asks the server.
func TestWithoutRedisEachRelayHasItsOwnLimits(t *testing.T) {
	t.Parallel()
	testkit.SameDay(t)
	s := testkit.StartRedis(t)
	one, two := pairOf(t, s, Rule{}, 3)
	for _, l := range []*Limits{one, one, two} {
		testkit.Must(t, l.admits("192.0.2.1"))
	}
	s.Kill()
	admits := func(l *Limits) (n int) {
		for range 5 {
			if l.admits("192.0.2.1") == nil {
				n++
			}
		}
		return n
	}
	testkit.Equal(t, "searches more", [2]int{admits(one), admits(two)}, [2]int{1, 2})
	srv, bad := threatening(time.Minute)
	testkit.Equal(t, "threats of the server", len(search(t, NewAnswers(one.client, srv), bad).Threats), 1)
	srv.mustBeAsked(t, 1)
}

// BenchmarkAddedLatency prints what Redis adds to a request about a prefix that is not in the cache: its admission and its search, at
// a server that answers in no time. Requests come a millisecond after each other. Run it with -benchtime 5000x.
func BenchmarkAddedLatency(b *testing.B) {
	for _, state := range []struct {
		name  string
		delay time.Duration // of answers of Redis
		then  func(*testkit.Redis)
	}{
		{name: "none"}, {name: "alive"}, {name: "dead", then: (*testkit.Redis).Kill}, {name: "hangs", then: (*testkit.Redis).Stop},
		{name: "50ms late", delay: 50 * time.Millisecond},
	} {
		b.Run(state.name, func(b *testing.B) {
			var searcher lookup.Searcher = &server{answer: lookup.Answer{TTL: time.Minute}}
			own := lookup.AdmitBy(lookup.PerClient(lookup.LeakyBucket{Rate: 1e6, Capacity: 1e6}.Admit), walled(1e6), addr("192.0.2.1"))
			admit := own.All()
			if state.name != "none" {
				s := testkit.StartRedis(b)
				url := s.URL()
				if state.delay > 0 {
					url = "redis://" + late(b, s.Addr, state.delay)
				}
				c, w := open(b, url, func(c *Config) { c.Deadline = 0 }) // the relay's
				w.wait(b, 1)
				searcher = NewAnswers(c, searcher)
				admit = NewLimits(c, Rule{Bucket: lookup.LeakyBucket{Rate: 1e6, Capacity: 1e6}}, walled(1e6)).Admit(addr("192.0.2.1"))
				if state.then != nil {
					state.then(s)
				}
			}
			report(b, func(i int) {
				_, _, err := admit(1)
				testkit.Must(b, err)
				_, err = searcher.Search(b.Context(), []lookup.Prefix{lookup.Prefix("p" + strconv.Itoa(i))})
				testkit.Must(b, err)
			})
		})
	}
}

// report calls a function each millisecond and reports how long the calls took.
func report(b *testing.B, call func(i int)) {
	took := make([]time.Duration, 0, b.N)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := range b.N {
		<-tick.C
		begin := time.Now()
		call(i)
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	for name, part := range map[string]float64{"p50-µs": .5, "p99-µs": .99, "max-µs": 1} {
		b.ReportMetric(float64(took[int(part*float64(len(took)-1))].Nanoseconds())/1e3, name)
	}
}

// late returns the address of a proxy whose answers are late.
func late(b *testing.B, addr string, by time.Duration) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(b, err)
	b.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for client, err := l.Accept(); err == nil; client, err = l.Accept() {
			server, err := net.Dial("tcp", addr)
			if err != nil {
				client.Close()
				continue
			}
			go func() { _, _ = io.Copy(server, client); server.Close() }() // both end with a connection
			go func() { _, _ = io.Copy(lateWriter{client, by}, server); client.Close() }()
		}
	}()
	return l.Addr().String()
}

// lateWriter is a Writer that waits before it writes.
type lateWriter struct {
	io.Writer
	by time.Duration
}

func (w lateWriter) Write(p []byte) (int, error) {
	time.Sleep(w.by)
	return w.Writer.Write(p)
}
