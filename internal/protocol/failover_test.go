package protocol

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// fleet is several judging servers with the same content behind one Failover, which reaches them by the
// hosts "a", "b" …. It is their network, too.
type fleet struct {
	*Failover
	servers  []*protocoltest.Server
	searches atomic.Int32
	down     sync.Map // hosts that cannot be reached

	mu     sync.Mutex
	events []string // "a left for b", "a back"
}

func newFleet(t *testing.T, n int) *fleet {
	f := new(fleet)
	var urls []string
	var clients []Client
	for i := range n {
		s := protocoltest.New(t)
		s.OneOfMany()
		s.JudgeSearchBackoff(true)
		s.Publish("se-4b", [][]byte{[]byte("abcd")})
		s.Publish("mw-4b", [][]byte{[]byte("efgh")})
		f.servers = append(f.servers, s)
		urls = append(urls, "http://"+string(rune('a'+i)))
		clients = append(clients, clientOf(t, Config{Endpoint: urls[i], Key: testKey, Transport: f}))
	}
	f.Failover = NewFailover(urls, clients)
	t.Cleanup(f.Close)
	f.Report = func(e EndpointEvent) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if e.Err != nil && e.Until.Before(time.Now()) {
			t.Errorf("%s is left until %s, which has passed", e.Endpoint, e.Until)
		}
		event := e.Endpoint + " back"
		if e.Err != nil {
			event = e.Endpoint + " left for " + e.Instead
		}
		f.events = append(f.events, strings.ReplaceAll(event, "http://", ""))
	}
	return f
}

func (f *fleet) RoundTrip(r *http.Request) (*http.Response, error) {
	if down, _ := f.down.Load(r.URL.Host); down == true {
		return nil, errors.New("connection refused")
	}
	return f.servers[r.URL.Host[0]-'a'].RoundTrip(r)
}

// simulate runs a test in simulated time.
func simulate(t *testing.T, n int, run func(t *testing.T, f *fleet)) {
	synctest.Test(t, func(t *testing.T) { run(t, newFleet(t, n)) })
}

// search searches for a prefix that no search has asked for before, within a timeout.
func (f *fleet) search(t *testing.T, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := f.Search(ctx, []lookup.Prefix{lookup.Prefix(fmt.Sprintf("%04d", f.searches.Add(1)))})
	return err
}

func (f *fleet) fetch(t *testing.T, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	got := make([]*updater.Update, 2)
	_, err := f.Fetch(ctx, []updater.Want{{List: "se-4b"}, {List: "mw-4b"}}, func(i int, u *updater.Update) { got[i] = u })
	if err == nil && slices.Contains(got, nil) {
		t.Error("a list is missing")
	}
	return err
}

// asked returns how many requests each server has had.
func (f *fleet) asked() (n []int) {
	for _, s := range f.servers {
		n = append(n, len(s.Requests("")))
	}
	return n
}

func (f *fleet) want(t *testing.T, asked []int, events ...string) {
	t.Helper()
	testkit.Equal(t, "requests", f.asked(), asked)
	f.mu.Lock()
	defer f.mu.Unlock()
	testkit.Equal(t, "events", f.events, events)
}

func TestMain(m *testing.M) {
	testkit.SideBySide(8)
	m.Run()
}

