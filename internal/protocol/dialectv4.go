package protocol

import (
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// endOfV4 is when Google ends support of version 4 of Safe Browsing: 31 March 2027, from its
// first moment in UTC. The server may answer for some time after that. Source: Google's mail of
// spring 2026 to those who have a key for version 4, quoted in issue 56023 of
// brave/brave-browser; "Migration From V4" is the way from it.
var endOfV4 = time.Date(2027, time.March, 31, 0, 0, 0, 0, time.UTC)

// DialectV4 is the Update API, version 4 of Safe Browsing. One search is under way at
// a time: requests in parallel give no right to more of them ("Request Frequency"),
// and the prefixes of queries that come meanwhile go into the next.
var DialectV4 = &Dialect{
	Name:        "v4",
	Title:       safeBrowsing + " v4",
	Service:     safeBrowsing,
	Advisory:    safeBrowsingAdvisory,
	Endpoint:    DefaultEndpoint,
	Modes:       []lookup.Mode{lookup.Local},
	Rule:        lookup.RuleV4,
	AsStored:    true,
	Searches:    1,
	SearchRules: updater.SearchRules{Backoff: updater.Strict, Published: true},
	suffix:      " v4",
	schedule:    "schedule-v4.json", // its methods have waits of their own
	lists:       V4Lists(),
	ends:        endOfV4,
	limit:       V4MaxEntries,
	client: func(cfg Config, lists []string, versions func() [][]byte) (Client, error) {
		return NewV4(cfg, lists, versions)
	},
}
