package updater_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// evolve returns entries without some of them and with some more, ascending,
// each once.
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

// fetchAndApply fetches the list that is held and applies the update to it. A
// fetch that fails ends the test.
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

// Whatever version of a list is held, a partial update must lead to the same
// list as a full one.
func TestPartialUpdatesLeadWhereFullOnesDo(t *testing.T) {
	testkit.Long(t)
	for _, width := range []int{4, 8, 16, 32} {
		t.Run(fmt.Sprintf("%d bytes", width), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				chance := rand.New(rand.NewPCG(1, uint64(width)))
				server, name := protocoltest.New(t), fmt.Sprintf("x-%db", width)
				client, err := protocol.NewV5(protocol.Config{UserAgent: "partial/1", Transport: server})
				if err != nil {
					t.Fatal(err)
				}
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
		})
	}
}
