package protocol

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// searchFor lets a client search for a prefix, answered m in binary form.
func searchFor(t *testing.T, m *sbv5.SearchHashesResponse) (lookup.Answer, error) {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, always(binaryForm, raw)).Search(t.Context(), []lookup.Prefix{zeroPrefix})
}

func TestLifeOfSearchAnswers(t *testing.T) {
	tests := []struct {
		name     string
		duration *durationpb.Duration
		want     time.Duration
		good     bool
	}{
		{"none", nil, 0, true},
		{"zero", &durationpb.Duration{}, 0, true},
		{"seconds", &durationpb.Duration{Seconds: 300}, 5 * time.Minute, true},
		{"nanoseconds are nanoseconds", &durationpb.Duration{Seconds: 1, Nanos: 500}, time.Second + 500, true},
		{"nanoseconds only", &durationpb.Duration{Nanos: 1}, 1, true},
		{"the longest that the schema allows", &durationpb.Duration{Seconds: 315576000000}, math.MaxInt64, true},
		{"negative seconds", &durationpb.Duration{Seconds: -1}, 0, false},
		{"negative nanoseconds", &durationpb.Duration{Nanos: -1}, 0, false},
		{"both signs", &durationpb.Duration{Seconds: 1, Nanos: -1}, 0, false},
		{"too many nanoseconds", &durationpb.Duration{Nanos: 1_000_000_000}, 0, false},
		{"longer than the schema allows", &durationpb.Duration{Seconds: math.MaxInt64}, 0, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := searchFor(t, &sbv5.SearchHashesResponse{CacheDuration: test.duration})
			if got.Life != test.want || test.good != (err == nil) || err != nil && !errors.Is(err, updater.ErrMalformed) {
				t.Errorf("got %s, %v, want %s", got.Life, err, test.want)
			}
			u := updateOf(&sbv5.HashList{Name: "se-4b", Version: []byte{1}, MinimumWaitDuration: test.duration})
			if u.MinimumWait != test.want || test.good != (u.Err == nil) || u.Err != nil && !errors.Is(u.Err, updater.ErrMalformed) {
				t.Errorf("as a minimum wait: got %s, %v, want %s", u.MinimumWait, u.Err, test.want)
			}
		})
	}
}

func TestFullHashesMustBeWhole(t *testing.T) {
	for _, size := range []int{0, 4, 31, 33, 64} {
		m := &sbv5.SearchHashesResponse{CacheDuration: durationpb.New(time.Minute), FullHashes: []*sbv5.FullHash{
			{FullHash: make([]byte, 32), FullHashDetails: detail(sbv5.ThreatType_MALWARE)},
			{FullHash: make([]byte, size)},
		}}
		got, err := searchFor(t, m)
		if !errors.Is(err, updater.ErrMalformed) || got.Threats != nil || got.Life != 0 {
			t.Errorf("full hash of %d bytes: got %v, %v", size, got, err)
		}
	}
}

func detail(threat sbv5.ThreatType, attributes ...sbv5.ThreatAttribute) []*sbv5.FullHash_FullHashDetail {
	return []*sbv5.FullHash_FullHashDetail{{ThreatType: threat, Attributes: attributes}}
}

