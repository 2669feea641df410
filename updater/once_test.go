package updater_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// inFolder runs a test in a bubble with a server of one list and a folder.
func inFolder(t *testing.T, f func(t *testing.T, server *protocoltest.Server, dir string)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		server := protocoltest.New(t)
		server.Publish("se-4b", entriesOf(1, 2))
		server.SetMinimumWait("se-4b", time.Hour)
		f(t, server, dir)
	})
}

func TestOnceFetchesWhatIsDueOnce(t *testing.T) {
	inFolder(t, func(t *testing.T, server *protocoltest.Server, dir string) {
		r := newRun(t, server, dir, "se-4b")
		begin := time.Now()
		must(t, r.updater.Once(t.Context()))
		if waited := time.Since(begin); waited >= time.Minute {
			t.Errorf("waited %s, want less than a minute", waited)
		}
		r.checkHeld("after the update", "se-4b", 1, 2)
		if got := r.reported(updater.ListUpdated); len(got) != 1 || got[0].Entries != 2 {
			t.Errorf("reported %+v, want an update of 2 entries", got)
		}
		if n := len(server.Requests("update")); n != 1 {
			t.Errorf("%d requests, want one", n)
		}
	})
}

func TestOnceRefusesUntilTheScheduleAllowsIt(t *testing.T) {
	inFolder(t, func(t *testing.T, server *protocoltest.Server, dir string) {
		must(t, newRun(t, server, dir, "se-4b").updater.Once(t.Context()))
		until := time.Now().Add(time.Hour)
		server.ClientStarted()
		r := newRun(t, server, dir, "se-4b")
		notDue := new(updater.NotDueError)
		if err := r.updater.Once(t.Context()); !errors.As(err, &notDue) || !notDue.Until.Equal(until) {
			t.Errorf("got %v, want that nothing is due until %s", err, until)
		}
		r.checkHeld("though nothing is due", "se-4b", 1, 2)
		time.Sleep(time.Hour)
		server.ClientStarted()
		if err := r.updater.Once(t.Context()); err != nil || len(r.reported(updater.ListUnchanged)) != 1 {
			t.Errorf("an hour later got %v, %+v, want that nothing has changed", err, r.reported(updater.ListUnchanged))
		}
		if n := len(server.Requests("update")); n != 2 {
			t.Errorf("%d requests, want two", n)
		}
	})
}

func TestOnceLeavesABusyFolderAlone(t *testing.T) {
	inFolder(t, func(t *testing.T, server *protocoltest.Server, dir string) {
		running := newRun(t, server, dir, "se-4b").started()
		synctest.Wait()
		if err := newRun(t, server, dir, "se-4b").updater.Once(t.Context()); !errors.Is(err, updater.ErrBusy) {
			t.Errorf("got %v, want ErrBusy", err)
		}
		if err := running.updater.Once(t.Context()); !errors.Is(err, updater.ErrBusy) {
			t.Errorf("the running updater itself: got %v, want ErrBusy", err)
		}
		running.stop()
		if n := len(server.Requests("")); n != 0 {
			t.Errorf("%d requests, want none", n)
		}
		if err := newRun(t, server, dir, "se-4b").updater.Once(t.Context()); err != nil {
			t.Errorf("after it has ended: %v", err)
		}
	})
}

func TestOnceEndsWithItsContext(t *testing.T) {
	inFolder(t, func(t *testing.T, server *protocoltest.Server, dir string) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := newRun(t, server, dir, "se-4b")
		if err := r.updater.Once(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that it was cancelled", err)
		}
		if err := r.updater.Once(t.Context()); err != nil {
			t.Errorf("the folder was not released: %v", err)
		}
	})
}

func TestOnceTellsOfAFailedFetchAndBacksOff(t *testing.T) {
	inFolder(t, func(t *testing.T, server *protocoltest.Server, dir string) {
		server.Break("update", 1, protocoltest.Fault{Status: 503})
		r := newRun(t, server, dir, "se-4b")
		must(t, r.updater.Once(t.Context()))
		if got := r.reported(updater.Fetched); len(got) != 1 || got[0].Err == nil {
			t.Errorf("reported %+v, want a failure", got)
		}
		server.ClientStarted()
		notDue := new(updater.NotDueError)
		if err := newRun(t, server, dir, "se-4b").updater.Once(t.Context()); !errors.As(err, &notDue) || time.Until(notDue.Until) < 15*time.Minute {
			t.Errorf("got %v, want that nothing is due for a quarter of an hour", err)
		}
	})
}

func TestOnceAsksNothingWhereItCannotBeNoted(t *testing.T) {
	inFolder(t, func(t *testing.T, server *protocoltest.Server, dir string) {
		r := newRun(t, server, dir, "se-4b")
		for _, name := range []string{"schedule.json", "schedule.json.damaged"} { // folders in the way stop even root
			must(t, os.MkdirAll(filepath.Join(dir, name, "in the way"), 0o700))
		}
		if err := r.updater.Once(t.Context()); err == nil {
			t.Error("want an error")
		}
		if n := len(server.Requests("")); n != 0 {
			t.Errorf("%d requests, want none", n)
		}
	})
}

func TestStatusAfterUpdates(t *testing.T) {
	inFolder(t, func(t *testing.T, server *protocoltest.Server, dir string) {
		server.Publish("mw-4b", entriesOf(7))
		server.SetMinimumWait("mw-4b", 2*time.Hour)
		must(t, newRun(t, server, dir, "se-4b", "mw-4b").updater.Once(t.Context()))
		before := updater.NamesIn(t, dir)
		all, err := updater.Status(dir)
		if err != nil || len(all) != 2 {
			t.Fatalf("got %+v, %v, want two lists", all, err)
		}
		for i, want := range []struct {
			name    string
			entries int
			wait    time.Duration
		}{{"mw-4b", 1, 2 * time.Hour}, {"se-4b", 2, time.Hour}} {
			s := all[i]
			if s.Name != want.name || s.Entries != want.entries || !slices.Equal(s.Widths, []int{4}) || s.Origin != "test" || s.Err != nil ||
				len(s.Version) == 0 || s.Checksum == [32]byte{} || s.Bytes == 0 || s.Failures != 0 ||
				!s.Updated.Equal(time.Now()) || !s.NotBefore.Equal(time.Now().Add(want.wait)) {
				t.Errorf("got %+v, want %+v", s, want)
			}
		}
		if after := updater.NamesIn(t, dir); !slices.Equal(after, before) {
			t.Errorf("the folder had %q and has %q", before, after)
		}
	})
}