// Whatever the first endpoint does, the request is answered by the next, within the deadline. The one after goes there directly.
func TestTheNextEndpointStandsInForOneThatFails(t *testing.T) {
	for name, fault := range map[string]protocoltest.Fault{
		"hangs":                  {Delay: time.Hour},
		"closes the connection":  {CloseConnection: true},
		"dies inside the answer": {CutBody: true},
		"garbage":                {Garbage: true},
		"page of a portal":       {WrongContentType: true},
		"redirect":               {Redirect: "http://192.0.2.1/"},
		"status 401":             {Status: 401},
		"status 403":             {Status: 403},
		"status 404":             {Status: 404},
		"status 408":             {Status: 408},
		"status 429":             {Status: 429},
		"status 500":             {Status: 500},
		"status 503":             {Status: 503, RetryAfter: time.Hour},
	} {
		for _, n := range []int{2, 3} {
			for method, ask := range map[string]func(*fleet, *testing.T, time.Duration) error{"search": (*fleet).search, "fetch": (*fleet).fetch} {
				t.Run(fmt.Sprintf("%s, %s, %d servers", name, method, n), func(t *testing.T) {
					simulate(t, n, func(t *testing.T, f *fleet) {
						for _, broken := range f.servers[:n-1] {
							broken.Break("", 9, fault)
						}
						testkit.Must(t, ask(f, t, 3*time.Second))
						want, events := []int{1, 1, 1}[:n], []string{"a left for b", "b left for c"}[:n-1]
						if n == 3 {
							events[0] = "a left for c"
						}
						f.want(t, want, events...)
						if method == "search" { // a second fetch would be too early
							testkit.Must(t, ask(f, t, 3*time.Second))
							want[n-1]++
							f.want(t, want, events...)
						}
					})
				})
			}
		}
	}
}

// All endpoints would refuse the request: asking them costs, and helps nobody.
func TestWhatIsWrongWithTheRequestIsAskedOnce(t *testing.T) {
	for _, status := range []int{400, 405, 413, 414, 431} {
		simulate(t, 2, func(t *testing.T, f *fleet) {
			f.servers[0].Break("", 1, protocoltest.Fault{Status: status})
			err := f.search(t, 10*time.Second)
			testkit.Equal(t, err, statusOf(err), status)
			testkit.WantStart(t, fmt.Sprint(err), "http://a: ")
			f.want(t, []int{1, 0})
		})
	}
}

