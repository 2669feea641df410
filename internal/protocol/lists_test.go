package protocol

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestNearestListIsWhatWasMeant(t *testing.T) {
	for _, tc := range []struct{ name, want string }{
		{"pha4-4b", "pha-4b"},
		{"se4b", "se-4b"},
		{"se_4b", "se-4b"},
		{"es-4b", "se-4b"},
		{"SE-4B", "se-4b"},
		{"Mw-4b", "mw-4b"},
		{"mv-4b", "mw-4b"},
		{"uw-4b", "uws-4b"},
		{"uwss-4b", "uws-4b"},
		{"uswa-4b", "uwsa-4b"},
		{"se-32b", "se-4b"},
		{"se", "se-4b"},
		{"MALWARE", "mw-4b"},
		{"phishing-4b", "se-4b"},
		{"SOCIAL_ENGINEERING", "se-4b"},
		{"POTENTIALLY_HARMFUL_APPLICATION", "pha-4b"},
		// Nothing to say:
		{"se-4b", ""},
		{"pha-4b", ""},
		{"own-4b", ""},
		{"own-32b", ""},
		{"ads-4b", ""},
		{"company-phish-4b", ""},
		{"phishing-company-4b", ""},
		{"se-company-4b", ""},
		{"se-ext-4b", ""}, // of Web Risk
		{"mwb-4b", ""},    // of Google's own clients
		{"", ""},
	} {
		if got := NearestList(tc.name); got != tc.want {
			t.Errorf("%q: Expected %q, got %q", tc.name, tc.want, got)
		}
	}
}

func TestListsThatAreNoThreatListsAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		google bool
		want   string // part of the error; "": none
	}{
		{"se-4b", true, ""},
		{"mw-4b", true, ""},
		{"uws-4b", true, ""},
		{"uwsa-4b", true, ""},
		{"pha-4b", true, ""},
		{"own-4b", true, `list "own-4b" is not one of Google's: the lists are se-4b, mw-4b, uws-4b, uwsa-4b, pha-4b`},
		{"pha4-4b", true, "did you mean pha-4b?"},
		{"se-32b", true, "did you mean se-4b?"},
		{"bi-4b", true, "only for Google's own clients"},
		{"mcrx-16b", true, "only for Google's own clients"},
		{"gc-32b", true, "likely safe"},
		{"csda-32b", true, "likely safe"},
		{"csdda-32b", true, "likely safe"},
		{"gc-32b", false, "likely safe"},
		{"gc-4b", false, "likely safe"},
		{"csda-32b", false, "likely safe"},
		{"own-4b", false, ""},
		{"pha4-4b", false, ""},
		{"bi-4b", false, ""},
	} {
		err := CheckThreatList(tc.name, tc.google)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s, Google %v: Expected %q, got %v", tc.name, tc.google, tc.want, err)
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
		if got := IsGoogle(endpoint); got != want {
			t.Errorf("%q: Expected %v, got %v", endpoint, want, got)
		}
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
	if of, by := SplitOrigin(name); of != address || by != d {
		t.Errorf("%q is split into %q and %s", name, of, by)
	}
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
		var got []string
		for _, d := range []*Dialect{DialectV5, DialectWebRisk} {
			if d.Serves(endpoint) {
				got = append(got, d.Name)
			}
		}
		if !slices.Equal(got, speaks) {
			t.Errorf("%q: expected %q, got %q", endpoint, speaks, got)
		}
	}
}

func TestLimitsOfEntriesThatServersKnow(t *testing.T) {
	for d, want := range map[*Dialect]map[int]int{
		DialectV5:      {0: 0, 5000: 5000, 1 << 24: 1 << 24},
		DialectWebRisk: {0: 0, -1: 0, 1: 1024, 1024: 1024, 1025: 1024, 2047: 1024, 2048: 2048, 5_000_000: 1 << 22, 1 << 24: 1 << 24, math.MaxInt: 1 << 30},
	} {
		for entries, limit := range want {
			if got := d.MaxEntries(entries); got != limit {
				t.Errorf("%s: expected %d to become %d, got %d", d, entries, limit, got)
			}
		}
	}
}
