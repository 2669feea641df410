package protocol

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
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
	const diff, search = "threatLists:computeDiff?alt=proto&" + compressions + "&threatType=", "hashes:search?alt=proto&hashPrefix="
	odd := []byte{0xfb, 0xef, 0xfe, 0x00} // bytes whose base64 tells the alphabets apart
	key, token := http.Header{"X-Goog-Api-Key": {testKey}}, http.Header{"Authorization": {"Bearer " + testKey}}
	for _, test := range []struct {
		name       string
		cfg        Config
		lists      []string
		ask        func(context.Context, Client) error
		want       []string // at Google's server below /v1/
		credential http.Header
	}{
		{"a first fetch", Config{Key: testKey}, nil, toFetch(updater.Want{List: "se-4b"}), []string{diff + "SOCIAL_ENGINEERING"}, key},
		{"a later fetch with a limit", Config{Key: testKey, MaxEntries: 70_000, Endpoint: "http://mirror.example/wr/"}, nil, toFetch(updater.Want{List: "mw-4b", Version: odd}),
			[]string{"http://mirror.example/wr/v1/threatLists:computeDiff?alt=proto&constraints.maxDatabaseEntries=65536&constraints.maxDiffEntries=65536&" + compressions + "&threatType=MALWARE&versionToken=--_-AA%3D%3D"}, key},
		{"all lists, in the order wanted", Config{Key: testKey}, nil,
			toFetch(updater.Want{List: "uws-4b"}, updater.Want{List: "se-ext-4b"}, updater.Want{List: "se-4b"}, updater.Want{List: "mw-4b"}),
			[]string{diff + "UNWANTED_SOFTWARE", diff + "SOCIAL_ENGINEERING_EXTENDED_COVERAGE", diff + "SOCIAL_ENGINEERING", diff + "MALWARE"}, key},
		{"a search", Config{Key: testKey}, []string{"se-4b", "mw-4b", "se-4b"}, toSearch("\xfb\xef\xfe\x00"),
			[]string{search + "--_-AA%3D%3D&threatTypes=SOCIAL_ENGINEERING&threatTypes=MALWARE"}, key},
		{"a search by five bytes, with a token", Config{Key: testKey, Bearer: true}, []string{"uws-4b"}, toSearch("\xfb\xef\xfe\x00\x01"),
			[]string{search + "--_-AAE%3D&threatTypes=UNWANTED_SOFTWARE"}, token},
		{"without a key", Config{}, []string{"mw-4b"}, toSearch(zeroPrefix), []string{search + "AAAAAA%3D%3D&threatTypes=MALWARE"}, nil},
		{"without a token", Config{Bearer: true}, nil, toFetch(updater.Want{List: "mw-4b"}), []string{diff + "MALWARE"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			cfg := test.cfg
			cfg.UserAgent, cfg.Transport = "test/1", answering(func(r *http.Request) (*http.Response, error) {
				got = append(got, strings.TrimPrefix(r.URL.String(), WebRiskEndpoint+"/v1/"))
				want := http.Header{"Accept": {binaryForm}, "Accept-Encoding": {"gzip"}, "User-Agent": {"test/1"}}
				maps.Copy(want, test.credential)
				testkit.Equal(t, "header", r.Header, want)
				testkit.Equal(t, "method", r.Method, http.MethodGet)
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
		testkit.Equal(t, "partial, and wait", []any{u.Partial, u.MinimumWait}, []any{false, 30 * time.Minute})
		partial, u := applied(t, newWebRisk(t, always(binaryForm, unhex(t, wireDiff))), full)
		checkList(t, partial, "0103", "0500000014000000ff1d000000", "d246254746515444fdfa97ad7956bd38ea33228468b9d0f90b3a3100928150c8")
		testkit.Equal(t, "partial, and wait", []any{u.Partial, u.MinimumWait}, []any{true, 5 * time.Minute})
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
		testkit.Must(t, err)
		testkit.Equal(t, "the wait, which is never too short", updates[0].MinimumWait, 10*time.Minute)
		search := marshal(t, &wrv1.SearchHashesResponse{NegativeExpireTime: at, Threats: []*threatHash{
			{Hash: make([]byte, 32), ExpireTime: at, ThreatTypes: []wrv1.ThreatType{wrv1.ThreatType_MALWARE}},
		}})
		const life = 10*time.Minute - 3*time.Second // never too long
		want := threatHashes(lookup.FullHash{}, []lookup.Threat{lookup.Malware}, nil)
		want[0].TTL = life
		wantAnswer(t, "a search", newWebRisk(t, late(search), "mw-4b"), lookup.Answer{TTL: life, Threats: want})
	})
}

func sha256Of(entries string) []byte {
	sum := sha256.Sum256(spaced(entries))
	return sum[:]
}

// spaced is what is written in hexadecimal, with spaces.
func spaced(text string) []byte {
	raw, _ := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	return raw
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
	testkit.Must(t, err)
	testkit.Equal(t, "lists", got, want)
}

func TestNewWebRiskRefusesWhatCannotWork(t *testing.T) {
	_, err := NewWebRisk(Config{UserAgent: "a/1"}, []string{"pha-4b"})
	testkit.WantError(t, err, `protocol webrisk has no list "pha-4b", only mw-4b, se-4b, se-ext-4b, uws-4b`)
	_, err = NewWebRisk(Config{UserAgent: "a/1", Key: "a b", Bearer: true}, nil)
	testkit.WantError(t, err, "holds a space")
}

// riskServer returns a server that has two lists, one of mixed lengths.
func riskServer(t *testing.T) *protocoltest.Server {
	s := protocoltest.New(t)
	s.SetKey(testKey)
	s.Publish("se-4b", [][]byte{{0, 0, 0, 0}, {0, 0, 0, 1}, []byte(secretPrefix), {0xfb, 0xef, 0xfe, 0, 7}})
	s.Publish("se-ext-4b", [][]byte{{9, 9, 9, 9}})
	return s
}

// fetchOnce fetches se-4b for the first time, and returns what is wrong with the answer or with the list.
func fetchOnce(ctx context.Context, c Client) error { return fetchError(ctx, c, "se-4b") }

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
			_, _, err = updater.Apply(updater.List{Name: "se-ext-4b"}, updates[0], 1000)
			testkit.Must(t, err)
			testkit.Between(t, "minimum wait", updates[0].MinimumWait, 59*time.Minute, time.Hour)
			got, err := c.Search(t.Context(), []lookup.Prefix{lookup.Prefix(full[:6])})
			testkit.Must(t, err)
			testkit.Between(t, "life", got.TTL, 19*time.Minute, 20*time.Minute)
			testkit.Between(t, "life of the threat", got.Threats[0].TTL, 9*time.Minute, 10*time.Minute)
			got.Threats[0].TTL = 0
			testkit.Equal(t, "threats", got.Threats, threatHashes(full, []lookup.Threat{lookup.SocialEngineering}, nil))
		})
	}
}

