package protocol

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

type (
	listUpdate = sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse
	entrySet   = sbv4.ThreatEntrySet
)

const (
	partialUpdate = sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse_PARTIAL_UPDATE
	fullUpdate    = sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse_FULL_UPDATE
)

// wireFetch asks for SOCIAL_ENGINEERING / ANY_PLATFORM / URL without a state.
const wireFetch = "0a1b0a14636f7265646e732d7361666562726f7773696e671203312e301a0c080210062204220202012801"

func newV4(t testing.TB, transport http.RoundTripper, lists ...string) *V4 {
	t.Helper()
	states := func() [][]byte { return [][]byte{{1}, {2}} }
	c, err := NewV4(Config{Key: testKey, UserAgent: "coredns-safebrowsing/1.0", Transport: transport}, lists, states)
	testkit.Must(t, err)
	return c
}

// updatesV4 is the answer to a fetch.
func updatesV4(t testing.TB, wait time.Duration, lists ...*listUpdate) []byte {
	t.Helper()
	return marshal(t, &sbv4.FetchThreatListUpdatesResponse{ListUpdateResponses: lists, MinimumWaitDuration: durationpb.New(wait)})
}

func raw(size int, hashes string) *entrySet {
	return &entrySet{CompressionType: sbv4.CompressionType_RAW, RawHashes: &sbv4.RawHashes{PrefixSize: int32(size), RawHashes: spaced(hashes)}}
}

func riceSet(first int64, k, n int32, data string) *entrySet {
	coded := &sbv4.RiceDeltaEncoding{FirstValue: first, RiceParameter: k, NumEntries: n, EncodedData: spaced(data)}
	return &entrySet{CompressionType: sbv4.CompressionType_RICE, RiceHashes: coded}
}

func riceIndices(first int64, k, n int32, data string) *entrySet {
	s := riceSet(first, k, n, data)
	s.RiceHashes, s.RiceIndices = nil, s.RiceHashes
	return s
}

func rawIndices(indices ...int32) *entrySet {
	return &entrySet{CompressionType: sbv4.CompressionType_RAW, RawIndices: &sbv4.RawIndices{Indices: indices}}
}

// phishing is an update of se-4b whose result has these entries, in hexadecimal.
func phishing(kind sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse_ResponseType, result string) *listUpdate {
	return &listUpdate{
		ThreatType: sbv4.ThreatType_SOCIAL_ENGINEERING, PlatformType: sbv4.PlatformType_ANY_PLATFORM, ThreatEntryType: sbv4.ThreatEntryType_URL,
		ResponseType: kind, NewClientState: []byte("new"), Checksum: &sbv4.Checksum{Sha256: sha256Of(result)},
	}
}

// fetchV4 fetches se-4b while old is held, and applies what comes.
func fetchV4(t *testing.T, old updater.List, m *listUpdate) (l updater.List, err error) {
	t.Helper()
	return fetchApplied(t, newV4(t, always(binaryForm, updatesV4(t, 0, m)), "se-4b"), old)
}

func TestV4FetchRequestOnTheWire(t *testing.T) {
	var asked []byte
	c := newV4(t, answering(func(r *http.Request) (*http.Response, error) {
		asked, _ = io.ReadAll(r.Body)
		testkit.Equal(t, "request", r.Method+" "+r.URL.String(), "POST "+DefaultEndpoint+"/v4/threatListUpdates:fetch?alt=proto")
		testkit.Equal(t, "header", [2]string{r.Header.Get("Content-Type"), r.Header.Get("X-Goog-Api-Key")}, [2]string{binaryForm, testKey})
		return always(binaryForm, nil)(r)
	}), "se-4b")
	testkit.WantError(t, fetchOnce(t.Context(), c)) // the answer is empty
	testkit.Equal(t, "sent", hex.EncodeToString(asked), wireFetch)
}

