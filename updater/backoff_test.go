package updater

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// The table of page "Request Frequency": from the least wait, drawn at 0, to the
// greatest, drawn just below 1.
func TestBackoffFollowsTheTable(t *testing.T) {
	tests := []struct {
		failures    int
		least, most time.Duration
	}{
		{0, 0, 0},
		{-1, 0, 0},
		{1, 15 * time.Minute, 30 * time.Minute},
		{2, 30 * time.Minute, time.Hour},
		{3, time.Hour, 2 * time.Hour},
		{4, 2 * time.Hour, 4 * time.Hour},
		{5, 4 * time.Hour, 8 * time.Hour},
		{6, 8 * time.Hour, 16 * time.Hour},
		{7, 16 * time.Hour, 24 * time.Hour},
		{8, 24 * time.Hour, 24 * time.Hour},
		{9, 24 * time.Hour, 24 * time.Hour},
	}
	almostOne := math.Nextafter(1, 0)
	for _, test := range tests {
		t.Run(fmt.Sprintf("%d failures", test.failures), func(t *testing.T) {
			if got := Backoff(test.failures, 0); got != test.least {
				t.Errorf("at 0: %s, want %s", got, test.least)
			}
			if got := Backoff(test.failures, almostOne); got > test.most || got < test.most-time.Millisecond {
				t.Errorf("below 1: %s, want at most, and nearly, %s", got, test.most)
			}
			middle := min(test.least+test.least/2, 24*time.Hour)
			if got := Backoff(test.failures, 0.5); got != middle {
				t.Errorf("at 0.5: %s, want %s", got, middle)
			}
		})
	}
}

func TestBackoffNeverOverflows(t *testing.T) {
	var counts []int
	for n := 1; n <= 200; n++ {
		counts = append(counts, n)
	}
	counts = append(counts, math.MaxInt32, math.MaxInt-1, math.MaxInt)
	for _, r := range []float64{0, 0.5, math.Nextafter(1, 0)} {
		last := time.Duration(0)
		for _, n := range counts {
			got := Backoff(n, r)
			if got < 15*time.Minute || got > 24*time.Hour || got < last {
				t.Errorf("%d failures at %v: %s after %s", n, r, got, last)
			}
			last = got
			if pause := Strikes(n, 0, r); pause < 0 || pause > 30*time.Minute {
				t.Errorf("%d searches at %v: %s", n, r, pause)
			}
		}
	}
}

func TestSearchBackoffPausesAtTheThirdFailure(t *testing.T) {
	for failures, want := range []time.Duration{0, 0, 0, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute, 30 * time.Minute, 30 * time.Minute} {
		for _, r := range []float64{0, 0.99} {
			if got := Strikes(failures, 0, r); got != want {
				t.Errorf("%d failures: %s, want %s", failures, got, want)
			}
			if got, want := Strikes(failures, 1, r), Backoff(failures, r); got != want {
				t.Errorf("%d failures, refused: %s, want %s", failures, got, want)
			}
		}
	}
}

func TestFirstContactIsWithinAMinute(t *testing.T) {
	seen := make(map[time.Duration]bool)
	for range 1000 {
		d := firstContact()
		if d < 0 || d >= time.Minute {
			t.Fatalf("drew %s", d)
		}
		seen[d/(10*time.Second)] = true
	}
	if len(seen) != 6 {
		t.Errorf("only %d sixths of the minute were drawn", len(seen))
	}
}
