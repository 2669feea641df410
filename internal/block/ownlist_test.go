package block

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns/coredns/plugin"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// A list that does less than its operator thinks, or more, says so in one line.
func TestAListThatIsNotWhatItShouldBeIsAWarning(t *testing.T) {
	for _, test := range []struct {
		name, content string
		allow         bool
		level, want   string // what the line holds after the path; "" the file
	}{
		{"names", "a.example\nb.example\n", false, "INFO", " is in force with 2 names\n"},
		{"HTML", "<!DOCTYPE html>\n<html>\nForbidden\n</html>\n", false, "WARNING", " blocks nothing: it looks like an HTML page; download the list again"},
		{"gzip", "\x1f\x8b\x08\x00xyz\nforbidden\n", false, "WARNING", " blocks nothing: it is compressed (gzip); unpack it"},
		{"UTF-16", "\xff\xfea\x00\n\x00", false, "WARNING", " blocks nothing: it is UTF-16; save it as UTF-8"},
		{"empty", "", false, "WARNING", " blocks nothing: it is empty"},
		{"a star", "*\n", false, "WARNING", ` blocks nothing: it has no usable line; 1 line is not a list entry (first at line 1: "*")`},
		{"empty allow list", "", true, "INFO", " allows nothing: it is empty"},
		{"ended", "a.example # until 2020-01-01\n", true, "INFO", " allows nothing: it has only entries that have ended"},
		{"not supported", "a.example\n/x/\n||b.example^$client=c\n", false, "INFO", " is in force with 1 name; 2 lines are not supported (1 regular expression, first at line 2; 1 with $client, first at line 3)"},
		{"bad lines", "a.example\nno entry\n", false, "WARNING", ` is in force with 1 name; 1 line is not a list entry (first at line 2: "no entry")`},
		{"machines", "a.example\n192.168.1.10 nas.home.arpa nas\n", false, "WARNING", " is in force with 1 name; 1 line has an address other than 0.0.0.0, 127.0.0.1 or the sinkhole and blocks nothing (first at line 2: "},
		{"top-level domains", "x.example\n||de^\n*.net\n", false, "WARNING", ": line 2 blocks the whole top-level domain de; line 3 blocks the whole top-level domain net"},
	} {
		lines := testkit.Capture(t)
		file := testkit.Write(t, t.TempDir(), "list.txt", test.content)
		for range 2 { // two server blocks
			opened(t, "", config.Block{Own: []config.OwnFile{{Path: file, Allow: test.allow}}})
		}
		if got := lines.About("[" + test.level + "] plugin/safebrowsing: List " + file + test.want); len(got) != 1 || test.level == "INFO" && len(lines.About(file)) != 1 {
			t.Errorf("%s: Expected one line of level %s that says %q, got %q", test.name, test.level, test.want, lines.About(file))
		}
		failing := testkit.Metric(t, "own_list_failing", "file", file) == 1
		testkit.Equal(t, test.name+" fails in the metrics", failing, strings.HasPrefix(test.want, " blocks nothing: "))
	}
}

// Of a list that blocks and allows, allow decides, so its lines are read as allow's.
func TestAListThatBlocksAndAllowsIsReadAsAllow(t *testing.T) {
	file := testkit.Write(t, t.TempDir(), "list.txt", "a.example\n")
	for _, allowFirst := range []bool{false, true} {
		b := opened(t, "", config.Block{Own: []config.OwnFile{{Path: file, Allow: allowFirst}, {Path: file, Allow: !allowFirst}}})
		c := b.ownList(file, true)
		testkit.Equal(t, "it allows, and its path", []any{c.Allow, c.Path}, []any{true, file})
	}
	testkit.Equal(t, "a list before Open", New(config.Config{}).ownList(file, true).Path, "")
}

