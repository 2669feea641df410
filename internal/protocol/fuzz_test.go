package protocol

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// heldLists returns a list of four entries for each width.
func heldLists() map[int]updater.List {
	lists := make(map[int]updater.List)
	for _, width := range widths {
		b := prefixset.NewBuilder(4)
		sum := sha256.New()
		for i := range 4 {
			entry := bytes.Repeat([]byte{byte(60 * i)}, width)
			b.Add(entry, width)
			sum.Write(entry)
		}
		lists[width] = updater.List{Version: []byte{1}, Set: b.Set(), Checksum: [32]byte(sum.Sum(nil))}
	}
	return lists
}

// addListSeeds seeds the corpus with the examples on the wire and with full and partial updates of each width.
func addListSeeds(f *testing.F) {
	for _, wire := range []string{wireFull, wirePartial} {
		f.Add(unhex(f, wire))
	}
	for _, width := range widths {
		for _, partial := range []bool{false, true} {
			m := &sbv5.HashList{Name: fmt.Sprintf("x-%db", width), Version: []byte{2}, PartialUpdate: partial}
			entries := [][]byte{bytes.Repeat([]byte{1}, width), bytes.Repeat([]byte{2}, width)}
			protocoltest.EncodeAdditions(width, entries, m)
			if partial { // all that is held goes
				m.CompressedRemovals = protocoltest.EncodeRice32([]uint32{0, 1, 2, 3})
			}
			sum := sha256.Sum256(bytes.Join(entries, nil))
			m.Sha256Checksum = sum[:]
			f.Add(marshal(f, m))
		}
	}
}

func FuzzHashList(f *testing.F) {
	addListSeeds(f)
	f.Add([]byte(nil))
	held := heldLists()
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := new(sbv5.HashList)
		if proto.Unmarshal(raw, m) != nil {
			return
		}
		u := updateOf(t.Context(), m)
		if added(u) > 8*len(raw)+1 || u.Removals.Count > 8*len(raw)+1 {
			t.Fatalf("%d additions and %d removals in %d bytes", added(u), u.Removals.Count, len(raw))
		}
		width, err := updater.Width(m.GetName())
		if err != nil && u.Err == nil && len(u.Additions) > 0 {
			t.Fatalf("a list named %q was taken", m.GetName())
		}
		old := held[width]
		old.Name = m.GetName()
		checkApplied(t, old, u)
	})
}

// all returns the entries of a list.
func all(t testing.TB, l updater.List) []byte {
	if l.Set == nil {
		return nil
	}
	entries, err := io.ReadAll(l.Set.Reader())
	testkit.Must(t, err)
	return entries
}

// checkApplied applies an update to a list, and checks what comes of it. The old list stays as it was.
func checkApplied(t *testing.T, old updater.List, u *updater.Update) {
	before := all(t, old)
	l, changed, err := updater.Apply(old, u, 1000)
	testkit.Equal(t, "the old list is as it was", bytes.Equal(before, all(t, old)), true)
	if err != nil {
		if l.Set != nil || changed {
			t.Errorf("a list beside the error %v", err)
		}
		return
	}
	if sum := sha256.Sum256(all(t, l)); sum != l.Checksum || u.Checksum != nil && !bytes.Equal(sum[:], u.Checksum) {
		t.Errorf("checksum %x, list says %x, server says %x", sum, l.Checksum, u.Checksum)
	}
	if changed != (l.Checksum != old.Checksum) || !bytes.Equal(l.Version, u.Version) || len(l.Version) == 0 {
		t.Errorf("changed: %t, version %x", changed, l.Version)
	}
	testkit.Between(t, "entries", l.Set.Len(), 0, 1000)
}

// checkFetch fetches se-4b, and checks what comes of the answer, which has that many bytes.
func checkFetch(t *testing.T, c Client, bytes int) {
	old := heldLists()[4]
	old.Name = "se-4b"
	_, err := c.Fetch(t.Context(), []updater.Want{{List: "se-4b", Version: old.Version}}, func(_ int, u *updater.Update) {
		if u.Err == nil && (added(u) > 8*bytes+1 || u.Removals.Count > 8*bytes+1) || u.MinimumWait < 0 {
			t.Fatalf("%d additions and %d removals in %d bytes, wait %s", added(u), u.Removals.Count, bytes, u.MinimumWait)
		}
		checkApplied(t, old, u)
	})
	if err != nil && !errors.Is(err, updater.ErrMalformed) {
		t.Error(err)
	}
}

// checkSearch searches, whatever the answer is, and checks that only these threats are found.
func checkSearch(t *testing.T, c Client, threats lookup.Threats) lookup.Answer {
	answer, err := c.Search(t.Context(), []lookup.Prefix{zeroPrefix})
	if err != nil && (!errors.Is(err, updater.ErrMalformed) || answer.TTL != 0 || answer.Threats != nil) || answer.TTL < 0 || answer.MinimumWait < 0 {
		t.Errorf("got %v, %v", answer, err)
	}
	for _, found := range answer.Threats {
		if found.Threats == 0 || found.Threats&^threats != 0 || found.TTL < 0 {
			t.Errorf("got %v", found)
		}
	}
	return answer
}

