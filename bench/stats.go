package main

import (
	"math"
	"slices"
	"time"
)

// sample is the values that rounds of one measurement gave, in order of rounds.
type sample []float64

// median returns the middle value, the mean of the two middle ones of an even
// number, or NaN of none.
func (s sample) median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func (s sample) min() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return slices.Min(s)
}

func (s sample) max() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return slices.Max(s)
}

// ratios returns s over base, round by round: what disturbs the machine for
// longer than a round disturbs both.
func (s sample) ratios(base sample) sample {
	all := make(sample, 0, len(s))
	for i := range min(len(s), len(base)) {
		all = append(all, s[i]/base[i])
	}
	return all
}

// inverse returns factor/value of each.
func (s sample) inverse(factor float64) sample {
	all := make(sample, 0, len(s))
	for _, v := range s {
		all = append(all, factor/v)
	}
	return all
}

// percentile returns the least of the ascending values that at least p of 1 of
// them do not exceed, 0 of none (the nearest-rank method).
func percentile(ascending []time.Duration, p float64) time.Duration {
	if len(ascending) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(ascending))))
	return ascending[min(max(rank, 1), len(ascending))-1]
}

// order returns who of n takes the turns of a round: each round goes the other
// way (A B, B A, ...), so that a machine that becomes slower with time favours
// nobody.
func order(round, n int) []int {
	turns := make([]int, n)
	for i := range turns {
		turns[i] = i
	}
	if round%2 == 1 {
		slices.Reverse(turns)
	}
	return turns
}