// A list of seven million entries may come raw: 28 MB.
func TestWebRiskAnswersMayHave32MiB(t *testing.T) {
	testkit.Long(t)
	for entries, want := range map[int]string{7_000_000: "", 8_400_000: "at most 33554432 are allowed"} {
		m := riskUpdate(riskReset, "")
		m.Additions = &wrv1.ThreatEntryAdditions{RawHashes: []*wrv1.RawHashes{{PrefixSize: 4, RawHashes: make([]byte, 4*entries)}}}
		body := marshal(t, m)
		taken := 0
		_, err := newWebRisk(t, always(binaryForm, body)).Fetch(t.Context(), []updater.Want{{List: "se-4b"}}, func(_ int, u *updater.Update) { taken = added(u) })
		if want == "" && (err != nil || taken != entries) || want != "" && (!errors.Is(err, updater.ErrMalformed) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d entries: took %d, %v", entries, taken, err)
		}
	}
}

// The lists before the one that fails have been taken, those behind it are not asked for.
func TestWebRiskFetchStopsAtTheFirstFailure(t *testing.T) {
	asked := 0
	c := newWebRisk(t, answering(func(r *http.Request) (*http.Response, error) {
		if asked++; asked == 3 {
			return response(r, 429, nil, nil), nil
		}
		return always(binaryForm, unhex(t, wireReset))(r)
	}))
	var taken []int
	_, err := c.Fetch(t.Context(), []updater.Want{{List: "mw-4b"}, {List: "se-ext-4b"}, {List: "se-4b"}, {List: "uws-4b"}}, func(i int, u *updater.Update) {
		taken = append(taken, i)
		testkit.Is(t, i, u.Err, nil)
	})
	testkit.WantError(t, err, "list se-4b")
	testkit.Equal(t, "status, requests, and updates taken", []any{statusOf(err), asked, taken}, []any{429, 3, []int{0, 1}})
}

