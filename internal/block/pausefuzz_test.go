package block

import (
	"slices"
	"testing"
	"time"
)

// FuzzParse: no file pauses for longer than Max, and what is read stays the same when it
// is written again.
func FuzzParsePauses(f *testing.F) {
	now := time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC)
	f.Add(FormatPauses([]Pause{{Zone: AllBlocks, From: now, Until: now.Add(time.Hour)}, {Zone: "example.org.", From: now, Until: now.Add(MaxPause), Keep: true}}))
	f.Add([]byte("all 2027-01-31T12:00:00Z 2027-01-31T13:00:00+01:00 once"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		all, err := ParsePauses(raw)
		if err != nil {
			if all != nil {
				t.Errorf("pauses %v with the error %v", all, err)
			}
			return
		}
		for _, p := range all {
			if p.Until.Sub(p.From) > MaxPause || p.Active(p.Until) || p.Active(p.From.Add(-2*maxClockStep)) {
				t.Errorf("%q: got %+v", raw, p)
			}
		}
		again, err := ParsePauses(FormatPauses(all))
		same := slices.EqualFunc(again, all, func(a, b Pause) bool {
			return a.Zone == b.Zone && a.Keep == b.Keep && a.From.Equal(b.From) && a.Until.Equal(b.Until)
		})
		if len(FormatPauses(all)) <= maxPauseFile && (err != nil || !same) {
			t.Errorf("%q: got %+v, %v, want %+v", raw, again, err, all)
		}
	})
}
