//go:build !race

package protocol

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// The answers of the attacks.

func nothing(io.Writer, *http.Request) {}

// repeated is a text again and again, up to size bytes.
func repeated(text string, size int) func(io.Writer, *http.Request) {
	return listed("", text, "", size)
}

// listed is a text again and again between a head and a tail, in JSON with commas unless it is in
// a string.
func listed(head, text, tail string, size int) func(io.Writer, *http.Request) {
	separator := ""
	if head != "" && !strings.HasSuffix(head, `"`) {
		separator = ","
	}
	return func(w io.Writer, _ *http.Request) {
		each := text + separator
		chunk := []byte(strings.Repeat(each, max(1, 1<<16/len(each))))
		io.WriteString(w, head)
		for n := len(head) + len(tail) + len(text); n+len(chunk) <= size; n += len(chunk) {
			w.Write(chunk)
		}
		io.WriteString(w, text+tail)
	}
}

// inField is a text again and again in a field.
func inField(number protowire.Number, text string, size int) func(io.Writer, *http.Request) {
	return func(w io.Writer, _ *http.Request) {
		n := size/len(text) - 8
		writeHead(w, number, n*len(text))
		w.Write(bytes.Repeat([]byte(text), n))
	}
}

// writeHead begins a field of size bytes.
func writeHead(w io.Writer, number protowire.Number, size int) {
	w.Write(protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(size)))
}

func attributes(w io.Writer, _ *http.Request) {
	const n = 4<<20 - 64
	head := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.BytesType), n)
	detail := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.BytesType), uint64(len(head)+n))
	writeHead(w, 1, len(detail)+len(head)+n)
	w.Write(detail)
	w.Write(head)
	w.Write(bytes.Repeat([]byte{2}, n))
}

// hashesFor writes n full hashes behind each prefix that was asked for, and a life.
func hashesFor(n int) func(io.Writer, *http.Request) {
	return func(w io.Writer, r *http.Request) {
		for _, p := range r.URL.Query()["hashPrefixes"] {
			prefix, _ := base64.URLEncoding.DecodeString(p)
			hash := append([]byte("\x0a\x26\x0a\x20"), prefix...)
			hash = append(hash, make([]byte, 28)...)
			w.Write(bytes.Repeat(append(hash, 0x12, 2, 8, 1), n))
		}
		w.Write([]byte{0x12, 3, 8, 0xac, 2})
	}
}

// listHead begins a partial update of se-4b whose rest has size bytes.
func listHead(w io.Writer, partial bool, size int) {
	head := []byte("\x0a\x05se-4b\x12\x01\x02")
	if partial {
		head = append(head, 0x18, 1)
	}
	writeHead(w, 1, len(head)+size)
	w.Write(head)
}

func manyAdditions(w io.Writer, _ *http.Request) {
	const each, n = 10_000, 9_900
	field := append([]byte{0x22, 0x90, 0x4e, 0x22, 0x8d, 0x4e}, make([]byte, 9_997)...)
	listHead(w, true, len(field)*n)
	for range n {
		w.Write(field)
	}
}

func removals(n int) func(io.Writer, *http.Request) {
	return func(w io.Writer, _ *http.Request) {
		head := []byte{0x10, 3, 0x18, 10}
		data := protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.BytesType), uint64(n))
		field := protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.BytesType), uint64(len(head)+len(data)+n))
		listHead(w, true, len(field)+len(head)+len(data)+n)
		w.Write(field)
		w.Write(head)
		w.Write(data)
		writeZeros(w, n)
	}
}

func writeZeros(w io.Writer, n int) {
	for zeros := make([]byte, 1<<16); n > 0; n -= len(zeros) {
		w.Write(zeros[:min(n, len(zeros))])
	}
}

func manyThreatTypes(w io.Writer, _ *http.Request) {
	const n = 120 << 20
	types := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType), n)
	field := protowire.AppendVarint(protowire.AppendTag(nil, 8, protowire.BytesType), uint64(len(types)+n))
	listHead(w, false, len(field)+len(types)+n)
	w.Write(field)
	w.Write(types)
	writeZeros(w, n)
}

// neighbours are 16 million entries, each one more than the entry before.
func neighbours(w io.Writer, _ *http.Request) {
	const entries = 1<<24 - 2
	const n = entries / 2
	head := []byte{0x10, 3}
	head = protowire.AppendVarint(protowire.AppendTag(head, 3, protowire.VarintType), entries)
	data := protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.BytesType), n)
	field := protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.BytesType), uint64(len(head)+len(data)+n))
	listHead(w, false, len(field)+len(head)+len(data)+n)
	w.Write(field)
	w.Write(head)
	w.Write(data)
	w.Write(bytes.Repeat([]byte{0x22}, n)) // a difference of one, twice
}

func pages(w io.Writer, r *http.Request) {
	repeated("\x0a\x00", 4<<20-100)(w, r)
	w.Write([]byte("\x12\x01x"))
}

func longPages(w io.Writer, _ *http.Request) {
	text := bytes.Repeat([]byte("x"), 4<<20-100)
	description := protowire.AppendBytes(protowire.AppendTag(nil, 4, protowire.BytesType), text)
	metadata := protowire.AppendBytes(protowire.AppendTag(nil, 8, protowire.BytesType), description)
	w.Write(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), metadata))
	w.Write([]byte("\x12\x01x"))
}

// zeros are 900 bytes of zeros in base64.
var zeros = strings.Repeat("A", 1200)

// inJSON is a list with additions of n bytes, between what else an answer has.
func inJSON(head, tail string, n int) func(io.Writer, *http.Request) {
	return listed(head+`"name":"se-4b","version":"Ag==","additionsFourBytes":{"riceParameter":3,"entriesCount":8,"encodedData":"`, zeros, `"}`+tail, n)
}

// oneList is the answer to a batch without the field around its only list.
func oneList(batch func(io.Writer, *http.Request)) func(io.Writer, *http.Request) {
	return func(w io.Writer, r *http.Request) {
		var whole bytes.Buffer
		batch(&whole, r)
		_, _, tag := protowire.ConsumeTag(whole.Bytes())
		_, length := protowire.ConsumeVarint(whole.Bytes()[tag:])
		w.Write(whole.Bytes()[tag+length:])
	}
}

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
