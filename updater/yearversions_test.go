package updater_test

import (
	"maps"
	"math/rand/v2"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// spoken is what a year depends on the version of the protocol for.
type spoken struct {
	lists  []string
	widths func(list string, chance *rand.Rand) int // of an entry
	faults func() map[string]protocoltest.Fault
	client func(cfg protocol.Config, database *lookup.Database) (protocol.Client, error)
	search updater.SearchRules
	prefix func(entry []byte) lookup.Prefix // that is searched for
	single bool                             // one prefix a search
	waits  func(y *year)                    // sets waits of methods, at random; nil: it has none
	calm   func(y *year)                    // ends them
}

var versions = map[string]spoken{
	"v5": {
		lists:  []string{"se-4b", "mw-4b", "own-32b"},
		widths: func(list string, _ *rand.Rand) int { width, _ := updater.Width(list); return width },
		faults: func() map[string]protocoltest.Fault {
			all := protocoltest.ListFaults()
			maps.Copy(all, protocoltest.SearchFaults())
			return all
		},
		client: func(cfg protocol.Config, _ *lookup.Database) (protocol.Client, error) { return protocol.NewV5(cfg) },
		search: protocol.DialectV5.SearchRules,
		prefix: func(entry []byte) lookup.Prefix { return lookup.Prefix(entry[:4]) },
	},
	"webrisk": {
		lists:  []string{"se-4b", "mw-4b", "se-ext-4b"},
		widths: func(_ string, chance *rand.Rand) int { return 4 + max(0, chance.IntN(60)-31) },
		faults: func() map[string]protocoltest.Fault {
			all := protocoltest.ListFaultsWebRisk()
			maps.Copy(all, protocoltest.SearchFaultsWebRisk())
			maps.Copy(all, protocoltest.OddSearchTimes())
			for name, fault := range protocoltest.OddDiffTimes() {
				if !fault.FarNextDiff { // longer than the year
					all[name] = fault
				}
			}
			return all
		},
		client: func(cfg protocol.Config, _ *lookup.Database) (protocol.Client, error) {
			return protocol.NewWebRisk(cfg, []string{"se-4b", "mw-4b", "se-ext-4b"})
		},
		search: protocol.DialectWebRisk.SearchRules,
		prefix: func(entry []byte) lookup.Prefix { return lookup.Prefix(entry) },
		single: true,
	},
}
