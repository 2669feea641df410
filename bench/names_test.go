package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func TestNamesAreDistinctAndRealistic(t *testing.T) {
	const n = 20_000
	all := names(n, 7)
	seen := make(map[string]bool)
	byLabels := make(map[int]int)
	for _, name := range all {
		if seen[name] || strings.ToLower(name) != name {
			t.Fatalf("%q comes twice, or is not in lower case", name)
		}
		if _, ok := dns.IsDomainName(name); !ok {
			t.Fatalf("%q is no name", name)
		}
		seen[name] = true
		byLabels[dns.CountLabel(name)]++
	}
	for labels, count := range byLabels {
		if labels < 2 || labels > 6 || count < n/100 {
			t.Errorf("%d names of %d labels", count, labels)
		}
	}
	if len(byLabels) != 5 {
		t.Errorf("names of %d numbers of labels, want those of 2 to 6", len(byLabels))
	}
	if !slices.Equal(all, names(n, 7)) || slices.Equal(all, names(n, 8)) {
		t.Error("the names do not follow from the seed")
	}
}
