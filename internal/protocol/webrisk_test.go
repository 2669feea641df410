package protocol

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
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

// Messages of Web Risk, as its schema writes them, for a server whose clock shows the
// first second of 2000, at which synctest begins.
const (
	// RESET, version 0102, 5, 20 and 29 in Rice coding, again in 30 minutes.
	wireReset = "1206088895b5c30320022a0c120a0805100218022202f7023a02010242220a20a9a325de93cffeb40b5b59b90b4647d9061e378063378da5357dc48b61191198"
	// DIFF, version 0103, without index 1, 14000000ff raw, again in 5 minutes.
	wireDiff = "120608ac89b5c30320012a0b0a090805120514000000ff32050a030a01013a02010342220a20d246254746515444fdfa97ad7956bd38ea33228468b9d0f90b3a3100928150c8"
	// Nothing for 5 minutes.
	wireRiskNothing = "120608ac89b5c303"
	// b.example.com/ is SOCIAL_ENGINEERING for 5 minutes, the rest nothing for 10.
	wireRiskFound = "0a2d0a010212201d32c5084a360e58f1b87109637a6810acad97a861a7769e8f1841410d2a960c1a0608ac89b5c303120608d88bb5c303"
)

func newWebRisk(t testing.TB, transport http.RoundTripper, lists ...string) *WebRisk {
	t.Helper()
	c, err := NewWebRisk(Config{Key: testKey, UserAgent: "test/1", Transport: transport}, lists)
	testkit.Must(t, err)
	return c
}

func TestWebRiskRequestsOnTheWire(t *testing.T) {
	const compressions = "constraints.supportedCompressions=RAW&constraints.supportedCompressions=RICE"
	odd := []byte{0xfb, 0xef, 0xfe, 0x00} // bytes whose base64 tells the alphabets apart
	keyed := http.Header{"Accept": {binaryForm}, "Accept-Encoding": {"gzip"}, "User-Agent": {"test/1"}, "X-Goog-Api-Key": {testKey}}
	with := func(name, value string) http.Header {
		h := keyed.Clone()
		h.Del("X-Goog-Api-Key")
		if name != "" {
			h.Set(name, value)
		}
		return h
	}
	for _, test := range []struct {
		name   string
		cfg    Config
		lists  []string
		ask    func(context.Context, Client) error
		want   []string
		header http.Header
	}{
		{"a first fetch", Config{Key: testKey}, nil, toFetch(updater.Want{List: "se-4b"}),
			[]string{WebRiskEndpoint + "/v1/threatLists:computeDiff?alt=proto&" + compressions + "&threatType=SOCIAL_ENGINEERING"}, keyed},
		{"a later fetch with a limit", Config{Key: testKey, MaxEntries: 70_000, Endpoint: "http://mirror.example/wr/"}, nil, toFetch(updater.Want{List: "mw-4b", Version: odd}),
			[]string{"http://mirror.example/wr/v1/threatLists:computeDiff?alt=proto&constraints.maxDatabaseEntries=65536&constraints.maxDiffEntries=65536&" + compressions + "&threatType=MALWARE&versionToken=--_-AA%3D%3D"}, keyed},
		{"all lists, in the order wanted", Config{Key: testKey}, nil,
			toFetch(updater.Want{List: "uws-4b"}, updater.Want{List: "se-ext-4b"}, updater.Want{List: "se-4b"}, updater.Want{List: "mw-4b"}),
			[]string{
				WebRiskEndpoint + "/v1/threatLists:computeDiff?alt=proto&" + compressions + "&threatType=UNWANTED_SOFTWARE",
				WebRiskEndpoint + "/v1/threatLists:computeDiff?alt=proto&" + compressions + "&threatType=SOCIAL_ENGINEERING_EXTENDED_COVERAGE",
				WebRiskEndpoint + "/v1/threatLists:computeDiff?alt=proto&" + compressions + "&threatType=SOCIAL_ENGINEERING",
				WebRiskEndpoint + "/v1/threatLists:computeDiff?alt=proto&" + compressions + "&threatType=MALWARE",
			}, keyed},
		{"a search", Config{Key: testKey}, []string{"se-4b", "mw-4b", "se-4b"}, toSearch("\xfb\xef\xfe\x00"),
			[]string{WebRiskEndpoint + "/v1/hashes:search?alt=proto&hashPrefix=--_-AA%3D%3D&threatTypes=SOCIAL_ENGINEERING&threatTypes=MALWARE"}, keyed},
		{"a search by five bytes, with a token", Config{Key: testKey, Bearer: true}, []string{"uws-4b"}, toSearch("\xfb\xef\xfe\x00\x01"),
			[]string{WebRiskEndpoint + "/v1/hashes:search?alt=proto&hashPrefix=--_-AAE%3D&threatTypes=UNWANTED_SOFTWARE"}, with("Authorization", "Bearer "+testKey)},
		{"without a key", Config{}, []string{"mw-4b"}, toSearch(zeroPrefix),
			[]string{WebRiskEndpoint + "/v1/hashes:search?alt=proto&hashPrefix=AAAAAA%3D%3D&threatTypes=MALWARE"}, with("", "")},
		{"without a token", Config{Bearer: true}, nil, toFetch(updater.Want{List: "mw-4b"}),
			[]string{WebRiskEndpoint + "/v1/threatLists:computeDiff?alt=proto&" + compressions + "&threatType=MALWARE"}, with("", "")},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			cfg := test.cfg
			cfg.UserAgent, cfg.Transport = "test/1", answering(func(r *http.Request) (*http.Response, error) {
				got = append(got, r.URL.String())
				if r.Method != http.MethodGet || !reflect.DeepEqual(r.Header, test.header) {
					t.Errorf("%s with the header %v, want %v", r.Method, r.Header, test.header)
				}
				return always(binaryForm, nil)(r)
			})
			c, err := NewWebRisk(cfg, test.lists)
			testkit.Must(t, err)
			testkit.Must(t, test.ask(t.Context(), c))
			testkit.Equal(t, "asked for", got, test.want)
		})
	}
}

func TestWebRiskListsOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, u := applied(t, newWebRisk(t, always(binaryForm, unhex(t, wireReset))), updater.List{Name: "se-4b"})
		checkList(t, full, "0102", "05000000140000001d000000", "a9a325de93cffeb40b5b59b90b4647d9061e378063378da5357dc48b61191198")
		if u.Partial || u.MinimumWait != 30*time.Minute {
			t.Errorf("partial: %t, wait %s", u.Partial, u.MinimumWait)
		}
		partial, u := applied(t, newWebRisk(t, always(binaryForm, unhex(t, wireDiff))), full)
		checkList(t, partial, "0103", "0500000014000000ff1d000000", "d246254746515444fdfa97ad7956bd38ea33228468b9d0f90b3a3100928150c8")
		if !u.Partial || u.MinimumWait != 5*time.Minute {
			t.Errorf("partial: %t, wait %s", u.Partial, u.MinimumWait)
		}
	})
}

// The header of an answer is read, and the time that it takes counts.
func TestWebRiskCountsByTheClockOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := time.Now().Add(5 * time.Hour) // our clock is behind
		late := func(raw []byte) answering {
			return func(r *http.Request) (*http.Response, error) {
				header := http.Header{"Content-Type": {binaryForm}, "Date": {server.UTC().Format(http.TimeFormat)}}
				time.Sleep(2 * time.Second)
				return response(r, http.StatusOK, header, raw), nil
			}
		}
		at := timestamppb.New(server.Add(10 * time.Minute))
		diff := marshal(t, &diffAnswer{RecommendedNextDiff: at, ResponseType: wrv1.ComputeThreatListDiffResponse_RESET})
		updates, err := fetch(t, newWebRisk(t, late(diff)), updater.Want{List: "se-4b"})
		if err != nil || updates[0].MinimumWait != 10*time.Minute {
			t.Errorf("wait %s, %v, want 10m: it is never too short", updates[0].MinimumWait, err)
		}
		search := marshal(t, &wrv1.SearchHashesResponse{NegativeExpireTime: at, Threats: []*threatHash{
			{Hash: make([]byte, 32), ExpireTime: at, ThreatTypes: []wrv1.ThreatType{wrv1.ThreatType_MALWARE}},
		}})
		got, err := newWebRisk(t, late(search), "mw-4b").Search(t.Context(), []lookup.Prefix{zeroPrefix})
		if want := 10*time.Minute - 3*time.Second; err != nil || got.TTL != want || len(got.Threats) != 1 || got.Threats[0].TTL != want {
			t.Errorf("got %+v, %v, want lives of %s: they are never too long", got, err, want)
		}
	})
}

// A full hash counts for its threat types that the schema knows.
func TestWebRiskUnknownNamesInJSONAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := `{"negativeExpireTime":"2000-01-01T00:05:00Z","threats":[
			{"threatTypes":["MALWARE","SOMETHING_NEW"],"hash":"` + strings.Repeat("A", 43) + `=","expireTime":"2000-01-01T00:01:00Z","new":{}},
			{"threatTypes":["SOMETHING_NEW"],"hash":"` + strings.Repeat("B", 42) + `A="}]}`
		got, err := newWebRisk(t, always(jsonForm, []byte(body)), "mw-4b").Search(t.Context(), []lookup.Prefix{zeroPrefix})
		want := lookup.Answer{TTL: 5 * time.Minute, Threats: []lookup.ThreatHash{{Threats: lookup.Threats(0).With(lookup.Malware), TTL: time.Minute}}}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

