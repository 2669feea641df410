package updater

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestMain(m *testing.M) {
	testkit.InMemory()
	testkit.TwoProcessors()
	testkit.SideBySide(8)
	dir, err := os.MkdirTemp("", "spare")
	if err != nil {
		panic(err)
	}
	os.Setenv("RUNTIME_DIRECTORY", dir)
	os.Setenv("SAFEBROWSING_BOOT_ID", "") // the time of a bubble is not that since boot
	files.WaitLimit = time.Minute         // a busy machine has slow disks that do not hang
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// A crash loop must not become a loop of requests, even where the folder of the
// lists cannot be written and the process remembers nothing.
func TestACrashLoopWithoutADiskKeepsTheBackoff(t *testing.T) {
	for name, place := range map[string]func(t *testing.T) string{
		"the folder is a file":       func(t *testing.T) string { return unwritable(t).dir },
		"the folder is below a file": func(t *testing.T) string { return filepath.Join(unwritable(t).dir, "lists") },
	} {
		t.Run(name, func(t *testing.T) {
			dir, spare := place(t), t.TempDir()
			t.Setenv("RUNTIME_DIRECTORY", spare)
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				var asked []time.Time
				for time.Since(begun) < 24*time.Hour {
					if at, ok := crash(t, dir, spare); ok {
						asked = append(asked, at)
					}
				}
				if len(asked) < 3 || asked[0].Sub(begun) > time.Minute {
					t.Fatalf("asked at %v, want a first time within a minute and further ones", asked)
				}
				for i, gap := range gaps(asked) {
					if least := Backoff(i+1, 0); gap < least {
						t.Errorf("request %d came %s after the one before, want %s at least", i+2, gap, least)
					}
				}
			})
		})
	}
}

func gaps(times []time.Time) (all []time.Duration) {
	for i := 1; i < len(times); i++ {
		all = append(all, times[i].Sub(times[i-1]))
	}
	return all
}

// crash lets a process live that dies when its first request is under way, or
// after ten minutes. It returns when it asked. What was on disk when it died is
// what the next one finds.
func crash(t *testing.T, dir, spare string) (asked time.Time, ok bool) {
	store, _ := OpenStore(dir, Origin{Name: testOrigin})
	schedule, _ := NewSchedule(store)
	ctx, die := context.WithTimeout(t.Context(), 10*time.Minute)
	defer die()
	found := t.TempDir()
	u, err := New(Config{
		Schedule: schedule, Store: store, Database: new(lookup.Database), Lists: []string{se},
		Source: sourceOf(func() {
			asked, ok = time.Now(), true
			must(t, os.CopyFS(found, os.DirFS(spare)))
			die()
		}),
	})
	must(t, err)
	u.Load()
	u.Run(ctx)
	if ok {
		must(t, os.RemoveAll(spare))
		must(t, os.CopyFS(spare, os.DirFS(found)))
		must(t, os.Chmod(spareFolder(), 0o700))
	}
	return asked, ok
}

// sourceOf is a source that never answers.
type sourceOf func()

func (s sourceOf) Fetch(ctx context.Context, _ []Want, _ func(int, *Update)) (time.Duration, error) {
	s()
	<-ctx.Done()
	return 0, ctx.Err()
}

func TestASpareScheduleIsDroppedWhenTheFolderIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spare := t.TempDir()
		t.Setenv("RUNTIME_DIRECTORY", spare)
		store := unwritable(t)
		s, err := NewSchedule(store)
		must(t, err)
		if _, saveErr := s.own(); saveErr == nil {
			t.Fatal("the folder can be written")
		}
		must(t, os.Remove(store.dir))
		must(t, os.Mkdir(store.dir, 0o700))
		again, err := NewSchedule(openStore(t, store.dir))
		must(t, err)
		if _, saveErr := again.own(); saveErr != nil {
			t.Fatal(saveErr)
		}
		if left, _ := os.ReadDir(spareFolder()); len(left) != 0 {
			t.Errorf("the spare folder holds %v", left)
		}
	})
}

func TestASpareFolderOfSomebodyElseIsNotUsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spare")
	must(t, os.Mkdir(dir, 0o700))
	if !isOurs(dir) {
		t.Error("a folder of ours is not")
	}
	must(t, os.Symlink(dir, dir+"-link"))
	if isOurs(dir + "-link") {
		t.Error("a link is followed")
	}
	must(t, os.Chmod(dir, 0o770))
	if isOurs(dir) {
		t.Error("others may write to it")
	}
}

func TestNowhereToSaveIsSaid(t *testing.T) {
	nowhere := unwritable(t).dir
	t.Setenv("RUNTIME_DIRECTORY", nowhere)
	s := newStore(nowhere, Origin{})
	err := saveNew(s)
	if err == nil {
		t.Fatal("it was saved")
	}
	if !strings.Contains(err.Error(), "nor can it be saved elsewhere") {
		t.Errorf("got %v", err)
	}
}
