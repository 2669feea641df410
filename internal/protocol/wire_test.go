package protocol

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Messages as the schema of v5 writes them. The hashes and the coded data are
// from the pages "URLs and Hashing" and "Local Database".
const (
	wireNothingFound = "120308ac02"
	wireFound        = "0a260a201d32c5084a360e58f1b87109637a6810acad97a861a7769e8f1841410d2a960c12020802120308ac02"
	wireFull         = "0a0573652d346212020102221508888acbe901101e180222097400d2971bed497400320308880e3a20d1099a04a9fd4f1ed0cd830fb388d03faa04cb1f0cb5819b9ecb84ec6e95bbbf"
	wirePartial      = "0a0573652d3462120201031801220608e2bce0c4082a020801320308ac023a204331164ec13c31b2764ff32a04eab00504aefa9a4e854a9d32f1b2caa9be6cf5"
)

// answering is a transport that answers every request by itself.
type answering func(*http.Request) (*http.Response, error)

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// always answers every request with this body.
func always(contentType string, body []byte) answering {
	return func(r *http.Request) (*http.Response, error) {
		return response(r, http.StatusOK, http.Header{"Content-Type": {contentType}}, body), nil
	}
}

func response(r *http.Request, status int, header http.Header, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Header: header, Request: r,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

const binaryForm = "application/x-protobuf"

func newClient(t testing.TB, transport http.RoundTripper) *V5 {
	t.Helper()
	return clientOf(t, Config{Key: testKey, Transport: transport})
}

const testKey = "AIzaSy-SECRET_0123456789"

// zeroPrefix is asked for where it does not matter what is.
const zeroPrefix = lookup.Prefix("\x00\x00\x00\x00")

// fetch returns the updates of lists, in the order in which they are wanted. It
// fails the test if one is not given, or given twice.
func fetch(t testing.TB, c Client, wanted ...updater.Want) ([]*updater.Update, error) {
	t.Helper()
	updates := make([]*updater.Update, len(wanted))
	wait, err := c.Fetch(t.Context(), wanted, func(i int, u *updater.Update) {
		testkit.Equal(t, wanted[i].List+" was given before", updates[i] != nil, false)
		updates[i] = u
	})
	if err != nil {
		return nil, err
	}
	testkit.Equal(t, "a list is missing, and a wait of all", []any{slices.Contains(updates, nil), wait}, []any{false, time.Duration(0)})
	return updates, nil
}

// added returns the number of additions.
func added(u *updater.Update) (n int) {
	for _, e := range u.Additions {
		n += e.Count
	}
	return n
}

// applied fetches se-4b from a server that answers a client, and applies it to old.
func applied(t *testing.T, c Client, old updater.List) (updater.List, *updater.Update) {
	t.Helper()
	updates, err := fetch(t, c, updater.Want{List: "se-4b", Version: old.Version})
	testkit.Must(t, err)
	l, changed, err := updater.Apply(old, updates[0], 1000)
	testkit.Must(t, err)
	testkit.Equal(t, "the list has changed", changed, true)
	return l, updates[0]
}

func TestListsOnTheWire(t *testing.T) {
	full, update := applied(t, newClient(t, always(binaryForm, unhex(t, wireFull))), updater.List{Name: "se-4b"})
	checkList(t, full, "0102", "1d32c508291bc542f7a502e5", "d1099a04a9fd4f1ed0cd830fb388d03faa04cb1f0cb5819b9ecb84ec6e95bbbf")
	testkit.Equal(t, "partial, and minimum wait", []any{update.Partial, update.MinimumWait}, []any{false, 30 * time.Minute})
	partial, update := applied(t, newClient(t, always(binaryForm, unhex(t, wirePartial))), full)
	checkList(t, partial, "0103", "1d32c50888981e62f7a502e5", "4331164ec13c31b2764ff32a04eab00504aefa9a4e854a9d32f1b2caa9be6cf5")
	testkit.Equal(t, "partial, and minimum wait", []any{update.Partial, update.MinimumWait}, []any{true, 5 * time.Minute})
	testkit.Equal(t, "removals and additions", [2]int{update.Removals.Count, added(update)}, [2]int{1, 1})
}

func checkList(t *testing.T, l updater.List, version, entries, checksum string) {
	t.Helper()
	got := fmt.Sprintf("version %x, entries %x, checksum %x", l.Version, all(t, l), l.Checksum)
	testkit.Equal(t, l.Name, got, fmt.Sprintf("version %s, entries %s, checksum %s", version, entries, checksum))
}

func TestSearchAnswersOnTheWire(t *testing.T) {
	found := lookup.ThreatHash{
		Hash:    lookup.FullHash(unhex(t, "1d32c5084a360e58f1b87109637a6810acad97a861a7769e8f1841410d2a960c")),
		Threats: lookup.Threats(0).With(lookup.SocialEngineering),
		TTL:     5 * time.Minute,
	}
	for wire, want := range map[string][]lookup.ThreatHash{wireNothingFound: nil, wireFound: {found}} {
		wantAnswer(t, wire, newClient(t, always(binaryForm, unhex(t, wire))), lookup.Answer{TTL: 5 * time.Minute, Threats: want})
	}
}

// wantAnswer holds what a search is answered, whatever it asks for.
func wantAnswer(t *testing.T, what string, c Client, want lookup.Answer) {
	t.Helper()
	got, err := c.Search(t.Context(), []lookup.Prefix{zeroPrefix})
	testkit.Is(t, what, err, nil)
	testkit.Equal(t, what, got, want)
}

func TestLifeOfSearchAnswers(t *testing.T) {
	for _, test := range []struct {
		name     string
		duration *durationpb.Duration
		want     time.Duration
		err      error
	}{
		{"none", nil, 0, nil},
		{"zero", &durationpb.Duration{}, 0, nil},
		{"nanoseconds are nanoseconds", &durationpb.Duration{Seconds: 1, Nanos: 500}, time.Second + 500, nil},
		{"the longest that the schema allows", &durationpb.Duration{Seconds: 315576000000}, math.MaxInt64, nil},
		{"negative seconds", &durationpb.Duration{Seconds: -1}, 0, updater.ErrMalformed},
		{"both signs", &durationpb.Duration{Seconds: 1, Nanos: -1}, 0, updater.ErrMalformed},
		{"longer than the schema allows", &durationpb.Duration{Seconds: math.MaxInt64}, 0, updater.ErrMalformed},
	} {
		body := marshal(t, &sbv5.SearchHashesResponse{CacheDuration: test.duration})
		got, err := newClient(t, always(binaryForm, body)).Search(t.Context(), []lookup.Prefix{zeroPrefix})
		u := updateOf(t.Context(), &sbv5.HashList{Name: "se-4b", Version: []byte{1}, MinimumWaitDuration: test.duration})
		testkit.Equal(t, test.name+": life, and minimum wait", [2]time.Duration{got.TTL, u.MinimumWait}, [2]time.Duration{test.want, test.want})
		testkit.Is(t, test.name+": the search", err, test.err)
		testkit.Is(t, test.name+": the list", u.Err, test.err)
	}
}

func TestFullHashesMustBeWhole(t *testing.T) {
	for _, size := range []int{0, 4, 31, 33, 64} {
		m := &sbv5.SearchHashesResponse{CacheDuration: durationpb.New(time.Minute), FullHashes: []*sbv5.FullHash{
			{FullHash: make([]byte, 32), FullHashDetails: detail(sbv5.ThreatType_MALWARE)},
			{FullHash: make([]byte, size)},
		}}
		wantRefused(t, fmt.Sprintf("full hash of %d bytes", size), newClient(t, always(binaryForm, marshal(t, m))))
	}
}

// wantRefused holds that no part of the answer to a search is taken.
func wantRefused(t *testing.T, what string, c Client) {
	t.Helper()
	got, err := c.Search(t.Context(), []lookup.Prefix{zeroPrefix})
	testkit.Is(t, what, err, updater.ErrMalformed)
	testkit.Equal(t, what, got, lookup.Answer{})
}

func detail(threat sbv5.ThreatType, attributes ...sbv5.ThreatAttribute) []*sbv5.FullHash_FullHashDetail {
	return []*sbv5.FullHash_FullHashDetail{{ThreatType: threat, Attributes: attributes}}
}

// threatHashes is what a search tells of a full hash.
func threatHashes(hash lookup.FullHash, threats, frameOnly []lookup.Threat) (all []lookup.ThreatHash) {
	for i, some := range [][]lookup.Threat{threats, frameOnly} {
		t := lookup.ThreatHash{Hash: hash, FrameOnly: i == 1}
		for _, threat := range some {
			t.Threats = t.Threats.With(threat)
		}
		if some != nil {
			all = append(all, t)
		}
	}
	return all
}

func TestOnlyEnforceableThreatsAreKept(t *testing.T) {
	const mw, se, uws = sbv5.ThreatType_MALWARE, sbv5.ThreatType_SOCIAL_ENGINEERING, sbv5.ThreatType_UNWANTED_SOFTWARE
	const canary, frames = sbv5.ThreatAttribute_CANARY, sbv5.ThreatAttribute_FRAME_ONLY
	malware, phishing := []lookup.Threat{lookup.Malware}, []lookup.Threat{lookup.SocialEngineering}
	unwanted, harmful := []lookup.Threat{lookup.UnwantedSoftware}, []lookup.Threat{lookup.PotentiallyHarmfulApplication}
	for _, test := range []struct {
		name            string
		details         []*sbv5.FullHash_FullHashDetail
		want, frameOnly []lookup.Threat
	}{
		{"no detail", nil, nil, nil},
		{"malware", detail(mw), malware, nil},
		{"social engineering", detail(se), phishing, nil},
		{"unwanted software", detail(uws), unwanted, nil},
		{"harmful application", detail(sbv5.ThreatType_POTENTIALLY_HARMFUL_APPLICATION), harmful, nil},
		{"unknown threat", detail(13), nil, nil},
		{"canary", detail(se, canary), nil, nil},
		{"frame only", detail(se, frames), nil, phishing},
		{"both attributes", detail(mw, canary, frames), nil, nil},
		{"frame only and unknown", detail(mw, frames, 99), nil, nil},
		{"unknown attribute", detail(mw, 99), nil, nil},
		{"a good detail beside dropped ones", slices.Concat(detail(13), detail(mw, canary), detail(uws), detail(se, 99)), unwanted, nil},
		{"two good details", slices.Concat(detail(mw), detail(se)), slices.Concat(malware, phishing), nil},
		{"one threat for frames, another one for all", slices.Concat(detail(mw, frames), detail(se)), phishing, malware},
		{"one threat for frames and for all", slices.Concat(detail(mw, frames), detail(mw)), malware, nil},
	} {
		hash := bytes.Repeat([]byte{7}, 32)
		m := &sbv5.SearchHashesResponse{FullHashes: []*sbv5.FullHash{{FullHash: hash, FullHashDetails: test.details}}}
		text, err := protojson.Marshal(m)
		testkit.Must(t, err)
		want := lookup.Answer{Threats: threatHashes(lookup.FullHash(hash), test.want, test.frameOnly)}
		for form, body := range map[string][]byte{binaryForm: marshal(t, m), jsonForm: text} {
			wantAnswer(t, test.name+", "+form, newClient(t, always(form, body)), want)
		}
	}
}

// In JSON an enum value that the schema does not know has a name instead of a number. It must not vanish: what is left
// would be a detail without attribute. Only its detail does, the rest of the answer is used.
func TestUnknownNamesInJSONDropTheirDetailOnly(t *testing.T) {
	malware, unwanted := []lookup.Threat{lookup.Malware}, []lookup.Threat{lookup.UnwantedSoftware}
	for _, test := range []struct {
		name, details   string
		want, frameOnly []lookup.Threat
	}{
		{"unknown attribute", `{"threatType":"MALWARE","attributes":["SOMETHING_NEW"]}`, nil, nil},
		{"unknown before known attribute", `{"threatType":"MALWARE","attributes":[ "SOMETHING_NEW" , "FRAME_ONLY"]}`, nil, nil},
		{"unknown behind known attribute", `{"threatType":"MALWARE","attributes":["FRAME_ONLY", "SOMETHING_NEW"]}`, nil, nil},
		{"several unknown attributes", `{"attributes":["A","B\"]","C"],"threatType":"MALWARE"}`, nil, nil},
		{"the name of another enum", `{"threatType":"MALWARE","attributes":["MALWARE"]}`, nil, nil},
		{"a name that is written with an escape", `{"threatType":"MALWARE","\u0061ttributes":["NE\u0057"]}`, nil, nil},
		{"a known name that is written with an escape", `{"threatType":"MALWARE","attributes":["\u0046RAME_ONLY"]}`, nil, malware},
		{"unknown threat", `{"threatType":"SOMETHING_NEW"}`, nil, nil},
		{"unknown threat with an attribute", `{"threatType":"SOMETHING_NEW","attributes":["FRAME_ONLY"]}`, nil, nil},
		{"unknown field", `{"threatType":"MALWARE","somethingNew":{"attributes":["NEW",{"attributes":[]},"NEW"]}}`, malware, nil},
		{"unknown attribute beside a good detail", `{"threatType":"MALWARE","attributes":["NEW"]},{"threatType":"UNWANTED_SOFTWARE"}`, unwanted, nil},
		{"unknown threat beside a good detail", `{"threatType":"UNWANTED_SOFTWARE","attributes":["FRAME_ONLY"]},{"threatType":"NEW"}`, nil, unwanted},
	} {
		body := `{"fullHashes":[{"fullHash":"` + strings.Repeat("A", 43) + `=","fullHashDetails":[` + test.details + `]},` +
			`{"fullHashDetails":[{"threatType":"MALWARE"}],"fullHash":"` + strings.Repeat("/", 42) + `8="}]}`
		other := threatHashes(lookup.FullHash(bytes.Repeat([]byte{0xff}, 32)), malware, nil)
		want := lookup.Answer{Threats: append(threatHashes(lookup.FullHash{}, test.want, test.frameOnly), other...)}
		wantAnswer(t, test.name, newClient(t, always(jsonForm, []byte(body))), want)
	}
	for _, nested := range []string{`[[],"NEW"]`, `[["NEW"]]`, `[{},"NEW"]`, `[{"attributes":["CANARY"]},"NEW"]`} {
		body := `{"fullHashes":[{"fullHash":"` + strings.Repeat("A", 43) + `=","fullHashDetails":[{"threatType":"MALWARE","attributes":` + nested + `}]}]}`
		wantRefused(t, nested, newClient(t, always(jsonForm, []byte(body))))
	}
}
