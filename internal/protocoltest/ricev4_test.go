package protocoltest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
)

// The data of the first vector are those of google/safebrowsing, hash_test.go.
func TestRiceCodingOfV4MatchesPublishedVectors(t *testing.T) {
	if got := gaps32([]uint32{5, 20, 29}, 2); !bytes.Equal(got, unhex(t, "f702")) {
		t.Errorf("5, 20, 29 with parameter 2: got %x, want f702", got)
	}
	given := &sbv4.ThreatEntrySet{CompressionType: sbv4.CompressionType_RICE,
		RiceHashes: &sbv4.RiceDeltaEncoding{FirstValue: 5, RiceParameter: 2, NumEntries: 2, EncodedData: unhex(t, "f702")}}
	want := []string{"\x05\x00\x00\x00", "\x14\x00\x00\x00", "\x1d\x00\x00\x00"}
	if got, err := decodeSetV4(given); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %x, %v, want %x", got, err, want)
	}
	if got := checksum(want); !bytes.Equal(got, unhex(t, "a9a325de93cffeb40b5b59b90b4647d9061e378063378da5357dc48b61191198")) {
		t.Errorf("checksum %x", got)
	}
	if got := EncodeRiceV4([]uint32{7}); !proto.Equal(got, &sbv4.RiceDeltaEncoding{FirstValue: 7}) {
		t.Errorf("one value: got %v, want the first value alone", got)
	}
	if got := EncodeRiceV4([]uint32{1, 2}); got.RiceParameter != 2 {
		t.Errorf("neighbours: parameter %d, want the least, 2", got.RiceParameter)
	}
	if got := EncodeRiceV4([]uint32{0, 1<<32 - 1}); got.RiceParameter != 28 {
		t.Errorf("far apart: parameter %d, want the greatest, 28", got.RiceParameter)
	}
	if EncodeRiceV4(nil) != nil || EncodeAdditionsV4(nil) != nil {
		t.Error("no values are coded as a message, want none")
	}
}

// The illustration is that of Firefox's test of its decoder.
func TestPrefixesOfV4AreLittleEndianNumbers(t *testing.T) {
	prefixes := []string{"\x00\x00\x00\x01", "\x00\x00\x02\x00", "\x00\x03\x00\x00", "\x04\x00\x00\x00"}
	if got, want := riceNumbers(prefixes), []uint32{4, 768, 131072, 16777216}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAdditionsOfV4DecodeToTheEntries(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{0, 1, 2, 100, 3000} {
		entries := mixed(rng, n)
		for _, sets := range [][]*sbv4.ThreatEntrySet{EncodeAdditionsV4(entries), entrySets(sorted(entries), false)} {
			var got []string
			for _, set := range sets {
				more, err := decodeSetV4(set)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, more...)
			}
			slices.Sort(got)
			if !slices.Equal(got, sorted(entries)) {
				t.Errorf("%d entries do not decode to themselves", len(entries))
			}
		}
	}
}

// The sample shows the request of one list by its field numbers.
func TestFetchRequestMatchesWireSample(t *testing.T) {
	m := &sbv4.FetchThreatListUpdatesRequest{
		Client:             &sbv4.ClientInfo{ClientId: "coredns-safebrowsing", ClientVersion: "1.0"},
		ListUpdateRequests: []*listRequest{request("se-4b", nil)},
	}
	want := unhex(t, "0a1b0a14636f7265646e732d7361666562726f7773696e671203312e301a0c080210062204220202012801")
	if got, err := proto.Marshal(m); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %x, %v, want %x", got, err, want)
	}
}