func TestAShutdownIsNoFailureOfAnEndpoint(t *testing.T) {
	simulate(t, 2, func(t *testing.T, f *fleet) {
		f.servers[0].Break("search", 1, protocoltest.Fault{Delay: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		testkit.Is(t, "the search", searchOnce(ctx, f), context.Canceled)
		testkit.Must(t, f.search(t, time.Second))
		f.want(t, []int{2, 0})
	})
}

// An endpoint that is back is found by one search, not by all, and for that search it has a second. Then it is preferred again.
func TestOneSearchFindsOutWhetherAnEndpointIsBack(t *testing.T) {
	simulate(t, 3, func(t *testing.T, f *fleet) {
		f.down.Store("a", true)
		for range 10 {
			testkit.Must(t, f.search(t, 10*time.Second))
		}
		f.want(t, []int{0, 10, 0}, "a left for b")

		time.Sleep(2 * time.Minute) // it hangs now
		f.down.Store("a", false)
		f.servers[0].Break("search", 1, protocoltest.Fault{Delay: time.Hour})
		var wg sync.WaitGroup
		var slow atomic.Int64
		for range 20 {
			wg.Go(func() {
				begun := time.Now()
				testkit.Is(t, "one of many searches", f.search(t, 10*time.Second), nil)
				if took := time.Since(begun); took > 0 {
					slow.Add(1)
				}
			})
		}
		begun := time.Now()
		wg.Wait()
		testkit.Equal(t, "searches that took a while, and the longest", []any{slow.Load(), time.Since(begun)}, []any{int64(1), time.Second})
		f.want(t, []int{1, 30, 0}, "a left for b")

		time.Sleep(59 * time.Second)
		f.search(t, 10*time.Second)
		f.want(t, []int{1, 31, 0}, "a left for b")
		time.Sleep(61 * time.Second)
		f.search(t, 10*time.Second)
		f.search(t, 10*time.Second)
		f.want(t, []int{3, 31, 0}, "a left for b", "a back")
	})
}

// Relays that are restarted one after the other: the first is back, but still left alone, when the second goes down.
func TestAnEndpointThatIsLeftAloneIsAskedBeforeTheRequestFails(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault protocoltest.Fault
		want  bool
	}{
		{"was down", protocoltest.Fault{CloseConnection: true}, true},
		{"had a fault", protocoltest.Fault{Status: 500}, true},
		{"asked to wait", protocoltest.Fault{Status: 503, RetryAfter: 11 * time.Second}, false},
		{"refused", protocoltest.Fault{Status: 429}, false},
	} {
		simulate(t, 2, func(t *testing.T, f *fleet) {
			f.servers[0].Break("search", 1, tc.fault)
			f.search(t, 10*time.Second)
			time.Sleep(10 * time.Second)
			f.down.Store("b", true)
			testkit.Equal(t, tc.name+": a search is answered", f.search(t, 10*time.Second) == nil, tc.want)
		})
	}
}

// The caller's back-off follows the endpoint that may be asked again first.
func TestTheErrorOfAllNamesEachAndIsThatOfTheFirstToReturn(t *testing.T) {
	down := protocoltest.Fault{CloseConnection: true}
	for _, tc := range []struct {
		name          string
		first, second protocoltest.Fault
		fetch         bool
		status        int
		after         time.Duration
	}{
		{"both ask to wait", protocoltest.Fault{Status: 503, RetryAfter: time.Hour}, protocoltest.Fault{Status: 503, RetryAfter: time.Minute}, false, 503, time.Minute},
		{"the first does not", down, protocoltest.Fault{Status: 503, RetryAfter: time.Minute}, false, 0, 0},
		{"the second does not", protocoltest.Fault{Status: 503, RetryAfter: time.Minute}, down, false, 0, 0},
		{"both back off", down, protocoltest.Fault{Status: 503, RetryAfter: time.Hour}, true, 0, 15 * time.Minute},
		{"a refusal counts less than a fault", protocoltest.Fault{Status: 429}, protocoltest.Fault{Status: 500}, false, 500, 0},
		{"neither has a list", protocoltest.Fault{Status: 404}, protocoltest.Fault{Status: 404}, true, 404, 0},
		{"one does not have a list", down, protocoltest.Fault{Status: 404}, true, 404, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			simulate(t, 2, func(t *testing.T, f *fleet) {
				f.servers[0].Break("", 1, tc.first)
				f.servers[1].Break("", 1, tc.second)
				var answer lookup.Answer
				var err error
				if tc.fetch {
					answer.MinimumWait, err = f.Fetch(t.Context(), []updater.Want{{List: "se-4b"}, {List: "mw-4b"}}, nil)
				} else {
					answer, err = f.Search(t.Context(), []lookup.Prefix{zeroPrefix})
				}
				testkit.Equal(t, "status", statusOf(err), tc.status)
				testkit.Equal(t, "waits", []time.Duration{statusIn(err).RetryAfter, answer.MinimumWait}, []time.Duration{0, tc.after})
				testkit.WantError(t, err, "http://a: ", "; http://b: ")
				f.want(t, []int{1, 1}) // nobody stands in: the caller says that all fail
			})
		})
	}
}

// A list that no endpoint has does not keep the others from being fetched.
func TestAListThatNobodyHasLeavesTheOthersAlone(t *testing.T) {
	simulate(t, 2, func(t *testing.T, f *fleet) {
		for _, s := range f.servers {
			s.Break("get", 1, protocoltest.Fault{Status: 404})
			s.ActAsRelay()
		}
		_, err := fetch(t, f, updater.Want{List: "mw-4b"})
		testkit.Equal(t, err, statusOf(err), 404)
		testkit.Must(t, fetchOnce(t.Context(), f))
		f.want(t, []int{2, 1})
		_, err = fetch(t, f, updater.Want{List: "se-4b"}, updater.Want{List: "pha-4b"})
		testkit.Equal(t, "both lack a list of the batch, and the others need not wait", statusIn(err).LacksList, true)
	})
}

func TestARestIsOfTheKeyThatWasAskedWith(t *testing.T) {
	simulate(t, 2, func(t *testing.T, f *fleet) {
		f.servers[0].SetKey("NEW")
		testkit.Must(t, f.search(t, time.Second))
		f.servers[1].SetKey("NEW")
		testkit.WantError(t, f.search(t, time.Second)) // with the old key
		testkit.Is(t, "when both have refused", f.search(t, time.Second), lookup.ErrBackoff)
		f.want(t, []int{1, 2}, "a left for b")
		testkit.Must(t, f.SetKey("NEW"))
		testkit.WantError(t, f.SetKey("a b"))
		testkit.Must(t, f.search(t, time.Second))
		f.want(t, []int{2, 2}, "a left for b", "a back")
	})
}

