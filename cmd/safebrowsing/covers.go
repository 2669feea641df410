package main

import (
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// covers returns the length of the name that a word stands for if it is the host
// or a name that it is below, else 0.
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