func TestV4ListsOfMixedLengths(t *testing.T) {
	full := phishing(fullUpdate, "01000000 01000000aa 01000000aa01 05000000 14000000 1d000000 1d000000ffffffff")
	full.Additions = []*entrySet{
		riceSet(5, 2, 2, "f702"), raw(5, "01000000aa"), raw(6, "01000000aa01"), raw(8, "1d000000ffffffff"), raw(4, "01000000"),
	}
	partial := phishing(partialUpdate, "01000000 01000000aa 05000000 14000000 14000000ff 1d000000aa")
	partial.Removals = []*entrySet{rawIndices(5), riceIndices(6, 0, 0, ""), rawIndices(2)} // as in TestWebRiskListsOfMixedLengths
	partial.Additions = []*entrySet{raw(5, "14000000ff 1d000000aa")}
	l := updater.List{Name: "se-4b"}
	for _, m := range []*listUpdate{full, partial} {
		var err error
		l, err = fetchV4(t, l, m)
		testkit.Must(t, err)
	}
	checkList(t, l, "6e6577", "0100000001000000aa050000001400000014000000ff1d000000aa", hex.EncodeToString(partial.Checksum.Sha256))
}

func TestV4RejectsWhatCannotBe(t *testing.T) {
	set := func(sets ...*entrySet) func(*listUpdate) {
		return func(m *listUpdate) { m.Additions = sets }
	}
	remove := func(sets ...*entrySet) func(*listUpdate) {
		return func(m *listUpdate) { m.ResponseType, m.Removals = partialUpdate, sets }
	}
	first := phishing(fullUpdate, "05000000")
	first.Additions = []*entrySet{riceSet(5, 0, 0, "")}
	held, err := fetchV4(t, updater.List{Name: "se-4b"}, first)
	testkit.Must(t, err)
	for name, alter := range map[string]func(*listUpdate){
		"neither full nor partial":     func(m *listUpdate) { m.ResponseType = 0 },
		"no compression type":          set(&entrySet{RawHashes: raw(4, "05000000").RawHashes}),
		"Rice coding that is missing":  set(&entrySet{CompressionType: sbv4.CompressionType_RICE}),
		"raw prefixes cut":             set(raw(5, "0500000000 05")),
		"a removal of unknown type":    remove(&entrySet{CompressionType: 7}),
		"Rice removals that are empty": remove(&entrySet{CompressionType: sbv4.CompressionType_RICE}),
		"no state":                     func(m *listUpdate) { m.NewClientState = nil },
		"a state of 1025 bytes":        func(m *listUpdate) { m.NewClientState = make([]byte, 1025) },
		"33 sets":                      set(append(slices.Repeat([]*entrySet{raw(4, "")}, 32), raw(4, "05000000"))...),
		"33 sets of removals":          remove(append(slices.Repeat([]*entrySet{rawIndices()}, 32), rawIndices(0))...),
		"no checksum":                  func(m *listUpdate) { m.Checksum = nil },
	} {
		m := phishing(fullUpdate, "05000000")
		alter(m)
		if l, err := fetchV4(t, held, m); !errors.Is(err, updater.ErrMalformed) || l.Set != nil {
			t.Errorf("%s: got %v, %v", name, l, err)
		}
	}
}

