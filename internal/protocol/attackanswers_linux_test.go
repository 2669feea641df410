//go:build !race

package protocol

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// answer makes the answer of an attack to a request. It is made in the process of the server only.
type answer func(*http.Request) []byte

func nothing(*http.Request) []byte { return nil }

// repeated is a text again and again, up to size bytes.
func repeated(text string, size int) answer { return listed("", text, "", size) }

// listed is a text again and again between a head and a tail, in JSON with commas unless it is in
// a string.
func listed(head, text, tail string, size int) answer {
	each := text
	if head != "" && !strings.HasSuffix(head, `"`) {
		each += ","
	}
	return func(*http.Request) []byte {
		n := (size - len(head) - len(tail) - len(text)) / len(each)
		return slices.Concat([]byte(head), bytes.Repeat([]byte(each), n), []byte(text), []byte(tail))
	}
}

// inField is a text again and again in a field in a field, and so on, the innermost number first.
func inField(text string, size int, numbers ...protowire.Number) answer {
	return func(*http.Request) []byte { return nested(bytes.Repeat([]byte(text), size/len(text)-8), numbers...) }
}

// nested is value in a field in a field, and so on, the innermost number first.
func nested(value []byte, numbers ...protowire.Number) []byte {
	for _, number := range numbers {
		value = protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	return value
}

// hashesFor has n full hashes behind each prefix that was asked for, and a life.
func hashesFor(n int) answer {
	return func(r *http.Request) (all []byte) {
		for _, p := range r.URL.Query()["hashPrefixes"] {
			prefix, _ := base64.URLEncoding.DecodeString(p)
			hash := slices.Concat([]byte("\x0a\x26\x0a\x20"), prefix, make([]byte, 28), []byte{0x12, 2, 8, 1})
			all = append(all, bytes.Repeat(hash, n)...)
		}
		return append(all, 0x12, 3, 8, 0xac, 2)
	}
}

// listOf is a batch of an update of se-4b with more fields.
func listOf(more ...[]byte) []byte {
	return nested(append([]byte("\x0a\x05se-4b\x12\x01\x02"), slices.Concat(more...)...), 1)
}

// partial is the field that says that an update is one.
var partial = []byte{0x18, 1}

func manyAdditions(*http.Request) []byte {
	return listOf(partial, bytes.Repeat(nested(make([]byte, 9_997), 4, 4), 9_900))
}

func removals(n int) answer {
	return func(*http.Request) []byte {
		return listOf(partial, nested(append([]byte{0x10, 3, 0x18, 10}, nested(make([]byte, n), 4)...), 5))
	}
}

func manyThreatTypes(*http.Request) []byte { return listOf(nested(make([]byte, 120<<20), 1, 8)) }

// neighbours are 16 million entries, each one more than the entry before.
func neighbours(*http.Request) []byte {
	const entries = 1<<24 - 2
	head := protowire.AppendVarint([]byte{0x10, 3, 0x18}, entries)
	return listOf(nested(append(head, nested(bytes.Repeat([]byte{0x22}, entries/2), 4)...), 4)) // a difference of one, twice
}

func pages(*http.Request) []byte {
	return append(bytes.Repeat([]byte("\x0a\x00"), 2<<20-50), "\x12\x01x"...)
}

func longPages(*http.Request) []byte {
	return append(nested(bytes.Repeat([]byte("x"), 4<<20-100), 4, 8, 1), "\x12\x01x"...)
}

// zeros are 900 bytes of zeros in base64.
var zeros = strings.Repeat("A", 1200)

// inJSON is a list with additions of n bytes, between what else an answer has.
func inJSON(head, tail string, n int) answer {
	return listed(head+`"name":"se-4b","version":"Ag==","additionsFourBytes":{"riceParameter":3,"entriesCount":8,"encodedData":"`, zeros, `"}`+tail, n)
}

// risk is an answer of this kind of Web Risk, which has a version.
func risk(kind byte, field []byte) []byte { return append([]byte{0x20, kind, 0x3a, 1, 'v'}, field...) }

func riskRemovals(n int) answer {
	return func(*http.Request) []byte { return risk(1, nested(make([]byte, n), 1, 1, 6)) }
}

// rawSet is set i of n sets of raw hashes, whose size bytes of entries are to be merged one by one.
func rawSet(i, n, size int) []byte {
	entries := size / 4 / n
	hashes := make([]byte, 0, 4*entries)
	for j := range entries {
		hashes = binary.BigEndian.AppendUint32(hashes, uint32(j*n+i))
	}
	return append([]byte{8, 4}, nested(hashes, 2)...)
}

func riskSets(n, size int) answer {
	return func(*http.Request) []byte {
		var sets []byte
		for i := range n {
			sets = append(sets, nested(rawSet(i, n, size), 1)...)
		}
		return risk(2, nested(sets, 5))
	}
}

// riskNeighbours are entries in size bytes, as many as there can be: each is one more
// than that before.
func riskNeighbours(size int) answer {
	return func(*http.Request) []byte {
		data := bytes.Repeat([]byte{0x92, 0x24, 0x49}, size/3) // with parameter 2 a difference of one is 0 1 0, lowest bit first
		head := protowire.AppendVarint([]byte{0x10, 2, 0x18}, uint64(len(data)*8/3))
		return risk(2, nested(append(head, nested(data, 4)...), 2, 5))
	}
}
