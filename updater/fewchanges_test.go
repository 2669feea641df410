package updater_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// The checksum of a partial update is over the old entries as they were read, but their bits
// may be copied: the set must hold what the checksum is over.
func TestSetsHoldWhatTheirChecksumIsOver(t *testing.T) {
	for _, n := range []int{1000, 100_000} {
		prefixes := ascendingPrefixes(n)
		full := answering(t, protocol.DialectV5, answerWith(t, false, nil, prefixes, bytesOf(prefixes)))
		held := update(t, full, updater.List{Name: "se-4b"})
		for _, changes := range []int{1, 10, 100, 1000} {
			t.Run(fmt.Sprintf("%d changes of %d entries", changes, n), func(t *testing.T) {
				removals, additions, result := changed(prefixes, changes)
				part := answering(t, protocol.DialectV5, answerWith(t, true, removals, additions, bytesOf(result)))
				l := update(t, part, held)
				if got, _ := io.ReadAll(l.Set.Reader()); !bytes.Equal(got, bytesOf(result)) {
					t.Errorf("the set has %d entries, which are not the %d that the checksum is over", l.Set.Len(), len(result))
				}
				if got, _ := io.ReadAll(held.Set.Reader()); !bytes.Equal(got, bytesOf(prefixes)) {
					t.Error("the old set has changed")
				}
			})
		}
	}
}