func TestV4AnswersAreMatchedByTheirTypes(t *testing.T) {
	harmful := func() *listUpdate {
		return &listUpdate{
			ThreatType: sbv4.ThreatType_POTENTIALLY_HARMFUL_APPLICATION, PlatformType: sbv4.PlatformType_ANDROID, ThreatEntryType: sbv4.ThreatEntryType_URL,
			ResponseType: fullUpdate, NewClientState: []byte("pha"),
		}
	}
	with := func(m *listUpdate, alter func(*listUpdate)) *listUpdate { alter(m); return m }
	wanted := []updater.Want{{List: "se-4b", Version: []byte("s")}, {List: "uws-4b"}, {List: "pha-4b"}, {List: "mw-4b", Version: []byte("m")}}
	for name, wrong := range map[string]*listUpdate{
		"another platform":   with(harmful(), func(m *listUpdate) { m.PlatformType = sbv4.PlatformType_IOS }),
		"another threat":     with(harmful(), func(m *listUpdate) { m.ThreatType = 99 }),
		"another entry type": with(harmful(), func(m *listUpdate) { m.ThreatEntryType = sbv4.ThreatEntryType_EXECUTABLE }),
		"twice":              harmful(),
	} {
		c := newV4(t, always(binaryForm, updatesV4(t, time.Hour, harmful(), wrong)))
		wait, err := c.Fetch(t.Context(), wanted, func(int, *updater.Update) { t.Errorf("%s: taken", name) })
		testkit.Is(t, name, err, updater.ErrMalformed)
		testkit.Equal(t, name+": minimum wait", wait, time.Hour)
	}

	testkit.Is(t, "a negative minimum wait", toFetch()(t.Context(), newV4(t, always(binaryForm, updatesV4(t, -1)))), updater.ErrMalformed)
	c := newV4(t, always(binaryForm, updatesV4(t, 593*time.Second+440*time.Millisecond, harmful(), phishing(partialUpdate, ""))))
	got := make([]*updater.Update, len(wanted))
	wait, err := c.Fetch(t.Context(), wanted, func(i int, u *updater.Update) { got[i] = u })
	testkit.Must(t, err)
	testkit.Equal(t, "minimum wait", wait, 593*time.Second+440*time.Millisecond)
	testkit.Is(t, "of lists that were answered", errors.Join(got[0].Err, got[2].Err), nil)
	testkit.Equal(t, "versions", string(got[0].Version)+" "+string(got[2].Version), "new pha")
	testkit.Equal(t, "of a list without an update", *got[3], updater.Update{Partial: true, Version: []byte("m")})
	testkit.Is(t, "of a list that is not held and was not answered", got[1].Err, updater.ErrMalformed)
}

func TestV4Search(t *testing.T) {
	hash := sha256.Sum256([]byte("evil.example.com/"))
	match := func(threat sbv4.ThreatType, platform sbv4.PlatformType, life time.Duration) *sbv4.ThreatMatch {
		return &sbv4.ThreatMatch{
			ThreatType: threat, PlatformType: platform, ThreatEntryType: sbv4.ThreatEntryType_URL,
			Threat: &sbv4.ThreatEntry{Hash: hash[:]}, CacheDuration: durationpb.New(life),
		}
	}
	executable := match(sbv4.ThreatType_MALWARE, sbv4.PlatformType_ANY_PLATFORM, time.Hour)
	executable.ThreatEntryType = sbv4.ThreatEntryType_EXECUTABLE
	body := marshal(t, &sbv4.FindFullHashesResponse{
		Matches: []*sbv4.ThreatMatch{
			match(sbv4.ThreatType_SOCIAL_ENGINEERING, sbv4.PlatformType_ANY_PLATFORM, 5*time.Minute),
			match(sbv4.ThreatType_POTENTIALLY_HARMFUL_APPLICATION, sbv4.PlatformType_ANDROID, time.Minute),
			match(sbv4.ThreatType_SOCIAL_ENGINEERING, sbv4.PlatformType_ANDROID, time.Hour), // types of two lists
			match(99, sbv4.PlatformType_ANY_PLATFORM, time.Hour),
			executable,
		},
		NegativeCacheDuration: durationpb.New(10 * time.Minute), MinimumWaitDuration: durationpb.New(2 * time.Second),
	})
	var asked sbv4.FindFullHashesRequest
	c := newV4(t, answering(func(r *http.Request) (*http.Response, error) {
		sent, _ := io.ReadAll(r.Body)
		testkit.Must(t, proto.Unmarshal(sent, &asked))
		testkit.Equal(t, "request", r.Method+" "+r.URL.Path, "POST /v4/fullHashes:find")
		return always(binaryForm, body)(r)
	}), "se-4b", "pha-4b")
	got, err := c.Search(t.Context(), []lookup.Prefix{lookup.Prefix(hash[:4]), lookup.Prefix(hash[:9])})
	want := lookup.Answer{TTL: 10 * time.Minute, MinimumWait: 2 * time.Second, Threats: []lookup.ThreatHash{
		{Hash: hash, Threats: lookup.Threats(0).With(lookup.SocialEngineering), TTL: 5 * time.Minute},
		{Hash: hash, Threats: lookup.Threats(0).With(lookup.PotentiallyHarmfulApplication), TTL: time.Minute},
	}}
	testkit.Must(t, err)
	testkit.Equal(t, "answer", got, want)
	wantAsked := &sbv4.FindFullHashesRequest{
		Client:       &sbv4.ClientInfo{ClientId: "coredns-safebrowsing", ClientVersion: "1.0"},
		ClientStates: [][]byte{{1}, {2}},
		ThreatInfo: &sbv4.ThreatInfo{
			ThreatTypes:      []sbv4.ThreatType{sbv4.ThreatType_SOCIAL_ENGINEERING, sbv4.ThreatType_POTENTIALLY_HARMFUL_APPLICATION},
			PlatformTypes:    []sbv4.PlatformType{sbv4.PlatformType_ANY_PLATFORM, sbv4.PlatformType_ANDROID},
			ThreatEntryTypes: []sbv4.ThreatEntryType{sbv4.ThreatEntryType_URL},
			ThreatEntries:    []*sbv4.ThreatEntry{{Hash: hash[:4]}, {Hash: hash[:9]}},
		},
	}
	testkit.Equal(t, "asked", asked.String(), wantAsked.String())
}

