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
		before   []updater.Predecessor
	}{
		{DialectV5, google, google, "", []updater.Predecessor{{Name: google + " v4", Continues: true}, {Name: risk + " webrisk"}}},
		{DialectV4, google, google + " v4", "schedule-v4.json", []updater.Predecessor{{Name: google}, {Name: risk + " webrisk"}}},
		{DialectWebRisk, risk, risk + " webrisk", "schedule-webrisk.json", []updater.Predecessor{{Name: google}, {Name: google + " v4"}}},
		{DialectV5, own, own, "", []updater.Predecessor{{Name: own + " v4", Continues: true}, {Name: own + " webrisk"}}},
		{DialectV4, own, own + " v4", "schedule-v4.json", []updater.Predecessor{{Name: own}, {Name: own + " webrisk"}}},
		{DialectWebRisk, own, own + " webrisk", "schedule-webrisk.json", []updater.Predecessor{{Name: own}, {Name: own + " v4"}}},
	} {
		o := tc.d.Origin(tc.address, "asker")
		if o.Name != tc.name || o.Schedule != tc.schedule || o.Asker != "asker" || !slices.Equal(o.Predecessors, tc.before) {
			t.Errorf("%s at %s: got %+v", tc.d, tc.address, o)
		}
		if address, d := SplitOrigin(o.Name); address != tc.address || d != tc.d {
			t.Errorf("%q is split into %q and %s", o.Name, address, d)
		}
	}
}

func TestServersOfGoogleSpeakOneServiceEach(t *testing.T) {
	for endpoint, speaks := range map[string][]string{
		"":                                      {"v5", "v4", "webrisk"},
		"https://safebrowsing.googleapis.com":   {"v5", "v4"},
		"https://webrisk.googleapis.com":        {"webrisk"},
		"https://WebRisk.googleapis.com:443":    {"webrisk"},
		"http://127.0.0.1:1":                    {"v5", "v4", "webrisk"},
		"https://webrisk.googleapis.com.a.test": {"v5", "v4", "webrisk"},
	} {
		var got []string
		for _, d := range Dialects() {
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
		DialectV4:      {0: 0, 5000: 4096, 1 << 24: 1 << 20}, // "Update Constraints" of version 4
		DialectWebRisk: {0: 0, 5000: 4096, 1 << 24: 1 << 24},
	} {
		for entries, limit := range want {
			if got := d.MaxEntries(entries); got != limit {
				t.Errorf("%s: expected %d to become %d, got %d", d, entries, limit, got)
			}
		}
	}
}
