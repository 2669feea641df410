//go:build linux && amd64

package crash

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

const pageSize = 4096

// damages returns what may become of a file at one of its pages.
func damages(raw []byte, page int) map[string][]byte {
	from, to := page*pageSize, min((page+1)*pageSize, len(raw))
	zeros, flipped, last, other := bytes.Clone(raw), bytes.Clone(raw), bytes.Clone(raw), bytes.Clone(raw)
	clear(zeros[from:to])
	flipped[from] ^= 0x10
	last[to-1] ^= 1
	copy(other[from:to], raw[:to-from]) // the first page once more
	return map[string][]byte{
		"cut":                     raw[:from],
		"zeros":                   zeros,
		"a bit of its first byte": flipped,
		"a bit of its last byte":  last,
		"another page":            other,
	}
}

// complete does an update, a search and a publication, so that each file exists.
func complete(t *testing.T) place {
	t.Helper()
	p := newPlace(t)
	for _, folder := range p.folders() {
		must(t, os.MkdirAll(folder, 0o700))
	}
	p.enter()
	oldLists(t, p)
	must(t, errors.Join(update(p), search(p), spend(p), publishHistory(p)))
	return p
}

// A list that is damaged at any page is never in force, and is set aside.
func TestAListDamagedAtAnyPageIsNotUsed(t *testing.T) {
	p := complete(t)
	tried := 0
	for _, list := range []string{large, small} {
		path := filepath.Join(p.db(), list+".list")
		raw, err := os.ReadFile(path)
		must(t, err)
		for page := range (len(raw) + pageSize - 1) / pageSize {
			for what, damaged := range damages(raw, page) {
				if bytes.Equal(damaged, raw) {
					continue
				}
				tried++
				must(t, os.WriteFile(path, damaged, 0o600))
				begun := time.Now()
				if version := inForce(t, p, list); version != "" {
					t.Errorf("%s, page %d, %s: version %q is in force", list, page, what, version)
				}
				if took := time.Since(begun); took > patience {
					t.Errorf("it took %s", took)
				}
				if _, err := os.Stat(path + ".damaged"); err != nil {
					t.Errorf("%s, page %d, %s: %v", list, page, what, err)
				}
			}
		}
	}
	if tried < 50 {
		t.Errorf("%d damages are too few", tried)
	}
	t.Logf("%d damages", tried)
}

// A schedule or a clock of searches that is damaged at any bit allows no request that the
// undamaged one forbids.
func TestAClockDamagedAtAnyBitKeepsItsWait(t *testing.T) {
	testkit.Long(t)
	p := complete(t)
	for name, check := range map[string]func(*testing.T, place){"schedule.json": wantNoUpdate, "searches.json": wantNoSearch} {
		path := filepath.Join(p.db(), name)
		raw, err := os.ReadFile(path)
		must(t, err)
		tried := 0
		for bit := 0; bit < len(raw)*8; bit += stride() {
			damaged := bytes.Clone(raw)
			damaged[bit/8] ^= 1 << (bit % 8)
			must(t, os.WriteFile(path, damaged, 0o600))
			failed := t.Failed()
			if check(t, p); t.Failed() && !failed {
				t.Errorf("that was bit %d of byte %d of %s", bit%8, bit/8, raw)
			}
			tried++
		}
		must(t, os.WriteFile(path, raw, 0o600))
		t.Logf("%s: %d bits", name, tried)
	}
}

// wantNoUpdate says that no update is allowed for some minutes.
func wantNoUpdate(t *testing.T, p place) {
	t.Helper()
	_, err := once(p, source{asked: func() error { t.Error("an update is sent"); return nil }}, func(updater.Event) {})
	if notDue, ok := errors.AsType[*updater.NotDueError](err); !ok || time.Until(notDue.Until) < soonest-slack {
		t.Errorf("the next update: %v", err)
	}
}

// wantNoSearch says that no search is allowed.
func wantNoSearch(t *testing.T, p place) {
	t.Helper()
	s, schedule, _ := paced(p, searcher{func() error { t.Error("a search is sent"); return nil }, nil}, func(updater.Event) {})
	s.Search(context.Background(), nil)
	schedule.Flush()
}

// A history that is damaged at any page costs full updates, and nothing else.
func TestAHistoryDamagedAtAnyPageCostsFullUpdatesOnly(t *testing.T) {
	p := complete(t)
	path := filepath.Join(p.history(), large+".history")
	raw, err := os.ReadFile(path)
	must(t, err)
	for page := range (len(raw) + pageSize - 1) / pageSize {
		for what, damaged := range damages(raw, page) {
			if bytes.Equal(damaged, raw) {
				continue
			}
			must(t, os.WriteFile(path, damaged, 0o600))
			lists, err := relay.NewLists(filepath.Dir(p.history()))
			must(t, err)
			if err := publish(lists, "new"); err == nil {
				t.Errorf("page %d, %s: no word of the damage", page, what)
			}
			if a, err := lists.Get(context.Background(), netip.Addr{}, large, nil, 0); err != nil || len(a.Message) == 0 {
				t.Errorf("page %d, %s: %d bytes, %v", page, what, len(a.Message), err)
			}
		}
	}
}

// A program that is stopped at any of its writes does not hold up another one with the same
// folder: that one starts at once, and does not ask as well.
func TestAStoppedProgramHoldsUpNoOther(t *testing.T) {
	testkit.Long(t)
	for name, besides := range map[string]func(*testing.T, place){
		"partial update":               updateBesides,
		"clock of searches":            searchBesides,
		"budget":                       spendBesides,
		"first fetch of a list by URL": fetchBesides,
		"an exception is added":        editBesides,
	} {
		if name != "partial update" && !*all {
			continue // they wait for the lock, two seconds at each point
		}
		t.Run(name, func(t *testing.T) {
			s := scenarios[slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })]
			tried := s.eachPoint(t, func(p place, _ call, first bool) error {
				if first {
					within(t, func() { besides(t, p) })
				}
				return nil
			}, func(*testing.T, place) {})
			t.Logf("%d points", tried)
		})
	}
}

// updateBesides is an update while another program is stopped in one.
func updateBesides(t *testing.T, p place) {
	for _, list := range []string{large, small} {
		if version := inForce(t, p, list); version == "" {
			t.Errorf("%s is not in force", list)
		}
	}
	if _, err := once(p, source{asked: func() error { return nil }}, func(updater.Event) {}); !errors.Is(err, updater.ErrBusy) {
		// Before the first point the other program has not locked the folder yet.
		if point := count(p.said(t), "asked"); point > 0 {
			t.Errorf("the second update: %v", err)
		}
	}
}

// searchBesides is a search while another program is stopped in one: it is held if that one
// has been sent.
func searchBesides(t *testing.T, p place) {
	sent := count(p.said(t), "asked") > 0
	s, schedule, err := paced(p, searcher{func() error {
		if sent {
			t.Error("a second search is sent")
		}
		return nil
	}, nil}, func(updater.Event) {})
	must(t, err)
	s.Search(context.Background(), nil)
	schedule.Flush()
}

// spendBesides is a search within a budget: it is sent, whoever keeps the lock of the count.
func spendBesides(t *testing.T, p place) {
	store, err := updater.OpenStore(p.db(), origin)
	must(t, err)
	ledger, err := updater.NewLedger(store)
	must(t, err)
	limited := ledger.Limit(searcher{func() error { return nil }, nil}, budget, func(updater.Event) {})
	if _, err := limited.Search(context.Background(), []lookup.Prefix{"evil"}); err != nil {
		t.Errorf("the search: %v", err)
	}
}
