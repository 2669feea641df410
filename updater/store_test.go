package updater

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const (
	testOrigin   = "https://sb.example"
	scheduleFile = "schedule.json" // unless its origin says otherwise
)

func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	return openStoreBy(t, dir, Origin{Name: testOrigin})
}

func openStoreBy(t testing.TB, dir string, origin Origin) *Store {
	t.Helper()
	s, err := OpenStore(dir, origin)
	must(t, err)
	return s
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range all {
		names = append(names, f.Name())
	}
	return names
}

func equal(t testing.TB, got, want List) bool {
	t.Helper()
	return got.Name == want.Name && bytes.Equal(got.Version, want.Version) && got.Checksum == want.Checksum &&
		slices.Equal(got.Set.Widths(), want.Set.Widths()) && bytes.Equal(content(t, got), content(t, want))
}

func TestListsComeBackFromTheStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on", "the", "way")
	s := openStore(t, dir)
	var lists []List
	for _, name := range listNames {
		lists = append(lists, heldList(t, name, 1, 2, 255))
	}
	lists = append(lists, heldList(t, "empty-4b"), List{Name: "zero-4b", Version: []byte{}, Set: new(prefixset.Set)})
	for range 2 { // saved over itself the second time
		for _, l := range lists {
			must(t, s.SaveList(l))
		}
	}
	for _, l := range lists {
		got, err := openStore(t, dir).LoadList(l.Name)
		must(t, err)
		testkit.Equal(t, l.Name+" comes back", equal(t, got, l), true)
	}
	testkit.Equal(t, "files", len(namesIn(t, dir)), len(lists))
}

// It is refused by its length or its first line: to hash it first would keep CoreDNS from answering for as long.
func TestAFileThatCannotBeAListIsNotReadWhole(t *testing.T) {
	for name, test := range map[string]struct {
		begin string
		size  int64
		why   string
	}{
		"longer than any list": {listMagic, maxListFile + 1, "bytes, at most"},
		"another kind of file": {"no list at all\n\n\n\n\n\n\n\n", 1 << 36, "bytes, at most"},
		"a long other file":    {"no list at all\n\n\n\n\n\n\n\n", maxListFile, "not a list file"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, t.TempDir())
			elsewhere := filepath.Join(t.TempDir(), "large")
			must(t, os.WriteFile(elsewhere, []byte(test.begin), 0o600))
			must(t, os.Truncate(elsewhere, test.size)) // sparse
			must(t, os.Symlink(elsewhere, filepath.Join(s.dir, "se-4b"+listSuffix)))
			_, err := s.ReadList("se-4b")
			testkit.WantError(t, err, test.why)
			checkDamaged(t, s, "se-4b", name)
			testkit.Is(t, "what the link leads to", errOf(os.Stat(elsewhere)), nil)
		})
	}
}

// The longest entries take the most room, and few of them the most for each.
func TestNoListThatIsAcceptedIsTooLongForItsFile(t *testing.T) {
	for _, n := range []int{1, 100, 30_000} {
		b := prefixset.NewBuilder(n)
		for i := range n {
			whole := append(binary.BigEndian.AppendUint32(nil, uint32(uint64(i)*(1<<32)/uint64(n))), make([]byte, 28)...)
			for _, width := range [][]int{{32}, {4, 5, 30, 31, 32}}[i%2] {
				must(t, b.Add(whole[:width], width))
			}
		}
		set := b.Set()
		counted, err := set.WriteTo(io.Discard)
		must(t, err)
		testkit.Between(t, fmt.Sprintf("bytes in the file of a set of %d entries", set.Len()), counted, 0, listFileBytes(set.Len())-3*maxText)
	}
}

// checkDamaged fails unless a list is found damaged, once, and then set aside.
func checkDamaged(t *testing.T, s *Store, name, what string) {
	t.Helper()
	l, err := s.LoadList(name)
	testkit.Is(t, what, err, ErrDamaged)
	testkit.Equal(t, what+": the set", l.Set, nil)
	testkit.Is(t, what+": read again", errOf(s.LoadList(name)), fs.ErrNotExist)
	testkit.Is(t, what+": set aside", errOf(os.Stat(filepath.Join(s.dir, name+listSuffix+damagedSuffix))), nil)
}

func TestDamagedListsAreSetAside(t *testing.T) {
	s := openStore(t, t.TempDir())
	must(t, s.SaveList(heldList(t, "se-4b", 1, 2, 200)))
	file := filepath.Join(s.dir, "se-4b"+listSuffix)
	good, err := os.ReadFile(file)
	must(t, err)
	write := func(raw []byte) { must(t, os.WriteFile(file, raw, 0o600)) }
	for i := range good {
		raw := bytes.Clone(good)
		raw[i] ^= 1 << (i % 8)
		write(raw)
		checkDamaged(t, s, "se-4b", "one bit flipped")
	}
	for size := range good {
		write(good[:size])
		checkDamaged(t, s, "se-4b", "cut")
	}
	write(append(bytes.Clone(good), 0))
	checkDamaged(t, s, "se-4b", "one byte too many")
	write(good)
	testkit.Is(t, "undamaged", errOf(s.LoadList("se-4b")), nil)
	must(t, os.Rename(file, filepath.Join(s.dir, "mw-4b"+listSuffix)))
	checkDamaged(t, s, "mw-4b", "the file of another list")
}

