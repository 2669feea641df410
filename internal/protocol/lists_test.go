package protocol

import (
	"slices"
	"strings"
	"testing"
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
		{"mwb-4b", ""}, // of Google's own clients
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

func TestThreatListsCannotBeChangedByWhoGetsThem(t *testing.T) {
	ThreatLists()[0] = "x"
	if got := ThreatLists(); got[0] != "se-4b" || !slices.Equal(got, []string{"se-4b", "mw-4b", "uws-4b", "uwsa-4b", "pha-4b"}) {
		t.Errorf("Expected Google's lists, got %v", got)
	}
}

func TestGoogleIsKnownByItsName(t *testing.T) {
	for endpoint, want := range map[string]bool{
		"": true, DefaultEndpoint: true, "https://SafeBrowsing.googleapis.com:443": true,
		"http://safebrowsing.googleapis.com.": true, "https://safebrowsing.googleapis.com.example.org": false,
		"http://127.0.0.1:8099": false, "https://example.org/safebrowsing.googleapis.com": false,
	} {
		if got := IsGoogle(endpoint); got != want {
			t.Errorf("%q: Expected %v, got %v", endpoint, want, got)
		}
	}
}
