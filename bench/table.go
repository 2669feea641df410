package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// row is a line of the table, its cells ready to print.
type row struct{ what, without, with, change, bar string }

func (b *bench) add(r row) { b.rows = append(b.rows, r) }

// compare adds the row of two samples, with their ratios.
func (b *bench) compare(what, format string, without, with sample, bar string) {
	b.add(row{what, without.spread(format), with.spread(format), with.ratios(without).times(), bar})
}

// note adds a line below the table.
func (b *bench) note(format string, args ...any) {
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}

func (b *bench) print(w io.Writer) {
	printPeers(w, b.compared)
	b.printRows(w)
	for _, note := range b.notes {
		fmt.Fprintf(w, "- %s\n", note)
	}
}

func (b *bench) printRows(w io.Writer) {
	if len(b.rows) == 0 {
		return
	}
	fmt.Fprintln(w, "| what | without | with the plugin | change | bar |")
	fmt.Fprintln(w, "| --- | ---: | ---: | ---: | --- |")
	for _, r := range b.rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join([]string{r.what, r.without, r.with, r.change, r.bar}, " | "))
	}
	fmt.Fprintln(w)
}

// spread prints the median and, in brackets, the least and the greatest.
func (s sample) spread(format string) string {
	switch len(s) {
	case 0:
		return "-"
	case 1:
		return fmt.Sprintf(format, s[0])
	}
	return fmt.Sprintf(format+" ("+format+" to "+format+")", s.median(), slices.Min(s), slices.Max(s))
}

// times prints ratios.
func (s sample) times() string { return "× " + s.spread("%.3f") }

// count prints a number with its thousands set apart.
func count(n int) string {
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

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
