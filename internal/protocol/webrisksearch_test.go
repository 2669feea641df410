package protocol

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestWebRiskSearchAnswersOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found := lookup.ThreatHash{
			Hash:    lookup.FullHash(unhex(t, "1d32c5084a360e58f1b87109637a6810acad97a861a7769e8f1841410d2a960c")),
			Threats: lookup.Threats(0).With(lookup.SocialEngineering), TTL: 5 * time.Minute,
		}
		for wire, want := range map[string]lookup.Answer{
			"":              {},
			wireRiskNothing: {TTL: 5 * time.Minute},
			wireRiskFound:   {TTL: 10 * time.Minute, Threats: []lookup.ThreatHash{found}},
		} {
			got, err := newWebRisk(t, always(binaryForm, unhex(t, wire)), "se-4b").Search(t.Context(), []lookup.Prefix{"\x1d\x32\xc5\x08"})
			testkit.Must(t, err)
			testkit.Equal(t, wire, got, want)
		}
	})
}

// Threat types are those that were asked for; what else a full hash has is dropped, and
// so is a full hash without one.
func TestWebRiskKeepsThreatsOfItsListsOnly(t *testing.T) {
	const malware, phishing, extended, unwanted = wrv1.ThreatType_MALWARE, wrv1.ThreatType_SOCIAL_ENGINEERING,
		wrv1.ThreatType_SOCIAL_ENGINEERING_EXTENDED_COVERAGE, wrv1.ThreatType_UNWANTED_SOFTWARE
	for _, test := range []struct {
		name  string
		lists []string
		types []wrv1.ThreatType
		want  []lookup.Threat // none: the hash is dropped
	}{
		{"each of its lists", []string{"mw-4b", "se-4b", "uws-4b"}, []wrv1.ThreatType{malware, phishing, unwanted}, []lookup.Threat{lookup.Malware, lookup.SocialEngineering, lookup.UnwantedSoftware}},
		{"one of two", []string{"mw-4b"}, []wrv1.ThreatType{phishing, malware}, []lookup.Threat{lookup.Malware}},
		{"of a list that is not configured", []string{"mw-4b"}, []wrv1.ThreatType{unwanted}, nil},
		{"extended coverage", []string{"se-ext-4b"}, []wrv1.ThreatType{extended}, []lookup.Threat{lookup.SocialEngineering}},
		{"extended coverage that is not configured", []string{"se-4b"}, []wrv1.ThreatType{extended}, nil},
		{"the normal coverage instead of the extended", []string{"se-ext-4b"}, []wrv1.ThreatType{phishing}, nil},
		{"an unknown type", WebRiskLists(), []wrv1.ThreatType{5}, nil},
		{"a negative type", WebRiskLists(), []wrv1.ThreatType{-1}, nil},
		{"no type", WebRiskLists(), []wrv1.ThreatType{0}, nil},
		{"no types", WebRiskLists(), nil, nil},
		{"an unknown type before a known one", WebRiskLists(), []wrv1.ThreatType{99, malware}, []lookup.Threat{lookup.Malware}},
	} {
		body := marshal(t, &wrv1.SearchHashesResponse{Threats: []*threatHash{{ThreatTypes: test.types, Hash: make([]byte, 32)}}})
		got, err := newWebRisk(t, always(binaryForm, body), test.lists...).Search(t.Context(), []lookup.Prefix{zeroPrefix})
		testkit.Must(t, err)
		testkit.Equal(t, test.name, got.Threats, threatHashes(lookup.FullHash{}, test.want, nil)) // without expire_time: for this once
	}
}

