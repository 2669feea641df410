package lookup

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

var device1, device2 = netip.MustParseAddr("192.168.1.20"), netip.MustParseAddr("fd00::21")

func TestARecordHas24Bytes(t *testing.T) {
	if got := 3 * unsafe.Sizeof(eight{}); got != 8*passedBytes {
		t.Errorf("a bucket of 8 records has %d bytes", got)
	}
	if n := len(NewPassed(4<<20, time.Hour).pair); n*8*passedBytes > 4<<20 || n*8 < 174_000 {
		t.Errorf("4 MiB hold %d records", n*8)
	}
	NewPassed(1, time.Hour).Note(device1, FromQname("www.example.com."), RuleV5) // has one bucket
}

func TestAPairIsRememberedOnce(t *testing.T) {
	p := NewPassed(64<<10, time.Hour)
	seen := make(map[Pair]bool)
	for _, client := range []netip.Addr{device1, device2, {}} {
		for _, name := range []string{"www.example.com.", "example.com.", "com.", "a.b.c.d.example.com.", "a.b.c.d.e.f.g.example.com."} {
			pair, added := p.Note(client, FromQname(name), RuleV5)
			if !added || seen[pair] {
				t.Errorf("%s, %s: new %v, pair %x", client, name, added, pair)
			}
			seen[pair] = true
			if _, again := p.Note(client, FromQname(name), RuleV5); again {
				t.Errorf("%s, %s is remembered twice", client, name)
			}
		}
	}
	if got := p.Len(); got != 3*(3+2*2) {
		t.Errorf("%d records: each name has one, with more than three expressions two", got)
	}
	if _, added := p.Note(device1, Host{}, RuleV5); added {
		t.Error("a host without a name is remembered")
	}
	if n := testing.AllocsPerRun(100, func() { p.Note(device1, FromQname("www.example.com."), RuleV5) }); n != 0 {
		t.Errorf("%v allocations for a pair that is there", n)
	}
}

// The oldest in its bucket goes, so with one bucket the eight last ones stay.
func TestTheOldestIsForgottenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPassed(1, time.Hour)
		for i := range 20 {
			if _, added := p.Note(device1, FromQname(named(i)), RuleV5); !added {
				t.Errorf("%d is not remembered", i)
			}
			time.Sleep(time.Minute)
		}
		for i := 12; i < 20; i++ {
			if _, added := p.Note(device1, FromQname(named(i)), RuleV5); added {
				t.Errorf("%d of 20 is forgotten", i)
			}
		}
	})
}

func TestWhatIsOlderThanItIsKeptIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPassed(64<<10, time.Hour)
		p.Note(device1, FromQname(named(1)), RuleV5)
		time.Sleep(30 * time.Minute)
		p.Note(device1, FromQname(named(2)), RuleV5)
		time.Sleep(31 * time.Minute)
		if p.Forget(); p.Len() != 1 {
			t.Errorf("%d records after 61 minutes, want the one that is 31 minutes old", p.Len())
		}
		if late, err := checkerOf(t, Config{}, expressed(1), expressed(2)).LookBack(t.Context(), p, nil); len(late) != 0 || err != nil || p.Len() != 1 {
			t.Errorf("%v, %v, %d records", late, err, p.Len())
		}
	})
}

// A reader sees a record that is being replaced as another one, or as none: not as one that was asked for.
func TestNotingFromManyGoroutines(t *testing.T) {
	p := NewPassed(8<<10, time.Hour)
	c := checkerOf(t, Config{}, manyExpressed(50)...)
	var wg sync.WaitGroup
	for worker := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(worker, 1))
			for range 5_000 {
				p.Note(device1, FromQname(named(r.IntN(2_000))), RuleV5)
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			if late, err := c.LookBack(t.Context(), p, nil); err != nil || len(late) != 0 {
				t.Errorf("%v, %v", late, err)
			}
			p.lookedAt = time.Time{}
			p.looked = nil
		}
	})
	wg.Wait()
	if n, most := p.Len(), 8*len(p.pair); n > most || n < most*9/10 {
		t.Errorf("%d records of %d", n, most)
	}
}

// BenchmarkNote prints what a query costs more, and how many bytes a pair takes: of a household's day,
// and of names as a resolver has them.
func BenchmarkNote(b *testing.B) {
	hosts := benchHosts()
	b.Run("remembered", func(b *testing.B) {
		p := NewPassed(4<<20, 24*time.Hour)
		p.Note(device1, hosts[0], RuleV5)
		b.ReportAllocs()
		for b.Loop() {
			p.Note(device1, hosts[0], RuleV5)
		}
	})
	b.Run("remembered, 10,000 pairs", func(b *testing.B) {
		p := NewPassed(4<<20, 24*time.Hour)
		for _, h := range hosts[:10_000] {
			p.Note(device1, h, RuleV5)
		}
		b.ReportMetric(float64(p.Len()*passedBytes)/10_000, "B/pair")
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			p.Note(device1, hosts[i%10_000], RuleV5)
			i++
		}
	})
	b.Run("new", func(b *testing.B) {
		p := NewPassed(4<<20, 24*time.Hour)
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			p.Note(netip.AddrFrom4([4]byte{10, byte(i >> 24), byte(i >> 16), byte(i >> 8)}), hosts[i%len(hosts)], RuleV5)
			i++
		}
	})
	b.Run("look-back, 10,000 pairs, 4M entries", func(b *testing.B) {
		p := NewPassed(4<<20, 24*time.Hour)
		for _, h := range hosts[:10_000] {
			p.Note(device1, h, RuleV5)
		}
		lists := benchLists(4_000_000)
		now := time.Now()
		for b.Loop() {
			found, _ := p.listed(holdsPrefix(lists), now, 10_000)
			benchFound = len(found) > 0
		}
	})
}

func ExamplePassed() {
	database := new(Database)
	checker, err := NewChecker(Config{Database: database, Searcher: searchFunc(nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer checker.Close()
	passed := NewPassed(4<<20, 24*time.Hour)
	_, first := passed.Note(netip.MustParseAddr("192.168.1.20"), FromQname("www.example.com."), RuleV5)
	_, second := passed.Note(netip.MustParseAddr("192.168.1.20"), FromQname("www.example.com."), RuleV5)
	fmt.Println(first, second)
	// Output: true false
}
