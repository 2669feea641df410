package relay

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// sumOfFirst returns the checksum of the first n entries of a set; 0: of all.
func sumOfFirst(s *prefixset.Set, n int) [sha256.Size]byte {
	if n == 0 {
		return sumOf(setRuns(s))
	}
	return sumOf(firstRuns(setRuns(s), int64(n)))
}

var publishSeeds = flag.Uint64("publish.seeds", 1, "courses of TestClientsAtAnyVersionEndWithThePublishedList for each width")

// Whatever is published in whatever order, a client that comes back with any version and any
// limits has in the end just what is in force: one that takes longer entries has them as they are,
// and for another one they are cut.
func TestClientsAtAnyVersionEndWithThePublishedList(t *testing.T) {
	for _, width := range []int{4, 8, 16, 32} {
		for seed := range *publishSeeds {
			t.Run(fmt.Sprintf("%d bytes, seed %d", width, seed), func(t *testing.T) {
				t.Parallel()
				publishAtRandom(t, width, rand.New(rand.NewPCG(seed, uint64(width))))
			})
		}
	}
}

func publishAtRandom(t *testing.T, width int, rng *rand.Rand) {
	name := fmt.Sprintf("x-%db", width)
	dir := t.TempDir()
	l := newLists(t, dir)
	clients := make([]*client, 8)
	for i := range clients {
		clients[i] = newClient(t, l)
		clients[i].stored = i%2 == 1
	}
	held := make(map[string]bool)
	partial := 0
	for range 50 {
		for range rng.IntN(200) * rng.IntN(20) {
			entry := width
			if width < 32 && rng.IntN(4) == 0 {
				entry += 1 + rng.IntN(32-width)
			}
			e := randomEntry(rng, entry)
			held[e] = !held[e]
		}
		if rng.IntN(15) == 0 {
			clear(held)
		}
		var entries []string
		for e, in := range held {
			if in {
				entries = append(entries, e)
			}
		}
		set := setOf(t, entries...)
		publish(t, l, name, set)
		if rng.IntN(8) == 0 {
			l = newLists(t, dir)
			publish(t, l, name, set)
		}
		for _, c := range clients {
			c.lists = l
			if rng.IntN(3) > 0 {
				continue
			}
			c.maxDB = []int{0, 0, 700, 3000, 100_000}[rng.IntN(5)]
			c.fetch(t, name)
			form, err := set, error(nil)
			if !c.stored {
				form, err = entriesOf(set, width)
				testkit.Must(t, err)
			}
			want := sumOfFirst(form, served(c.maxDB, form.Len()))
			if got := c.held[name].Checksum; got != want {
				t.Fatalf("the client has %x, published is %x", got, want)
			}
			if a := c.answers[0]; a.Partial && !a.NotModified {
				partial++
			}
		}
	}
	if partial < 10 {
		t.Errorf("%d partial updates: the test shows little", partial)
	}
}

// served returns how many of n entries a client gets that has room for maxDB; 0: all of them.
func served(maxDB, n int) int {
	if maxDB == 0 || maxDB >= n {
		return 0
	}
	return roundDown(maxDB, 5)
}

// Version 4 and Web Risk have entries of more than four bytes in a list of version 5 whose
// clients expect four.
func TestEntriesOfOtherWidthsAreCut(t *testing.T) {
	l, c := held(t, "", setOf(t, "aaaa", "aaaab", "bbbbb", "bbbbbb", "cccc", "dddddddd"))
	if got, want := c.held["se-4b"].Checksum, sha256.Sum256([]byte("aaaabbbbccccdddd")); got != want {
		t.Errorf("checksum %x, want the sum of four entries of four bytes", got)
	}
	publish(t, l, "se-4b", setOf(t, "aaaab", "bbbb", "cccc", "dddd"))
	c.fetch(t, "se-4b")
	if !c.answers[0].NotModified {
		t.Error("the same entries, cut, are an update")
	}
	err := l.Publish([]lookup.List{{Name: "se-4b", Set: setOf(t, "eeee")}, {Name: "gc-32b", Set: setOf(t, "aaaa")}, {Name: "nonsense", Set: setOf(t)}})
	if err == nil || !strings.Contains(err.Error(), "gc-32b") || !strings.Contains(err.Error(), "nonsense") || strings.Contains(err.Error(), "se-4b") {
		t.Errorf("got %v, want two lists refused", err)
	}
	if c.fetch(t, "se-4b"); c.held["se-4b"].Set.Len() != 1 || !slices.Equal(l.Names(), []string{"se-4b"}) {
		t.Errorf("lists %q, %d entries: a list that cannot be served must not hold up another", l.Names(), c.held["se-4b"].Set.Len())
	}
}

