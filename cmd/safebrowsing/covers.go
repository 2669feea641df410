package main

import (
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// covers returns the length of the name in word if that name is the host or one of its
// parents, and 0 otherwise.
func covers(word string, h lookup.Host) int {
	if strings.ContainsAny(word, " \t") {
		return 0
	}
	named, ok := lookup.ParseHost(word)
	if !ok || named != h && !strings.HasSuffix(h.String(), "."+named.String()) {
		return 0
	}
	return len(named.String())
}