// A list by URL decides as a CoreDNS has stored it, under its name, and a decision has its line.
func TestAStoredListByURLDecides(t *testing.T) {
	fetch := ownlist.URLConfig{URL: "https://lists.example.org/a.txt?s3cret", DB: t.TempDir()}
	testkit.Must(t, os.MkdirAll(filepath.Dir(fetch.Path()), 0o700))
	testkit.Must(t, os.WriteFile(fetch.Path(), []byte("# a list\nbad.example\n"), 0o600))
	p := New(config.Config{Block: config.Block{Zones: []string{"."}, Own: []config.OwnFile{{Fetch: fetch}}}})
	testkit.Must(t, p.ReadOwn())
	defer p.End()
	h := lookup.FromQname("bad.example.")
	d := p.Check(h)
	testkit.Equal(t, "decided by, list, line", []any{d.By, d.List, p.Line(d.Decision, h)}, []any{lookup.ByBlock, fetch.Name(), 2})
}

// A file that fails and is well again costs two lines, and the metrics say so meanwhile.
func TestAListThatFailsIsLoggedOnceAndMeasured(t *testing.T) {
	lines := testkit.Capture(t)
	dir := t.TempDir()
	file := testkit.Write(t, dir, "list.txt", "a.example\nb.example\nno entry\n/x/\n192.168.1.1 nas\n")
	changed := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	testkit.Must(t, os.Chtimes(file, changed, changed))
	synctest.Test(t, func(t *testing.T) {
		c := config.Block{Own: []config.OwnFile{{Path: file}}}
		lists, second := opened(t, "", c), opened(t, "", c)
		want := func(when string, entries, bad, unsupported, last, failing float64) {
			t.Helper()
			for name, want := range map[string]float64{
				"entries": entries, "bad_lines": bad, "unsupported_lines": unsupported, "last_change_timestamp_seconds": last, "failing": failing,
			} {
				testkit.Equal(t, when+": "+name, testkit.Metric(t, "own_list_"+name, "file", file), want)
			}
		}
		poll := func(times time.Duration) {
			time.Sleep(times * 5 * time.Second)
			synctest.Wait()
		}
		want("read", 2, 1, 2, float64(changed.Unix()), 0)
		os.Remove(file)
		poll(3)
		want("gone", 2, 1, 2, float64(changed.Unix()), 1)
		testkit.Write(t, dir, "list.txt", "c.example\n")
		later := changed.Add(time.Hour)
		testkit.Must(t, os.Chtimes(file, later, later))
		poll(1)
		want("back", 1, 0, 0, float64(later.Unix()), 0)
		lists.End()
		want("in use by one", 1, 0, 0, float64(later.Unix()), 0)
		second.End()
		want("closed", 0, 0, 0, 0, 0)
	})
	got := append(lines.About("List "+file), "", "", "")
	testkit.WantParts(t, got[1], "[ERROR]", file+" cannot be used: no such file or directory. "+
		"The 2 names read before stay in force; the file is looked at again every few seconds")
	testkit.WantParts(t, got[2], file+" can be used again and is in force with 1 name")
	testkit.Equal(t, "lines at the start, at the failure and at its end", len(got)-3, 3)
}

func TestMetricsOfListsThatAreOpenedTwiceInDifferentWays(t *testing.T) {
	file := testkit.Write(t, t.TempDir(), "list.txt", "192.0.2.9 a.example\n0.0.0.0 b.example\n")
	c := config.Block{Own: []config.OwnFile{{Path: file, Allow: true}, {Path: file}}}
	for _, sinkhole := range []string{"0.0.0.0", "192.0.2.9"} {
		c.IPv4 = netip.MustParseAddr(sinkhole)
		opened(t, "", c)
	}
	testkit.Equal(t, "failures", testkit.Metric(t, "own_list_failing", "file", file), 0) // Metric fails if a series is there twice
	testkit.Between(t, "entries of one of the lists", testkit.Metric(t, "own_list_entries", "file", file), 1, 2)
}

// A list by URL that fails in one db fails, whatever it does in another one: its series has no db.
func TestAListByURLThatFailsInOneFolderIsMeasured(t *testing.T) {
	var name string
	const list = "bad.example\n"
	for _, failures := range []int{0, 3} {
		now := time.Now()
		state := ownlist.URLState{Changed: now, Checked: now, Tried: now, Next: now.Add(time.Hour), Bytes: int64(len(list)), Entries: 1, Failures: failures}
		fetch := ownlist.URLConfig{URL: "https://lists.example.org/two.txt", DB: t.TempDir()}
		raw, err := json.Marshal(state)
		testkit.Must(t, errors.Join(err, os.MkdirAll(filepath.Dir(fetch.Path()), 0o700), os.WriteFile(fetch.Path(), []byte(list), 0o600),
			os.WriteFile(strings.TrimSuffix(fetch.Path(), ".list")+".json", raw, 0o600)))
		opened(t, "", config.Block{Own: []config.OwnFile{{Fetch: fetch}}})
		name = fetch.Name()
	}
	for range 30 { // the order is one of a map
		testkit.Equal(t, "failures", testkit.Metric(t, "own_list_failing", "file", name), 1)
	}
}

