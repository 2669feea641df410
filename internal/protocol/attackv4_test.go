//go:build linux && !race

package protocol

import (
	"encoding/binary"
	"net/http"
	"slices"
)

func init() {
	attacks = append(attacks,
		attack{name: "v4 search: empty matches", ask: bySearch(DialectV4), body: repeated("\x0a\x00", 4<<20), most: 64},
		attack{name: "v4 lists: 64 million empty responses", ask: byFetch(DialectV4), body: repeated("\x0a\x00", 127<<20), most: 64},
		attack{name: "v4 lists: 100 million raw removals", ask: byFetch(DialectV4), body: rawRemovals(100_000_000), most: 64},
		attack{name: "v4 lists: a million raw removals, not compressed", plain: true, ask: byFetch(DialectV4), body: rawRemovals(1_000_000), most: 64},
		attack{name: "v4 lists: a million additions of one entry", ask: byFetch(DialectV4), body: oneEntrySets, most: 64},
		attack{name: "v4 lists: additions of 120 MB, not compressed", plain: true, ask: byFetch(DialectV4), body: rawSets(1, 120_000_000), most: 192},
		attack{name: "v4 lists: additions of 32 MB in 32 sets, not compressed", plain: true, ask: byFetch(DialectV4), body: rawSets(32, 32_000_000), most: 192},
		attack{name: "v4 list of lists", ask: byLists(DialectV4), body: repeated("\x0a\x00", 4<<20), most: 64})
}

// updateOfPhishing is an update of SOCIAL_ENGINEERING of this kind with more fields.
func updateOfPhishing(kind byte, more []byte) []byte {
	return nested(append([]byte{8, 2, 16, 1, 24, 6, 32, kind, 0x3a, 1, 'v'}, more...), 1)
}

func rawRemovals(n int) answer {
	return func(*http.Request) []byte {
		return updateOfPhishing(1, nested(append([]byte{8, 1}, nested(make([]byte, n), 1, 3)...), 6))
	}
}

func oneEntrySets(*http.Request) []byte {
	const n = 1_000_000
	sets := make([]byte, 0, 14*n)
	for i := range n {
		sets = binary.BigEndian.AppendUint32(append(sets, 0x2a, 12, 8, 1, 0x12, 8, 8, 4, 0x12, 4), uint32(i))
	}
	return updateOfPhishing(2, sets)
}

// rawSets are additions of size bytes in n sets.
func rawSets(n, size int) answer {
	return func(*http.Request) []byte {
		var sets []byte
		for i := range n {
			sets = append(sets, nested(slices.Concat([]byte{8, 1}, nested(rawSet(i, n, size), 2)), 5)...)
		}
		return updateOfPhishing(2, sets)
	}
}