// An answer to the old key that comes after the new one is in use says nothing about the new one.
func TestAFailureOfTheOldKeyIsNoRestOfTheNewOne(t *testing.T) {
	simulate(t, 2, func(t *testing.T, f *fleet) {
		for _, s := range f.servers {
			s.SetKey("NEW")
		}
		sent := time.Now()
		time.Sleep(time.Second)
		testkit.Must(t, f.SetKey("NEW"))
		for _, e := range f.endpoints {
			f.failed(searching, failures{{e, sent, 0, &updater.StatusError{Code: 403}}})
		}
		testkit.Must(t, f.search(t, time.Second))
		f.want(t, []int{1, 0})
	})
}

func TestListsOfOneEndpointThatAnswers(t *testing.T) {
	simulate(t, 2, func(t *testing.T, f *fleet) {
		f.down.Store("a", true)
		all, err := f.Lists(t.Context())
		testkit.Equal(t, err, len(all), 2)
		f.down.Store("b", true)
		testkit.WantError(t, toList(t.Context(), f), "http://b: ")
	})
}

func TestRestsFollowTheRules(t *testing.T) {
	status := func(code int, after time.Duration) error { return &updater.StatusError{Code: code, RetryAfter: after} }
	down := errors.New("connection refused")
	for _, tc := range []struct {
		name             string
		method           method
		errs             []error       // a day apart
		notBefore, until time.Duration // after the last failure
	}{
		{"fetch", fetching, []error{down}, 15 * time.Minute, 15 * time.Minute},
		{"third fetch", fetching, []error{down, down, down}, time.Hour, time.Hour},
		{"many fetches", fetching, slices.Repeat([]error{down}, 40), 24 * time.Hour, 24 * time.Hour},
		{"fetch with a long Retry-After", fetching, []error{status(503, 2*time.Hour)}, 2 * time.Hour, 2 * time.Hour},
		{"fetch with a short Retry-After", fetching, []error{status(503, time.Second)}, 15 * time.Minute, 15 * time.Minute},
		{"search", searching, []error{down}, 0, 90 * time.Second},
		{"many searches", searching, slices.Repeat([]error{down}, 40), 0, 90 * time.Second},
		{"search with a short Retry-After", searching, []error{status(503, time.Second)}, time.Second, 90 * time.Second},
		{"search with a long Retry-After", searching, []error{status(503, time.Hour)}, 30 * time.Minute, 30 * time.Minute},
		{"search with an endless Retry-After", searching, []error{status(429, 9999*time.Hour)}, 24 * time.Hour, 24 * time.Hour},
		{"search refused", searching, []error{status(429, 0)}, 15 * time.Minute, 15 * time.Minute},
		{"search refused twice, after other failures", searching, []error{down, down, status(403, 0), status(429, 0)}, 30 * time.Minute, 30 * time.Minute},
		{"searches under way together, refused", searching, slices.Repeat([]error{status(429, 0)}, 5), 15 * time.Minute, 15 * time.Minute},
		{"searches under way together, a longer wait before a shorter one", searching, []error{status(503, 20*time.Minute), status(503, time.Second)}, 20 * time.Minute, 20 * time.Minute},
	} {
		sent, now := time.Unix(1e9, 0), time.Unix(1e9+1, 0)
		var r rest
		for _, err := range tc.errs {
			if !strings.Contains(tc.name, "together") {
				sent, now = sent.AddDate(0, 0, 1), now.AddDate(0, 0, 1)
			}
			r = r.after(tc.method, sent, now, 0, err, 0.5)
		}
		var notBefore time.Duration
		if !r.notBefore.IsZero() {
			notBefore = r.notBefore.Sub(now)
		}
		testkit.Equal(t, tc.name, []time.Duration{notBefore, r.until.Sub(now)}, []time.Duration{tc.notBefore, tc.until})
	}
}

