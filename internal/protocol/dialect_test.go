package protocol

import (
	"slices"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// The names of origins and schedules are in folders of users: they must not change, and
// no two dialects may have the same.
func TestOriginsOfDialects(t *testing.T) {
	const google, risk, own = "https://safebrowsing.googleapis.com", "https://webrisk.googleapis.com", "http://127.0.0.1:1"
	for _, tc := range []struct {
		d        *Dialect
		address  string
		name     string
		schedule string
		before   []updater.Predecessor // some
	}{
		{DialectV5, google, google, "", []updater.Predecessor{{Name: risk + " webrisk"}}},
		{DialectWebRisk, risk, risk + " webrisk", "schedule-webrisk.json", []updater.Predecessor{{Name: google}}},
		{DialectV5, own, own, "", []updater.Predecessor{{Name: own + " webrisk"}}},
		{DialectWebRisk, own, own + " webrisk", "schedule-webrisk.json", []updater.Predecessor{{Name: own}}},
	} {
		o := tc.d.Origin(tc.address, "asker")
		if o.Name != tc.name || o.Schedule != tc.schedule || o.Asker != "asker" || !slices.Contains(o.Predecessors, tc.before[0]) {
			t.Errorf("%s at %s: got %+v", tc.d, tc.address, o)
		}
		if address, d := SplitOrigin(o.Name); address != tc.address || d != tc.d {
			t.Errorf("%q is split into %q and %s", o.Name, address, d)
		}
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
		DialectWebRisk: {0: 0, 5000: 4096, 1 << 24: 1 << 24},
	} {
		for entries, limit := range want {
			if got := d.MaxEntries(entries); got != limit {
				t.Errorf("%s: expected %d to become %d, got %d", d, entries, limit, got)
			}
		}
	}
}
