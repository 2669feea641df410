package relay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// hashes returns a set of about n hashes of four bytes, spread as in a list.
func hashes(n int, seed uint64) *prefixset.Set {
	rng, gap := rand.New(rand.NewPCG(seed, 1)), float64(1<<32)/float64(n)
	b := prefixset.NewBuilder(n)
	buf := make([]byte, 0, 4096)
	for v := rng.ExpFloat64() * gap; v < 1<<32-1; v += 1 + rng.ExpFloat64()*gap {
		if buf = binary.BigEndian.AppendUint32(buf, uint32(v)); len(buf) == cap(buf) {
			b.Add(buf, 4)
			buf = buf[:0]
		}
	}
	b.Add(buf, 4)
	return b.Set()
}

// churned returns a set with about removals entries fewer and additions more.
func churned(t testing.TB, set *prefixset.Set, removals, additions int, seed uint64) *prefixset.Set {
	t.Helper()
	rng, every := rand.New(rand.NewPCG(seed, 2)), max(set.Len()/removals, 1)
	b := prefixset.NewBuilder(removals)
	for run := setRuns(set); ; {
		entries, _ := run()
		if len(entries) == 0 {
			break
		}
		for ; len(entries) > 0; entries = entries[4:] {
			if rng.IntN(every) == 0 {
				b.Add(entries[:4], 4)
			}
		}
	}
	// An entry that is there already comes twice: collect would refuse it.
	fresh, err := collect(changedRuns(setRuns(hashes(additions, seed)), setRuns(set), none()), additions)
	testkit.Must(t, err)
	next, err := collect(changedRuns(setRuns(set), setRuns(b.Set()), setRuns(fresh)), set.Len())
	testkit.Must(t, err)
	return next
}

// All clients that ask the same at once get the same bytes, which are made once.
func TestClientsShareAnUpdate(t *testing.T) {
	l := newLists(t, "")
	publish(t, l, "se-4b", hashes(20_000, 1))
	c := newClient(t, l)
	c.fetch(t, "se-4b")
	publish(t, l, "se-4b", churned(t, hashes(20_000, 1), 100, 100, 2))
	for name, version := range map[string][]byte{"full": nil, "unknown": []byte("unknown"), "partial": c.held["se-4b"].Version} {
		var wg sync.WaitGroup
		var others atomic.Int32
		first, err := l.Get(t.Context(), netip.Addr{}, "se-4b", version, 0)
		testkit.Must(t, err)
		for range 50 {
			wg.Go(func() {
				if a, err := l.Get(t.Context(), netip.Addr{}, "se-4b", version, 0); err != nil || &a.Message[0] != &first.Message[0] {
					others.Add(1)
				}
			})
		}
		if wg.Wait(); others.Load() > 0 {
			t.Errorf("%s: %d of 50 clients got bytes of their own", name, others.Load())
		}
	}
	if _, err := l.Get(t.Context(), netip.Addr{}, "se-4b", nil, 1<<30); err != nil { // limits that make no difference
		t.Fatal(err)
	}
	if err := l.Publish([]lookup.List{{Name: "se-4b", Set: (*l.current.Load())["se-4b"].source}}); err != nil { // another list has changed
		t.Fatal(err)
	}
	if got := l.kept.Len(); got != 2 {
		t.Errorf("%d updates kept, want the full and the partial one", got)
	}
}

// While lists are published and clients come with all versions, nobody gets a wrong list.
func TestPublishingWhileClientsAsk(t *testing.T) {
	l := newLists(t, t.TempDir())
	publish(t, l, "se-4b", numbered(0, 400, 10))
	var wg sync.WaitGroup
	var done atomic.Bool
	for i := range 4 {
		wg.Go(func() {
			c := newClient(t, l)
			c.maxDB = 300 * (i % 2)
			for rounds := 0; rounds < 20 || !done.Load(); rounds++ {
				c.fetch(t, "se-4b")
			}
		})
	}
	for i := range uint32(40) {
		publish(t, l, "se-4b", numbered(i%7, 400+i%5, 10))
	}
	done.Store(true)
	wg.Wait()
}

