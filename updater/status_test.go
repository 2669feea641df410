package updater

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestStatusOfAFolder(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	wrong := heldList(t, "wrong-4b", 3)
	wrong.Checksum[0] ^= 1
	for _, l := range []List{heldList(t, "good-4b", 1, 2), heldList(t, "wide-32b", 9), wrong, heldList(t, "bad-4b", 1), heldList(t, "old-4b", 1)} {
		must(t, s.SaveList(l))
	}
	must(t, os.Rename(filepath.Join(dir, "old-4b.list"), filepath.Join(dir, "new-4b.list")))
	must(t, os.WriteFile(filepath.Join(dir, "bad-4b.list"), []byte("no list at all, but long enough to be one, if only it were"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "aside-4b.list.damaged"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "No List\x1b.list"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "folder-4b.list"), 0o700))
	before := namesIn(t, dir)

	all, err := Status(dir)
	must(t, err)
	want := []struct {
		name    string
		entries int
		width   int
		err     error
	}{
		{"aside-4b", 0, 4, ErrDamaged},
		{"bad-4b", 0, 4, ErrDamaged},
		{"folder-4b", 0, 4, errAny},
		{"good-4b", 2, 4, nil},
		{"new-4b", 0, 4, ErrDamaged},
		{"wide-32b", 1, 32, nil},
		{"wrong-4b", 0, 4, ErrChecksum},
	}
	if len(all) != len(want) {
		t.Fatalf("got %d lists, want %d: %+v", len(all), len(want), all)
	}
	for i, w := range want {
		got := all[i]
		fits := errors.Is(got.Err, w.err) || w.err == errAny && got.Err != nil
		if got.Name != w.name || got.Entries != w.entries || !slices.Equal(got.Widths, []int{w.width}) || !fits || !got.NotBefore.IsZero() {
			t.Errorf("got %+v, want %+v", got, w)
		}
		if held := got.Err == nil; held != (got.Origin == testOrigin) || held != (got.Version != nil) || held != (got.Checksum != [32]byte{}) {
			t.Errorf("%s: %+v holds something, or not", w.name, got)
		}
	}
	if after := namesIn(t, dir); !slices.Equal(after, before) {
		t.Errorf("the folder had %q and has %q", before, after)
	}
}

var errAny = errors.New("any error")

func TestStatusOfAnUnreadableSchedule(t *testing.T) {
	dir := t.TempDir()
	must(t, openStore(t, dir).SaveList(heldList(t, "good-4b", 1)))
	must(t, os.WriteFile(filepath.Join(dir, scheduleFile), []byte("{"), 0o600))
	all, err := Status(dir)
	if !errors.Is(err, ErrDamaged) || len(all) != 1 || all[0].Entries != 1 {
		t.Errorf("got %+v, %v, want the list and ErrDamaged", all, err)
	}
	if _, err := os.Stat(filepath.Join(dir, scheduleFile)); err != nil {
		t.Errorf("the schedule is gone: %v", err)
	}
}

func TestStatusOfNoFolder(t *testing.T) {
	if all, err := Status(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) || all != nil {
		t.Errorf("got %+v, %v, want that there is none", all, err)
	}
	if all, err := Status(t.TempDir()); err != nil || all != nil {
		t.Errorf("of an empty one got %+v, %v, want nothing", all, err)
	}
}
