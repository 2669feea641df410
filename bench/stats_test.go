package main

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestMedianIsTheMiddleOfAllRounds(t *testing.T) {
	tests := []struct {
		values sample
		want   float64
	}{
		{sample{3}, 3},
		{sample{9, 1, 2}, 2},
		{sample{4, 1, 2, 100}, 3},
	}
	for _, tt := range tests {
		if got := tt.values.median(); got != tt.want {
			t.Errorf("median of %v: %v, want %v", tt.values, got, tt.want)
		}
	}
	if got := (sample{}).median(); !math.IsNaN(got) {
		t.Errorf("median of nothing: %v", got)
	}
}

func TestRatiosPairRounds(t *testing.T) {
	got := sample{2, 6, 5}.ratios(sample{1, 2})
	if want := (sample{2, 3}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPercentileIsTheNearestRank(t *testing.T) {
	values := make([]time.Duration, 100)
	for i := range values {
		values[i] = time.Duration(i + 1)
	}
	for p, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		if got := percentile(values, p); got != want {
			t.Errorf("percentile %v: %d, want %d", p, got, want)
		}
	}
	if got := percentile(nil, 0.99); got != 0 {
		t.Errorf("percentile of nothing: %s", got)
	}
}

func TestTurnsAlternate(t *testing.T) {
	if got := slices.Concat(order(0, 2), order(1, 2)); !slices.Equal(got, []int{0, 1, 1, 0}) {
		t.Errorf("got %v", got)
	}
}