func TestKeptUpdatesAreBounded(t *testing.T) {
	e := newEncodings()
	s := &state{name: "se-4b"}
	e.forget(map[string]*state{"se-4b": s})
	large := Answer{Message: make([]byte, maxEncodedBytes/3)}
	for i := range 10 {
		e.keep(fmt.Sprint(i), kept{of: s, answer: large})
	}
	if e.bytes > maxEncodedBytes || e.kept.Len() != 3 {
		t.Errorf("%d updates of %d bytes kept, want 3 of %d at most", e.kept.Len(), e.bytes, maxEncodedBytes)
	}
	if _, ok := e.find("9", netip.Addr{}); !ok {
		t.Error("the newest update is not kept")
	}
	for i := range maxEncoded + 10 {
		e.keep(fmt.Sprint("small", i), kept{of: s, answer: Answer{Message: []byte{1}}})
	}
	if e.kept.Len() != maxEncoded {
		t.Errorf("%d updates kept, want %d", e.kept.Len(), maxEncoded)
	}
	e.forget(map[string]*state{"se-4b": {name: "se-4b"}})
	if e.kept.Len() != 0 || e.bytes != 0 {
		t.Errorf("%d updates of %d bytes kept of a content that is not in force", e.kept.Len(), e.bytes)
	}
	e.keep("late", kept{of: s, answer: large})
	if e.kept.Len() != 0 {
		t.Error("an update is kept that was made for a content that has been replaced")
	}
}

// BenchmarkFiveHundredClients serves lists of ten million entries to 500 clients. A round is
// what happens in half an hour: the list changes by some thousand entries, and each client asks for
// its update once, and several times without a change. The memory is the process's, its
// test included: it holds the lists that it makes.
func BenchmarkFiveHundredClients(b *testing.B) {
	const entries, clients = 10_000_000, 500
	l := newLists(b, b.TempDir())
	set := hashes(entries, 1)
	publish(b, l, "se-4b", set)
	full := timed(func() { get(b, l, nil) })
	versions := make([][]byte, clients)
	for i := range versions {
		versions[i] = versionHeld(b, get(b, l, nil))
	}
	var waits []time.Duration
	var partial, publishing time.Duration
	rounds := uint64(0)
	for b.Loop() {
		rounds++
		next := churned(b, set, 4000, 5000, rounds+1)
		publishing += timed(func() { publish(b, l, "se-4b", next) })
		set = next
		get(b, l, nil) // a new client
		partial += timed(func() { get(b, l, versions[0]) })
		for range 50 { // a client asks about twice a minute
			for i := range versions {
				began := time.Now()
				a := get(b, l, versions[i])
				waits = append(waits, time.Since(began))
				if !a.NotModified {
					versions[i] = versionHeld(b, a)
				}
			}
		}
	}
	slices.Sort(waits)
	resident, peak := memory(b)
	b.ReportMetric(float64(full.Milliseconds()), "ms/full")
	b.ReportMetric(float64(publishing.Milliseconds())/float64(rounds), "ms/publish")
	b.ReportMetric(float64(partial.Milliseconds())/float64(rounds), "ms/partial")
	b.ReportMetric(float64(waits[len(waits)/2].Nanoseconds()), "ns/request-p50")
	b.ReportMetric(float64(waits[len(waits)*99/100].Nanoseconds()), "ns/request-p99")
	b.ReportMetric(resident, "MiB-resident")
	b.ReportMetric(peak, "MiB-peak")
	b.ReportMetric(0, "ns/op")
}

func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func get(b *testing.B, l *Lists, version []byte) Answer {
	a, err := l.Get(b.Context(), netip.Addr{}, "se-4b", version, 0)
	testkit.Must(b, err)
	return a
}

// versionOf returns the version in an answer, which is its second field.
func versionHeld(b *testing.B, a Answer) []byte {
	_, _, n := protowire.ConsumeField(a.Message) // the name
	_, _, tag := protowire.ConsumeTag(a.Message[n:])
	v, size := protowire.ConsumeBytes(a.Message[n+tag:])
	if size < 0 {
		b.Fatal("an answer without a version")
	}
	return bytes.Clone(v)
}

// memory returns the physical memory of this process in MiB, now and at most, 0 if the system
// does not tell.
func memory(b *testing.B) (resident, peak float64) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	of := func(name string) (mib float64) {
		_, rest, _ := strings.Cut(string(text), name+":")
		var kib float64
		if _, err := fmt.Sscan(rest, &kib); err != nil {
			b.Log(name, err)
		}
		return kib / 1024
	}
	return of("VmRSS"), of("VmHWM")
}