func TestLinesAboutListsByURL(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 11, 22, hour, 0, 0, 0, time.FixedZone("", 3600)) }
	type state = ownlist.URLState
	const name = "https://lists.example.org/a.txt"
	const failed, next = "[WARNING] plugin/safebrowsing: List " + name + " cannot be updated: ", "; next attempt at 2026-11-22T02:00:00Z. "
	for _, test := range []struct {
		event ownlist.URLEvent
		want  string
	}{
		{ownlist.URLFailed{URLState: state{Name: name, Error: "no such host", Next: at(3)}},
			failed + "no such host. It was never fetched and has no effect" + next + "Check the URL and the network"},
		{ownlist.URLFailed{URLState: state{Name: name, Error: "no space left on device", Next: at(3)}, Disk: true},
			failed + "no space left on device. It was never fetched and has no effect" + next + "Make room there, or name with db a directory that CoreDNS may write"},
		{ownlist.URLFailed{URLState: state{Name: name, Error: "the list has more than 1024 bytes", Next: at(3)}, TooLong: true},
			failed + "the list has more than 1024 bytes. It was never fetched and has no effect" + next + "Write a greater max_bytes behind the URL, or name a smaller list"},
		{ownlist.URLFailed{URLState: state{Name: name, Error: "it is odd", Changed: at(1), Checked: at(2), Next: at(3)}, Doubt: &ownlist.DoubtError{}},
			failed + "it is odd. The content of 2026-11-22T01:00:00Z stays in force" + next + "Open the URL in a browser, and correct it in the Corefile if it does not lead to a list"},
		{ownlist.URLFailed{URLState: state{Name: name, Error: "it is odd", Changed: at(1), Checked: at(2), Next: at(3)}, Doubt: &ownlist.DoubtError{From: at(4)}},
			failed + "it is odd. The content of 2026-11-22T01:00:00Z stays in force" + next + "It is believed if it comes again after 2026-11-22T03:00:00Z"},
		{ownlist.URLRecovered{URLState: state{Name: name, Next: at(3)}},
			"[INFO] plugin/safebrowsing: List " + name + " is updated again; next fetch at 2026-11-22T02:00:00Z"},
	} {
		lines := testkit.Capture(t)
		reportFetched(test.event)
		testkit.WantParts(t, lines.Only(t, name), testkit.LocalTimes(test.want)+"\n")
	}
}

// aExample is the host of entries.
var aExample = lookup.FromQname("a.example.")

// A list that cannot be written is in nobody's way if it has no such entry. A line with other hosts is left to people.
func TestAnEntryThatCannotBeRemovedIsAnError(t *testing.T) {
	remove, long := Change{Host: aExample, Remove: true}, strings.Repeat("l", 255) // a new file beside it has a longer name
	for entry, wrong := range map[string]bool{"a.example\n": true, "b.example\n": false} {
		dir := t.TempDir()
		var lists []ownlist.Config
		for name, text := range map[string]string{"list.txt": "a.example\nb.example\n", long: entry} {
			lists = append(lists, ownlist.Config{Path: testkit.Write(t, dir, name, text)})
		}
		lists = append(lists, ownlist.Config{Path: filepath.Join(dir, "missing.txt")})
		done, err := removeFrom(t.Context(), lists, remove)
		if wrong {
			testkit.WantError(t, err, long)
		} else {
			testkit.Equal(t, "entries that are removed, from", []any{err, len(done.Removed), filepath.Base(done.File)}, []any{nil, 1, "list.txt"})
		}
	}
	list := ownlist.Config{Path: testkit.Write(t, t.TempDir(), "list.txt", "0.0.0.0 a.example b.example\n")}
	_, err := removeFrom(t.Context(), []ownlist.Config{list}, remove)
	testkit.WantError(t, err, "line 1 is about other hosts too: edit it by hand")
}

