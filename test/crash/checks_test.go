//go:build linux && amd64

package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// soonest is how long after a request that was not answered the next one may follow: the
// shortest first back-off ("Request Frequency", back-off mode).
const soonest = 15 * time.Minute

// slack is what the clock of a note may be ahead of the clock of the schedule.
const slack = 10 * time.Second

// patience is how long a start may take. A start takes milliseconds; the test machine may be busy.
const patience = 5 * time.Second

// earliest returns when the next request is allowed, zero if at once.
func earliest(said []note) (at time.Time) {
	for _, s := range said {
		switch s.what {
		case "asked":
			at = s.at.Add(soonest - slack)
		case "done":
			at = s.at.Add(wait - slack)
		}
	}
	return at
}

// checkUpdate says that each list in force is the old or the new one, as its checksum says,
// that no request comes too early, and that the next update works and tidies up.
func checkUpdate(t *testing.T, p place, said []note, _ bool) {
	t.Helper()
	begun := time.Now()
	for _, list := range []string{large, small} {
		if version := inForce(t, p, list); count(said, "done") > 0 {
			testkit.Equal(t, list+" after the end of the update", version, "new")
		}
	}
	testkit.Between(t, "how long the lists took", time.Since(begun), 0, patience)
	allowed, asked := earliest(said), false
	err := once(p, source{asked: func() error { asked = true; return nil }}, func(e updater.Event) {
		// A list that was damaged before the crash is told at the start after it, too.
		if e.Err != nil && !errors.Is(e.Err, updater.ErrDamaged) {
			t.Errorf("event %d of %s: %v", e.Kind, e.List, e.Err)
		}
	})
	if notDue, ok := errors.AsType[*updater.NotDueError](err); ok && !notDue.Until.Before(allowed) {
		return
	}
	switch {
	case err != nil:
		t.Errorf("the next update: %v, want one at %s", err, allowed)
	case !asked:
		t.Error("the next update asks for nothing")
	case !allowed.IsZero():
		t.Errorf("the next update asks at once, want %s", allowed)
	}
	for _, list := range []string{large, small} {
		testkit.Equal(t, list+" after the next update", inForce(t, p, list), "new")
	}
	wantTidy(t, p.db())
}

// inForce returns the version of a list that a start finds, "" if there is none. It is an
// error if its entries differ from this version's.
func inForce(t *testing.T, p place, list string) string {
	t.Helper()
	store, err := updater.OpenStore(p.db(), origin)
	testkit.Must(t, err)
	l, err := store.LoadList(list)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, updater.ErrDamaged) && !errors.Is(err, syscall.ELOOP) {
			t.Errorf("%s: %v", list, err)
		}
		return ""
	}
	if raw, err := io.ReadAll(l.Set.Reader()); err != nil || !bytes.Equal(raw, entries(list, string(l.Version))) {
		t.Errorf("%s: the entries differ from version %q: %v", list, l.Version, err)
	}
	return string(l.Version)
}

func wantTidy(t *testing.T, folder string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(folder, "*.tmp"))
	testkit.Must(t, err)
	testkit.Equal(t, "left", left, nil)
}

func checkSearch(t *testing.T, p place, said []note, _ bool) {
	t.Helper()
	asked := false
	s, schedule, err := paced(p, searcher{func() error { asked = true; return nil }, nil}, func(e updater.Event) {
		testkit.Is(t, fmt.Sprint("event ", e.Kind), e.Err, nil)
	})
	testkit.Is(t, "the schedule", err, nil)
	_, err = s.Search(t.Context(), nil)
	schedule.Flush()
	allowed := earliest(said)
	held, ok := errors.AsType[*updater.HeldError](err)
	switch {
	case ok && held.Until.Before(allowed):
		t.Errorf("the next search comes at %s, want %s", held.Until, allowed)
	case asked && !allowed.IsZero():
		t.Errorf("the next search comes at once, want %s", allowed)
	case !ok && !asked:
		t.Errorf("the next search: %v", err)
	}
}

// checkBudget says that no search is forgotten, and that a crash costs one reservation of each folder at most.
func checkBudget(t *testing.T, p place, said []note, _ bool) {
	t.Helper()
	const reserved = 50 // see maxReserved of the updater
	most := 0
	for _, folder := range []string{p.db(), p.other()} {
		ledger, err := ledgerIn(folder)
		testkit.Is(t, "the budget", err, nil)
		most = max(most, ledger.Spent(time.Now()))
		testkit.Is(t, "the next search", spendOne(ledger), nil) // it tidies up, too
		testkit.Must(t, ledger.Flush())
		wantTidy(t, folder)
	}
	spent := count(said, "spent")
	testkit.Between(t, "searches that count", most, spent, spent+1+reserved)
}

// checkHistory says that the relay serves its list, whatever happened to the history. Its
// file is not synced: only a power failure may cost it.
func checkHistory(t *testing.T, p place, said []note, lost bool) {
	t.Helper()
	lists, err := relay.NewLists(filepath.Dir(p.history()))
	testkit.Must(t, err)
	if err := publish(lists, "new"); !lost {
		testkit.Is(t, "the history", err, nil)
	}
	for _, version := range []string{"new", "old"} {
		_ = publish(lists, version)
		if a, err := lists.Get(context.Background(), netip.Addr{}, large, false, nil, 0); err != nil || len(a.Message) < len(entries(large, version))/4 {
			t.Errorf("version %s: %d bytes, %v", version, len(a.Message), err)
		}
	}
	wantTidy(t, p.history())
}