type (
	diffAnswer = wrv1.ComputeThreatListDiffResponse
	threatHash = wrv1.SearchHashesResponse_ThreatHash
)

const (
	riskDiff  = wrv1.ComputeThreatListDiffResponse_DIFF
	riskReset = wrv1.ComputeThreatListDiffResponse_RESET
)

// riskUpdate is an answer whose result has these entries, in hexadecimal.
func riskUpdate(kind wrv1.ComputeThreatListDiffResponse_ResponseType, result string) *diffAnswer {
	return &diffAnswer{ResponseType: kind, NewVersionToken: []byte("new"), Checksum: &wrv1.ComputeThreatListDiffResponse_Checksum{Sha256: sha256Of(result)}}
}

func riskRaw(size int32, hashes string) *wrv1.RawHashes {
	return &wrv1.RawHashes{PrefixSize: size, RawHashes: spaced(hashes)}
}

func riskRice(first int64, k, n int32, data string) *wrv1.RiceDeltaEncoding {
	return &wrv1.RiceDeltaEncoding{FirstValue: first, RiceParameter: k, EntryCount: n, EncodedData: spaced(data)}
}

// fetchRisk fetches se-4b while old is held, and applies what comes.
func fetchRisk(t *testing.T, old updater.List, m *diffAnswer) (l updater.List, err error) {
	t.Helper()
	return fetchApplied(t, newWebRisk(t, always(binaryForm, marshal(t, m))), old)
}

// fetchApplied fetches a list while old is held, and applies what comes.
func fetchApplied(t *testing.T, c Client, old updater.List) (l updater.List, err error) {
	t.Helper()
	_, fetchErr := c.Fetch(t.Context(), []updater.Want{{List: old.Name, Version: old.Version}}, func(_ int, u *updater.Update) {
		l, _, err = updater.Apply(old, u, 1000)
	})
	return l, errors.Join(fetchErr, err)
}

// The worked examples of the page "Compression".
func TestWebRiskRiceCodedPrefixes(t *testing.T) {
	for name, test := range map[string]struct {
		set  *wrv1.RiceDeltaEncoding
		want string
	}{
		"5, 20, 29":    {riskRice(5, 2, 2, "f702"), "05000000 14000000 1d000000"},
		"1, 5, 7, 13":  {protocoltest.EncodeRiceWebRisk([]uint32{1, 5, 7, 13}), "01000000 05000000 07000000 0d000000"},
		"a lone value": {riskRice(0x0201, 0, 0, ""), "01020000"},
		"zero":         {riskRice(0, -1, 0, ""), "00000000"},
		"the greatest": {riskRice(1<<32-1, 0, 0, ""), "ffffffff"},
		"numbers that ascend otherwise than their bytes": {protocoltest.EncodeRiceWebRisk([]uint32{4, 768, 131072, 16777216}), "00000001 00000200 00030000 04000000"},
	} {
		m := riskUpdate(riskReset, test.want)
		m.Additions = &wrv1.ThreatEntryAdditions{RiceHashes: test.set}
		l, err := fetchRisk(t, updater.List{Name: "se-4b"}, m)
		testkit.Is(t, name, err, nil)
		checkList(t, l, "6e6577", strings.ReplaceAll(test.want, " ", ""), hex.EncodeToString(m.Checksum.Sha256))
	}
}