// In a package root has the lists of the Corefile, and the server that is asked to unblock a name of them may not.
func TestAnEntryOfRootsListSaysWhoCanRemoveIt(t *testing.T) {
	refused := fmt.Errorf("writing list.txt: %w", syscall.EROFS)
	for allow, want := range map[bool]string{false: "safebrowsing block -remove -file list.txt a.example", true: "safebrowsing allow -remove -file list.txt a.example"} {
		got := byHand(refused, "list.txt", Change{Host: aExample, Allow: allow, Remove: true})
		testkit.Is(t, "the cause", got, syscall.EROFS)
		testkit.Equal(t, got.Error()+" ends with the command", strings.HasSuffix(got.Error(), want), true)
	}
	testkit.Equal(t, "another error", byHand(io.ErrShortWrite, "list.txt", Change{}), io.ErrShortWrite)
}

// Nobody can put a file in the place of one that is mounted, as into a container.
func TestAnEntryGoesBesideAListThatIsAMount(t *testing.T) {
	dir, db := t.TempDir(), t.TempDir()
	file, mounted := testkit.Write(t, dir, "list.txt", ""), testkit.Write(t, t.TempDir(), "list.txt", "b.example\n")
	if out, err := exec.Command("mount", "--bind", mounted, file).CombinedOutput(); err != nil {
		t.Skipf("only root can: %v, %s", err, out)
	}
	defer exec.Command("umount", file).Run()
	p := &Process{blocks: []*Block{opened(t, db, config.Block{Own: []config.OwnFile{{Path: file}}})}}
	done, err := p.Change(t.Context(), Change{Host: aExample})
	testkit.Must(t, err)
	testkit.Equal(t, "the file, and a remark", []string{done.File, done.But}, []string{filepath.Join(db, "block.txt"), ""})
	_, err = p.Change(t.Context(), Change{Host: lookup.FromQname("b.example."), Remove: true})
	testkit.WantError(t, err, "-remove -file "+file)
}

// Whoever changes a list is told so when queries see it, not before.
func TestAChangeIsInForceWhenItIsSaidToBe(t *testing.T) {
	file := testkit.Write(t, t.TempDir(), "list.txt", "b.example\n")
	b := opened(t, "", config.Block{Own: []config.OwnFile{{Path: file}}})
	for _, remove := range []bool{false, true} {
		changes(t, &Process{blocks: []*Block{b}}, Change{Host: aExample, Remove: remove})
		testkit.Equal(t, "blocked", blocks(b, "a.example."), !remove)
	}
}

// changes changes a list, to which nothing is to be remarked.
func changes(t *testing.T, p *Process, c Change) Changed {
	t.Helper()
	done, err := p.Change(t.Context(), c)
	testkit.Must(t, err)
	testkit.Equal(t, fmt.Sprintf("%+v: changed, and a remark", c), []any{done.Changed, done.But}, []any{true, ""})
	return done
}

// Whoever blocks a name is told if it passes all the same, in each server block.
func TestAnEntryThatBlocksNothingIsSaidToBeOne(t *testing.T) {
	for want, blocks := range map[string][]config.Block{
		"": {{Monitor: true}, {Except: plugin.Zones{"example."}}, {}},
		"a.example passes: not checked: it is in no zone":              {{Except: plugin.Zones{"example."}}},
		"a.example passes: would be blocked, but monitor lets it pass": {{Monitor: true}, {Except: plugin.Zones{"example."}}},
		"a.example passes: not checked: blocking is paused until ":     {{}},
	} {
		p, db := new(Process), t.TempDir()
		for _, block := range blocks {
			b := opened(t, db, block)
			if strings.Contains(want, "paused") {
				_, err := ChangePauses(t.Context(), db, AllBlocks, time.Minute, true, time.Now())
				testkit.Must(t, err)
				defer b.watchPauses()()
			}
			p.blocks = append(p.blocks, b)
		}
		for _, c := range []Change{{Host: aExample}, {Host: aExample, Remove: true}, {Host: aExample, Allow: true}} {
			want := want
			if c.Remove || c.Allow {
				want = ""
			}
			done, err := p.Change(t.Context(), c)
			testkit.Must(t, err)
			testkit.WantStart(t, done.But, want)
			if want == "" {
				testkit.Equal(t, fmt.Sprintf("%+v: a remark", c), done.But, "")
			}
		}
	}
}