// Of two endpoints that may be back, one search tries only one.
func TestASearchTriesOneEndpointThatMayBeBack(t *testing.T) {
	simulate(t, 3, func(t *testing.T, f *fleet) {
		f.down.Store("a", true)
		f.down.Store("b", true)
		f.search(t, 10*time.Second)
		time.Sleep(2 * time.Minute)
		for i, host := range []string{"a", "b"} {
			f.down.Store(host, false)
			f.servers[i].Break("search", 9, protocoltest.Fault{Delay: time.Hour})
		}
		f.search(t, 10*time.Second)
		f.want(t, []int{1, 0, 2}, "a left for c", "b left for c")
		f.search(t, 10*time.Second)
		f.want(t, []int{1, 1, 3}, "a left for c", "b left for c")
	})
}

// overtaken searches, and a second later again.
func (f *fleet) overtaken(t *testing.T) {
	var wg sync.WaitGroup
	wg.Go(func() { f.search(t, 10*time.Second) })
	time.Sleep(time.Second)
	f.search(t, 10*time.Second)
	wg.Wait()
}

// An answer to a search that was sent before another one failed is no news.
func TestAnAnswerFromBeforeAFailureDoesNotEndTheRest(t *testing.T) {
	simulate(t, 2, func(t *testing.T, f *fleet) {
		f.servers[0].Break("search", 1, protocoltest.Fault{Delay: 2 * time.Second})
		f.servers[0].Break("search", 1, protocoltest.Fault{Status: 500})
		f.overtaken(t)
		f.search(t, 10*time.Second)
		f.want(t, []int{2, 2}, "a left for b")
	})
}

// A relay that confirms names but has no lists to give has not recovered because it confirms a name.
func TestAnEndpointIsBackWhenItAnswersWhatItFailedIn(t *testing.T) {
	simulate(t, 2, func(t *testing.T, f *fleet) {
		f.servers[0].Break("update", 1, protocoltest.Fault{Status: 500})
		f.fetch(t, time.Minute)
		f.search(t, 10*time.Second)
		f.want(t, []int{2, 1}, "a left for b")
		time.Sleep(30 * time.Minute)
		f.fetch(t, time.Minute)
		f.want(t, []int{3, 1}, "a left for b", "a back")
	})
}

func TestAnEndpointThatWasNotAskedInTimeHasNotFailed(t *testing.T) {
	simulate(t, 2, func(t *testing.T, f *fleet) {
		testkit.Is(t, "the search", f.search(t, -time.Second), context.DeadlineExceeded)
		testkit.Equal(t, "failures", f.endpoints[0].rests[searching].failures+f.endpoints[1].rests[searching].failures, 0)
		f.want(t, []int{0, 0})
	})
}

// A search that has waited for one endpoint does not ask the next one if that has told another search to wait meanwhile.
func TestAnEndpointThatHasToldAnotherSearchToWaitIsNotAsked(t *testing.T) {
	simulate(t, 2, func(t *testing.T, f *fleet) {
		f.servers[0].Break("search", 1, protocoltest.Fault{Delay: 2 * time.Second, Status: 500})
		f.servers[0].Break("search", 1, protocoltest.Fault{Status: 500})
		f.servers[1].Break("search", 1, protocoltest.Fault{Status: 429})
		f.overtaken(t)
		f.want(t, []int{2, 1})
	})
}

// slow is a Client of a server that takes its time.
type slow struct {
	Client
	takes time.Duration
}

func (s slow) Reach(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return &updater.NotSentError{Err: ctx.Err()}
	case <-time.After(s.takes):
		return nil
	}
}

func (s slow) Lists(ctx context.Context) ([]ListInfo, error) { return nil, s.Reach(ctx) }

func TestASilentEndpointLeavesTimeForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFailover([]string{"a", "b", "c"}, []Client{slow{takes: time.Hour}, slow{takes: time.Hour}, slow{takes: time.Second}})
		for _, ask := range []func(context.Context, Client) error{func(ctx context.Context, c Client) error { return c.Reach(ctx) }, toList} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			testkit.Must(t, ask(ctx, f))
		}
	})
}

// waiting is a Client whose answers have a minimum wait, and maybe break.
type waiting struct {
	Client
	wait  time.Duration
	err   error
	asked int
}