// savedVersion returns the version of the list that the folder of an Updater has.
func savedVersion(t *testing.T, u *Updater) string {
	t.Helper()
	saved, err := u.cfg.Store.ReadList(se)
	must(t, err)
	return string(saved.Version)
}

// startAfter returns an Updater that has loaded its list, and follows another one unless that is nil.
func startAfter(t *testing.T, last *Updater, store *Store, fetch single) *Updater {
	t.Helper()
	u := newUpdater(t, fetch, newScheduleOf(t, store), se)
	if last != nil {
		u.cfg.Schedule.Follow(last.cfg.Schedule)
	}
	u.Load()
	return u
}

// A reload names a folder that was used before.
func TestAReloadTakesTheYoungerListOfTwoFolders(t *testing.T) {
	for saved, want := range map[time.Duration]string{-time.Hour: "now", time.Hour: "then"} {
		before := openStore(t, t.TempDir())
		then := heldList(t, se, 7)
		then.Version = []byte("then")
		must(t, before.SaveList(then))
		at := time.Now().Add(saved)
		must(t, os.Chtimes(before.listPath(se), at, at))
		for name, store := range map[string]*Store{"another folder": openStore(t, t.TempDir()), "db off": nil} {
			u := startAfter(t, nil, store, func() (*Update, error) { return fullOf("now", 1, 2), nil })
			must(t, u.acquireNow())
			u.update(t.Context())
			next := startAfter(t, u, before, nil)
			testkit.Equal(t, fmt.Sprintf("saved %s from now, after %s: the version in force", saved, name), string(next.lists[se].Version), want)
			u.release()
		}
	}
	// A reload with other settings, while the disk is full, puts what is in memory in force: the folder has an older list.
	inBubble(t, "a full disk", func(t *testing.T) {
		dir, version := t.TempDir(), "1"
		fetch := func() (*Update, error) { return fullOf(version, 1, 2, uint32(3+len(version))), nil }
		u := startAfter(t, nil, openStore(t, dir), fetch)
		must(t, u.acquireNow())
		u.update(t.Context())
		must(t, os.Chtimes(u.cfg.Store.listPath(se), time.Now(), time.Now())) // the bubble's time
		u.cfg.Store.disk.SyncFile = func(*os.File) error { return errTest }
		version = "10"
		time.Sleep(2 * time.Hour)
		u.update(t.Context())
		testkit.Equal(t, "the version in the folder", savedVersion(t, u), "1")
		next := startAfter(t, u, openStore(t, dir), fetch)
		testkit.Equal(t, "the version in force", string(next.lists[se].Version), "10")
		u.release()
		// As another process that had the folder meanwhile. The time of the file is the system's, which is later than the bubble's.
		must(t, next.cfg.Store.SaveList(heldList(t, se, 7)))
		testkit.Equal(t, "entries that another process has saved since", startAfter(t, u, openStore(t, dir), fetch).lists[se].Set.Len(), 1)
		must(t, os.Chtimes(u.cfg.Store.listPath(se), time.Now(), time.Now().Add(-time.Hour)))
		must(t, next.acquire(t.Context()))
		testkit.Equal(t, "the version in the folder, now that it can be written", savedVersion(t, next), "10")
		next.release()
	})
}

