package protocol

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
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
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%q: got %+v, %v, want %+v", wire, got, err, want)
			}
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
		body, err := proto.Marshal(&wrv1.SearchHashesResponse{Threats: []*threatHash{{ThreatTypes: test.types, Hash: make([]byte, 32)}}})
		if err != nil {
			t.Fatal(err)
		}
		want := threatHashes(lookup.FullHash{}, test.want, nil) // without expire_time: for this once
		got, err := newWebRisk(t, always(binaryForm, body), test.lists...).Search(t.Context(), []lookup.Prefix{zeroPrefix})
		if err != nil || !slices.Equal(got.Threats, want) {
			t.Errorf("%s: got %v, %v, want %v", test.name, got.Threats, err, want)
		}
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
		body, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := newWebRisk(t, always(binaryForm, body), "se-4b").Search(t.Context(), []lookup.Prefix{zeroPrefix})
		if !errors.Is(err, updater.ErrMalformed) || !reflect.DeepEqual(got, lookup.Answer{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
