//go:build !race

package protocol

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// The attacks on hashList.get, whose answer is the message of one list.

func init() {
	for _, a := range []attack{
		{name: "empty fields", write: repeated("\x12\x00", 127<<20), most: 64},
		{name: "additions again and again", write: oneList(manyAdditions), most: 64},
		{name: "removals of 120 MB", write: oneList(removals(120 << 20)), most: 64},
		{name: "removals of 120 MB, not compressed", plain: true, write: oneList(removals(120 << 20)), most: 128},
		{name: "removals of 16 MB, not compressed", plain: true, write: oneList(removals(16_000_000)), most: 128},
		{name: "threat types", write: oneList(manyThreatTypes), most: 64},
		{name: "16 million entries that are next to each other", write: oneList(neighbours), most: 64},
		{name: "32 MB of additions in JSON", contentType: jsonForm, plain: true, write: oneListJSON, most: 192},
	} {
		a.name, a.ask = "v5 list: "+a.name, fetchOne
		attacks = append(attacks, a)
	}
}

func fetchOne(ctx context.Context, endpoint string) error {
	c, err := NewV5(Config{Endpoint: endpoint, UserAgent: "test/1"})
	if err != nil {
		return err
	}
	return fetchAndApply(ctx, c)
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

func oneListJSON(w io.Writer, _ *http.Request) {
	io.WriteString(w, `{"name":"se-4b","version":"Ag==","additionsFourBytes":{"riceParameter":3,"entriesCount":8,"encodedData":"`)
	io.WriteString(w, strings.Repeat("A", 32_000_000))
	io.WriteString(w, `"}}`)
}