func (w *waiting) Fetch(_ context.Context, _ []updater.Want, take func(int, *updater.Update)) (time.Duration, error) {
	w.asked++
	take(0, new(updater.Update))
	return w.wait, w.err
}

func (w *waiting) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	w.asked++
	return lookup.Answer{MinimumWait: w.wait}, w.err
}

// "Minimum wait": no further request of the method before it has passed, to the server that said
// so. It keeps nobody from asking another one.
func TestAMinimumWaitIsOfTheEndpointThatSaidIt(t *testing.T) {
	broken := errors.New("the answer breaks")
	for _, method := range []string{"fetch", "search"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := &waiting{wait: 2 * time.Hour, err: broken}
				second := &waiting{wait: 30 * time.Minute}
				f := NewFailover([]string{"first", "second"}, []Client{first, second})
				ask := func() (time.Duration, error) {
					if method == "fetch" {
						return f.Fetch(t.Context(), []updater.Want{{List: "se"}}, func(int, *updater.Update) {})
					}
					answer, err := f.Search(t.Context(), []lookup.Prefix{zeroPrefix})
					return answer.MinimumWait, err
				}
				for range 4 {
					if wait, err := ask(); err != nil || wait != second.wait {
						t.Fatalf("a wait of %s and %v, want the answer's, %s", wait, err, second.wait)
					}
					time.Sleep(second.wait - time.Second)
				}
				testkit.Equal(t, "requests to the first endpoint within its wait", first.asked, 1)
				second.err = broken // the first may be asked again before the caller's own back-off ends
				second.wait = 3 * time.Hour
				wait, err := ask()
				testkit.WantError(t, err)
				testkit.Equal(t, "the wait when both have failed, until the first may be asked", wait, 4*time.Second)
				time.Sleep(5 * time.Minute)
				first.err = nil
				wait, err = ask()
				testkit.Must(t, err)
				testkit.Equal(t, "after its wait", []any{wait, first.asked}, []any{first.wait, 2})
			})
		})
	}
}

var monthSeeds = flag.Uint64("month.seeds", 2, "how many months TestAMonthOfRelaysThatFail simulates")

// A month of three relays that fail in every way, judged by each of them: none is asked too early. In months in which
// one of them never fails, no search fails, lists are fresh, and versions outlive each change of relay.
func TestAMonthOfRelaysThatFail(t *testing.T) {
	seeds := *monthSeeds
	if testing.Short() {
		seeds = min(seeds, 1)
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newMonth(t, seed).live(30 * 24 * time.Hour) })
		})
	}
}

const (
	minimumWait     = 20 * time.Minute // that each relay demands between two fetches
	retryAfterOf503 = 40 * time.Minute
)

type month struct {
	*fleet
	t       *testing.T
	chance  *rand.Rand
	updater *updater.Updater
	paced   lookup.Searcher
	fetched []time.Time // with success
	updates int         // that changed a list
	anchor  int         // the relay that never fails, the last one; -1: none
}

func newMonth(t *testing.T, seed uint64) *month {
	f := newFleet(t, 3)
	m := &month{fleet: f, t: t, chance: rand.New(rand.NewPCG(seed, 1)), anchor: []int{-1, 2}[seed%2]}
	for _, s := range f.servers {
		s.JudgeSearchBackoff(false) // see obeyed
		s.SetMinimumWait("se-4b", minimumWait)
		s.SetMinimumWait("mw-4b", minimumWait)
	}
	schedule, err := updater.NewSchedule(nil)
	testkit.Must(t, err)
	m.updater, err = updater.New(updater.Config{Source: f, Database: new(lookup.Database), Schedule: schedule,
		Lists: []string{"se-4b", "mw-4b"}, Report: m.report, FirstContact: func() time.Duration { return 0 }})
	testkit.Must(t, err)
	m.paced = updater.Pace(f, schedule, DialectV5.SearchRules, func(updater.Event) {})
	return m
}

