package protocoltest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Vectors of the page "Local Database" and of Chromium's decoder tests.
func TestRiceCodingMatchesPublishedVectors(t *testing.T) {
	tests := []struct {
		name      string
		got, want proto.Message
	}{
		{"32 bit, three prefixes", EncodeRice32([]uint32{0x1d32c508, 0x291bc542, 0xf7a502e5}),
			&sbv5.RiceDeltaEncoded32Bit{FirstValue: 489866504, RiceParameter: 30, EntriesCount: 2, EncodedData: unhex(t, "7400d2971bed497400")}},
		{"32 bit, neighbours", EncodeRice32([]uint32{10, 11}),
			&sbv5.RiceDeltaEncoded32Bit{FirstValue: 10, RiceParameter: 3, EntriesCount: 1, EncodedData: []byte{2}}},
		{"32 bit, single", EncodeRice32([]uint32{2291670626}), &sbv5.RiceDeltaEncoded32Bit{FirstValue: 2291670626}},
		{"64 bit", EncodeRice64([]uint64{0x10000000a, 0x10000000b}),
			&sbv5.RiceDeltaEncoded64Bit{FirstValue: 0x10000000a, RiceParameter: 35, EntriesCount: 1, EncodedData: unhex(t, "0200000000")}},
		{"128 bit", EncodeRice128([][2]uint64{{1, 2}, {1, 3}}),
			&sbv5.RiceDeltaEncoded128Bit{FirstValueHi: 1, FirstValueLo: 2, RiceParameter: 99, EntriesCount: 1, EncodedData: append([]byte{2}, make([]byte, 12)...)}},
		{"256 bit", EncodeRice256([][4]uint64{{1, 2, 3, 4}, {1, 2, 3, 5}}),
			&sbv5.RiceDeltaEncoded256Bit{FirstValueFirstPart: 1, FirstValueSecondPart: 2, FirstValueThirdPart: 3, FirstValueFourthPart: 4,
				RiceParameter: 227, EntriesCount: 1, EncodedData: append([]byte{2}, make([]byte, 28)...)}},
	}
	for _, tt := range tests {
		if !proto.Equal(tt.got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, tt.got, tt.want)
		}
	}
	if EncodeRice32(nil) != nil || EncodeRice64(nil) != nil || EncodeRice128(nil) != nil || EncodeRice256(nil) != nil {
		t.Error("no values are coded as a message, want none")
	}
}

// The samples show published prefixes in the frame of an update; the versions are
// the sample's own.
func TestUpdatesMatchWireSamples(t *testing.T) {
	prefixes := func(texts ...string) (all [][]byte) {
		for _, text := range texts {
			all = append(all, unhex(t, text))
		}
		return all
	}
	l := &list{name: "se-4b", wait: 1800e9, versions: []version{
		{id: []byte{1, 2}, entries: sorted(prefixes("291bc542", "f7a502e5", "1d32c508"))}}}
	full := l.updateFrom(nil, 0)
	l.wait = 300e9
	l.versions = append(l.versions, version{id: []byte{1, 3}, entries: sorted(prefixes("1d32c508", "88981e62", "f7a502e5"))})
	partial := l.updateFrom([]byte{1, 2}, 0)
	tests := []struct {
		name, want string
		got        update
	}{
		{"full", "0a0573652d346212020102221508888acbe901101e180222097400d2971bed497400320308880e3a20d1099a04a9fd4f1ed0cd830fb388d03faa04cb1f0cb5819b9ecb84ec6e95bbbf", full},
		{"partial", "0a0573652d3462120201031801220608e2bce0c4082a020801320308ac023a204331164ec13c31b2764ff32a04eab00504aefa9a4e854a9d32f1b2caa9be6cf5", partial},
	}
	for _, tt := range tests {
		var want sbv5.HashList
		if err := proto.Unmarshal(unhex(t, tt.want), &want); err != nil {
			t.Fatal(err)
		}
		if got := tt.got.message(); !proto.Equal(got, &want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, &want)
		}
	}
}

func TestSearchMatchesWireSample(t *testing.T) {
	s := New(t)
	s.AddThreat("b.example.com/", sbv5.ThreatType_SOCIAL_ENGINEERING)
	want := "0a260a201d32c5084a360e58f1b87109637a6810acad97a861a7769e8f1841410d2a960c12020802120308ac02"
	got, err := proto.MarshalOptions{Deterministic: true}.Marshal(s.search([][]byte{unhex(t, "1d32c508")}))
	if err != nil || fmt.Sprintf("%x", got) != want {
		t.Errorf("got %x, %v, want %s", got, err, want)
	}
	if got, _ := proto.Marshal(s.search([][]byte{{1, 2, 3, 4}})); fmt.Sprintf("%x", got) != "120308ac02" {
		t.Errorf("nothing found: got %x", got)
	}
}

// The data of the first vector are those of google/safebrowsing, hash_test.go.
func TestRiceCodingOfWebRiskMatchesPublishedVectors(t *testing.T) {
	if got := gaps32([]uint32{5, 20, 29}, 2); !bytes.Equal(got, unhex(t, "f702")) {
		t.Errorf("5, 20, 29 with parameter 2: got %x, want f702", got)
	}
	want := []string{"\x05\x00\x00\x00", "\x14\x00\x00\x00", "\x1d\x00\x00\x00"}
	if got := checksum(want); !bytes.Equal(got, unhex(t, "a9a325de93cffeb40b5b59b90b4647d9061e378063378da5357dc48b61191198")) {
		t.Errorf("checksum %x", got)
	}
	if got := EncodeRiceWebRisk([]uint32{7}); !proto.Equal(got, &wrv1.RiceDeltaEncoding{FirstValue: 7}) {
		t.Errorf("one value: got %v, want the first value alone", got)
	}
	if got := EncodeRiceWebRisk([]uint32{1, 2}); got.RiceParameter != 2 {
		t.Errorf("neighbours: parameter %d, want the least, 2", got.RiceParameter)
	}
	if got := EncodeRiceWebRisk([]uint32{0, 1<<32 - 1}); got.RiceParameter != 28 {
		t.Errorf("far apart: parameter %d, want the greatest, 28", got.RiceParameter)
	}
	if EncodeRiceWebRisk(nil) != nil || additionsOf(nil, true) != nil {
		t.Error("no values are coded as a message, want none")
	}
}

// The illustration is that of Firefox's test of its decoder.
func TestPrefixesOfWebRiskAreLittleEndianNumbers(t *testing.T) {
	prefixes := []string{"\x00\x00\x00\x01", "\x00\x00\x02\x00", "\x00\x03\x00\x00", "\x04\x00\x00\x00"}
	if got, want := riceNumbers(prefixes), []uint32{4, 768, 131072, 16777216}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
