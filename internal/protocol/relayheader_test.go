package protocol

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// relayAnswer is an answer of a server to hashes.search.
type relayAnswer struct {
	status     int
	header     string // UnansweredHeader; "": none
	retryAfter string
	threats    []string // expressions
}

func (a relayAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	m := &sbv5.SearchHashesResponse{CacheDuration: durationpb.New(0)}
	for _, e := range a.threats {
		hash := lookup.HashExpression(e)
		m.FullHashes = append(m.FullHashes, &sbv5.FullHash{FullHash: hash[:], FullHashDetails: detail(sbv5.ThreatType_MALWARE)})
	}
	raw, err := proto.Marshal(m)
	if a.status != http.StatusOK {
		raw = []byte(`{"error": {"message": "the words of the relay"}}`)
	}
	header := http.Header{"Content-Type": {binaryForm}, UnansweredHeader: {a.header}, "Retry-After": {a.retryAfter}}
	return response(r, a.status, header, raw), err
}

// ask searches for the prefixes of expressions at an endpoint.
func (a relayAnswer) ask(t *testing.T, endpoint string, expressions ...string) (lookup.Answer, error) {
	t.Helper()
	return clientOf(t, Config{Endpoint: endpoint, Transport: a}).Search(t.Context(), prefixesOf(expressions...))
}

func prefixesOf(expressions ...string) (all []lookup.Prefix) {
	for _, e := range expressions {
		all = append(all, lookup.HashExpression(e).Prefix(4))
	}
	return all
}

// without returns the header that names the prefixes of expressions.
func without(life, wait time.Duration, why error, expressions ...string) string {
	return Unanswered{prefixesOf(expressions...), life, wait, why}.String()
}

const ownRelay = "http://relay.internal"

func TestTheKnownPartOfARelaysAnswerHasItsRealLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		header := without(290*time.Second, time.Minute, lookup.ErrShare, "new.example/", "below.example/")
		answer := relayAnswer{status: 200, header: header, threats: []string{"bad.example/", "below.example/"}}
		got, err := answer.ask(t, ownRelay, "bad.example/", "good.example/", "new.example/", "below.example/")
		testkit.Is(t, "the reason", err, lookup.ErrShare)
		testkit.Equal(t, "the wait", waitIn(err), time.Minute)
		const life = 290 * time.Second
		threat := func(e string) []lookup.ThreatHash {
			return []lookup.ThreatHash{{Hash: lookup.HashExpression(e), Threats: lookup.Threats(0).With(lookup.Malware), TTL: life}}
		}
		now := time.Now()
		testkit.Equal(t, "known", got.Earlier, map[lookup.Prefix]lookup.EarlierAnswer{
			prefixesOf("bad.example/")[0]:   {TTL: life, Threats: threat("bad.example/"), Received: now},
			prefixesOf("good.example/")[0]:  {TTL: life, Received: now},
			prefixesOf("below.example/")[0]: {TTL: -1, Threats: threat("below.example/"), Received: now},
		})
	})
}

// waitIn is how long an error that is unanswered says to wait, 0 for any other error.
func waitIn(err error) time.Duration {
	if unanswered, ok := errors.AsType[*lookup.UnansweredError](err); ok {
		return time.Until(unanswered.Until)
	}
	return 0
}

func TestARelaysRefusalIsNoFailureOfTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		header := without(time.Minute, time.Second, lookup.ErrBackoff, "new.example/")
		got, err := relayAnswer{status: 503, header: header, retryAfter: "60"}.ask(t, ownRelay, "good.example/", "new.example/")
		testkit.Is(t, "the reason", err, lookup.ErrBackoff)
		testkit.WantError(t, err, "the words of the relay")
		testkit.Equal(t, "the wait", waitIn(err), time.Second)
		testkit.Equal(t, "known", got.Earlier, map[lookup.Prefix]lookup.EarlierAnswer{
			prefixesOf("good.example/")[0]: {TTL: time.Minute, Received: time.Now()},
		})
	})
}

