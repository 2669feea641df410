package relay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// All clients that ask the same at once get the same bytes, which are made once.
func TestClientsShareAnUpdate(t *testing.T) {
	l, c := held(t, "", numbered(0, 20_000, 10))
	publish(t, l, "se-4b", numbered(0, 20_100, 10))
	for name, version := range map[string][]byte{"full": nil, "unknown": []byte("unknown"), "partial": c.held["se-4b"].Version} {
		var wg sync.WaitGroup
		var others atomic.Int32
		first, err := l.Get(t.Context(), netip.Addr{}, "se-4b", false, version, 0)
		testkit.Must(t, err)
		for range 50 {
			wg.Go(func() {
				if a, err := l.Get(t.Context(), netip.Addr{}, "se-4b", false, version, 0); err != nil || &a.Message[0] != &first.Message[0] {
					others.Add(1)
				}
			})
		}
		wg.Wait()
		testkit.Equal(t, name+": clients of 50 that got bytes of their own", others.Load(), 0)
	}
	_, err := l.Get(t.Context(), netip.Addr{}, "se-4b", false, nil, 1<<30) // limits that make no difference
	testkit.Must(t, err)
	publish(t, l, "se-4b", (*l.current.Load())["se-4b"].source) // another list has changed
	testkit.Equal(t, "updates kept, the full and the partial one", l.kept.Len(), 2)
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

// encodingsOf returns encodings of a list, and its state in force.
func encodingsOf(list string) (*encodings, *state) {
	e, s := newEncodings(), &state{name: list}
	e.forget(map[string]*state{list: s})
	return &e, s
}

func TestKeptUpdatesAreBounded(t *testing.T) {
	e, s := encodingsOf("se-4b")
	large := Answer{Message: make([]byte, maxEncodedBytes/3)}
	for i := range 10 {
		e.keep(fmt.Sprint(i), kept{of: s, answer: large})
	}
	testkit.Equal(t, "updates kept", e.kept.Len(), 3)
	testkit.Between(t, "their bytes", e.bytes, 1, maxEncodedBytes)
	_, newest := e.find("9", netip.Addr{})
	testkit.Equal(t, "the newest update is kept", newest, true)
	for i := range maxEncoded + 10 {
		e.keep(fmt.Sprint("small", i), kept{of: s, answer: Answer{Message: []byte{1}}})
	}
	testkit.Equal(t, "small updates kept", e.kept.Len(), maxEncoded)
	e.forget(map[string]*state{"se-4b": {name: "se-4b"}})
	testkit.Equal(t, "updates of a content that is not in force, their bytes", []int{e.kept.Len(), int(e.bytes)}, []int{0, 0})
	e.keep("late", kept{of: s, answer: large})
	testkit.Equal(t, "updates made for a content that has been replaced", e.kept.Len(), 0)
}

var greedy, modest = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")

// One client has asked for many updates that nobody else wants, with limits of its own. All of them wait.
func TestAClientThatWantsManyUpdatesDelaysAnotherByOne(t *testing.T) {
	for name, wanted := range map[string]int{"another update": 0, "the one that the first client wants last": 80 * 1024} {
		bubble(t, name, func(t *testing.T) {
			l := newLists(t, "")
			publish(t, l, "se-4b", numbered(0, 200_000, 10))
			l.turns.take(netip.Addr{}, nil, nil) // all others wait
			ask := func(client netip.Addr, limit int) {
				go func() {
					if _, err := l.Get(t.Context(), client, "se-4b", false, nil, limit); err != nil {
						t.Error(err)
					}
				}()
				synctest.Wait()
			}
			for n := range 64 {
				ask(greedy, (17+n)*1024)
			}
			ask(modest, wanted)
			want := request{state: (*l.current.Load())["se-4b"]}
			want.want = want.view(wanted)
			l.turns.leave()
			synctest.Wait()
			if made := l.kept.Keys(); !slices.Contains(made[:2], want.key()) {
				t.Errorf("The update for the other client is number %d of %d", 1+slices.Index(made, want.key()), len(made))
			}
		})
	}
}

func TestTurnsThatAreGivenUpAreNobodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s turns
		s.take(greedy, nil, nil)
		gone, came := make(chan struct{}), 0
		for n := range 10 {
			go func() {
				if s.take([]netip.Addr{greedy, modest}[n%2], gone, nil) {
					came++
					s.leave()
				}
			}()
		}
		synctest.Wait()
		close(gone)
		synctest.Wait()
		go s.take(modest, nil, nil)
		synctest.Wait()
		s.leave()
		testkit.Equal(t, "others that came, sites, waiting", [3]int{came, len(s.sites), len(s.waiting)}, [3]int{})
		testkit.Equal(t, "a turn, of the one that has stayed", s.busy, true)
		s.leave()
		testkit.Equal(t, "somebody's turn", s.busy, false)
	})
}

