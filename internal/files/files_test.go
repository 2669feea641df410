package files

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestSameSeesEachWayInWhichAFileChanges(t *testing.T) {
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	write := func(path, content string, at time.Time) {
		t.Helper()
		testkit.Must(t, os.WriteFile(path, []byte(content), 0o600))
		testkit.Must(t, os.Chtimes(path, at, at))
	}
	for name, tc := range map[string]struct {
		change func(path string)
		want   bool
	}{
		"nothing":                   {func(string) {}, true},
		"longer":                    {func(path string) { write(path, "three", at) }, false},
		"another time":              {func(path string) { write(path, "one", at.Add(time.Second)) }, false},
		"another file of that time": {func(path string) { write(path+"2", "two", at); os.Rename(path+"2", path) }, false},
		"a link to another one":     {func(path string) { write(path+"2", "two", at); os.Remove(path); os.Symlink(path+"2", path) }, false},
	} {
		path := filepath.Join(t.TempDir(), "file")
		write(path, "one", at)
		before, err := os.Stat(path)
		testkit.Must(t, err)
		tc.change(path)
		after, err := os.Stat(path)
		testkit.Must(t, err)
		testkit.Equal(t, name, Same(before, after), tc.want)
		testkit.Equal(t, "a file, or none, is the same as none", []bool{Same(before, nil), Same(nil, nil)}, []bool{false, false})
	}
}

// The folders of proc(5) have no fsync, as those that a virtual machine shares have none.
func TestAFolderThatCannotBeSyncedNeedsNoSync(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a folder without fsync is at hand on Linux only")
	}
	testkit.Must(t, RealDisk().SyncDir("/proc"))
}

func TestAFileInTheWayOfAFolderIsFound(t *testing.T) {
	dir := t.TempDir()
	file, dangling := filepath.Join(dir, "file"), filepath.Join(dir, "dangling")
	testkit.Must(t, errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(filepath.Join(dir, "none"), dangling)))
	for path, want := range map[string]string{
		file:                         file,
		filepath.Join(file, "a/b"):   file,
		dir:                          "",
		filepath.Join(dir, "a/b"):    "",
		dangling:                     "",
		filepath.Join(dangling, "a"): "",
		"none-such/relative":         "",
	} {
		testkit.Equal(t, path, InTheWay(path), want)
	}
}

func TestReadReturnsRegularFilesOfLimitedSize(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("x"), 100)
	path := testkit.Write(t, dir, "file", string(content))
	for name, tc := range map[string]struct {
		path string
		most int
		want error
	}{
		"a file":         {path, 100, nil},
		"a longer file":  {path, 99, ErrSize},
		"a folder":       {dir, 100, ErrIrregular},
		"a device":       {os.DevNull, 100, ErrIrregular},
		"nothing at all": {path + "x", 100, fs.ErrNotExist},
	} {
		raw, err := Read(tc.path, tc.most)
		testkit.Is(t, name, err, tc.want)
		testkit.Equal(t, name+": its content", bytes.Equal(raw, content), err == nil)
	}
}

// On NFS a full disk is told when the file is closed.
func TestAFileWhoseCloseFailsReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	path := testkit.Write(t, dir, "allow.txt", "a.example\n")
	disk := RealDisk()
	disk.SyncFile = func(f *os.File) error { return f.Close() } // so the next Close fails
	err := disk.Replace(path, Unfinished("allow.txt"), func(f *os.File) error {
		_, err := f.WriteString("half of ")
		return err
	})
	testkit.Is(t, "the error of Close", err, os.ErrClosed)
	beside, _ := os.ReadDir(dir)
	testkit.Equal(t, "files", len(beside), 1)
	testkit.Equal(t, "the file", testkit.Read(t, path), "a.example\n")
}

func TestALinkThatComesWhileAnEditWaitsIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	path, other := testkit.Write(t, dir, "list[1].txt", "old"), testkit.Write(t, dir, "other", "secret")
	left := testkit.Write(t, dir, ".list[1].txt.1.tmp", "") // by an edit that died
	edit := func() error {
		return EditTarget(t.Context(), path, func(old []byte) ([]byte, error) { return append(old, " and new"...), nil })
	}
	testkit.Must(t, edit())
	testkit.Equal(t, "the file", testkit.Read(t, path), "old and new")
	_, err := os.Stat(left)
	testkit.Is(t, "what another edit has left", err, fs.ErrNotExist)
	unlock, err := LockFolder(t.Context(), dir)
	testkit.Must(t, err)
	ended := make(chan error)
	go func() { ended <- edit() }()
	time.Sleep(50 * time.Millisecond)
	testkit.Must(t, errors.Join(os.Remove(path), os.Symlink(other, path)))
	unlock()
	testkit.WantError(t, <-ended) // else the link was replaced
}

// Editors know no lock: what one saves between the look at a file and its replacement stays.
func TestAnEditKeepsWhatOthersSaveMeanwhile(t *testing.T) {
	for _, tc := range []struct {
		before string // "": there is no file
		saves  int
		want   string
	}{
		{"old", 0, "old+"}, {"old", 1, "saved 1+"}, {"", 1, "saved 1+"}, {"old", maxEdits - 1, "saved 2+"}, {"old", maxEdits, "saved 3"},
	} {
		path := filepath.Join(t.TempDir(), "list.txt")
		if tc.before != "" {
			testkit.Must(t, os.WriteFile(path, []byte(tc.before), 0o600))
		}
		saved := 0
		err := Edit(t.Context(), path, func(old []byte) ([]byte, error) {
			if saved < tc.saves {
				saved++
				testkit.Must(t, Replace(path, func(f *os.File) error { _, err := fmt.Fprint(f, "saved ", saved); return err }))
			}
			return append(old, '+'), nil
		})
		what := fmt.Sprintf("%q, saved %d times: the content, and an error", tc.before, tc.saves)
		testkit.Equal(t, what, []any{testkit.Read(t, path), err != nil}, []any{tc.want, tc.saves == maxEdits})
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
		testkit.Equal(t, "what is left", left, nil)
	}
}

func TestWaitGivesUpAfterTheLimit(t *testing.T) {
	for _, tc := range []struct {
		name  string
		takes time.Duration
		ended bool
		waits time.Duration
	}{
		{"at once", 0, true, 0},
		{"a slow disk", WaitLimit / 2, true, WaitLimit / 2},
		{"a disk that hangs", time.Hour, false, WaitLimit},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			ended := Wait(func() { time.Sleep(tc.takes) })
			testkit.Equal(t, tc.name, []any{time.Since(begun), ended}, []any{tc.waits, tc.ended})
			time.Sleep(tc.takes)
			synctest.Wait()
			testkit.Equal(t, "waits that are counted after their end", hung.Load(), 0)
		})
	}
}

// Many things end one after the other, and all of them may wait for the disk that hangs.
func TestOnlyTheFirstOfManyWaitsHasTheWholeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		for range 5 {
			testkit.Equal(t, "it has ended", Wait(func() { time.Sleep(time.Hour) }), false)
		}
		testkit.Equal(t, "5 waits", time.Since(begun), WaitLimit+4*hurried())
		time.Sleep(time.Hour)
		synctest.Wait()
		begun = time.Now()
		Wait(func() { time.Sleep(WaitLimit / 2) })
		testkit.Equal(t, "when the disk answers again", time.Since(begun), WaitLimit/2)
	})
}
