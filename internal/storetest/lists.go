package storetest

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// listComesBack checks that another machine, and one after a restart, find what was fetched once.
func listComesBack(t *testing.T, m Medium) {
	s := &source{wait: time.Hour, answer: 200}
	a := Start(t, m.Process(1), s)
	testkit.Until(t, "a list", func() bool { return a.entries() == 200 })
	b := Start(t, m.Process(2), s)
	testkit.Until(t, "the list on another machine", func() bool { return b.entries() == 200 })
	sameList(t, b, a)
	a.end()
	again := Start(t, m.Process(1), s)
	testkit.Until(t, "the list after a restart", func() bool { return again.entries() == 200 })
	sameList(t, again, a)
	asked := s.requests()
	if len(asked) != 1 {
		t.Fatalf("Expected 1 request, got %d", len(asked))
	}
	e, ok := again.reported(updater.Loaded, updater.Followed)
	if age := e.Updated.Sub(asked[0]).Abs(); !ok || age > 30*time.Second {
		t.Errorf("Expected the time of the update, %s, got %s", asked[0], e.Updated)
	}
}

// sameList fails unless both have the same version and the same entries.
func sameList(t *testing.T, got, want *Process) {
	t.Helper()
	one := func(p *Process) (l lookup.List, entries []byte) {
		all := p.Lists()
		if len(all) != 1 {
			t.Fatalf("Expected one list, got %d", len(all))
		}
		entries, err := io.ReadAll(all[0].Set.Reader())
		testkit.Must(t, err)
		return all[0], entries
	}
	g, gotEntries := one(got)
	w, wantEntries := one(want)
	if g.Name != w.Name || !bytes.Equal(g.Version, w.Version) || !bytes.Equal(gotEntries, wantEntries) {
		t.Errorf("Expected list %s of version %x, got %s of version %x and other entries", w.Name, w.Version, g.Name, g.Version)
	}
}

// missingList has no list, which is no error.
func missingList(t *testing.T, m Medium) {
	s := &source{err: &updater.StatusError{Code: 503}}
	a := Start(t, m.Process(1), s)
	testkit.Until(t, "a request", func() bool { return len(s.requests()) == 1 })
	b := Start(t, m.Process(2), s)
	testkit.Until(t, "that the other one waits", func() bool { return b.schedule.FetchHold([]string{List}).Failures == 1 })
	for i, p := range []*Process{a, b} {
		if e, ok := p.reported(updater.LoadFailed, updater.FollowFailed); ok || p.entries() != 0 {
			t.Errorf("process %d: Expected no list and no error, got %d entries and %v", i+1, p.entries(), e.Err)
		}
	}
}

// damagedList checks that a process on a new machine refuses a damaged list and says so. All get a right
// one again, without a request that comes too early.
func damagedList(t *testing.T, m Medium) {
	s := &source{wait: 3 * time.Second, answer: 200}
	a := Start(t, m.Process(1), s)
	testkit.Until(t, "a list", func() bool { return a.entries() == 200 })
	m.DamageList()
	b := Start(t, m.Process(2), s)
	testkit.Until(t, "that the damage is told", func() bool { _, ok := b.reported(updater.LoadFailed, updater.FollowFailed); return ok })
	a.end()
	testkit.Until(t, "a right list", func() bool { return b.entries() > 0 })
	sameList(t, b, a)
	c := Start(t, m.Process(3), s)
	testkit.Until(t, "a right list for one more", func() bool { return c.entries() > 0 })
	sameList(t, c, a)
	spaced(t, s, s.wait)
}

// takeOver checks that a second process fetches when the first one ends, but not before it may.
func takeOver(t *testing.T, m Medium) {
	const wait = 3 * time.Second
	s := &source{wait: wait, answer: 200}
	a := Start(t, m.Process(1), s)
	testkit.Until(t, "lists of the first process", func() bool { return a.entries() == 200 })
	b := Start(t, m.Process(2), s)
	testkit.Until(t, "lists of the second process", func() bool { return b.entries() == 200 })
	// On a busy machine the first one asks again, and a request would count as failed that ends before the others know it.
	testkit.Until(t, "that the second process knows the wait", func() bool {
		h := b.schedule.FetchHold([]string{List})
		return h.Failures == 0 && time.Until(h.Until) > 2*time.Second
	})
	a.end()
	before := 0
	s.set(func(s *source) { s.answer, s.wait, before = 300, time.Hour, len(s.asked) })
	testkit.Until(t, "lists that the second process has fetched", func() bool { return b.entries() == 300 })
	if asked := s.requests(); len(asked) != before+1 {
		t.Errorf("Expected one request after the first %d, got %v", before, asked)
	}
	spaced(t, s, wait)
}

// oneFetches checks that one of three processes fetches each of three contents, and that the next
// one finds the last of them.
func oneFetches(t *testing.T, m Medium) {
	s := &source{wait: time.Second, answer: 1}
	all := []*Process{Start(t, m.Process(1), s), Start(t, m.Process(2), s), Start(t, m.Process(3), s)}
	for n := 100; n <= 300; n += 100 {
		s.set(func(s *source) { s.answer = n })
		testkit.Until(t, "the next content", func() bool {
			return slices.ContainsFunc(all, func(p *Process) bool { return p.entries() == n })
		})
	}
	leaders := 0
	for _, p := range all {
		if p.leads() {
			leaders++
		}
	}
	if leaders != 1 {
		t.Errorf("Expected 1 process that fetches, got %d", leaders)
	}
	next := Start(t, m.Process(4), s)
	testkit.Until(t, "the last content at one more", func() bool { return next.entries() == 300 })
	spaced(t, s, s.wait)
}

// spaced fails if the source was asked again before the end of a wait.
func spaced(t *testing.T, s *source, wait time.Duration) {
	t.Helper()
	asked := s.requests()
	for i := 1; i < len(asked); i++ {
		if gap := asked[i].Sub(asked[i-1]); gap < wait {
			t.Errorf("request %d came after %s, want %s at least", i+1, gap, wait)
		}
	}
}