func TestUpdatesForOneClientDoNotDisplaceThoseOfOthers(t *testing.T) {
	e, s := encodingsOf("se-4b")
	message := Answer{Message: make([]byte, maxEncodedBytes/8)}
	keep := func(key string, by netip.Addr) { e.keep(key, kept{of: s, answer: message, site: lookup.Site(by)}) }
	keep("modest's", modest)
	keep("of many", modest)
	e.find("of many", lookup.Site(netip.MustParseAddr("192.0.2.3")))
	keep("wanted again", greedy)
	e.find("wanted again", lookup.Site(modest))
	for n := range 100 {
		keep(fmt.Sprint("invented ", n), greedy)
	}
	for _, key := range []string{"modest's", "of many", "wanted again", "invented 99"} {
		_, kept := e.find(key, lookup.Site(modest))
		testkit.Equal(t, key+": is kept", kept, true)
	}
	testkit.Between(t, "bytes kept", e.bytes, 1, maxEncodedBytes)
}

// The limit of a view comes from the client. An int of 32 bits has no room for the bytes of that many entries.
func TestAVersionMayNameMoreEntriesThanThereAre(t *testing.T) {
	l := newLists(t, "")
	publish(t, l, "se-4b", setOf(t, "aaaa", "bbbb", "cccc"))
	s := (*l.current.Load())["se-4b"]
	for _, limit := range []uint32{4, 0x2000_0000, 0x4000_0001, 0x8000_0000, 0xffff_ffff} {
		a, err := l.Get(t.Context(), greedy, "se-4b", false, versionOf(s.tag, view{id: s.id, limit: limit}), 0)
		testkit.Must(t, err)
		testkit.Equal(t, fmt.Sprintf("limit %x: an update without changes", limit), a.Partial, true)
	}
}

// Nothing is made for a client that goes away before its turn. Those that wait with it get their answer all the same.
func TestNothingIsMadeForClientsThatHaveGoneAway(t *testing.T) {
	l := newLists(t, "")
	for round := range 200 {
		others := round % 4
		publish(t, l, "se-4b", setOf(t, fmt.Sprintf("%04d", round)))
		gone, leave := context.WithCancel(t.Context())
		errs := make(chan error, others)
		alone := make(chan error, 1)
		ask := func(ctx context.Context, errs chan error) {
			a, err := l.Get(ctx, netip.Addr{}, "se-4b", false, nil, 0)
			if err == nil && len(a.Message) == 0 {
				err = errors.New("an empty answer")
			}
			errs <- err
		}
		l.turns.take(netip.Addr{}, nil, nil) // another encoder's turn
		go ask(gone, alone)
		for range others {
			go ask(t.Context(), errs)
		}
		runtime.Gosched() // any of them may be the first
		leave()
		l.turns.leave()
		for range others {
			testkit.Is(t, fmt.Sprint("a client that stays, round ", round), <-errs, nil)
		}
		if err := <-alone; err != nil && !errors.Is(err, context.Canceled) || err == nil && others == 0 {
			t.Errorf("round %d: the client that has gone away: %v", round, err)
		}
		testkit.Equal(t, fmt.Sprintf("round %d: answers made for %d clients", round, others), l.kept.Len(), min(others, 1))
	}
}
