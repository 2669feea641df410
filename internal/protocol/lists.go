package protocol

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// googleLists are the threat lists that Google documents for all clients (Safe
// Browsing v5, "Local Database": Available Lists). Names never change.
var googleLists = []string{"se-4b", "mw-4b", "uws-4b", "uwsa-4b", "pha-4b"}

// GlobalCache is Google's list of hosts that are likely safe (Safe Browsing v5,
// "Local Database": Available Lists).
const GlobalCache = "gc-32b"

// likelySafe are the lists that hold likely safe hosts, by the part of their name
// before the width: the global cache, and the allow lists of Chrome's client-side
// and download checks.
var likelySafe = []string{"gc", "csda", "csdda"}

// clientsOwn are lists that only Google's own clients have been seen to ask for.
var clientsOwn = []string{"bi-4b", "mwb-4b", "srf-4b", "sus-4b", "mcrx-16b"}

// threatsOfV4 are the names of version 4 for what a list holds, and the words
// that people use.
var threatsOfV4 = map[string]string{
	"social_engineering": "se-4b", "phishing": "se-4b",
	"malware":                         "mw-4b",
	"unwanted_software":               "uws-4b",
	"potentially_harmful_application": "pha-4b",
}

// IsGoogle reports whether an endpoint is Google's server, for Safe Browsing or for
// Web Risk. "" is: it is the default.
func IsGoogle(endpoint string) bool {
	if endpoint == "" {
		return true
	}
	return hosts[hostOf(endpoint)] != ""
}

// hostOf returns the host of an endpoint in lower case, "" if it is not a URL.
func hostOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
}

// CheckThreatList returns why a list must not be asked for as a threat list, or
// nil. Lists of likely safe hosts are refused whatever server has them: they
// would block what should pass. Of Google (google is set) only the threat lists
// that it documents may be asked for: it refuses a request that names another
// one, and with it all other lists of the request.
func CheckThreatList(name string, google bool) error {
	base, _, _ := strings.Cut(name, "-")
	switch {
	case slices.Contains(likelySafe, base):
		return fmt.Errorf("%s lists hosts that are likely safe: it cannot be used to block", name)
	case !google || slices.Contains(googleLists, name):
		return nil
	case slices.Contains(clientsOwn, name):
		return fmt.Errorf("%s is only for Google's own clients: use some of %s", name, strings.Join(googleLists, ", "))
	}
	if near := NearestList(name); near != "" {
		return fmt.Errorf("list %q is not one of Google's: did you mean %s? (the lists are %s)", name, near, strings.Join(googleLists, ", "))
	}
	return fmt.Errorf("list %q is not one of Google's: the lists are %s", name, strings.Join(googleLists, ", "))
}

// NearestList returns the threat list of Google that a mistyped name was probably
// meant to be: one edit away, or two if the name is long, or the list for a
// threat that is named in words. It returns "" if there is none, and for a name
// that is right or that only Google's own clients use. It is safe for concurrent
// use.
func NearestList(name string) string {
	if slices.Contains(googleLists, name) || slices.Contains(clientsOwn, name) {
		return ""
	}
	lower := strings.ToLower(name)
	base, _, _ := strings.Cut(lower, "-")
	if list, ok := threatsOfV4[base]; ok {
		return list
	}
	if slices.Contains(googleLists, base+"-4b") { // the width is wrong or missing
		return base + "-4b"
	}
	near, edits := say.Nearest(lower, googleLists)
	// All names of two letters are two edits from each other.
	if edits <= 1 || edits == 2 && len(base) > 3 {
		return near
	}
	return ""
}
