//go:build linux && amd64

package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// A schedule or a clock of searches that is damaged at any bit allows no request that the undamaged one forbids.
func TestAClockDamagedAtAnyBitKeepsItsWait(t *testing.T) {
	testkit.Long(t)
	p := scenario{prepare: oldLists}.newPlace(t)
	testkit.Must(t, errors.Join(update(p), search(p), spend(p), publishHistory(p))) // each file exists
	for name, check := range map[string]func(*testing.T, place){"schedule.json": wantNoUpdate, "searches.json": wantNoSearch} {
		path := filepath.Join(p.db(), name)
		raw, err := os.ReadFile(path)
		testkit.Must(t, err)
		tried := 0
		for bit := 0; bit < len(raw)*8; bit += stride() {
			damaged := bytes.Clone(raw)
			damaged[bit/8] ^= 1 << (bit % 8)
			testkit.Must(t, os.WriteFile(path, damaged, 0o600))
			failed := t.Failed()
			if check(t, p); t.Failed() && !failed {
				t.Errorf("that was bit %d of byte %d of %s", bit%8, bit/8, raw)
			}
			tried++
		}
		testkit.Must(t, os.WriteFile(path, raw, 0o600))
		t.Logf("%s: %d bits", name, tried)
	}
}

func wantNoUpdate(t *testing.T, p place) {
	t.Helper()
	err := once(p, source{asked: func() error { t.Error("an update is sent"); return nil }}, func(updater.Event) {})
	if notDue, ok := errors.AsType[*updater.NotDueError](err); !ok || time.Until(notDue.Until) < soonest-slack {
		t.Errorf("the next update: %v", err)
	}
}

func wantNoSearch(t *testing.T, p place) {
	t.Helper()
	s, schedule, _ := paced(p, searcher{func() error { t.Error("a search is sent"); return nil }, nil}, func(updater.Event) {})
	s.Search(context.Background(), nil)
	schedule.Flush()
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

func updateBesides(t *testing.T, p place) {
	for _, list := range []string{large, small} {
		testkit.Equal(t, list+" is in force", inForce(t, p, list) != "", true)
	}
	err := once(p, source{asked: func() error { return nil }}, func(updater.Event) {})
	if count(p.said(t), "asked") > 0 { // before that the other program has not locked the folder yet
		testkit.Is(t, "the second update", err, updater.ErrBusy)
	}
}

// searchBesides is a search while another program is stopped in one: it is held if that one has been sent.
func searchBesides(t *testing.T, p place) {
	sent := count(p.said(t), "asked") > 0
	s, schedule, err := paced(p, searcher{func() error {
		if sent {
			t.Error("a second search is sent")
		}
		return nil
	}, nil}, func(updater.Event) {})
	testkit.Must(t, err)
	s.Search(context.Background(), nil)
	schedule.Flush()
}

// spendBesides is a search within a budget: it is sent, whoever keeps the lock of the count.
func spendBesides(t *testing.T, p place) {
	ledger, err := ledgerIn(p.db())
	testkit.Must(t, err)
	testkit.Is(t, "the search", spendOne(ledger), nil)
}

// storeFiles are all files that the store has, and a relay's file.
var storeFiles = []string{
	large + ".list", small + ".list", "schedule.json", "searches.json", "budget.json",
	"lock", "searches.json.lock", "budget.json.lock", "relay/history/" + large + ".history",
}

// kinds are what may be in the place of a file: made by a script, by a restored backup, or by somebody who looks for a weakness.
var kinds = map[string]func(path string) error{
	"folder":              func(path string) error { return os.Mkdir(path, 0o700) },
	"folder with another": func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
	"FIFO":                func(path string) error { return syscall.Mkfifo(path, 0o600) },
	"link to itself":      func(path string) error { return os.Symlink(path, path) },
	"link to nowhere":     func(path string) error { return os.Symlink("nowhere/at/all", path) },
	"link to a FIFO": func(path string) error {
		return errors.Join(syscall.Mkfifo(path+"-target", 0o600), os.Symlink(path+"-target", path))
	},
	"link to a device": func(path string) error { return os.Symlink(os.DevNull, path) },
	"file of 64 MiB":   func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 64<<20)) },
	"empty file":       func(path string) error { return os.WriteFile(path, nil, 0o600) },
	"file of another user": func(path string) error {
		return errors.Join(os.WriteFile(path, []byte("{}"), 0o600), os.Chown(path, 12345, 12345))
	},
}

