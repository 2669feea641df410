package protocoltest

import (
	"bytes"
	"math/rand/v2"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// evolve returns entries without some and with some more.
func evolve(rng *rand.Rand, width int, entries [][]byte) [][]byte {
	var next [][]byte
	for _, e := range entries {
		if rng.IntN(5) > 0 {
			next = append(next, e)
		}
	}
	return append(next, randomEntries(rng, width, rng.IntN(50))...)
}

func TestPartialUpdatesLeadToTheNewestVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(t)
		rng := rand.New(rand.NewPCG(3, 4))
		names := []string{"se-4b", "x-8b", "y-16b", "gc-32b"}
		entries := map[string][][]byte{}
		copies := map[string]*copyOf{}
		for round := range 60 {
			for _, name := range names {
				if round%7 != 3 {
					entries[name] = evolve(rng, listWidth(name), entries[name])
				}
				if round == 30 {
					entries[name] = nil
				}
				s.Publish(name, entries[name])
				if round%20 == 19 {
					s.ForgetVersions(name)
				}
			}
			bad, err := fetch(t, s, copies, nil, names...)
			if err != nil || len(bad) > 0 {
				t.Fatalf("round %d: %v, %v", round, bad, err)
			}
			for _, name := range names {
				if !slices.Equal(copies[name].entries, sorted(entries[name])) {
					t.Fatalf("round %d: %s is not the newest version", round, name)
				}
			}
			time.Sleep(30 * time.Minute)
		}
	})
}

func TestUnchangedListHasNoChecksum(t *testing.T) {
	s := New(t)
	s.Publish("se-4b", [][]byte{{1, 2, 3, 4}})
	l := s.lists["se-4b"]
	first := l.newest()
	s.Publish("se-4b", [][]byte{{1, 2, 3, 4}, {1, 2, 3, 4}})
	u := l.updateFrom(first.id, 0)
	m := u.message()
	if !m.PartialUpdate || m.CompressedAdditions != nil || m.CompressedRemovals != nil || m.Sha256Checksum != nil {
		t.Errorf("got %v, want a partial update with nothing in it", m)
	}
	if bytes.Equal(m.Version, first.id) {
		t.Error("the second version has the name of the first")
	}
}

// A client whose version the server has forgotten gets a full update; one with a version that
// the server knows gets what has changed.
func TestForgottenVersionsLeadToFullUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(t)
		copies := map[string]*copyOf{}
		for i := range 5 {
			s.Publish("se-4b", [][]byte{{1, 2, 3, byte(i)}})
			if _, err := fetch(t, s, copies, nil, "se-4b"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Minute)
		}
		if got := s.Forget(2); got != 3 || len(s.Requests("")) != 2 || s.Forget(2) != 0 {
			t.Errorf("%d requests forgotten and %d left, want 3 and 2", got, len(s.Requests("")))
		}
		l := s.lists["se-4b"]
		held := copies["se-4b"].version
		s.Publish("se-4b", nil)
		if u := l.updateFrom(held, 0); !u.partial {
			t.Error("a full update of a version that the server knows")
		}
		s.Forget(1)
		if u := l.updateFrom(held, 0); u.partial {
			t.Error("a partial update of a version that the server has forgotten")
		}
		if bad, err := fetch(t, s, copies, nil, "se-4b"); err != nil || len(bad) > 0 || len(copies["se-4b"].entries) != 0 {
			t.Errorf("got %v, %v and %d entries, want the newest version", bad, err, len(copies["se-4b"].entries))
		}
	})
}

func TestMaxUpdateEntriesSplitsUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(t)
		rng := rand.New(rand.NewPCG(5, 6))
		entries := randomEntries(rng, 4, 5000)
		s.Publish("se-4b", entries)
		s.SetMinimumWait("se-4b", time.Hour)
		copies := map[string]*copyOf{}
		limit := url.Values{"sizeConstraints.maxUpdateEntries": {"1024"}}
		steps := func() (n int) {
			want := s.lists["se-4b"].newest()
			for n = 1; ; n++ {
				bad, err := fetch(t, s, copies, limit, "se-4b")
				if err != nil || len(bad) > 0 || n > 20 {
					t.Fatalf("step %d: %v, %v", n, bad, err)
				}
				if bytes.Equal(copies["se-4b"].version, want.id) {
					break
				}
			}
			if !slices.Equal(copies["se-4b"].entries, want.entries) {
				t.Error("the steps do not lead to the newest version")
			}
			return n
		}
		if n := steps(); n != 5 {
			t.Errorf("%d steps, want 5", n)
		}
		time.Sleep(time.Hour)
		s.Publish("se-4b", append(entries[3000:], randomEntries(rng, 4, 1000)...))
		if n := steps(); n != 4 {
			t.Errorf("%d steps, want 4 of 3000 removals and 1000 additions", n)
		}
	})
}

func TestGetAndListMethods(t *testing.T) {
	s := New(t)
	s.Publish("se-4b", [][]byte{{1, 2, 3, 4}})
	s.Publish("gc-32b", [][]byte{make([]byte, 32)})
	var m sbv5.HashList
	if err := read(s, polite(t, "/v5/hashList/se-4b", nil), &m); err != nil || m.Name != "se-4b" {
		t.Errorf("get: %v, %v", &m, err)
	}
	var names []string
	token := ""
	for {
		var page sbv5.ListHashListsResponse
		query := url.Values{"pageSize": {"1"}}
		if token != "" {
			query.Set("pageToken", token)
		}
		if err := read(s, polite(t, "/v5/hashLists", query), &page); err != nil || len(page.HashLists) != 1 {
			t.Fatalf("list: %v, %v", &page, err)
		}
		names = append(names, page.HashLists[0].Name)
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if len(names) != 2 || names[0] != "gc-32b" || names[1] != "se-4b" {
		t.Errorf("lists %q", names)
	}
}
