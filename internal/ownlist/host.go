package ownlist

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// HostOf returns the host that people name for an entry. It refuses hosts that would make an entry
// about very many names.
func HostOf(text string) (lookup.Host, error) {
	h, ok := lookup.ParseHost(text)
	if _, err := netip.ParseAddr(strings.Trim(h.String(), "[]")); ok && err == nil {
		return h, fmt.Errorf("%q is an address: write the name that is asked for", text)
	}
	if !ok || strings.ContainsAny(text, "/*:@") || strings.Contains(text, "..") || strings.HasPrefix(text, ".") || strings.HasPrefix(text, "-") {
		return h, fmt.Errorf("%q is not a host: write a name such as www.example.org", text)
	}
	if suffix, icann := publicsuffix.PublicSuffix(h.String()); icann && suffix == h.String() {
		return h, fmt.Errorf("%s is a public suffix: an entry would be about every name below it; if you want that, write it into the file by hand", h)
	}
	return h, nil
}
