package protocol

import (
	"slices"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// The names of origins and schedules are in folders of users: they must not change, and
// no two dialects may have the same.
func TestOriginsOfDialectsWithVersion4(t *testing.T) {
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

func TestGooglesSafeBrowsingSpeaksVersion4AndItsWebRiskDoesNot(t *testing.T) {
	for endpoint, want := range map[string]bool{"": true, "https://safebrowsing.googleapis.com": true, "https://webrisk.googleapis.com": false, "http://127.0.0.1:1": true} {
		if DialectV4.Serves(endpoint) != want {
			t.Errorf("%q: expected %v", endpoint, want)
		}
	}
}

// "Update Constraints" of version 4.
func TestLimitsOfEntriesThatVersion4Knows(t *testing.T) {
	for entries, limit := range map[int]int{0: 0, 1: 1024, 1024: 1024, 1025: 1024, 2047: 1024, 2048: 2048, 1 << 20: 1 << 20, 1<<20 - 1: 1 << 19, 5_000_000: 1 << 20} {
		if got := DialectV4.MaxEntries(entries); got != limit {
			t.Errorf("expected %d to become %d, got %d", entries, limit, got)
		}
	}
}