func TestWebRiskListsOfMixedLengths(t *testing.T) {
	full := riskUpdate(riskReset, "01000000 01000000aa 01000000aa01 05000000 14000000 1d000000 1d000000ffffffff")
	full.Additions = &wrv1.ThreatEntryAdditions{
		RawHashes:  []*wrv1.RawHashes{riskRaw(5, "01000000aa"), riskRaw(6, "01000000aa01"), riskRaw(8, "1d000000ffffffff"), riskRaw(4, "01000000")},
		RiceHashes: riskRice(5, 2, 2, "f702"),
	}
	full.Additions.RawHashes = append(full.Additions.RawHashes, slices.Repeat([]*wrv1.RawHashes{riskRaw(4, "")}, 28)...) // 32 are allowed
	l, err := fetchRisk(t, updater.List{Name: "se-4b"}, full)
	testkit.Must(t, err)
	testkit.Equal(t, "widths", l.Set.Widths(), []int{4, 5, 6, 8})
	// The indices count all lengths sorted together: 2 is the one of six bytes, 5 and 6 are the last two.
	for name, removals := range map[string]*wrv1.ThreatEntryRemovals{
		"raw":  {RawIndices: &wrv1.RawIndices{Indices: []int32{6, 2, 5}}},
		"Rice": {RiceIndices: riskRice(2, 2, 2, "16")},
		"both": {RawIndices: &wrv1.RawIndices{Indices: []int32{5, 2}}, RiceIndices: riskRice(6, 0, 0, "")},
	} {
		m := riskUpdate(riskDiff, "01000000 01000000aa 05000000 14000000 14000000ff 1d000000aa")
		m.Removals = removals
		m.Additions = &wrv1.ThreatEntryAdditions{RawHashes: []*wrv1.RawHashes{riskRaw(5, "14000000ff 1d000000aa")}}
		after, err := fetchRisk(t, l, m)
		testkit.Is(t, name, err, nil)
		checkList(t, after, "6e6577", "0100000001000000aa050000001400000014000000ff1d000000aa", hex.EncodeToString(m.Checksum.Sha256))
	}
}

// An update without changes need not have a checksum. If it has one, that must be right.
func TestWebRiskUpdatesWithoutChanges(t *testing.T) {
	full := riskUpdate(riskReset, "05000000")
	full.Additions = &wrv1.ThreatEntryAdditions{RiceHashes: riskRice(5, 0, 0, "")}
	held, err := fetchRisk(t, updater.List{Name: "se-4b"}, full)
	testkit.Must(t, err)
	for name, test := range map[string]struct {
		checksum *wrv1.ComputeThreatListDiffResponse_Checksum
		want     error
	}{
		"no checksum":   {nil, nil},
		"an empty one":  {&wrv1.ComputeThreatListDiffResponse_Checksum{}, nil},
		"the right one": {full.Checksum, nil},
		"of others":     {riskUpdate(riskDiff, "06000000").Checksum, updater.ErrChecksum},
	} {
		m := &diffAnswer{ResponseType: riskDiff, NewVersionToken: []byte("newer"), Checksum: test.checksum}
		l, err := fetchRisk(t, held, m)
		testkit.Is(t, name, err, test.want)
		if err == nil {
			testkit.Equal(t, name, []any{string(l.Version), l.Set.Len()}, []any{"newer", 1})
		}
	}
	written := unhex(t, "20013a02763242020a00") // DIFF, version v2, a checksum of no bytes
	l, err := fetchApplied(t, newWebRisk(t, always(binaryForm, written)), held)
	testkit.Must(t, err)
	testkit.Equal(t, "version", string(l.Version), "v2")
}

