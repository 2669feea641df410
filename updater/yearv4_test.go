package updater_test

import (
	"maps"
	"math/rand/v2"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func init() {
	versions["v4"] = spoken{
		lists:  []string{"se-4b", "mw-4b", "pha-4b"},
		widths: func(_ string, chance *rand.Rand) int { return 4 + max(0, chance.IntN(60)-31) },
		faults: func() map[string]protocoltest.Fault {
			all := protocoltest.ListFaultsV4()
			maps.Copy(all, protocoltest.SearchFaults())
			return all
		},
		client: func(cfg protocol.Config, database *lookup.Database) (protocol.Client, error) {
			return protocol.NewV4(cfg, []string{"se-4b", "mw-4b", "pha-4b"}, database.Versions)
		},
		search: protocol.DialectV4.SearchRules,
		prefix: func(entry []byte) lookup.Prefix { return lookup.Prefix(entry) },
		waits: func(y *year) {
			y.server.SetFindWait(time.Duration(y.chance.Int64N(int64(3*time.Hour))) * time.Duration(y.chance.IntN(2)))
			y.server.SetFetchWait(time.Duration(y.chance.Int64N(int64(20*time.Hour))) * time.Duration(y.chance.IntN(2)))
			y.server.OmitUnchanged(y.chance.IntN(2) == 0)
		},
		calm: func(y *year) {
			y.server.SetFetchWait(0)
			y.server.SetFindWait(0)
		},
	}
	batchers["v4"] = func(cfg protocol.Config) (protocol.Client, error) {
		return protocol.NewV4(cfg, []string{"se-4b", "mw-4b", "pha-4b"}, new(lookup.Database).Versions)
	}
}