func FuzzRice(f *testing.F) {
	f.Add(byte(0), []byte{0x1d, 0x32, 0xc5, 0x08}, int32(30), int32(2), []byte{0x74, 0x00, 0xd2, 0x97, 0x1b, 0xed, 0x49, 0x74, 0x00})
	f.Add(byte(0), make([]byte, 4), int32(30), int32(1), []byte{0xf7, 0xff, 0xff, 0xff, 0x03})
	f.Add(byte(1), make([]byte, 8), int32(35), int32(1), []byte{2, 0, 0, 0, 0})
	f.Add(byte(2), make([]byte, 16), int32(99), int32(1), append([]byte{2}, make([]byte, 12)...))
	f.Add(byte(3), make([]byte, 32), int32(227), int32(1), append([]byte{2}, make([]byte, 28)...))
	f.Fuzz(func(t *testing.T, which byte, first []byte, parameter, count int32, data []byte) {
		width := widths[which%4]
		padded := make([]byte, width)
		copy(padded, first)
		r := rice{width: width, first: limbs(padded), parameter: parameter, count: count, data: data}
		if err := r.check(parametersV5(width)); err != nil {
			testkit.Is(t, "what is refused", err, updater.ErrMalformed)
			return
		}
		decoded, err := io.ReadAll(r.reader())
		if err != nil && !errors.Is(err, updater.ErrMalformed) || err == nil && len(decoded) != width*(int(count)+1) {
			t.Fatalf("%d bytes, %v", len(decoded), err)
		}
		if len(decoded)%width != 0 || !bytes.HasPrefix(decoded, padded) {
			t.Fatalf("%d bytes that begin with %x", len(decoded), decoded[:min(len(decoded), width)])
		}
		for i := width; i < len(decoded); i += width {
			if bytes.Compare(decoded[i-width:i], decoded[i:i+width]) > 0 {
				t.Fatalf("not ascending at integer %d", i/width)
			}
		}
	})
}

func FuzzSearchAnswer(f *testing.F) {
	for _, wire := range []string{wireNothingFound, wireFound} {
		f.Add(unhex(f, wire), false)
	}
	f.Add([]byte(`{"fullHashes":[{"fullHash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","fullHashDetails":[{"threatType":"MALWARE","attributes":[7]}]}],"cacheDuration":"1.5s"}`), true)
	f.Fuzz(func(t *testing.T, raw []byte, json bool) {
		checkSearch(t, newClient(t, always(formOf(json), raw)), lookup.AllThreats)
	})
}

// FuzzComputeDiff: no answer makes the client of Web Risk panic, or take what does not fit together.
func FuzzComputeDiff(f *testing.F) {
	for _, wire := range []string{wireReset, wireDiff} {
		f.Add(unhex(f, wire), false)
	}
	mixed := riskUpdate(riskDiff, "3c3c3c3c 3c3c3c3c3c b4b4b4b4")
	mixed.Removals = &wrv1.ThreatEntryRemovals{RawIndices: &wrv1.RawIndices{Indices: []int32{2}}, RiceIndices: riskRice(0, 0, 0, "")}
	mixed.Additions = &wrv1.ThreatEntryAdditions{RawHashes: []*wrv1.RawHashes{riskRaw(5, "3c3c3c3c3c")}}
	f.Add(marshal(f, mixed), false)
	text, err := protojson.Marshal(mixed)
	testkit.Must(f, err)
	f.Add(text, true)
	f.Fuzz(func(t *testing.T, body []byte, json bool) {
		checkFetch(t, newWebRisk(t, always(formOf(json), body)), len(body))
	})
}

// FuzzHashesSearch: no answer makes the client of Web Risk panic, or return a threat that it did not search for.
func FuzzHashesSearch(f *testing.F) {
	for _, wire := range []string{wireRiskNothing, wireRiskFound} {
		f.Add(unhex(f, wire), false)
	}
	f.Add([]byte(`{"threats":[{"threatTypes":["SOCIAL_ENGINEERING","NEW",4],"hash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","expireTime":"2100-01-01T00:00:00.5Z"}],"negativeExpireTime":"9999-12-31T23:59:59Z"}`), true)
	f.Fuzz(func(t *testing.T, body []byte, json bool) {
		answer := checkSearch(t, newWebRisk(t, always(formOf(json), body), "se-4b"), lookup.Threats(0).With(lookup.SocialEngineering))
		if answer.MinimumWait != 0 || slices.ContainsFunc(answer.Threats, func(found lookup.ThreatHash) bool { return found.FrameOnly }) {
			t.Errorf("got %v", answer)
		}
	})
}

func formOf(json bool) string {
	if json {
		return jsonForm
	}
	return binaryForm
}
