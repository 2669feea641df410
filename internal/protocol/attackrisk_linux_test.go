//go:build !race

package protocol

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// The answers of the attacks on a client of Web Risk.

// nested is value in a field in a field, and so on, the innermost number first.
func nested(value []byte, numbers ...protowire.Number) []byte {
	for _, number := range numbers {
		value = protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	return value
}

func riskThreatTypes(w io.Writer, _ *http.Request) {
	w.Write(nested(bytes.Repeat([]byte{2}, 4<<20-64), 1, 1))
}

// writeRisk writes a field of an answer of this kind, which has a version.
func writeRisk(w io.Writer, kind byte, field []byte) {
	w.Write([]byte{0x20, kind, 0x3a, 1, 'v'})
	w.Write(field)
}

func riskRemovals(n int) func(io.Writer, *http.Request) {
	return func(w io.Writer, _ *http.Request) { writeRisk(w, 1, nested(make([]byte, n), 1, 1, 6)) }
}

// riskSets are additions of size bytes in n sets, whose entries are to be merged one
// by one.
func riskSets(n, size int) func(io.Writer, *http.Request) {
	return func(w io.Writer, _ *http.Request) {
		entries := size / 4 / n
		var sets []byte
		for i := range n {
			hashes := make([]byte, 0, 4*entries)
			for j := range entries {
				hashes = binary.BigEndian.AppendUint32(hashes, uint32(j*n+i))
			}
			sets = append(sets, nested(append([]byte{8, 4}, nested(hashes, 2)...), 1)...)
		}
		writeRisk(w, 2, nested(sets, 5))
	}
}

// riskNeighbours are entries in size bytes, as many as there can be: each is one more
// than that before.
func riskNeighbours(size int) func(io.Writer, *http.Request) {
	return func(w io.Writer, _ *http.Request) {
		// With parameter 2 a difference of one is 0 1 0, lowest bit first.
		data := bytes.Repeat([]byte{0x92, 0x24, 0x49}, size/3)
		head := protowire.AppendVarint([]byte{0x10, 2, 0x18}, uint64(len(data)*8/3))
		writeRisk(w, 2, nested(append(head, nested(data, 4)...), 2, 5))
	}
}

func riskJSON(n int) func(io.Writer, *http.Request) {
	return func(w io.Writer, _ *http.Request) {
		io.WriteString(w, `{"responseType":"RESET","newVersionToken":"Ag==","additions":{"riceHashes":{"riceParameter":3,"entryCount":8,"encodedData":"`)
		for range n / 1200 {
			io.WriteString(w, strings.Repeat("A", 1200))
		}
		io.WriteString(w, `"}}}`)
	}
}