// Something else in the place of a file ends in an error that names it, or does no harm. A start ends soon, keeps every other list in
// force, and asks the server too often in no case.
func TestSomethingElseInThePlaceOfAFile(t *testing.T) {
	testkit.Long(t)
	program() // it takes longer than an edit may
	type use = func(t *testing.T, p place, kind string)
	uses := map[string]use{ // by the file in the place's folder
		"etc/allow.txt": editsAllow, "etc/paused": pauses,
		place{}.byURL().Path(): usesList, strings.TrimSuffix(place{}.byURL().Path(), "list") + "json": usesList,
	}
	for _, name := range storeFiles {
		uses["db/"+name] = func(t *testing.T, p place, _ string) { useEverything(t, p, name) }
	}
	for kind, put := range kinds {
		for name, use := range uses {
			t.Run(kind+"/"+name, func(t *testing.T) {
				if kind == "file of another user" && os.Geteuid() != 0 {
					t.Skip("only root can make one")
				}
				p := scenario{prepare: oldLists}.newPlace(t)
				testkit.Must(t, os.MkdirAll(filepath.Join(p.db(), "relay", "history"), 0o700))
				path := filepath.Join(p.root, name)
				_ = os.Remove(path)
				testkit.Must(t, put(path))
				within(t, func() { use(t, p, kind) })
			})
		}
	}
}

// within fails the test if f takes longer than a start may.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(4 * patience): // an edit waits for a lock for 10 seconds
		t.Fatal("it hangs")
	}
}

// useEverything does with a folder what a start and the minutes after it do. name is the file that is something else.
func useEverything(t *testing.T, p place, name string) {
	for _, list := range []string{large, small} {
		if version := inForce(t, p, list); name != list+".list" && version != "old" {
			t.Errorf("%s: version %q is in force", list, version)
		}
	}
	asked := 0
	err := once(p, source{asked: func() error { asked++; return nil }}, func(updater.Event) {})
	again := once(p, source{asked: func() error { asked++; return nil }}, func(updater.Event) {})
	testkit.Between(t, fmt.Sprint("requests of two updates with ", err, " and ", again), asked, 0, 1)
	if strings.HasSuffix(name, ".list") && (asked != 1 || inForce(t, p, name[:len(name)-len(".list")]) != "new") {
		t.Errorf("the update does not replace it: %v", err)
	}
	searched := 0
	for range 2 {
		if s, schedule, _ := paced(p, searcher{func() error { searched++; return nil }, outOfService}, func(updater.Event) {}); s != nil {
			s.Search(context.Background(), nil)
			schedule.Flush()
		}
	}
	testkit.Between(t, "searches, also during the back-off", searched, 0, 1)
	store, _ := updater.OpenStore(p.db(), origin)
	ledger, err := updater.NewLedger(store)
	if searchErr := spendOne(ledger); searchErr != nil && (err == nil || !errors.Is(searchErr, lookup.ErrBudget)) {
		t.Errorf("the budget: %v, and then %v", err, searchErr)
	}
	if _, err := updater.Status(p.db()); err != nil && !strings.Contains(name, "schedule") {
		t.Errorf("the status: %v", err)
	}
	lists, err := relay.NewLists(filepath.Join(p.db(), "relay"))
	testkit.Must(t, err)
	publish(lists, "new")
	a, err := lists.Get(context.Background(), netip.Addr{}, large, false, nil, 0)
	testkit.Must(t, err)
	testkit.Equal(t, "the relay serves something", len(a.Message) > 0, true)
}