func TestLeftoversOfDeadWritersAreCleaned(t *testing.T) {
	ours := []string{"se-4b.list.123.tmp", "my-own_list.1-32b.list.4294967295.tmp", "schedule.json.9.tmp"}
	others := []string{
		"notes.txt", "schedule.json.old.tmp", "schedule.json.tmp", "se-4b.list.-1.tmp", "se-4b.list.123.tmp.gz",
		"se-4b.list.damaged", "se-4b.tmp", "shopping.list.123.tmp", "thesis.123.tmp", "thesis.tmp",
	}
	for _, folder := range []string{"lists", "lists [a-b]*?", `lists\`} {
		t.Run(folder, func(t *testing.T) {
			s := openStore(t, filepath.Join(t.TempDir(), folder))
			for _, name := range slices.Concat(ours, others) {
				must(t, os.WriteFile(filepath.Join(s.dir, name), []byte("x"), 0o600))
			}
			must(t, os.Mkdir(filepath.Join(s.dir, "zz-4b.list.1.tmp"), 0o700))
			before := len(namesIn(t, s.dir))
			s.disk.Rename = func(string, string) error { return nil } // the process dies here: nothing is removed any more
			must(t, errors.Join(s.SaveList(heldList(t, "dead-4b", 1)), writeSchedule(s, []byte("{}"))))
			testkit.Equal(t, "files that dead writers leave", len(namesIn(t, s.dir))-before, 1) // one is cleaned by the next writer of its file
			s.clean()
			testkit.Equal(t, "files", namesIn(t, s.dir), append(slices.Clone(others), "zz-4b.list.1.tmp"))
		})
	}
}

// A disk that fails for a moment damages no list: the next start reads it.
func TestAListThatCannotBeReadIsNotDamaged(t *testing.T) {
	s := openStore(t, t.TempDir())
	must(t, s.SaveList(heldList(t, "se-4b", 1)))
	f, err := os.OpenFile(s.listPath("se-4b"), os.O_WRONLY, 0) // each read fails
	must(t, err)
	defer f.Close()
	_, err = verify(f)
	testkit.WantError(t, err)
	testkit.Equal(t, "it counts as damaged", errors.Is(err, ErrDamaged), false)
	raw, readErr := os.ReadFile(s.listPath("se-4b"))
	must(t, readErr)
	for n := range len(raw) - sha256.Size {
		_, _, got := readList(io.MultiReader(bytes.NewReader(raw[:n]), iotest.ErrReader(err)), int64(len(raw)))
		testkit.Equal(t, fmt.Sprintf("after %d bytes it counts as unread: %v", n, got), unread(got), true)
	}
}

// To survive a loss of power, the content must be on the disk before the name leads to it, and the name before the caller continues.
func TestAFileIsOnTheDiskBeforeItReplacesTheOldOne(t *testing.T) {
	lost := errors.New("the power fails")
	for name, test := range map[string]struct {
		fails string // the step that fails; "": none
		want  []string
		holds string
	}{
		"all goes well":            {"", []string{"write", "sync file", "rename", "sync folder"}, "new"},
		"the disk is full":         {"write", []string{"write", "sync file"}, "old"},
		"the file is not synced":   {"sync file", []string{"write", "sync file"}, "old"},
		"it cannot be renamed":     {"rename", []string{"write", "sync file", "rename"}, "old"},
		"the folder is not synced": {"sync folder", []string{"write", "sync file", "rename", "sync folder"}, "new"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, t.TempDir())
			must(t, writeSchedule(s, []byte("old")))
			var steps []string
			step := func(step string) error {
				if steps = append(steps, step); step == test.fails {
					return lost
				}
				return nil
			}
			s.disk = files.Disk{
				SyncFile: func(f *os.File) error {
					testkit.Equal(t, "the file that is synced", testkit.Read(t, f.Name()), "new")
					return errors.Join(step("sync file"), f.Sync())
				},
				Rename: func(from, to string) error {
					if err := step("rename"); err != nil {
						return err
					}
					return os.Rename(from, to)
				},
				SyncDir: func(dir string) error {
					testkit.Equal(t, "the folder that is synced", dir, s.dir)
					return step("sync folder")
				},
			}
			err := s.replace(scheduleFile, func(w io.Writer) error {
				_, err := io.WriteString(w, "new")
				return errors.Join(err, step("write"))
			})
			if testkit.Equal(t, "it fails", err != nil, test.fails != ""); err != nil {
				testkit.Is(t, "the error", err, lost)
				testkit.WantError(t, err, scheduleFile)
			}
			testkit.Equal(t, "steps", steps, test.want)
			testkit.Equal(t, "the file", testkit.Read(t, filepath.Join(s.dir, scheduleFile)), test.holds)
			testkit.Equal(t, "files", namesIn(t, s.dir), []string{scheduleFile})
		})
	}
}

// unwritable returns a store whose folder has become a file: nothing can be read or written there, not even by root.
func unwritable(t *testing.T) *Store {
	t.Helper()
	s := openStore(t, filepath.Join(t.TempDir(), "lists"))
	must(t, os.Remove(s.dir))
	must(t, os.WriteFile(s.dir, nil, 0o600))
	return s
}

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
	var got []string
	wrongs := map[string]error{"aside-4b": ErrDamaged, "bad-4b": ErrDamaged, "new-4b": ErrDamaged, "wrong-4b": ErrChecksum}
	for _, l := range all {
		got = append(got, fmt.Sprint(l.Name, ", ", l.Entries, " of ", l.Widths))
		held := l.Err == nil
		has := []bool{l.Origin == testOrigin, l.Version != nil, l.Checksum != [32]byte{}}
		testkit.Equal(t, l.Name+" has an origin, a version and a checksum", has, []bool{held, held, held})
		testkit.Equal(t, l.Name+" waits until", l.NotBefore, time.Time{})
		if l.Name != "folder-4b" { // which has any error
			testkit.Is(t, l.Name, l.Err, wrongs[l.Name])
		}
	}
	testkit.Equal(t, "lists", got, []string{"aside-4b, 0 of [4]", "bad-4b, 0 of [4]", "folder-4b, 0 of [4]", "good-4b, 2 of [4]",
		"new-4b, 0 of [4]", "wide-32b, 1 of [32]", "wrong-4b, 0 of [4]"})
	testkit.Equal(t, "the folder", namesIn(t, dir), before)
	all, err = Status(filepath.Join(dir, "none"))
	testkit.Is(t, "of no folder", err, fs.ErrNotExist)
	testkit.Equal(t, "of no folder", all, nil)
	all, err = Status(t.TempDir())
	must(t, err)
	testkit.Equal(t, "of an empty folder", all, nil)
}