func TestWebRiskSearchesForExactlyOnePrefix(t *testing.T) {
	asked := 0
	counting := answering(func(r *http.Request) (*http.Response, error) { asked++; return always(binaryForm, nil)(r) })
	for name, test := range map[string]struct {
		lists    []string
		prefixes []lookup.Prefix
		want     string // part of the error; "": none
	}{
		"one of 4 bytes":  {[]string{"se-4b"}, []lookup.Prefix{zeroPrefix}, ""},
		"one of 32 bytes": {[]string{"se-4b"}, []lookup.Prefix{lookup.Prefix(make([]byte, 32))}, ""},
		"none":            {[]string{"se-4b"}, nil, "0 hash prefixes, Web Risk takes exactly one"},
		"two":             {[]string{"se-4b"}, []lookup.Prefix{"aaaa", "bbbb"}, "2 hash prefixes, Web Risk takes exactly one"},
		"one of 3 bytes":  {[]string{"se-4b"}, []lookup.Prefix{"aaa"}, "of 3 bytes, must be 4 to 32"},
		"one of 33 bytes": {[]string{"se-4b"}, []lookup.Prefix{lookup.Prefix(make([]byte, 33))}, "of 33 bytes, must be 4 to 32"},
		"in no list":      {nil, []lookup.Prefix{zeroPrefix}, "no list to search in: use some of mw-4b, se-4b, se-ext-4b, uws-4b"},
	} {
		asked = 0
		_, err := newWebRisk(t, counting, test.lists...).Search(t.Context(), test.prefixes)
		if (err == nil) != (test.want == "") || !strings.Contains(fmt.Sprint(err), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
		if (asked == 1) != (err == nil) {
			t.Errorf("%s: %d requests", name, asked)
		}
	}
}

func TestWebRiskSearchRejectsWhatCannotBe(t *testing.T) {
	wrong := &timestamppb.Timestamp{Seconds: 1 << 60}
	for name, m := range map[string]*wrv1.SearchHashesResponse{
		"a full hash of 31 bytes":               {Threats: []*threatHash{{Hash: make([]byte, 31)}}},
		"a full hash of 33 bytes":               {Threats: []*threatHash{{Hash: make([]byte, 33)}}},
		"a prefix instead of a hash":            {Threats: []*threatHash{{Hash: make([]byte, 32)}, {Hash: make([]byte, 4)}}},
		"a threat without a hash":               {Threats: []*threatHash{{}}},
		"an expire time that cannot be":         {Threats: []*threatHash{{Hash: make([]byte, 32), ExpireTime: wrong}}},
		"a negative expire time that cannot be": {NegativeExpireTime: wrong},
		"too many threats":                      {Threats: slices.Repeat([]*threatHash{{Hash: make([]byte, 32)}}, 6000)},
	} {
		body := marshal(t, m)
		got, err := newWebRisk(t, always(binaryForm, body), "se-4b").Search(t.Context(), []lookup.Prefix{zeroPrefix})
		if !errors.Is(err, updater.ErrMalformed) || !reflect.DeepEqual(got, lookup.Answer{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// riskClients are a client of Web Risk with an API key and one with an access token.
func riskClients(t *testing.T, cfg Config) (clients []Client) {
	t.Helper()
	for _, cfg.Bearer = range []bool{false, true} {
		clients = append(clients, speaking(t, DialectWebRisk, cfg))
	}
	return clients
}

// searches is a client of Web Risk that keeps the rules for searches, and its server.
type searches struct {
	lookup.Searcher
	schedule *updater.Schedule
	server   *protocoltest.Server
}

func searchesOfWebRisk(t *testing.T) *searches {
	t.Helper()
	server := riskServer(t)
	schedule, err := updater.NewSchedule(nil)
	testkit.Must(t, err)
	client := newWebRisk(t, server, "se-4b")
	testkit.Must(t, fetchOnce(t.Context(), client))
	rules := DialectWebRisk.SearchRules
	rules.FirstContact = func() time.Duration { return 0 }
	return &searches{updater.Pace(client, schedule, rules, func(updater.Event) {}), schedule, server}
}

// search searches once and returns how long the next search has to wait.
func (s *searches) search(t *testing.T) time.Duration {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, _ = s.Search(ctx, []lookup.Prefix{"\x00\x00\x00\x00"})
	return max(0, time.Until(s.schedule.SearchHold().Until))
}

// Google Cloud's service level agreements, "Back-off Requirements".
func TestSearchesOfWebRiskBackOffFromASecondTo32(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := searchesOfWebRisk(t)
		s.server.Break("searchOne", 8, protocoltest.Fault{Status: 503})
		for i, least := range []time.Duration{1, 2, 4, 8, 16, 32, 32, 32} {
			least *= time.Second
			wait := s.search(t)
			if wait < least || wait > least+least/4 {
				t.Fatalf("after %d failures %s to wait, want %s and a quarter at most", i+1, wait, least)
			}
			if s.search(t); len(s.server.Requests("searchOne")) != i+1 {
				t.Fatal("a search was sent in the back-off")
			}
			time.Sleep(wait)
		}
		if wait := s.search(t); wait > 0 {
			t.Errorf("%s to wait after a success", wait)
		}
	})
}

// A refusal does not heal within seconds, and counts by itself: the errors before it must not
// make it a day.
func TestARefusedSearchOfWebRiskBacksOffForMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := searchesOfWebRisk(t)
		s.server.Break("searchOne", 9, protocoltest.Fault{Status: 500})
		s.server.Break("searchOne", 1, protocoltest.Fault{Status: 429})
		s.server.Break("searchOne", 1, protocoltest.Fault{Status: 403})
		for range 9 {
			time.Sleep(s.search(t))
		}
		for _, least := range []time.Duration{15 * time.Minute, 30 * time.Minute} {
			wait := s.search(t)
			if wait < least || wait > 2*least {
				t.Errorf("%s to wait, want %s to %s", wait, least, 2*least)
			}
			time.Sleep(wait)
		}
		if wait := s.search(t); wait > 0 {
			t.Errorf("%s to wait after a success", wait)
		}
	})
}

