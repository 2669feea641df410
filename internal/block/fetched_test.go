package block

import (
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestLinesAboutListsByURL(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 11, 22, hour, 0, 0, 0, time.FixedZone("", 3600)) }
	const name = "https://lists.example.org/a.txt"
	for _, test := range []struct {
		event ownlist.URLEvent
		want  string
	}{
		{ownlist.URLFailed{URLState: ownlist.URLState{Name: name, Error: "no such host", Next: at(3)}},
			"[WARNING] plugin/safebrowsing: List " + name + " cannot be updated: no such host. It was never fetched and has no effect; next attempt at 2026-11-22T02:00:00Z. Check the URL and the network"},
		{ownlist.URLFailed{URLState: ownlist.URLState{Name: name, Error: "it is odd", Changed: at(1), Checked: at(2), Next: at(3)}, Doubt: &ownlist.DoubtError{}},
			"[WARNING] plugin/safebrowsing: List " + name + " cannot be updated: it is odd. The content of 2026-11-22T01:00:00Z stays in force; next attempt at 2026-11-22T02:00:00Z. Open the URL in a browser, and correct it in the Corefile if it does not lead to a list"},
		{ownlist.URLFailed{URLState: ownlist.URLState{Name: name, Error: "it is odd", Changed: at(1), Checked: at(2), Next: at(3)}, Doubt: &ownlist.DoubtError{From: at(4)}},
			"[WARNING] plugin/safebrowsing: List " + name + " cannot be updated: it is odd. The content of 2026-11-22T01:00:00Z stays in force; next attempt at 2026-11-22T02:00:00Z. It is believed if it comes again after 2026-11-22T03:00:00Z"},
		{ownlist.URLRecovered{URLState: ownlist.URLState{Name: name, Next: at(3)}},
			"[INFO] plugin/safebrowsing: List " + name + " is updated again; next fetch at 2026-11-22T02:00:00Z"},
	} {
		lines := testkit.Capture(t)
		reportFetched(test.event)
		if got := strings.TrimSpace(lines.Only(t, name)); !strings.HasSuffix(got, testkit.LocalTimes(test.want)) {
			t.Errorf("Expected\n%s, got\n%s", test.want, got)
		}
	}
}