// A client that takes longer entries gets partial updates from and to lists that have some, and after
// a restart. Once there are more of them than is reasonable to send as they are, it gets cut ones.
func TestLongerEntriesAreServedAsStored(t *testing.T) {
	dir := t.TempDir()
	l := newLists(t, dir)
	c := newClient(t, l)
	c.stored = true
	steps := []struct {
		entries          []string
		restart, partial bool
	}{
		{entries: []string{"aaaa", "bbbb"}},
		{entries: []string{"aaaab", "bbbb", "cccccccc"}}, // another form
		{entries: []string{"aaaac", "bbbb"}, partial: true},
		{entries: []string{"bbbb", "dddd"}, partial: true}, // the form stays
		{entries: []string{"bbbbbb", "dddd"}, partial: true},
		{entries: []string{"bbbbbb", "eeee"}, restart: true, partial: true},
	}
	for i, s := range steps {
		set := setOf(t, s.entries...)
		if s.restart {
			l = newLists(t, dir)
			publish(t, l, "se-4b", setOf(t, steps[i-1].entries...))
			c.lists = l
		}
		publish(t, l, "se-4b", set)
		c.fetch(t, "se-4b")
		if c.held["se-4b"].Checksum != sumOf(setRuns(set)) || c.answers[0].Partial != s.partial {
			t.Errorf("step %d: partial %t, entries of %v bytes", i, c.answers[0].Partial, c.held["se-4b"].Set.Widths())
		}
		if names := l.Names(); !slices.Equal(names, []string{"se-4b"}) {
			t.Errorf("step %d: lists %q", i, names)
		}
	}
	many := prefixset.NewBuilder(0)
	for i := range uint32(maxLonger/5 + 1) {
		testkit.Must(t, many.Add(binary.BigEndian.AppendUint64(nil, uint64(i)<<24)[:5], 5))
	}
	publish(t, l, "se-4b", many.Set())
	if c.fetch(t, "se-4b"); !slices.Equal(c.held["se-4b"].Set.Widths(), []int{4}) {
		t.Errorf("%d longer entries: widths %v", maxLonger/5+1, c.held["se-4b"].Set.Widths())
	}
}

func TestMinimumWaitsKeepClientsWithinAMinute(t *testing.T) {
	for _, test := range []struct {
		r    float64
		want time.Duration
	}{{0, 10 * time.Second}, {0.5, 32500 * time.Millisecond}, {0.999999999, 55 * time.Second}} {
		if got := MinimumWait(test.r); (got - test.want).Abs() > time.Microsecond {
			t.Errorf("%v: %s, want %s", test.r, got, test.want)
		}
	}
}

// FuzzGet: no version makes Get panic, or gives a full update with anything but the list.
func FuzzGet(f *testing.F) {
	l := newLists(f, "")
	older, newer := setOf(f, "aaaa", "bbbb", "cccc"), setOf(f, "aaaa", "cccc", "dddd")
	publish(f, l, "se-4b", older)
	tag, from := tagOf("se-4b"), (*l.current.Load())["se-4b"].id
	publish(f, l, "se-4b", newer)
	to := (*l.current.Load())["se-4b"].id
	f.Add([]byte(nil), uint16(0))
	f.Add(versionOf(tag, view{id: from}), uint16(0))
	f.Add(versionOf(tag, view{id: from, limit: 2}), uint16(2))
	f.Add(versionOf(tag, view{id: to}), uint16(1))
	f.Fuzz(func(t *testing.T, raw []byte, base uint16) {
		a, err := l.Get(t.Context(), netip.Addr{}, "se-4b", false, raw, int(base))
		testkit.Must(t, err)
		list := new(sbv5.HashList)
		if err := proto.Unmarshal(a.Message, list); err != nil || list.Name != "se-4b" || len(list.Version) == 0 || list.PartialUpdate != a.Partial {
			t.Fatalf("answer %v, %v", list, err)
		}
		if parseVersion(list.Version, tag) == (view{}) {
			t.Errorf("version %x is not one of the list", list.Version)
		}
		if want := sumOfFirst(newer, min(int(base), newer.Len())); !a.Partial && !bytes.Equal(list.Sha256Checksum, want[:]) {
			t.Errorf("a full update has checksum %x, want %x", list.Sha256Checksum, want)
		}
	})
}

