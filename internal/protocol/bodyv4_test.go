package protocol

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestDecodingOfV4EndsWithItsContext(t *testing.T) {
	inV4 := func(sets ...*entrySet) []byte {
		m := phishing(fullUpdate, "")
		m.Additions = sets
		return updatesV4(t, 0, m)
	}
	removing := func(set *entrySet) []byte {
		m := phishing(partialUpdate, "")
		m.Removals = []*entrySet{set}
		return updatesV4(t, 0, m)
	}
	v4 := func(body []byte) Client { return newV4(t, always(binaryForm, body), "se-4b") }
	endWithTheirContexts(t, map[string]Client{
		"Rice":         v4(inV4(riceSet(5, 2, 2, "f702"))),
		"raw":          v4(inV4(raw(4, "00000001"))),
		"raw removals": v4(removing(rawIndices(0))),
		"removals":     v4(removing(riceIndices(0, 0, 0, ""))),
	})
}

// Merging three million entries of 32 sets takes a second: whoever stops does not
// wait for that.
func TestDecodingIsCutInTheMiddle(t *testing.T) {
	const sets, entries = 32, 100_000
	m := phishing(fullUpdate, "")
	for i := range sets {
		hashes := make([]byte, 0, 4*entries)
		for j := range entries {
			hashes = binary.BigEndian.AppendUint32(hashes, uint32(j*sets+i))
		}
		m.Additions = append(m.Additions, &entrySet{CompressionType: sbv4.CompressionType_RAW, RawHashes: &sbv4.RawHashes{PrefixSize: 4, RawHashes: hashes}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var applied error
	_, err := newV4(t, always(binaryForm, updatesV4(t, 0, m)), "se-4b").Fetch(ctx, []updater.Want{{List: "se-4b"}}, func(_ int, u *updater.Update) {
		time.AfterFunc(20*time.Millisecond, cancel)
		_, _, applied = updater.Apply(updater.List{Name: "se-4b"}, u, 1<<24)
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(applied, context.Canceled) {
		t.Errorf("the request is over, but got %v, %v", err, applied)
	}
}

func TestSetsOfAListAreBounded(t *testing.T) {
	for n, good := range map[int]bool{32: true, 33: false} {
		m := phishing(partialUpdate, "")
		for i := range n {
			m.Removals = append(m.Removals, rawIndices(int32(i)))
			m.Additions = append(m.Additions, raw(4, fmt.Sprintf("000000%02x", i)))
		}
		for _, part := range []*listUpdate{{Additions: m.Additions}, {Removals: m.Removals}} {
			part.ResponseType = partialUpdate
			if u := updateOfV4(t.Context(), part); good != (u.Err == nil) || u.Err != nil && !errors.Is(u.Err, updater.ErrMalformed) {
				t.Errorf("%d sets: %v", n, u.Err)
			}
		}
	}
}

func TestStatesAreBounded(t *testing.T) {
	for size, good := range map[int]bool{1024: true, 1025: false} {
		m := phishing(fullUpdate, "")
		m.NewClientState = make([]byte, size)
		if u := updateOfV4(t.Context(), m); good != (u.Err == nil) || u.Err != nil && !errors.Is(u.Err, updater.ErrMalformed) {
			t.Errorf("a state of %d bytes: %v", size, u.Err)
		}
	}
}