func TestV4SearchRejectsWhatCannotBe(t *testing.T) {
	for name, m := range map[string]*sbv4.FindFullHashesResponse{
		"a full hash of 31 bytes": {Matches: []*sbv4.ThreatMatch{{Threat: &sbv4.ThreatEntry{Hash: make([]byte, 31)}}}},
		"a negative life":         {Matches: []*sbv4.ThreatMatch{{Threat: &sbv4.ThreatEntry{Hash: make([]byte, 32)}, CacheDuration: durationpb.New(-1)}}},
		"a negative negative one": {NegativeCacheDuration: durationpb.New(-1)},
		"a negative wait":         {MinimumWaitDuration: durationpb.New(-1)},
	} {
		wantRefused(t, name, newV4(t, always(binaryForm, marshal(t, m)), "se-4b"))
	}
}

func TestV4OffersListsByTheirNamesInV5(t *testing.T) {
	body := marshal(t, &sbv4.ListThreatListsResponse{ThreatLists: []*sbv4.ThreatListDescriptor{
		{ThreatType: sbv4.ThreatType_MALWARE, PlatformType: sbv4.PlatformType_WINDOWS, ThreatEntryType: sbv4.ThreatEntryType_URL},
		{ThreatType: sbv4.ThreatType_UNWANTED_SOFTWARE, PlatformType: sbv4.PlatformType_ANDROID, ThreatEntryType: sbv4.ThreatEntryType_URL},
		{ThreatType: sbv4.ThreatType_MALWARE, PlatformType: sbv4.PlatformType_ANY_PLATFORM, ThreatEntryType: sbv4.ThreatEntryType_EXECUTABLE},
		{ThreatType: sbv4.ThreatType_MALWARE, PlatformType: sbv4.PlatformType_ANY_PLATFORM, ThreatEntryType: sbv4.ThreatEntryType_URL},
	}})
	got, err := newV4(t, always(binaryForm, body)).Lists(t.Context())
	want := []ListInfo{
		{"mw-4b", "MALWARE/ANY_PLATFORM/URL", lookup.Threats(0).With(lookup.Malware)},
		{"uwsa-4b", "UNWANTED_SOFTWARE/ANDROID/URL", lookup.Threats(0).With(lookup.UnwantedSoftware)},
	}
	testkit.Must(t, err)
	testkit.Equal(t, "lists", got, want)
}

