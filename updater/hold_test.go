package updater

import (
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestAHoldIsOneSentence(t *testing.T) {
	until := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	failed := time.Date(2026, 5, 1, 13, 30, 0, 0, time.FixedZone("", 2*3600))
	for _, test := range []struct {
		hold Hold
		want string
	}{
		{Hold{Until: until}, "minimum wait of the server"},
		{Hold{Until: until, Cause: "x", Failed: failed}, "minimum wait of the server"},
		{Hold{Until: until, Failures: 1}, "back-off after a failure"},
		{Hold{Until: until, Failures: 1, Cause: "status 500"}, "back-off after a failure: status 500"},
		{Hold{Until: until, Failures: 1, Failed: failed}, "back-off after a failure at 2026-05-01T11:30:00Z"},
		{Hold{Until: until, Failures: 2, Failed: failed, Cause: "x"}, "back-off after 2 failures in a row, the last at 2026-05-01T11:30:00Z: x"},
		{Hold{Until: until, Budget: 1, Failures: 3}, "the day's budget of 1 search is spent"},
		{Hold{Until: until, Budget: 2}, "the day's budget of 2 searches is spent"},
	} {
		if got := test.hold.String(); got != testkit.LocalTimes(test.want) {
			t.Errorf("%+v: %q, want %q", test.hold, got, test.want)
		}
		if !test.hold.Active(until.Add(-1)) || test.hold.Active(until) {
			t.Errorf("%+v does not end at %s", test.hold, until)
		}
	}
}
