package lookup

import (
	"testing"
	"time"
)

// After ten gaps of ten seconds the deviation is its floor, a second.
func TestEMARefusesFromTheFirstGapThatIsTooShort(t *testing.T) {
	const regular = 10 * time.Second
	tests := []struct {
		name     string
		regular  int // gaps before
		gap      time.Duration
		admitted bool
	}{
		{"nine gaps are too few to refuse", 9, 0, true},
		{"ten gaps are enough", 10, 0, false},
		{"three deviations", 10, 7 * time.Second, true},
		{"a bit more than three deviations", 10, 7*time.Second - time.Millisecond, false},
		{"longer than ever", 10, time.Hour, true},
		{"the clock is set back", 10, -time.Hour, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rule := EMA{Threshold: 3}
			state, _ := rule.Admit(Gaps{}, epoch)
			for range tt.regular {
				state, _ = rule.Admit(state, state.last.Add(regular))
			}
			if _, admitted := rule.Admit(state, state.last.Add(tt.gap)); admitted != tt.admitted {
				t.Errorf("admitted: %t, want %t", admitted, tt.admitted)
			}
		})
	}
}

// A new gap counts a tenth of the averages (Finch, "Incremental calculation of weighted mean
// and variance", 2009, section 9).
func TestEMALearnsATenthOfEachGap(t *testing.T) {
	var state Gaps
	now := epoch
	for i, step := range []struct {
		gap            time.Duration
		mean, variance float64
	}{
		{0, 0, 0}, // the first request has no gap
		{20 * time.Second, 20, 0},
		{10 * time.Second, 19, 9},
		{-5 * time.Second, 17.1, 40.59},
		{17100 * time.Millisecond, 17.1, 36.531},
	} {
		now = now.Add(step.gap)
		state, _ = EMA{Threshold: 3}.Admit(state, now)
		if d := state.mean - step.mean; d > 1e-6 || d < -1e-6 {
			t.Errorf("request %d: a mean of %v, want %v", i+1, state.mean, step.mean)
		}
		if d := state.variance - step.variance; d > 1e-6 || d < -1e-6 {
			t.Errorf("request %d: a variance of %v, want %v", i+1, state.variance, step.variance)
		}
	}
}