func TestV4KnowsOnlyListsThatHaveTypes(t *testing.T) {
	_, err := NewV4(Config{UserAgent: "a/1"}, []string{"se-4b", "own-4b"}, func() [][]byte { return nil })
	testkit.WantError(t, err, `"own-4b"`, "pha-4b")
}

// No answer to a fetch makes the client panic, or take what does not fit together.
func FuzzThreatListUpdates(f *testing.F) {
	mixed := phishing(fullUpdate, "05000000 05000000aa 14000000 1d000000")
	mixed.Additions = []*entrySet{riceSet(5, 2, 2, "f702"), raw(5, "05000000aa")}
	f.Add(updatesV4(f, time.Hour, mixed))
	part := phishing(partialUpdate, "3c3c3c3c 3c3c3c3c3c b4b4b4b4")
	part.Removals, part.Additions = []*entrySet{rawIndices(2), riceIndices(0, 0, 0, "")}, []*entrySet{raw(5, "3c3c3c3c3c")}
	f.Add(updatesV4(f, 0, part))
	f.Fuzz(func(t *testing.T, body []byte) { checkFetch(t, newV4(t, always(binaryForm, body)), len(body)) })
}

func FuzzFullHashes(f *testing.F) {
	m := &sbv4.FindFullHashesResponse{NegativeCacheDuration: durationpb.New(time.Hour), Matches: []*sbv4.ThreatMatch{{
		ThreatType: sbv4.ThreatType_SOCIAL_ENGINEERING, PlatformType: sbv4.PlatformType_ANY_PLATFORM, ThreatEntryType: sbv4.ThreatEntryType_URL,
		Threat: &sbv4.ThreatEntry{Hash: make([]byte, 32)}, CacheDuration: durationpb.New(time.Minute),
	}}}
	f.Add(marshal(f, m))
	f.Fuzz(func(t *testing.T, body []byte) {
		checkSearch(t, newV4(t, always(binaryForm, body), "se-4b"), lookup.Threats(0).With(lookup.SocialEngineering))
	})
}

