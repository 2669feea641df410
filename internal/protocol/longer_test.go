package protocol

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// longerMessage returns a full update of a list: longer entries, then two of four bytes.
func longerMessage(t *testing.T, longer map[int][]byte, sorted ...string) []byte {
	t.Helper()
	raw := marshal(t, &sbv5.HashList{Name: "se-4b", Version: []byte{1}})
	raw = AppendLonger(raw, longer)
	plan := func(yield func([]byte) bool) { yield([]byte("ccca" + "cccb")) }
	p, err := PlanRice(4, plan)
	if err != nil {
		t.Fatal(err)
	}
	raw = p.AppendField(raw, 4, plan)
	sum := sha256.New()
	for _, e := range sorted {
		io.WriteString(sum, e)
	}
	return protowire.AppendBytes(protowire.AppendTag(raw, 7, protowire.BytesType), sum.Sum(nil))
}

// A list with longer entries is read whole and while it comes, with the order and the checksum over
// all of them.
func TestLongerEntriesAreRead(t *testing.T) {
	longer := map[int][]byte{5: []byte("aaaab" + "cccab"), 32: bytes.Repeat([]byte("d"), 32)}
	raw := longerMessage(t, longer, "aaaab", "ccca", "cccab", "cccb", string(longer[32]))
	for _, whole := range []int64{maxWhole, -1} {
		before := maxWhole
		maxWhole = whole
		t.Cleanup(func() { maxWhole = before })
		var l updater.List
		err := readOne(t.Context(), bytes.NewReader(raw), int64(len(raw)), "se-4b", func(u *updater.Update) {
			var err error
			if l, _, err = updater.Apply(updater.List{Name: "se-4b"}, u, 100); err != nil {
				t.Errorf("at most %d bytes whole: %v", whole, err)
			}
		})
		if err != nil || l.Set == nil || l.Set.Len() != 5 || !slices.Equal(l.Set.Widths(), []int{4, 5, 32}) {
			t.Errorf("at most %d bytes whole: %+v, %v", whole, l, err)
		}
	}
}

func TestBadLongerEntriesAreRefused(t *testing.T) {
	many := map[int][]byte{}
	for width := 5; width <= 32; width++ {
		many[width] = nil
	}
	tooMany := AppendLonger(AppendLonger(nil, many), many)
	for _, tc := range []struct {
		name string
		list string
		raw  []byte
	}{
		{"not longer", "se-4b", AppendLonger(nil, map[int][]byte{4: []byte("aaaa")})},
		{"shorter", "se-8b", AppendLonger(nil, map[int][]byte{5: []byte("aaaaa")})},
		{"too long", "se-4b", AppendLonger(nil, map[int][]byte{33: make([]byte, 33)})},
		{"half an entry", "se-4b", AppendLonger(nil, map[int][]byte{5: []byte("aaaaab")})},
		{"no name of a list", "se", AppendLonger(nil, map[int][]byte{5: []byte("aaaaa")})},
		{"no message", "se-4b", protowire.AppendBytes(protowire.AppendTag(nil, fieldLonger, protowire.BytesType), []byte{0xff})},
		{"too many sets", "se-4b", tooMany},
	} {
		list := new(sbv5.HashList)
		if err := proto.Unmarshal(append(marshal(t, &sbv5.HashList{Name: tc.list, Version: []byte{1}}), tc.raw...), list); err != nil {
			t.Fatal(err)
		}
		u := updateOf(t.Context(), list)
		if u.Err == nil || len(u.Additions) > 0 || tc.list != "se" && !errors.Is(u.Err, updater.ErrMalformed) {
			t.Errorf("%s: %v", tc.name, u.Err)
		}
	}
	other := protowire.AppendVarint(protowire.AppendTag(nil, fieldLonger, protowire.VarintType), 7)
	list := new(sbv5.HashList)
	if err := proto.Unmarshal(append(marshal(t, &sbv5.HashList{Name: "se-4b", Version: []byte{1}}), other...), list); err != nil {
		t.Fatal(err)
	}
	if u := updateOf(t.Context(), list); u.Err != nil || len(u.Additions) > 0 {
		t.Errorf("another kind of field: %+v", u)
	}
}