func TestVersionsFollowFromListAndContent(t *testing.T) {
	versionIn := func(l *Lists, name string) string {
		c := newClient(t, l)
		c.fetch(t, name)
		return string(c.held[name].Version)
	}
	one, other := newLists(t, ""), newLists(t, "")
	publish(t, one, "se-4b", setOf(t, "zzzz"))
	for _, l := range []*Lists{one, other} {
		testkit.Must(t, l.Publish([]lookup.List{{Name: "se-4b", Set: setOf(t, "aaaa", "bbbb")}, {Name: "mw-4b", Set: setOf(t, "aaaa", "bbbb")}}))
	}
	if a, b := versionIn(one, "se-4b"), versionIn(other, "se-4b"); a != b {
		t.Errorf("two relays name the same list %x and %x", a, b)
	}
	if a, b := versionIn(one, "se-4b"), versionIn(one, "mw-4b"); a == b {
		t.Errorf("two lists have the same version %x", a)
	}
}

// setOf returns the set of entries, which it sorts.
func setOf(t testing.TB, entries ...string) *prefixset.Set {
	t.Helper()
	slices.Sort(entries)
	b := prefixset.NewBuilder(0)
	for _, e := range slices.Compact(entries) {
		testkit.Must(t, b.Add([]byte(e), len(e)))
	}
	return b.Set()
}

// randomEntry returns one of few entries, so that they come back.
func randomEntry(rng *rand.Rand, width int) string {
	sum := sha256.Sum256([]byte{byte(rng.IntN(40)), byte(rng.IntN(256))})
	return string(sum[:width])
}

func newLists(t testing.TB, dir string) *Lists {
	t.Helper()
	l, err := NewLists(dir)
	testkit.Must(t, err)
	return l
}

func publish(t testing.TB, l *Lists, name string, set *prefixset.Set) {
	t.Helper()
	testkit.Must(t, l.Publish([]lookup.List{{Name: name, Set: set}}))
}

// transport answers the requests of a client from lists, as a server would.
type transport struct {
	lists   *Lists
	maxDB   int
	stored  bool     // as a client that takes entries as they are stored
	answers []Answer // to the last request
}

// RoundTrip implements http.RoundTripper.
func (tr *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	m, _ := methodOf(r.URL.Path)
	q, bad := m.parse(r.URL.RawQuery)
	name, single := strings.CutPrefix(r.URL.Path, "/v5/hashList/")
	if single {
		q.names = []string{name}
	}
	versions, badToo := versionsOf(q)
	if bad = cmp.Or(bad, badToo); bad != nil {
		return nil, errors.New(bad.message)
	}
	tr.answers = nil
	for _, name := range q.names {
		a, err := tr.lists.Get(r.Context(), netip.Addr{}, name, tr.stored, versions[name], tr.maxDB)
		if err != nil {
			return nil, err
		}
		tr.answers = append(tr.answers, a)
	}
	body := BatchBody(tr.answers, time.Minute)
	if single {
		body = tr.answers[0].Body(time.Minute)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-protobuf"}}, Request: r,
		Body: io.NopCloser(&body), ContentLength: lengthOf(body),
	}, nil
}

func lengthOf(body net.Buffers) (n int64) {
	for _, b := range body {
		n += int64(len(b))
	}
	return n
}

// client is a real client with the lists that it holds.
type client struct {
	*transport
	*protocol.V5
	held map[string]updater.List
}

func newClient(t testing.TB, l *Lists) *client {
	t.Helper()
	tr := &transport{lists: l}
	c, err := protocol.NewV5(protocol.Config{UserAgent: "test/1", Transport: tr})
	testkit.Must(t, err)
	return &client{tr, c, make(map[string]updater.List)}
}

// fetch fetches the lists once and applies the updates.
func (c *client) fetch(t testing.TB, names ...string) {
	t.Helper()
	var wanted []updater.Want
	for _, name := range names {
		wanted = append(wanted, updater.Want{List: name, Version: c.held[name].Version})
	}
	_, err := c.Fetch(context.Background(), wanted, func(i int, u *updater.Update) {
		old := c.held[names[i]]
		if !u.Partial {
			old = updater.List{}
		}
		old.Name = names[i]
		list, _, err := updater.Apply(old, u, 1<<24)
		if err != nil {
			t.Fatalf("list %s: %v", names[i], err)
		}
		if c.maxDB > 0 && list.Set.Len() > c.maxDB {
			t.Fatalf("list %s: %d entries, asked for %d at most (partial: %t)", names[i], list.Set.Len(), c.maxDB, u.Partial)
		}
		c.held[names[i]] = list
	})
	testkit.Must(t, err)
}
