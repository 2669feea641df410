package updater_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
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
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

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

// answerWith is the answer of the server that leads to a list with these entries,
// with the fields in the order of their numbers.
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
	gone := 0
	for i, p := range prefixes {
		if gone < len(removals) && int(removals[gone]) == i {
			gone++
			continue
		}
		result = append(result, p)
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

// update fetches se-4b and applies what comes.
func update(tb testing.TB, client updater.Source, old updater.List) (l updater.List) {
	tb.Helper()
	var err error
	_, fetchErr := client.Fetch(tb.Context(), []updater.Want{{List: "se-4b", Version: old.Version}}, func(_ int, u *updater.Update) {
		l, _, err = updater.Apply(old, u, updater.DefaultMaxEntries)
	})
	if err != nil || fetchErr != nil {
		tb.Fatal(err, fetchErr)
	}
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
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 1<<20 {
			t.Errorf("%s: %d bytes of heap taken, want at most 1 MiB", name, taken)
		}
	}
}

// BenchmarkUpdate is an update from the answer on the wire to the list that can be published: in full, and in part
// with 10,000 removals and 10,000 additions. Beside its time it tells the ratio to the time for the SHA-256 of all
// entries, which every update takes.
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
				benchmarkUpdate(b, answering(b, protocol.DialectV5, test.answer), test.old, entries)
			})
		}
	}
}

// benchmarkUpdate measures an update of a list to about these entries.
func benchmarkUpdate(b *testing.B, client updater.Source, old updater.List, entries []byte) {
	b.ReportAllocs()
	for b.Loop() {
		update(b, client, old)
	}
	took := b.Elapsed() / time.Duration(b.N)
	b.ReportMetric(float64(took)/float64(sumTime(entries)), "x-SHA-256")
	b.ReportMetric(float64(took.Nanoseconds())/float64(len(entries)/4), "ns/entry")
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
