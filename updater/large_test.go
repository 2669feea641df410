package updater_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// largeAnswer is the answer that holds a list of seven million prefixes, more
// than any list of Google's has; some of them are given back.
func largeAnswer(t *testing.T) (answer []byte, some []uint32) {
	chance := rand.New(rand.NewPCG(7, 7))
	values := make([]uint32, 7_000_000)
	raw := make([]byte, 0, 4*len(values))
	value := uint32(0)
	for i := range values {
		values[i] = value
		raw = binary.BigEndian.AppendUint32(raw, value)
		value += 1 + chance.Uint32N(1200)
		if i%100_000 == 0 {
			some = append(some, values[i])
		}
	}
	sum := sha256.Sum256(raw)
	answer, err := proto.Marshal(&sbv5.HashList{
		Name: "se-4b", Version: []byte{1}, Sha256Checksum: sum[:],
		CompressedAdditions: &sbv5.HashList_AdditionsFourBytes{AdditionsFourBytes: protocoltest.EncodeRice32(values)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer, some
}

func TestAListOfSevenMillionEntriesIsNoTrouble(t *testing.T) {
	testkit.Long(t)
	answer, some := largeAnswer(t)
	client, err := protocol.NewV5(protocol.Config{UserAgent: "large/1", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-protobuf"}}, Request: r,
			Body: io.NopCloser(bytes.NewReader(answer)), ContentLength: int64(len(answer)),
		}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	l, changed, _, err := fetchAndApply(t, client, updater.List{Name: "se-4b"}, updater.DefaultMaxEntries)
	if err != nil || !changed {
		t.Fatalf("changed: %t, %v", changed, err)
	}
	applied := time.Now()
	store, err := updater.OpenStore(t.TempDir(), updater.Origin{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.SaveList(l); err != nil {
		t.Fatal(err)
	}
	saved := time.Now()
	loaded, err := store.LoadList("se-4b")
	if err != nil || loaded.Checksum != l.Checksum {
		t.Fatal(err)
	}
	t.Logf("%d bytes on the wire; applied in %s, saved in %s, loaded in %s; %d bytes in memory",
		len(answer), applied.Sub(begun), saved.Sub(applied), time.Since(saved), loaded.Set.Bytes())
	checkLarge(t, loaded, some)
	if _, _, err := updater.Apply(updater.List{Name: "se-4b"}, &updater.Update{
		Version: []byte{1}, Additions: []updater.Entries{{Width: 4, Count: updater.DefaultMaxEntries + 1}}, Checksum: make([]byte, 32),
	}, updater.DefaultMaxEntries); !errors.Is(err, updater.ErrMalformed) {
		t.Errorf("a list above the limit: %v", err)
	}
}

func checkLarge(t *testing.T, l updater.List, some []uint32) {
	t.Helper()
	if l.Set.Len() != 7_000_000 || l.Set.Bytes() > 15<<20 {
		t.Errorf("%d entries in %d bytes", l.Set.Len(), l.Set.Bytes())
	}
	for _, value := range some {
		var hash [32]byte
		binary.BigEndian.PutUint32(hash[:], value)
		if !l.Set.Contains(&hash) {
			t.Errorf("prefix %08x is missing", value)
		}
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, l.Set.Reader()); err != nil || !bytes.Equal(sum.Sum(nil), l.Checksum[:]) {
		t.Errorf("the entries have another checksum, %v", err)
	}
}
