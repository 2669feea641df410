package updater_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
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

func entriesIn(t *testing.T, l updater.List) []byte {
	t.Helper()
	raw, err := io.ReadAll(l.Set.Reader())
	must(t, err)
	return raw
}

// fetchAndApply fetches the list that is held and applies the update to it. A fetch that fails ends the test.
func fetchAndApply(t testing.TB, source updater.Source, held updater.List, most int) (l updater.List, changed bool, update *updater.Update, err error) {
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
				want := bytes.Join(entries, nil)
				testkit.Equal(t, fmt.Sprint("the full list of round ", round), bytes.Equal(entriesIn(t, held), want), true)
				testkit.Equal(t, fmt.Sprint("its checksum in round ", round), held.Checksum, sha256.Sum256(want))
				time.Sleep(30 * time.Minute)
			}
			testkit.Between(t, "partial updates", partial, 70, 80)
		})
	}
}

// It has more prefixes than any list of Google's.
func TestAListOfSevenMillionEntriesIsNoTrouble(t *testing.T) {
	testkit.Long(t)
	prefixes := ascendingPrefixes(7_000_000)
	answer := answerWith(t, false, nil, prefixes, bytesOf(prefixes))
	l := update(t, answering(t, protocol.DialectV5, answer), updater.List{Name: "se-4b"})
	store := openStore(t, t.TempDir(), updater.Origin{Name: "test"})
	must(t, store.SaveList(l))
	loaded, err := store.LoadList("se-4b")
	must(t, err)
	testkit.Between(t, "bytes in memory for each entry", float64(loaded.Set.Bytes())/float64(len(prefixes)), 1, 2.2)
	testkit.Equal(t, "the checksum of the entries", sha256.Sum256(entriesIn(t, loaded)), l.Checksum)
	testkit.Equal(t, "the checksum of the file", loaded.Checksum, l.Checksum)
}

// ascendingPrefixes returns about n random prefixes in order.
func ascendingPrefixes(n int) []uint32 {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	step := uint32(2 * (1<<32 - 1) / uint64(n))
	all := make([]uint32, 0, n+n/100)
	for value := uint64(r.Uint32N(step)); value < 1<<32; value += uint64(1 + r.Uint32N(step-1)) {
		all = append(all, uint32(value))
	}
	return all
}

// bytesOf returns prefixes as the checksum is over them.
func bytesOf(prefixes []uint32) []byte {
	raw := make([]byte, 0, 4*len(prefixes))
	for _, p := range prefixes {
		raw = binary.BigEndian.AppendUint32(raw, p)
	}
	return raw
}

// answerWith is the server's answer that leads to a list with these entries, with its fields in the order of their numbers.
func answerWith(tb testing.TB, partial bool, removals, additions []uint32, result []byte) []byte {
	tb.Helper()
	sum := sha256.Sum256(result)
	var list []byte
	for _, part := range []*sbv5.HashList{
		{Name: "se-4b", Version: []byte{1}, PartialUpdate: partial},
		{CompressedAdditions: &sbv5.HashList_AdditionsFourBytes{AdditionsFourBytes: protocoltest.EncodeRice32(additions)}},
		{CompressedRemovals: protocoltest.EncodeRice32(removals), Sha256Checksum: sum[:]},
	} {
		raw, err := proto.Marshal(part)
		must(tb, err)
		list = append(list, raw...)
	}
	return list
}

// changed returns what n removals and n additions make of prefixes.
func changed(prefixes []uint32, n int) (removals, additions, result []uint32) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := 0; i < len(prefixes); i += max(1, len(prefixes)/n) {
		removals = append(removals, uint32(i))
	}
	for range n {
		additions = append(additions, r.Uint32())
	}
	for i, p := range prefixes {
		if _, gone := slices.BinarySearch(removals, uint32(i)); !gone {
			result = append(result, p)
		}
	}
	slices.Sort(additions)
	additions = slices.DeleteFunc(slices.Compact(additions), func(p uint32) bool {
		_, held := slices.BinarySearch(result, p)
		return held
	})
	result = append(result, additions...)
	slices.Sort(result)
	return removals, additions, result
}

// answering is a client of a server that gives these answers in turn.
func answering(tb testing.TB, by *protocol.Dialect, answers ...[]byte) updater.Source {
	tb.Helper()
	sent := 0
	client, err := by.NewClient(protocol.Config{UserAgent: "bench/1", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		answer := answers[sent%len(answers)]
		sent++
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-protobuf"}}, Request: r,
			Body: io.NopCloser(bytes.NewReader(answer)), ContentLength: int64(len(answer)),
		}, nil
	})}, []string{"se-4b"}, nil)
	must(tb, err)
	return client
}

func update(tb testing.TB, client updater.Source, old updater.List) updater.List {
	tb.Helper()
	l, _, _, err := fetchAndApply(tb, client, old, updater.DefaultMaxEntries)
	must(tb, err)
	return l
}

// Beside the new list an update takes a few buffers, however long the list is.
func TestUpdatesTakeLittleMemoryBesideTheList(t *testing.T) {
	prefixes := ascendingPrefixes(1_000_000)
	full := answering(t, protocol.DialectV5, answerWith(t, false, nil, prefixes, bytesOf(prefixes)))
	removals, additions, result := changed(prefixes, 1000)
	part := answering(t, protocol.DialectV5, answerWith(t, true, removals, additions, bytesOf(result)))
	held := update(t, full, updater.List{Name: "se-4b"})
	for name, run := range map[string]func(){
		"in full": func() { update(t, full, updater.List{Name: "se-4b"}) },
		"in part": func() { update(t, part, held) },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run()
		runtime.ReadMemStats(&after)
		testkit.Between(t, name+": bytes of heap taken", after.TotalAlloc-before.TotalAlloc, 0, 1<<20)
	}
}

// BenchmarkUpdate is an update from the wire to the list: in full, and in part with 10,000 removals and 10,000 additions. It also tells
// the ratio to the time for the SHA-256 of all entries, which every update takes.
func BenchmarkUpdate(b *testing.B) {
	for name, n := range map[string]int{"1M": 1_000_000, "4M": 4_000_000, "10M": 10_000_000} {
		prefixes := ascendingPrefixes(n)
		entries := bytesOf(prefixes)
		full := answerWith(b, false, nil, prefixes, entries)
		removals, additions, result := changed(prefixes, 10_000)
		part := answerWith(b, true, removals, additions, bytesOf(result))
		held := update(b, answering(b, protocol.DialectV5, full), updater.List{Name: "se-4b"})
		for kind, test := range map[string]struct {
			answer []byte
			old    updater.List
		}{"full": {full, updater.List{Name: "se-4b"}}, "partial": {part, held}} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				client := answering(b, protocol.DialectV5, test.answer)
				b.ReportAllocs()
				for b.Loop() {
					update(b, client, test.old)
				}
				took := b.Elapsed() / time.Duration(b.N)
				b.ReportMetric(float64(took)/float64(sumTime(entries)), "x-SHA-256")
			})
		}
	}
}

// sumTime is how long the SHA-256 of entries takes at best.
func sumTime(entries []byte) time.Duration {
	least := time.Hour
	for range 5 {
		begun := time.Now()
		sha256.Sum256(entries)
		least = min(least, time.Since(begun))
	}
	return least
}