func TestWebRiskRejectsWhatCannotBe(t *testing.T) {
	adds := func(a *wrv1.ThreatEntryAdditions) func(*diffAnswer) { return func(m *diffAnswer) { m.Additions = a } }
	raw := func(sets ...*wrv1.RawHashes) func(*diffAnswer) {
		return adds(&wrv1.ThreatEntryAdditions{RawHashes: sets})
	}
	rice := func(r *wrv1.RiceDeltaEncoding) func(*diffAnswer) {
		return adds(&wrv1.ThreatEntryAdditions{RiceHashes: r})
	}
	remove := func(r *wrv1.ThreatEntryRemovals) func(*diffAnswer) {
		return func(m *diffAnswer) { m.ResponseType, m.Removals, m.Additions = riskDiff, r, nil }
	}
	indices := func(all ...int32) *wrv1.ThreatEntryRemovals {
		return &wrv1.ThreatEntryRemovals{RawIndices: &wrv1.RawIndices{Indices: all}}
	}
	good := func() *diffAnswer {
		m := riskUpdate(riskReset, "05000000")
		m.Additions = &wrv1.ThreatEntryAdditions{RiceHashes: riskRice(5, 0, 0, "")}
		return m
	}
	held, err := fetchRisk(t, updater.List{Name: "se-4b"}, good())
	testkit.Must(t, err)
	for name, alter := range map[string]func(*diffAnswer){
		"neither full nor partial":           func(m *diffAnswer) { m.ResponseType = 0 },
		"raw prefixes cut":                   raw(riskRaw(5, "0500000000 05")),
		"raw prefixes twice":                 raw(riskRaw(4, "05000000 05000000")),
		"33 sets":                            raw(append(slices.Repeat([]*wrv1.RawHashes{riskRaw(4, "")}, 32), riskRaw(4, "05000000"))...),
		"a prefix raw and in Rice coding":    adds(&wrv1.ThreatEntryAdditions{RawHashes: []*wrv1.RawHashes{riskRaw(4, "05000000")}, RiceHashes: riskRice(5, 0, 0, "")}),
		"a negative first value":             rice(riskRice(-1, 0, 0, "")),
		"a first value over 32 bits":         rice(riskRice(1<<32, 0, 0, "")),
		"a parameter of 1":                   rice(riskRice(5, 1, 1, "02")),
		"a parameter of 29":                  rice(riskRice(5, 29, 1, "0200000000")),
		"data cut":                           rice(riskRice(5, 2, 2, "f7")),
		"a full update with removals":        func(m *diffAnswer) { m.Removals = indices(0) },
		"a removal behind the end":           remove(indices(1)),
		"a negative removal":                 remove(indices(-1)),
		"a removal twice":                    remove(indices(0, 0)),
		"a removal raw and in Rice coding":   remove(&wrv1.ThreatEntryRemovals{RawIndices: &wrv1.RawIndices{Indices: []int32{0}}, RiceIndices: riskRice(0, 0, 0, "")}),
		"Rice removals from -1":              remove(&wrv1.ThreatEntryRemovals{RiceIndices: riskRice(-1, 0, 0, "")}),
		"Rice removals that are cut":         remove(&wrv1.ThreatEntryRemovals{RiceIndices: riskRice(0, 2, 2, "f7")}),
		"no version":                         func(m *diffAnswer) { m.NewVersionToken = nil },
		"a checksum of 31 bytes":             func(m *diffAnswer) { m.Checksum.Sha256 = m.Checksum.Sha256[:31] },
		"an empty checksum":                  func(m *diffAnswer) { m.Checksum.Sha256 = nil },
		"no checksum":                        func(m *diffAnswer) { m.Checksum = nil },
		"a checksum of something else":       func(m *diffAnswer) { m.Checksum.Sha256[0] ^= 1 },
		"a next diff that cannot be":         func(m *diffAnswer) { m.RecommendedNextDiff = &timestamppb.Timestamp{Nanos: -1} },
		"a million raw removals of one list": remove(indices(make([]int32, 1_050_000)...)),
	} {
		m := good()
		alter(m)
		l, err := fetchRisk(t, held, m)
		if !errors.Is(err, updater.ErrMalformed) && !errors.Is(err, updater.ErrChecksum) || l.Set != nil {
			t.Errorf("%s: got %v, %v", name, l, err)
		}
	}
}

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
			wantAnswer(t, wire, newWebRisk(t, always(binaryForm, unhex(t, wire)), "se-4b"), want)
		}
	})
}

