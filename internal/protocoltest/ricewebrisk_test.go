package protocoltest

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

// The data of the first vector are those of google/safebrowsing, hash_test.go.
func TestRiceCodingOfWebRiskMatchesPublishedVectors(t *testing.T) {
	if got := gaps32([]uint32{5, 20, 29}, 2); !bytes.Equal(got, unhex(t, "f702")) {
		t.Errorf("5, 20, 29 with parameter 2: got %x, want f702", got)
	}
	given := &wrv1.ThreatEntryAdditions{RiceHashes: &wrv1.RiceDeltaEncoding{FirstValue: 5, RiceParameter: 2, EntryCount: 2, EncodedData: unhex(t, "f702")}}
	want := []string{"\x05\x00\x00\x00", "\x14\x00\x00\x00", "\x1d\x00\x00\x00"}
	if got, err := additionsRisk(given); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %x, %v, want %x", got, err, want)
	}
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
