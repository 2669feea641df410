package protocol

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestNearestListIsWhatWasMeant(t *testing.T) {
	for want, names := range map[string][]string{
		"pha-4b":  {"pha4-4b", "POTENTIALLY_HARMFUL_APPLICATION"},
		"se-4b":   {"se4b", "se_4b", "es-4b", "SE-4B", "se-32b", "se", "phishing-4b", "SOCIAL_ENGINEERING"},
		"mw-4b":   {"Mw-4b", "mv-4b", "MALWARE"},
		"uws-4b":  {"uw-4b", "uwss-4b"},
		"uwsa-4b": {"uswa-4b"},
		// Nothing to say: se-ext-4b belongs to Web Risk, and mwb-4b to Google's own clients.
		"": {"se-4b", "pha-4b", "own-4b", "own-32b", "ads-4b", "company-phish-4b", "phishing-company-4b", "se-company-4b", "se-ext-4b", "mwb-4b", ""},
	} {
		for _, name := range names {
			testkit.Equal(t, name, NearestList(name), want)
		}
	}
}

func TestListsThatAreNoThreatListsAreRefused(t *testing.T) {
	for _, tc := range []struct {
		google bool
		want   string // part of the error; "": none
		names  []string
	}{
		{true, "", []string{"se-4b", "mw-4b", "uws-4b", "uwsa-4b", "pha-4b"}},
		{true, `list "own-4b" is not one of Google's: the lists are se-4b, mw-4b, uws-4b, uwsa-4b, pha-4b`, []string{"own-4b"}},
		{true, "did you mean pha-4b?", []string{"pha4-4b"}},
		{true, "did you mean se-4b?", []string{"se-32b"}},
		{true, "only for Google's own clients", []string{"bi-4b", "mcrx-16b"}},
		{true, "likely safe", []string{"gc-32b", "csda-32b", "csdda-32b"}},
		{false, "likely safe", []string{"gc-32b", "gc-4b", "csda-32b"}},
		{false, "", []string{"own-4b", "pha4-4b", "bi-4b"}},
	} {
		for _, name := range tc.names {
			err := CheckThreatList(name, tc.google)
			testkit.Equal(t, fmt.Sprintf("%s, Google %v: taken", name, tc.google), err == nil, tc.want == "")
			testkit.WantParts(t, fmt.Sprint(err), tc.want)
		}
	}
}

func TestGoogleIsKnownByItsName(t *testing.T) {
	for endpoint, want := range map[string]bool{
		"": true, DefaultEndpoint: true, "https://SafeBrowsing.googleapis.com:443": true,
		"http://safebrowsing.googleapis.com.": true, "https://safebrowsing.googleapis.com.example.org": false,
		"http://127.0.0.1:8099": false, "https://example.org/safebrowsing.googleapis.com": false, "%zz": false,
		WebRiskEndpoint: true, "https://WebRisk.googleapis.com.:443/": true, "https://webrisk.googleapis.com.evil.example": false,
	} {
		testkit.Equal(t, endpoint, IsGoogle(endpoint), want)
	}
}

func TestOriginsOfDialects(t *testing.T) {
	const google, risk, own = "https://safebrowsing.googleapis.com", "https://webrisk.googleapis.com", "http://127.0.0.1:1"
	checkOrigin(t, DialectV5, google, google, "", []updater.Predecessor{{Name: risk + " webrisk"}})
	checkOrigin(t, DialectWebRisk, risk, risk+" webrisk", "schedule-webrisk.json", []updater.Predecessor{{Name: google}})
	checkOrigin(t, DialectV5, own, own, "", []updater.Predecessor{{Name: own + " webrisk"}})
	checkOrigin(t, DialectWebRisk, own, own+" webrisk", "schedule-webrisk.json", []updater.Predecessor{{Name: own}})
}

// checkOrigin checks the names of an origin and its schedule, and what may be before it, but for version 4
// if that is not among it. The names are in folders of users: they must not change, and no two dialects may have the same.
func checkOrigin(t *testing.T, d *Dialect, address, name, schedule string, before []updater.Predecessor) {
	t.Helper()
	got := d.Origin(address, "asker")
	got.Predecessors = slices.DeleteFunc(got.Predecessors, func(p updater.Predecessor) bool {
		return strings.HasSuffix(p.Name, " v4") && !slices.Contains(before, p)
	})
	got.Related = nil // a function
	testkit.Equal(t, d, got, updater.Origin{Name: name, Schedule: schedule, Asker: "asker", Predecessors: before})
	of, by := SplitOrigin(name)
	testkit.Equal(t, name, []any{of, by.Name}, []any{address, d.Name})
}

func TestServersOfGoogleSpeakOneServiceEach(t *testing.T) {
	for endpoint, speaks := range map[string][]string{
		"":                                      {"v5", "webrisk"},
		"https://safebrowsing.googleapis.com":   {"v5"},
		"https://webrisk.googleapis.com":        {"webrisk"},
		"https://WebRisk.googleapis.com:443":    {"webrisk"},
		"http://127.0.0.1:1":                    {"v5", "webrisk"},
		"https://webrisk.googleapis.com.a.test": {"v5", "webrisk"},
	} {
		for _, d := range []*Dialect{DialectV5, DialectWebRisk} {
			testkit.Equal(t, endpoint+", "+d.Name, d.Serves(endpoint), slices.Contains(speaks, d.Name))
		}
	}
}

func TestLimitsOfEntriesThatServersKnow(t *testing.T) {
	for d, want := range map[*Dialect]map[int]int{
		DialectV5:      {0: 0, 5000: 5000, 1 << 24: 1 << 24},
		DialectWebRisk: {0: 0, -1: 0, 1: 1024, 1024: 1024, 1025: 1024, 2047: 1024, 2048: 2048, 5_000_000: 1 << 22, 1 << 24: 1 << 24, math.MaxInt: 1 << 30},
	} {
		for entries, limit := range want {
			testkit.Equal(t, fmt.Sprint(d, ", ", entries), d.MaxEntries(entries), limit)
		}
	}
}
