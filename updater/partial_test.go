package updater_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// evolve returns entries without some of them and with some more, ascending, each once.
func evolve(chance *rand.Rand, width int, entries [][]byte) [][]byte {
	keep := chance.IntN(5)
	var next [][]byte
	for _, e := range entries {
		if chance.IntN(5) <= keep {
			next = append(next, e)
		}
	}
	for range chance.IntN(3000) {
		e := make([]byte, width)
		for i := range e {
			e[i] = byte(chance.Uint32())
		}
		next = append(next, e)
	}
	if chance.IntN(10) == 0 {
		next = nil
	}
	slices.SortFunc(next, bytes.Compare)
	return slices.CompactFunc(next, bytes.Equal)
}

// fetchAndApply fetches the list that is held and applies the update to it. A fetch that fails ends the test.
func fetchAndApply(t *testing.T, source updater.Source, held updater.List, most int) (l updater.List, changed bool, update *updater.Update, err error) {
	t.Helper()
	wanted := []updater.Want{{List: held.Name, Version: held.Version}}
	_, failure := source.Fetch(t.Context(), wanted, func(i int, u *updater.Update) {
		if i != 0 || update != nil {
			t.Errorf("update %d of the one list that was asked for, or a second", i)
		}
		update = u
		l, changed, err = updater.Apply(held, u, most)
	})
	if failure != nil || update == nil {
		t.Fatalf("update %v, %v", update, failure)
	}
	return l, changed, update, err
}

// Whatever version of a list is held, a partial update must lead to the same list as a full one.
func TestPartialUpdatesLeadWhereFullOnesDo(t *testing.T) {
	testkit.Long(t)
	for _, width := range []int{4, 8, 16, 32} {
		inBubble(t, fmt.Sprintf("%d bytes", width), func(t *testing.T) {
			chance := rand.New(rand.NewPCG(1, uint64(width)))
			server, name := protocoltest.New(t), fmt.Sprintf("x-%db", width)
			client, err := protocol.NewV5(protocol.Config{UserAgent: "partial/1", Transport: server})
			must(t, err)
			held := updater.List{Name: name}
			var entries [][]byte
			partial := 0
			for round := range 80 {
				for range chance.IntN(4) { // also none, and several at once
					entries = evolve(chance, width, entries)
					server.Publish(name, entries)
				}
				if round == 0 {
					server.Publish(name, entries)
				}
				if round%20 == 19 {
					server.ForgetVersions(name)
				}
				before := held.Checksum
				l, changed, update, err := fetchAndApply(t, client, held, 1<<20)
				if update.Partial {
					partial++
				}
				if err != nil || changed != (before != l.Checksum || held.Set == nil) {
					t.Fatalf("round %d: changed: %t, %v", round, changed, err)
				}
				held = l
				raw, err := io.ReadAll(held.Set.Reader())
				want := bytes.Join(entries, nil)
				if err != nil || !bytes.Equal(raw, want) || held.Checksum != sha256.Sum256(want) {
					t.Fatalf("round %d: %d bytes, %v, want the %d of the full list", round, len(raw), err, len(want))
				}
				time.Sleep(30 * time.Minute)
			}
			if partial < 70 {
				t.Errorf("only %d updates were partial", partial)
			}
		})
	}
}

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

// largeAnswer is the answer that holds a list of seven million prefixes, more
// than any list of Google's has; some of them are given back.
func largeAnswer(t *testing.T) (answer []byte, some []uint32) {
	chance := rand.New(rand.NewPCG(7, 7))
	values := make([]uint32, 7_000_000)
	value := uint32(0)
	for i := range values {
		values[i] = value
		value += 1 + chance.Uint32N(1200)
		if i%100_000 == 0 {
			some = append(some, values[i])
		}
	}
	return answerWith(t, false, nil, values, bytesOf(values)), some
}

func TestAListOfSevenMillionEntriesIsNoTrouble(t *testing.T) {
	testkit.Long(t)
	answer, some := largeAnswer(t)
	begun := time.Now()
	l, changed, _, err := fetchAndApply(t, answering(t, protocol.DialectV5, answer), updater.List{Name: "se-4b"}, updater.DefaultMaxEntries)
	if err != nil || !changed {
		t.Fatalf("changed: %t, %v", changed, err)
	}
	applied := time.Now()
	store := openStore(t, t.TempDir(), updater.Origin{Name: "test"})
	must(t, store.SaveList(l))
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
