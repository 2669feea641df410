//go:build linux && !race

package protocol

import (
	"encoding/binary"
	"io"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
)

func init() {
	attacks = append(attacks,
		attack{name: "v4 search: empty matches", ask: bySearch(DialectV4), write: repeated("\x0a\x00", 4<<20), most: 64},
		attack{name: "v4 lists: 64 million empty responses", ask: byFetch(DialectV4), write: repeated("\x0a\x00", 127<<20), most: 64},
		attack{name: "v4 lists: 100 million raw removals", ask: byFetch(DialectV4), write: rawRemovals(100_000_000), most: 64},
		attack{name: "v4 lists: a million raw removals, not compressed", plain: true, ask: byFetch(DialectV4), write: rawRemovals(1_000_000), most: 64},
		attack{name: "v4 lists: a million additions of one entry", ask: byFetch(DialectV4), write: oneEntrySets, most: 64},
		attack{name: "v4 lists: additions of 120 MB, not compressed", plain: true, ask: byFetch(DialectV4), write: rawSets(1, 120_000_000), most: 192},
		attack{name: "v4 lists: additions of 32 MB in 32 sets, not compressed", plain: true, ask: byFetch(DialectV4), write: rawSets(32, 32_000_000), most: 192},
		attack{name: "v4 list of lists", ask: byLists(DialectV4), write: repeated("\x0a\x00", 4<<20), most: 64})
}

// updateHeadV4 begins an update of SOCIAL_ENGINEERING whose rest has size bytes.
func updateHeadV4(w io.Writer, partial bool, size int) {
	kind := byte(2)
	if partial {
		kind = 1
	}
	head := []byte{8, 2, 16, 1, 24, 6, 32, kind, 0x3a, 1, 'v'}
	writeHead(w, 1, len(head)+size)
	w.Write(head)
}

func rawRemovals(n int) func(io.Writer, *http.Request) {
	return func(w io.Writer, _ *http.Request) {
		indices := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType), uint64(n))
		raw := protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.BytesType), uint64(len(indices)+n))
		set := protowire.AppendVarint(protowire.AppendTag(nil, 6, protowire.BytesType), uint64(2+len(raw)+len(indices)+n))
		updateHeadV4(w, true, len(set)+2+len(raw)+len(indices)+n)
		w.Write(set)
		w.Write([]byte{8, 1})
		w.Write(raw)
		w.Write(indices)
		writeZeros(w, n)
	}
}

func oneEntrySets(w io.Writer, _ *http.Request) {
	const n = 1_000_000
	updateHeadV4(w, false, 14*n)
	for i := range n {
		w.Write(binary.BigEndian.AppendUint32([]byte{0x2a, 12, 8, 1, 0x12, 8, 8, 4, 0x12, 4}, uint32(i)))
	}
}

// rawSets are additions of size bytes in n sets, whose entries are to be merged one
// by one.
func rawSets(n, size int) func(io.Writer, *http.Request) {
	return func(w io.Writer, _ *http.Request) {
		entries := size / 4 / n
		var sets []byte
		for i := range n {
			hashes := make([]byte, 0, 4*entries)
			for j := range entries {
				hashes = binary.BigEndian.AppendUint32(hashes, uint32(j*n+i))
			}
			raw := protowire.AppendBytes(protowire.AppendTag([]byte{8, 4}, 2, protowire.BytesType), hashes)
			set := protowire.AppendBytes(protowire.AppendTag([]byte{8, 1}, 2, protowire.BytesType), raw)
			sets = protowire.AppendBytes(protowire.AppendTag(sets, 5, protowire.BytesType), set)
		}
		updateHeadV4(w, false, len(sets))
		w.Write(sets)
	}
}