// Threat types are those that were asked for; what else a full hash has is dropped, and so is a full hash without one.
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
		{"extended coverage", []string{"se-ext-4b"}, []wrv1.ThreatType{extended}, []lookup.Threat{lookup.SocialEngineering}},
		{"extended coverage that is not configured", []string{"se-4b"}, []wrv1.ThreatType{extended}, nil},
		{"the normal coverage instead of the extended", []string{"se-ext-4b"}, []wrv1.ThreatType{phishing}, nil},
		{"an unknown type", WebRiskLists(), []wrv1.ThreatType{5}, nil},
		{"no types", WebRiskLists(), nil, nil},
		{"an unknown type before a known one", WebRiskLists(), []wrv1.ThreatType{99, malware}, []lookup.Threat{lookup.Malware}},
	} {
		body := marshal(t, &wrv1.SearchHashesResponse{Threats: []*threatHash{{ThreatTypes: test.types, Hash: make([]byte, 32)}}})
		want := lookup.Answer{Threats: threatHashes(lookup.FullHash{}, test.want, nil)} // without expire_time: for this once
		wantAnswer(t, test.name, newWebRisk(t, always(binaryForm, body), test.lists...), want)
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
		testkit.Equal(t, name+": asked, and no error", []bool{asked == 1, err == nil}, slices.Repeat([]bool{test.want == ""}, 2))
		testkit.WantParts(t, fmt.Sprint(err), test.want)
	}
}

func TestWebRiskSearchRejectsWhatCannotBe(t *testing.T) {
	wrong := &timestamppb.Timestamp{Seconds: 1 << 60}
	for name, m := range map[string]*wrv1.SearchHashesResponse{
		"a full hash of 33 bytes":               {Threats: []*threatHash{{Hash: make([]byte, 33)}}},
		"a prefix instead of a hash":            {Threats: []*threatHash{{Hash: make([]byte, 32)}, {Hash: make([]byte, 4)}}},
		"an expire time that cannot be":         {Threats: []*threatHash{{Hash: make([]byte, 32), ExpireTime: wrong}}},
		"a negative expire time that cannot be": {NegativeExpireTime: wrong},
		"too many threats":                      {Threats: slices.Repeat([]*threatHash{{Hash: make([]byte, 32)}}, 6000)},
	} {
		wantRefused(t, name, newWebRisk(t, always(binaryForm, marshal(t, m)), "se-4b"))
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
			testkit.Between(t, fmt.Sprint("the wait after failure ", i+1), wait, least, least+least/4)
			s.search(t)
			testkit.Equal(t, "requests, none in the back-off", len(s.server.Requests("searchOne")), i+1)
			time.Sleep(wait)
		}
		testkit.Equal(t, "the wait after a success", s.search(t), 0)
	})
}

// A refusal does not heal within seconds, and counts by itself: the errors before it must not make it a day.
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
			testkit.Between(t, "the wait", wait, least, 2*least)
			time.Sleep(wait)
		}
		testkit.Equal(t, "the wait after a success", s.search(t), 0)
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
		testkit.Must(t, err)
		testkit.Equal(t, test.name+": life, and wait", [2]time.Duration{life, wait}, [2]time.Duration{test.least, test.most})
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
		testkit.Is(t, name, err, test.want)
		testkit.Equal(t, name+": life, and wait", [2]time.Duration{life, wait}, [2]time.Duration{})
	}
}
