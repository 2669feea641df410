package prefixset

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestMemoryComesFromTheHeapIfItCannotBeMapped(t *testing.T) {
	asked := 0
	refuse := func(int) ([]byte, error) {
		asked++
		return nil, errors.ErrUnsupported
	}
	for size, want := range map[int]int{0: 0, minMapped - 1: 0, minMapped: 1} {
		asked = 0
		m := newMemoryFrom(size, refuse)
		testkit.Equal(t, size, []any{len(m.bytes), asked}, []any{size, want})
	}
}

// collecting collects before every use of what is read or written.
type collecting struct{ io.ReadWriter }

func (c collecting) Read(p []byte) (int, error) {
	collect()
	return c.ReadWriter.Read(p)
}

func (c collecting) Write(p []byte) (int, error) {
	collect()
	return c.ReadWriter.Write(p)
}

// collect gives back all that is unreachable.
func collect() {
	runtime.GC()
	time.Sleep(time.Millisecond) // for the goroutine that gives back
}

// It would crash if memory was given back that has nothing left but a slice in use.
func TestSetsLiveWhileTheyAreReadAndWritten(t *testing.T) {
	testkit.Long(t)
	wide := bytes.Join(randomEntries(rand.New(rand.NewPCG(65, 66)), 9, 100_000, false), nil)
	for width, entries := range map[int][]byte{4: strides(67, 300_000), 9: wide} {
		made := func() *Set {
			b := NewBuilder(len(entries) / 4)
			testkit.Must(t, b.Add(entries, width))
			return b.Set()
		}
		var written bytes.Buffer
		_, err := made().WriteTo(collecting{&written})
		testkit.Must(t, err)
		damaged := slices.Clone(written.Bytes())
		damaged[1+partHead+8] ^= 1
		Read(collecting{bytes.NewBuffer(damaged)}, len(entries)) // an error, or not
		set, err := Read(collecting{&written}, len(entries))
		if err != nil || !sameSet(set, made()) {
			t.Errorf("width %d: the set is not read back: %v", width, err)
		}
		_, err = io.Copy(collecting{new(bytes.Buffer)}, made().Reader())
		testkit.Is(t, width, err, nil)
	}
}

// It would crash if memory was given back that is still in use, also by sets that are joined meanwhile.
func TestSetsAreUsedWhileTheyAreReplaced(t *testing.T) {
	entries := packed(randomPrefixes(61, 300_000))
	wide := bytes.Join(randomEntries(rand.New(rand.NewPCG(62, 63)), 9, 100_000, false), nil)
	var current atomic.Pointer[[2]*Set]
	publish := func() {
		b := NewBuilder(0)
		testkit.Is(t, "adding", b.Add(wide, 9), nil)
		current.Store(&[2]*Set{setOfPacked(entries, 300_000), b.Set()})
	}
	publish()
	var stop atomic.Bool
	var readers sync.WaitGroup
	for seed := range 4 {
		readers.Go(func() { useUntil(t, &stop, &current, uint64(seed), entries, wide) })
	}
	others := []*Set{setOfPacked(entries[400_000:], 0), setOfPacked(entries[:4000], 0)}
	for range map[bool]int{true: 5, false: 20}[testing.Short()] {
		abandoned := NewBuilder(300_000)
		testkit.Is(t, "adding", abandoned.Add(entries[:400_000], 4), nil)
		publish()
		runtime.GC()
		for n := range others {
			NewGroup(append(others[:n+1:n+1], current.Load()[0]), -1, nil).Join(nil)
			runtime.GC() // memory that only the sets before used is given back
		}
	}
	stop.Store(true)
	readers.Wait()
}

// useUntil uses what is current in all ways there are, keeping it no longer than each use.
func useUntil(t *testing.T, stop *atomic.Bool, current *atomic.Pointer[[2]*Set], seed uint64, entries, wide []byte) {
	r := rand.New(rand.NewPCG(seed, 64))
	for !stop.Load() {
		for range 1000 {
			e, w := entries[4*r.IntN(len(entries)/4):], wide[9*r.IntN(len(wide)/9):]
			if !current.Load()[0].Contains(padded(e[:4], 0)) || !current.Load()[1].Contains(padded(w[:9], 0)) {
				t.Error("an entry is missing")
				return
			}
		}
		runs := current.Load()[0].Runs()
		for last, at := uint32(0), 0; at < len(entries); {
			run, _ := runs.Next()
			if at += len(run); len(run) == 0 || binary.BigEndian.Uint32(run) < last {
				t.Error("the entries do not ascend to the end")
				return
			}
			last = binary.BigEndian.Uint32(run)
		}
		n, err := io.Copy(io.Discard, current.Load()[1].Reader())
		testkit.Equal(t, "bytes that were read", []any{n, err}, []any{int64(len(wide)), nil})
		copied, err := Read(bytes.NewReader(writtenForm(t, current.Load()[1])), 1_000_000)
		if err != nil || copied.Len() != len(wide)/9 {
			t.Errorf("a written set is not read back: %v", err)
		}
	}
}

func TestMemoryOutsideOfTheHeapCountsForTheLimit(t *testing.T) {
	limitOfMemory.mu.Lock() // what other tests have left is given back afterwards
	defer limitOfMemory.mu.Unlock()
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	const mib = 1 << 20
	var l memoryLimit
	for _, step := range []struct {
		name             string
		set, added, want int64 // set 0: the limit stays
	}{
		{"without a limit", math.MaxInt64, 10 * mib, math.MaxInt64},
		{"with one, all that is outside counts", 100 * mib, 20 * mib, 70 * mib},
		{"some is given back", 0, -10 * mib, 80 * mib},
		{"the heap keeps a half", 0, 200 * mib, 50 * mib},
		{"somebody has set another limit", 1000 * mib, -20 * mib, 800 * mib},
		{"all is given back", 0, -200 * mib, 1000 * mib},
	} {
		debug.SetMemoryLimit(cmp.Or(step.set, -1))
		l.add(int(step.added))
		testkit.Equal(t, step.name, debug.SetMemoryLimit(-1), step.want)
	}
}

func TestGiveBackLeavesALargeHeapAlone(t *testing.T) {
	for _, tc := range []struct {
		name     string
		replaced int
		unused   uint64
		want     released
	}{
		{"few bytes replaced", manyBytes - 1, 0, left},
		{"nothing unused", manyBytes, 0, returned},
		{"a small heap", manyBytes, fewUnused, returned},
		{"one that has grown", manyBytes, fewUnused + 1, collected},
		{"one that has grown, much replaced", 1 << 30, 1 << 40, collected},
	} {
		testkit.Equal(t, tc.name, release(tc.replaced, tc.unused), tc.want)
	}
}

// Half of it is the bound: what else runs here leaves more, or frees what was alive at the last collection.
func TestGarbageCountsAsUnused(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // nothing is collected on its own
	collect()
	const size = 64 << 20
	garbage := make([]byte, size)
	runtime.KeepAlive(garbage)
	testkit.Between(t, "bytes that have become garbage", unusedBytes(), size/2, math.MaxUint64)
}