// Google's server, or what stands between, sends no such header. If it did, a wait of its own must
// be kept all the same, and its answer is whole.
func TestHeadersOfARelayCountForNothingFromGoogle(t *testing.T) {
	header := without(time.Minute, time.Second, lookup.ErrBackoff, "new.example/")
	for _, endpoint := range []string{"", DefaultEndpoint, "https://SafeBrowsing.googleapis.com.:443/"} {
		_, err := relayAnswer{status: 503, header: header, retryAfter: "1200"}.ask(t, endpoint, "new.example/")
		testkit.Equal(t, endpoint+", status 503", statusIn(err).RetryAfter, 20*time.Minute)
		got, err := relayAnswer{status: 200, header: header, threats: []string{"new.example/"}}.ask(t, endpoint, "new.example/")
		testkit.Is(t, endpoint+", status 200", err, nil)
		testkit.Equal(t, endpoint+": threats, and earlier answers", [2]int{len(got.Threats), len(got.Earlier)}, [2]int{1, 0})
	}
	for endpoint, want := range map[string]bool{"": false, DefaultEndpoint: false, ownRelay: true} {
		for status, lacks := range map[int]bool{404: want, 400: false, 503: false} {
			c := &caller{google: IsGoogle(endpoint)}
			answer := &http.Response{StatusCode: status, Header: http.Header{ListsHeader: {"se-4b"}}, Body: http.NoBody}
			want := updater.StatusError{Code: status, LacksList: lacks}
			testkit.Equal(t, fmt.Sprintf("%q, status %d", endpoint, status), statusIn(c.statusError(t.Context(), answer)), want)
		}
	}
	_, err := relayAnswer{status: 503, retryAfter: "60"}.ask(t, ownRelay, "new.example/")
	testkit.Equal(t, "a proxy before a relay", statusOf(err), 503)
	_, err = relayAnswer{status: 429, header: header}.ask(t, ownRelay, "new.example/")
	testkit.Equal(t, "another status", statusOf(err), 429)
}

// A threat is not taken from an answer that cannot be understood, and no prefix for answered.
func TestADamagedHeaderIsAMalformedAnswer(t *testing.T) {
	good := without(time.Minute, time.Second, lookup.ErrBackoff, "new.example/")
	for _, header := range []string{
		"x", "::", ":;", ":AAAA:", ":!!!!!!!!:", "", good[1:], without(0, 0, nil, "other.example/"),
		strings.Replace(good, "life=60", "life=-1", 1), strings.Replace(good, "wait=1", "wait=soon", 1), strings.Replace(good, "life=60", "life=99999999999999", 1),
	} {
		_, err := parseUnanswered(header, prefixesOf("new.example/"))
		testkit.Is(t, header, err, updater.ErrMalformed)
	}
	_, err := relayAnswer{status: 200, header: "x"}.ask(t, ownRelay, "new.example/")
	testkit.Is(t, "an answer with such a header", err, updater.ErrMalformed)
}

// FuzzUnanswered reads headers: whatever a relay sends, a wait has its bounds, and only prefixes
// that were asked about are named. What a relay writes is read as it was.
func FuzzUnanswered(f *testing.F) {
	asked := prefixesOf("a.example/", "b.example/", "c.example/")
	for _, r := range reasons {
		f.Add(Unanswered{asked[1:], 5 * time.Minute, time.Minute, r.err}.String())
	}
	f.Add(":OIjgUQ==:;life=0;wait=99;why=")
	f.Fuzz(func(t *testing.T, header string) {
		u, err := parseUnanswered(header, asked)
		if err != nil {
			testkit.Is(t, header, err, updater.ErrMalformed)
			return
		}
		if u.Wait < time.Second || u.Wait > lookup.MaxUnanswered || u.Life < 0 || u.Reason == nil || len(u.Prefixes) == 0 {
			t.Errorf("%q: %+v", header, u)
		}
		strange := slices.ContainsFunc(u.Prefixes, func(p lookup.Prefix) bool { return !slices.Contains(asked, p) })
		testkit.Equal(t, header+" names what was not asked", strange, false)
		again, err := parseUnanswered(u.String(), asked)
		testkit.Is(t, header, err, nil)
		testkit.Equal(t, header, again, u)
	})
}

// partlyKnowing is a relay that knows some prefixes.
type partlyKnowing struct {
	Client
	known []lookup.Prefix
	wait  time.Duration
	err   error // instead of an answer
	asked [][]lookup.Prefix
}

func (p *partlyKnowing) Search(_ context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	p.asked = append(p.asked, prefixes)
	if p.err != nil {
		return lookup.Answer{}, p.err
	}
	u := Unanswered{Life: time.Minute, Wait: p.wait, Reason: lookup.ErrBudget}
	for _, asked := range prefixes {
		if !slices.Contains(p.known, asked) {
			u.Prefixes = append(u.Prefixes, asked)
		}
	}
	if u.Prefixes == nil {
		return lookup.Answer{TTL: time.Minute}, nil
	}
	return u.answer(prefixes, nil)
}

func (p *partlyKnowing) Close() {}

