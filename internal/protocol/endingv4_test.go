package protocol

import (
	"testing"
	"time"
)

func TestVersion4EndsAtGooglesServerOn31March2027(t *testing.T) {
	for _, tc := range []struct {
		now, want string
		over      bool
	}{
		{"2026-11-23T12:00:00Z", "Google ends Safe Browsing v4 on 31 March 2027, in 128 days: from then on its server may stop at any time, and then lists are not updated and names are not confirmed. Change protocol v4 to v5: the lists stay in force", false},
		{"2027-03-29T12:00:00Z", "Google ends Safe Browsing v4 on 31 March 2027, in 2 days: from then on its server may stop at any time, and then lists are not updated and names are not confirmed. Change protocol v4 to v5: the lists stay in force", false},
		{"2027-03-30T23:59:59Z", "Google ends Safe Browsing v4 on 31 March 2027, tomorrow: from then on its server may stop at any time, and then lists are not updated and names are not confirmed. Change protocol v4 to v5: the lists stay in force", false},
		{"2027-03-31T00:00:00Z", "Google has ended Safe Browsing v4 on 31 March 2027: its server may stop at any time, and then lists are not updated and names are not confirmed. Change protocol v4 to v5. DNS and your own lists go on", true},
	} {
		now, err := time.Parse(time.RFC3339, tc.now)
		if err != nil {
			t.Fatal(err)
		}
		for _, endpoint := range []string{"", DefaultEndpoint} {
			if e := DialectV4.EndingAt(endpoint); e.Text(now) != tc.want || e.Over(now) != tc.over {
				t.Errorf("%s: expected %q, over: %v, got %q", tc.now, tc.want, tc.over, e.Text(now))
			}
		}
		if e := DialectV4.EndingAt("http://127.0.0.1:8099"); e.Text(now) != "" || e.Over(now) {
			t.Errorf("A server of one's own: got %q", e.Text(now))
		}
		for _, d := range []*Dialect{DialectV5, DialectWebRisk} {
			if e := d.EndingAt(""); e.Text(now) != "" || e.Over(now) {
				t.Errorf("%s: got %q", d, e.Text(now))
			}
		}
	}
}