// The server names noon as its time t, which is half an hour after its answer. What
// differs is our clock, and what the header says.
func TestATimeOfTheServerBecomesADuration(t *testing.T) {
	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	answered := noon.Add(-30 * time.Minute)
	date := answered.Format(http.TimeFormat)
	for _, test := range []struct {
		name        string
		date, age   string
		now         time.Time     // by our clock
		took        time.Duration // by the request
		until       time.Time
		least, most time.Duration
	}{
		{"both clocks are right", date, "", answered, 0, noon, 30 * time.Minute, 30 * time.Minute},
		{"Date has whole seconds, our clock has more", date, "", answered.Add(400 * time.Millisecond), 0, noon, 30*time.Minute - 400*time.Millisecond, 30*time.Minute - 400*time.Millisecond},
		{"the answer was under way for 3 s", date, "", answered.Add(3500 * time.Millisecond), 3 * time.Second, noon, 30*time.Minute - 3500*time.Millisecond, 30*time.Minute - 3500*time.Millisecond},
		{"our clock is 2 h behind", date, "", answered.Add(-2 * time.Hour), 3 * time.Second, noon, 30*time.Minute - 4*time.Second, 30 * time.Minute},
		{"our clock is 2 h ahead", date, "", answered.Add(2 * time.Hour), 3 * time.Second, noon, 30*time.Minute - 4*time.Second, 30 * time.Minute},
		{"our clock is 2 s behind", date, "", answered.Add(-2 * time.Second), 0, noon, 30*time.Minute - time.Second, 30 * time.Minute},
		{"our clock is 2 s ahead", date, "", answered.Add(2 * time.Second), 0, noon, 30*time.Minute - time.Second, 30 * time.Minute},
		{"our clock shows 1970", date, "", time.Unix(60, 0), 0, noon, 30*time.Minute - time.Second, 30 * time.Minute},
		{"a cache has had the answer for 10 minutes", answered.Add(-10 * time.Minute).Format(http.TimeFormat), "600", answered, 0, noon, 30 * time.Minute, 30 * time.Minute},
		{"an Age that is wrong", date, "-600", answered, 0, noon, 30 * time.Minute, 30 * time.Minute},
		{"no Date", "", "", answered.Add(time.Minute), 0, noon, 29 * time.Minute, 29 * time.Minute},
		{"a Date that is wrong", "yesterday", "", answered.Add(time.Minute), 0, noon, 29 * time.Minute, 29 * time.Minute},
		{"a Date of 1970", time.Unix(60, 0).UTC().Format(http.TimeFormat), "", answered, 0, noon, 30 * time.Minute, 30 * time.Minute},
		{"a Date of 2036", answered.AddDate(10, 0, 0).Format(http.TimeFormat), "", answered, 0, noon, 30 * time.Minute, 30 * time.Minute},
		{"three days, by both clocks", date, "", answered, 0, answered.Add(72 * time.Hour), 72 * time.Hour, 72 * time.Hour},
		{"three days, and our clock shows 1970", date, "", time.Unix(60, 0), 0, answered.Add(72 * time.Hour), 72*time.Hour - time.Second, 72 * time.Hour},
		{"three days, and our clock is five days ahead", date, "", answered.AddDate(0, 0, 5), 0, answered.Add(72 * time.Hour), 72*time.Hour - time.Second, 72 * time.Hour},
		{"past by both clocks", date, "", answered, 0, answered.Add(-time.Minute), 0, 0},
		{"past by the clock of the server", date, "", answered.Add(-time.Hour), 0, answered.Add(-time.Minute), 0, 0},
		{"past by our clock, without Date", "", "", answered, 0, answered.Add(-time.Minute), 0, 0},
		{"the first time there is", date, "", answered, 0, time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), 0, 0},
		{"the last time there is", date, "", answered, 0, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), math.MaxInt64, math.MaxInt64},
	} {
		c := newServerClock(http.Header{"Date": {test.date}, "Age": {test.age}}, test.now.Add(-test.took), test.now)
		life, wait, err := c.until(timestamppb.New(test.until))
		if life != test.least || wait != test.most || err != nil {
			t.Errorf("%s: it may be kept for %s, want %s; it is to be waited for %s, want %s; %v", test.name, life, test.least, wait, test.most, err)
		}
	}
}

func TestATimeThatIsAbsentIsNoneAndOneThatCannotBeIsAnError(t *testing.T) {
	c := newServerClock(http.Header{}, time.Now(), time.Now())
	for name, test := range map[string]struct {
		t    *timestamppb.Timestamp
		want error
	}{
		"absent":         {nil, nil},
		"1970":           {&timestamppb.Timestamp{}, nil},
		"year 0":         {&timestamppb.Timestamp{Seconds: -62135596801}, updater.ErrMalformed},
		"year 10000":     {&timestamppb.Timestamp{Seconds: 253402300800}, updater.ErrMalformed},
		"negative nanos": {&timestamppb.Timestamp{Seconds: 1 << 33, Nanos: -1}, updater.ErrMalformed},
		"greatest nanos": {&timestamppb.Timestamp{Seconds: 1 << 33, Nanos: math.MaxInt32}, updater.ErrMalformed},
	} {
		life, wait, err := c.until(test.t)
		if life != 0 || wait != 0 || !errors.Is(err, test.want) {
			t.Errorf("%s: %s and %s, %v", name, life, wait, err)
		}
	}
}