// Until an entry that allows is in force nobody can say which entry overrules it.
func TestAnEntryThatIsNotReadYetIsNotCalledOverruled(t *testing.T) {
	b, evil := listing(t, config.Block{}, "evil.example"), lookup.FromQname("evil.example.")
	b.Check(evil).Suspect.confirm(nil).Wait(t.Context())
	testkit.Equal(t, "of a name that Safe Browsing blocks", b.Otherwise(Change{Host: evil, Allow: true}), "the entry is not in force yet")
}

// With a folder for each block an entry is in all of them. If one fails, the error says in which folders it is.
func TestAChangeIsInEachFolder(t *testing.T) {
	p, first, second := new(Process), t.TempDir(), t.TempDir()
	for zone, db := range map[string]string{"a.": first, "b.": second} {
		p.blocks = append(p.blocks, opened(t, db, config.Block{Zones: plugin.Zones{zone, "example."}}))
	}
	for _, remove := range []bool{false, true} {
		done := changes(t, p, Change{Host: aExample, Remove: remove})
		testkit.Equal(t, "files in "+done.File, strings.Count(done.File, "block.txt"), 2)
	}
	unlock, err := files.LockFolder(t.Context(), second)
	testkit.Must(t, err)
	synctest.Test(t, func(t *testing.T) { // whose time passes only while the lock is waited for
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := p.Change(ctx, Change{Host: aExample, Remove: true})
		testkit.WantError(t, err, second)
	})
	unlock()
	testkit.Must(t, os.Remove(filepath.Join(second, "block.txt")))
	testkit.Must(t, os.Mkdir(filepath.Join(second, "block.txt"), 0o755))
	_, err = p.Change(t.Context(), Change{Host: aExample})
	testkit.WantError(t, err, filepath.Join(first, "block.txt")+" has the entry", second)
	testkit.Must(t, os.Mkdir(PauseFile(second), 0o755))
	_, err = p.Pause(t.Context(), AllBlocks, time.Minute, false)
	testkit.WantError(t, err, "is in force with db "+first, second+"/")
}

// A list that cannot be looked at keeps no entry in others.
func TestAnEntryIsRemovedThoughAnotherListCannotBeLookedAt(t *testing.T) {
	db, file := t.TempDir(), testkit.Write(t, t.TempDir(), "list.txt", "b.example\n")
	testkit.Write(t, db, "block.txt", "a.example\n")
	p := &Process{blocks: []*Block{opened(t, db, config.Block{Own: []config.OwnFile{{Path: file}}})}}
	testkit.Must(t, os.Remove(file))
	testkit.Must(t, os.Mkdir(file, 0o755)) // as one on a network drive that does not lock
	changes(t, p, Change{Host: aExample, Remove: true})
	_, err := p.Change(t.Context(), Change{Host: aExample, Remove: true})
	testkit.WantError(t, err, file) // of a host without an entry elsewhere
}

// A list of the server that cannot be used is looked at again and again, and is in the log once. A block ends whoever waits for its disk.
func TestAListOfTheServerThatCannotBeUsedIsLoggedOnce(t *testing.T) {
	lines := testkit.Capture(t)
	folder := t.TempDir()
	b := opened(t, "", config.Block{})
	b.Config.DB = folder
	const unreadable = "/proc/self/mem" // for root, too
	if _, err := os.Stat(unreadable); err != nil {
		t.Skip(err)
	}
	testkit.Must(t, os.Symlink(unreadable, filepath.Join(folder, "allow.txt")))
	for range 3 {
		(&Process{blocks: []*Block{b}}).lookForServerLists()
	}
	testkit.WantParts(t, lines.Only(t, folder), "cannot be used")
	process.changing.Lock()
	defer process.changing.Unlock()
	begun := time.Now()
	b.End()
	testkit.Between(t, "the wait for a disk that hangs", time.Since(begun), 0, 20*files.WaitLimit)
}