func (m *month) report(e updater.Event) {
	switch {
	case e.Kind == updater.Fetched && e.Err == nil:
		m.fetched = append(m.fetched, time.Now())
	case e.Kind == updater.Fetched && errors.Is(e.Err, lookup.ErrBackoff):
		m.t.Errorf("the back-off of the service ends before each relay's: %v", e.Err)
	case e.Kind == updater.ListUpdated:
		m.updates++
	case e.Kind == updater.ListRejected:
		m.t.Errorf("%s: %v", e.List, e.Err)
	}
}

func (m *month) live(life time.Duration) {
	ctx, cancel := context.WithTimeout(m.t.Context(), life)
	defer cancel()
	go m.updater.Run(ctx)
	for n := 0; ctx.Err() == nil; n++ {
		time.Sleep(time.Duration(1+m.chance.IntN(600)) * time.Second)
		if m.chance.IntN(6) == 0 {
			m.publish(n)
		}
		if m.chance.IntN(4) == 0 {
			m.change()
		}
		m.searchOnce(n)
	}
	synctest.Wait()
	m.judge()
}

// publish makes the next version of a list, the same one on each relay.
func (m *month) publish(n int) {
	for _, s := range m.servers {
		s.Publish("se-4b", [][]byte{[]byte("abcd"), {1, byte(n >> 16), byte(n >> 8), byte(n)}})
	}
}

// change makes one relay fail or work again.
func (m *month) change() {
	i := m.chance.IntN(3)
	if i == m.anchor {
		return
	}
	host := string(rune('a' + i))
	m.servers[i].Repair()
	m.down.Store(host, false)
	faults := []protocoltest.Fault{{Status: 500}, {Status: 503, RetryAfter: retryAfterOf503}, {Status: 429}, {Garbage: true}, {CutBody: true}, {Delay: time.Hour}}
	switch n := m.chance.IntN(len(faults) + 6); {
	case n < len(faults):
		m.servers[i].Break("", 1+m.chance.IntN(9), faults[n])
	case n == len(faults):
		m.down.Store(host, true)
	}
}

// searchOnce searches for what no search has asked for.
func (m *month) searchOnce(n int) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
	defer cancel()
	_, err := m.paced.Search(ctx, []lookup.Prefix{lookup.Prefix(fmt.Sprintf("%04x", n))})
	switch {
	case err != nil && m.anchor >= 0:
		m.t.Errorf("a search failed while relay %d worked: %v", m.anchor, err)
	case err != nil && strings.Contains(err.Error(), "each endpoint"):
		m.t.Errorf("the back-off of the service ends before each relay's: %v", err)
	}
}

// obeyed checks that no search has followed one to which the relay has answered that it must wait. The pause that
// follows three failures of any kind is for the service, not for one relay.
func (m *month) obeyed(relay int, searches []protocoltest.Request) {
	waits := map[int]time.Duration{429: 15 * time.Minute, 503: min(retryAfterOf503, 30*time.Minute)}
	for i, r := range searches[1:] {
		last := searches[i]
		if gap := r.Time.Sub(last.Answered); gap < waits[last.Status] {
			m.t.Errorf("relay %d is searched %s after status %d", relay, gap, last.Status)
		}
	}
}

func (m *month) judge() {
	versions := 0
	for i, at := range m.fetched[1:] {
		switch gap := at.Sub(m.fetched[i]); {
		case gap < minimumWait:
			m.t.Errorf("fetched %s after an answer with a minimum wait of %s", gap, minimumWait)
		case gap > 2*minimumWait && m.anchor >= 0:
			m.t.Errorf("not fetched for %s while relay %d worked", gap, m.anchor)
		}
	}
	for i, s := range m.servers {
		m.obeyed(i, s.Requests("search"))
		requests := s.Requests("update")
		if len(requests) == 0 {
			m.t.Errorf("relay %d has never been asked for lists", i)
		}
		for _, r := range requests {
			if len(r.Versions) > 0 {
				versions++
			} else if m.anchor >= 0 && r.Time.After(m.fetched[0]) {
				m.t.Errorf("relay %d is asked for a full update, though each has the same versions", i)
			}
		}
	}
	m.t.Logf("anchor %d: %d events, %d fetches, %d with versions, %d updates, %v requests", m.anchor, len(m.events), len(m.fetched), versions, m.updates, m.asked())
}