func TestTheNextEndpointIsAskedAboutWhatARelayDoesNotKnow(t *testing.T) {
	all := prefixesOf("a.example/", "b.example/", "c.example/")
	down := errors.New("no route")
	for _, tc := range []struct {
		name    string
		relays  []*partlyKnowing
		asked   []int // prefixes of each endpoint
		answers int
		wait    time.Duration // of the error; 0: none
	}{
		{"the second knows all", []*partlyKnowing{{known: all[:1], wait: time.Minute}, {known: all}}, []int{3, 2}, 1, 0},
		{"none knows the last", []*partlyKnowing{{known: all[:1], wait: time.Second}, {known: all[1:2], wait: time.Minute}}, []int{3, 2}, 2, time.Second},
		{"the second is down", []*partlyKnowing{{known: all[:1], wait: time.Second}, {err: down}}, []int{3, 2}, 1, time.Second},
		{"the first is down", []*partlyKnowing{{err: down}, {known: all[:1], wait: time.Second}}, []int{3, 3}, 1, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := NewFailover([]string{"a", "b"}, []Client{tc.relays[0], tc.relays[1]})
			f.Report = func(e EndpointEvent) {
				if e.Endpoint == "a" && tc.relays[0].err == nil || e.Endpoint == "b" && tc.relays[1].err == nil {
					t.Errorf("%s: %+v", tc.name, e)
				}
			}
			got, err := f.Search(t.Context(), all)
			for i, r := range tc.relays {
				testkit.Equal(t, tc.name+": requests, and prefixes", [2]int{len(r.asked), len(slices.Concat(r.asked...))}, [2]int{1, tc.asked[i]})
			}
			testkit.Equal(t, tc.name+": wait, and answers", []any{waitIn(err), len(got.Earlier)}, []any{tc.wait, tc.answers})
		})
	}
}

func TestABudgetIsAnnouncedAndRead(t *testing.T) {
	b := lookup.Budget{Day: 100, Left: 75, Hour: 25, Now: 5}
	for value, want := range map[string]lookup.Budget{
		FormatBudget(b): b,
		"now=5,hour=25 , left=75,day=100, later=?1": b,
		"day=1, left=0, hour=1, now=0":              {Day: 1, Hour: 1},
		"":                                          {},
		"day=100":                                   {},
		"day=100, rest=75, hour=25, now=5, left=4": {},
		"now=5":                                   {},
		"day=100, left=101, hour=25, now=5":       {},
		"day=100, left=4, hour=25, now=5":         {},
		"day=100, left=75, hour=101, now=5":       {},
		"day=100, left=-1, hour=25, now=0":        {},
		"day=99999999999, left=1, hour=25, now=0": {},
		"day=1e2, left=1, hour=25, now=0":         {},
	} {
		got, ok := ParseBudget(value)
		testkit.Equal(t, value, []any{got, ok}, []any{want, want != lookup.Budget{}})
		var a Announced // a budget with nothing left for ever would refuse all searches
		a.hear(http.Header{BudgetHeader: {value}}, time.Now())
		heard, known := a.Left(time.Now())
		testkit.Equal(t, value+": heard", []any{heard, known}, []any{want, ok})
	}
}

// What a relay has said long ago lets one search pass that brings news.
func TestAnAnnouncementGetsOld(t *testing.T) {
	var a Announced
	now := time.Now()
	b := lookup.Budget{Day: 100, Left: 0, Hour: 25, Now: 0}
	a.hear(http.Header{BudgetHeader: {FormatBudget(b)}}, now)
	got, _ := a.Left(now.Add(announcementLife - 1))
	testkit.Equal(t, "before it is old", got, b)
	for _, later := range []time.Time{now.Add(announcementLife), now.Add(-1)} {
		if got, known := a.Left(later); !known || got.Left < 100 || got.Now == 0 || got.Now > 10 {
			t.Errorf("when it is old: %+v", got)
		}
	}
	a.hear(http.Header{}, now)
	_, known := a.Left(now)
	testkit.Equal(t, "a budget is known when the relay has none any more", known, false)
}

// counted answers every request with a body, and notes when it came.
func counted(body []byte, asked *[]time.Time) answering {
	return func(r *http.Request) (*http.Response, error) {
		*asked = append(*asked, time.Now())
		return always(binaryForm, body)(r)
	}
}

// A long list that is refused early has a minimum wait too.
func TestTheMinimumWaitOfAListRefusedEarlyHolds(t *testing.T) {
	for name, stream := range map[string]bool{"whole": false, "streamed": true} {
		t.Run(name, func(t *testing.T) {
			if stream {
				streamAll(t)
			}
			m, _ := fullList(t, "se-4b", 5000)
			m.MinimumWaitDuration = durationpb.New(6 * time.Hour)
			var asked []time.Time
			c := newClient(t, counted(inOrder(t, m), &asked))
			synctest.Test(t, func(t *testing.T) {
				schedule, _ := updater.NewSchedule(nil)
				u, err := updater.New(updater.Config{Source: c, Database: new(lookup.Database), Schedule: schedule, Lists: []string{"se-4b"},
					MaxEntries: 1024, FirstContact: func() time.Duration { return 0 }})
				testkit.Must(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 7*time.Hour)
				defer cancel()
				u.Run(ctx)
				if len(asked) < 2 {
					t.Fatal(asked)
				}
				testkit.Between(t, "asked again after", asked[1].Sub(asked[0]), 6*time.Hour, 7*time.Hour)
			})
		})
	}
}