func sha256Of(entries string) []byte {
	raw, _ := hex.DecodeString(strings.ReplaceAll(entries, " ", ""))
	sum := sha256.Sum256(raw)
	return sum[:]
}

func TestWebRiskOffersItsFourLists(t *testing.T) {
	silent := answering(func(*http.Request) (*http.Response, error) { t.Error("asked"); return nil, errors.New("asked") })
	got, err := newWebRisk(t, silent).Lists(t.Context())
	threats := lookup.Threats(0)
	want := []ListInfo{
		{"mw-4b", "malware, for any platform", threats.With(lookup.Malware)},
		{"se-4b", "social engineering, for any platform", threats.With(lookup.SocialEngineering)},
		{"se-ext-4b", "social engineering, extended coverage, for any platform", threats.With(lookup.SocialEngineering)},
		{"uws-4b", "unwanted software, for any platform", threats.With(lookup.UnwantedSoftware)},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestNewWebRiskRefusesWhatCannotWork(t *testing.T) {
	for name, test := range map[string]struct {
		cfg  Config
		list string
		want string
	}{
		"a list of version 5":  {Config{UserAgent: "a/1"}, "pha-4b", `protocol webrisk has no list "pha-4b", only mw-4b, se-4b, se-ext-4b, uws-4b`},
		"a wrong endpoint":     {Config{UserAgent: "a/1", Endpoint: "ftp://a.example"}, "se-4b", "must be a URL such as "},
		"a token with a space": {Config{UserAgent: "a/1", Key: "a b", Bearer: true}, "se-4b", "holds a space"},
	} {
		if c, err := NewWebRisk(test.cfg, []string{test.list}); c != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, %v, want %q", name, c, err, test.want)
		}
	}
}

// riskServer returns a server that has two lists, one of mixed lengths.
func riskServer(t *testing.T) *protocoltest.Server {
	s := protocoltest.New(t)
	s.SetKey(testKey)
	s.Publish("se-4b", [][]byte{{0, 0, 0, 0}, {0, 0, 0, 1}, []byte(secretPrefix), {0xfb, 0xef, 0xfe, 0, 7}})
	s.Publish("se-ext-4b", [][]byte{{9, 9, 9, 9}})
	return s
}

// fetchOnce fetches se-4b for the first time, and returns what is wrong
// with the answer or with the list.
func fetchOnce(ctx context.Context, c Client) (broken error) {
	_, err := c.Fetch(ctx, []updater.Want{{List: "se-4b"}}, func(_ int, u *updater.Update) {
		_, _, broken = updater.Apply(updater.List{Name: "se-4b"}, u, 1000)
	})
	return cmp.Or(err, broken)
}

// Over a socket an answer has a Date. In both forms, by a key and by a token, the
// lives and waits are those that the server meant.
func TestWebRiskOverASocket(t *testing.T) {
	for name, form := range map[string]struct{ json, bearer bool }{"protobuf, key": {false, false}, "JSON, token": {true, true}} {
		t.Run(name, func(t *testing.T) {
			s := riskServer(t)
			s.AnswerJSON(form.json)
			if form.bearer {
				s.SetToken(testKey)
			}
			s.SetMinimumWait("se-ext-4b", time.Hour)
			s.SetCacheDuration(10 * time.Minute)
			s.SetNegativeCacheDuration(20 * time.Minute)
			s.AddExtendedThreat("evil.example.com/")
			full := lookup.FullHash(sha256Of(hex.EncodeToString([]byte("evil.example.com/"))))
			s.Publish("se-ext-4b", [][]byte{full[:6]})
			socket := httptest.NewServer(s)
			defer socket.Close()
			c := speaking(t, DialectWebRisk, Config{Endpoint: socket.URL, Key: testKey, Bearer: form.bearer}, "se-ext-4b")
			updates, err := fetch(t, c, updater.Want{List: "se-ext-4b"})
			testkit.Must(t, err)
			l, _, err := updater.Apply(updater.List{Name: "se-ext-4b"}, updates[0], 1000)
			if err != nil || l.Set.Len() != 1 || !near(updates[0].MinimumWait, time.Hour) {
				t.Errorf("%v, wait %s, %v", l, updates[0].MinimumWait, err)
			}
			got, err := c.Search(t.Context(), []lookup.Prefix{lookup.Prefix(full[:6])})
			if err != nil || !near(got.TTL, 20*time.Minute) || len(got.Threats) != 1 || !near(got.Threats[0].TTL, 10*time.Minute) ||
				got.Threats[0].Hash != full || got.Threats[0].Threats != lookup.Threats(0).With(lookup.SocialEngineering) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// near reports whether a duration is the wanted one, or up to a minute shorter.
func near(got, want time.Duration) bool { return got <= want && got > want-time.Minute }
