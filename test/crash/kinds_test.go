//go:build linux && amd64

package crash

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// storeFiles are all files that the store has, and a relay's file.
var storeFiles = []string{
	large + ".list", small + ".list", "schedule.json", "searches.json", "budget.json",
	"lock", "searches.json.lock", "budget.json.lock", "relay/history/" + large + ".history",
}

// What may be in the place of a file: made by a script, by a restored backup, or by somebody
// who looks for a weakness.
var kinds = map[string]func(t *testing.T, path string){
	"folder": func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) },
	"folder with a file": func(t *testing.T, path string) {
		must(t, os.Mkdir(path, 0o700))
		must(t, os.WriteFile(filepath.Join(path, "x"), nil, 0o600))
	},
	"FIFO":           func(t *testing.T, path string) { must(t, syscall.Mkfifo(path, 0o600)) },
	"link to itself": func(t *testing.T, path string) { must(t, os.Symlink(path, path)) },
	"link to nowhere": func(t *testing.T, path string) {
		must(t, os.Symlink(filepath.Join(filepath.Dir(path), "nowhere", "at", "all"), path))
	},
	"link to a FIFO": func(t *testing.T, path string) {
		must(t, syscall.Mkfifo(path+"-target", 0o600))
		must(t, os.Symlink(path+"-target", path))
	},
	"link to a device": func(t *testing.T, path string) { must(t, os.Symlink(os.DevNull, path)) },
	"file of 64 MiB": func(t *testing.T, path string) {
		must(t, os.WriteFile(path, nil, 0o600))
		must(t, os.Truncate(path, 64<<20))
	},
	"empty file": func(t *testing.T, path string) { must(t, os.WriteFile(path, nil, 0o600)) },
}

// A start on a folder with something else in the place of a file ends soon, keeps every other
// list in force, and asks the server too often in no case.
func TestSomethingElseInThePlaceOfAFile(t *testing.T) {
	testkit.Long(t)
	for kind, put := range kinds {
		for _, name := range storeFiles {
			t.Run(kind+"/"+name, func(t *testing.T) {
				p := newPlace(t)
				for _, folder := range append(p.folders(), filepath.Join(p.db(), "relay", "history")) {
					must(t, os.MkdirAll(folder, 0o700))
				}
				p.enter()
				oldLists(t, p)
				path := filepath.Join(p.db(), name)
				_ = os.Remove(path)
				put(t, path)
				within(t, func() { useEverything(t, p, name) })
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

// useEverything does with a folder what a start and the minutes after it do. name is the file
// that is something else.
func useEverything(t *testing.T, p place, name string) {
	for _, list := range []string{large, small} {
		if version := inForce(t, p, list); name != list+".list" && version != "old" {
			t.Errorf("%s: version %q is in force", list, version)
		}
	}
	asked := 0
	_, err := once(p, source{asked: func() error { asked++; return nil }}, func(updater.Event) {})
	_, again := once(p, source{asked: func() error { asked++; return nil }}, func(updater.Event) {})
	if asked > 1 {
		t.Errorf("two updates ask twice: %v, %v", err, again)
	}
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
	if searched > 1 {
		t.Errorf("%d searches were sent during the back-off", searched)
	}
	store, _ := updater.OpenStore(p.db(), origin)
	ledger, err := updater.NewLedger(store)
	_, searchErr := ledger.Limit(searcher{func() error { return nil }, nil}, budget, func(updater.Event) {}).Search(context.Background(), []lookup.Prefix{"evil"})
	if searchErr != nil && (err == nil || !errors.Is(searchErr, lookup.ErrBudget)) {
		t.Errorf("the budget: %v, and then %v", err, searchErr)
	}
	if _, err := updater.Status(p.db()); err != nil && !strings.Contains(name, "schedule") {
		t.Errorf("the status: %v", err)
	}
	lists, err := relay.NewLists(filepath.Join(p.db(), "relay"))
	must(t, err)
	publish(lists, "new")
	if a, err := lists.Get(context.Background(), netip.Addr{}, large, nil, 0); err != nil || len(a.Message) == 0 {
		t.Errorf("the relay serves %d bytes, %v", len(a.Message), err)
	}
}