// Merging three million entries of 32 sets takes a second: whoever stops does not wait for that.
func TestDecodingIsCutInTheMiddle(t *testing.T) {
	const sets, entries = 32, 100_000
	m := phishing(fullUpdate, "")
	for i := range sets {
		hashes := make([]byte, 0, 4*entries)
		for j := range entries {
			hashes = binary.BigEndian.AppendUint32(hashes, uint32(j*sets+i))
		}
		m.Additions = append(m.Additions, &entrySet{CompressionType: sbv4.CompressionType_RAW, RawHashes: &sbv4.RawHashes{PrefixSize: 4, RawHashes: hashes}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var applied error
	_, err := newV4(t, always(binaryForm, updatesV4(t, 0, m)), "se-4b").Fetch(ctx, []updater.Want{{List: "se-4b"}}, func(_ int, u *updater.Update) {
		time.AfterFunc(20*time.Millisecond, cancel)
		_, _, applied = updater.Apply(updater.List{Name: "se-4b"}, u, 1<<24)
	})
	testkit.Is(t, "the request", err, context.Canceled)
	testkit.Is(t, "the update", applied, context.Canceled)
}

func TestOriginsOfVersion4(t *testing.T) {
	const google, risk, own = "https://safebrowsing.googleapis.com", "https://webrisk.googleapis.com", "http://127.0.0.1:1"
	type before = []updater.Predecessor
	checkOrigin(t, DialectV5, google, google, "", before{{Name: google + " v4", Continues: true}, {Name: risk + " webrisk"}})
	checkOrigin(t, DialectV4, google, google+" v4", "schedule-v4.json", before{{Name: google}, {Name: risk + " webrisk"}})
	checkOrigin(t, DialectWebRisk, risk, risk+" webrisk", "schedule-webrisk.json", before{{Name: google}, {Name: google + " v4"}})
	checkOrigin(t, DialectV4, own, own+" v4", "schedule-v4.json", before{{Name: own}, {Name: own + " webrisk"}})
}

func TestGooglesSafeBrowsingSpeaksVersion4AndItsWebRiskDoesNot(t *testing.T) {
	for endpoint, want := range map[string]bool{"": true, "https://safebrowsing.googleapis.com": true, "https://webrisk.googleapis.com": false, "http://127.0.0.1:1": true} {
		testkit.Equal(t, endpoint, DialectV4.Serves(endpoint), want)
	}
}

// "Update Constraints" of version 4.
func TestLimitsOfEntriesThatVersion4Knows(t *testing.T) {
	for entries, limit := range map[int]int{0: 0, 1: 1024, 1024: 1024, 1025: 1024, 2047: 1024, 2048: 2048, 1 << 20: 1 << 20, 1<<20 - 1: 1 << 19, 5_000_000: 1 << 20} {
		testkit.Equal(t, entries, DialectV4.MaxEntries(entries), limit)
	}
}

func TestVersion4EndsAtGooglesServerOn31March2027(t *testing.T) {
	const stops = ": from then on its server may stop at any time, and then lists are not updated and names are not confirmed. Change protocol v4 to v5: the lists stay in force"
	for _, tc := range []struct {
		now, want string
		over      bool
	}{
		{"2026-11-23T12:00:00Z", "Google ends Safe Browsing v4 on 31 March 2027, in 128 days" + stops, false},
		{"2027-03-29T12:00:00Z", "Google ends Safe Browsing v4 on 31 March 2027, in 2 days" + stops, false},
		{"2027-03-30T23:59:59Z", "Google ends Safe Browsing v4 on 31 March 2027, tomorrow" + stops, false},
		{"2027-03-31T00:00:00Z", "Google has ended Safe Browsing v4 on 31 March 2027: its server may stop at any time, and then lists are not updated and names are not confirmed. Change protocol v4 to v5. DNS and your own lists keep working", true},
	} {
		now, err := time.Parse(time.RFC3339, tc.now)
		testkit.Must(t, err)
		for _, endpoint := range []string{"", DefaultEndpoint} {
			e := DialectV4.EndingAt(endpoint)
			testkit.Equal(t, tc.now, []any{e.Text(now), e.Over(now)}, []any{tc.want, tc.over})
		}
		for who, e := range map[string]Ending{"a server of one's own": DialectV4.EndingAt("http://127.0.0.1:8099"), "v5": DialectV5.EndingAt(""), "Web Risk": DialectWebRisk.EndingAt("")} {
			testkit.Equal(t, who, []any{e.Text(now), e.Over(now)}, []any{"", false})
		}
	}
}

// A malformed answer to a search may have a minimum wait.
func TestTheMinimumWaitOfAMalformedSearchHolds(t *testing.T) {
	var asked []time.Time
	c := newV4(t, counted(marshal(t, &sbv4.FindFullHashesResponse{
		Matches:             []*sbv4.ThreatMatch{{Threat: &sbv4.ThreatEntry{Hash: []byte("short")}}},
		MinimumWaitDuration: durationpb.New(6 * time.Hour),
	}), &asked), "se-4b")
	synctest.Test(t, func(t *testing.T) {
		schedule, _ := updater.NewSchedule(nil)
		s := updater.Pace(c, schedule, updater.SearchRules{Backoff: updater.Strict}, func(updater.Event) {})
		s.Search(t.Context(), []lookup.Prefix{"abcd"})
		time.Sleep(time.Hour)
		s.Search(t.Context(), []lookup.Prefix{"abcd"})
		testkit.Equal(t, "requests within the minimum wait", len(asked), 1)
	})
}