// enforceableTests say what is left of the details of a full hash.
var enforceableTests = []struct {
	name    string
	details []*sbv5.FullHash_FullHashDetail
	want    []lookup.Threat
}{
	{"no detail", nil, nil},
	{"malware", detail(sbv5.ThreatType_MALWARE), []lookup.Threat{lookup.Malware}},
	{"social engineering", detail(sbv5.ThreatType_SOCIAL_ENGINEERING), []lookup.Threat{lookup.SocialEngineering}},
	{"unwanted software", detail(sbv5.ThreatType_UNWANTED_SOFTWARE), []lookup.Threat{lookup.UnwantedSoftware}},
	{"harmful application", detail(sbv5.ThreatType_POTENTIALLY_HARMFUL_APPLICATION), []lookup.Threat{lookup.PotentiallyHarmfulApplication}},
	{"unspecified threat", detail(0), nil},
	{"unknown threat", detail(13), nil},
	{"canary", detail(sbv5.ThreatType_SOCIAL_ENGINEERING, sbv5.ThreatAttribute_CANARY), nil},
	{"frame only", detail(sbv5.ThreatType_SOCIAL_ENGINEERING, sbv5.ThreatAttribute_FRAME_ONLY), nil},
	{"both attributes", detail(sbv5.ThreatType_MALWARE, sbv5.ThreatAttribute_CANARY, sbv5.ThreatAttribute_FRAME_ONLY), nil},
	{"unspecified attribute", detail(sbv5.ThreatType_MALWARE, 0), nil},
	{"unknown attribute", detail(sbv5.ThreatType_MALWARE, 99), nil},
	{"a good detail beside dropped ones",
		slices.Concat(detail(13), detail(sbv5.ThreatType_MALWARE, sbv5.ThreatAttribute_CANARY), detail(sbv5.ThreatType_UNWANTED_SOFTWARE), detail(sbv5.ThreatType_SOCIAL_ENGINEERING, 99)),
		[]lookup.Threat{lookup.UnwantedSoftware}},
	{"two good details", slices.Concat(detail(sbv5.ThreatType_MALWARE), detail(sbv5.ThreatType_SOCIAL_ENGINEERING)),
		[]lookup.Threat{lookup.Malware, lookup.SocialEngineering}},
}

func TestOnlyEnforceableThreatsAreKept(t *testing.T) {
	hash := bytes.Repeat([]byte{7}, 32)
	for _, test := range enforceableTests {
		t.Run(test.name, func(t *testing.T) {
			m := &sbv5.SearchHashesResponse{FullHashes: []*sbv5.FullHash{{FullHash: hash, FullHashDetails: test.details}}}
			var want []lookup.ThreatHash
			if test.want != nil {
				want = []lookup.ThreatHash{{Hash: lookup.FullHash(hash)}}
				for _, threat := range test.want {
					want[0].Threats = want[0].Threats.With(threat)
				}
			}
			got, err := searchFor(t, m)
			if err != nil || !slices.Equal(got.Threats, want) {
				t.Errorf("binary form: got %v, %v, want %v", got.Threats, err, want)
			}
			text, err := protojson.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			got, err = newClient(t, always("application/json", text)).Search(t.Context(), []lookup.Prefix{zeroPrefix})
			if err != nil || !slices.Equal(got.Threats, want) {
				t.Errorf("JSON: got %v, %v, want %v", got.Threats, err, want)
			}
		})
	}
}

// Attributes may be packed or not: a decoder must take both.
func TestAttributesMayBeUnpacked(t *testing.T) {
	raw := slices.Concat([]byte{0x0a, 0x28, 0x0a, 0x20}, make([]byte, 32), []byte{0x12, 0x04, 0x08, 0x02, 0x10, 0x02})
	got, err := newClient(t, always(binaryForm, raw)).Search(t.Context(), []lookup.Prefix{zeroPrefix})
	if err != nil || len(got.Threats) != 0 {
		t.Errorf("got %v, %v, want the frame-only detail dropped", got, err)
	}
}

// In JSON an enum value that the schema does not know has a name in place of a
// number. It must not vanish: what is left would be a detail without attribute.
func TestUnknownNamesInJSONAreNotEnforced(t *testing.T) {
	hash := strings.Repeat("A", 43) + "="
	for name, details := range map[string]string{
		"unknown attribute":              `{"threatType":"MALWARE","attributes":["SOMETHING_NEW"]}`,
		"unknown beside known attribute": `{"threatType":"MALWARE","attributes":["SOMETHING_NEW","CANARY"]}`,
		"unknown threat":                 `{"threatType":"SOMETHING_NEW"}`,
		"unknown field":                  `{"threatType":"MALWARE","attributes":["CANARY"],"somethingNew":1}`,
	} {
		body := `{"fullHashes":[{"fullHash":"` + hash + `","fullHashDetails":[` + details + `]}],"cacheDuration":"1.5s"}`
		got, err := newClient(t, always("application/json", []byte(body))).Search(t.Context(), []lookup.Prefix{zeroPrefix})
		if len(got.Threats) != 0 || err != nil && !errors.Is(err, updater.ErrMalformed) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}
