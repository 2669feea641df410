package ownlist

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestAFileOpenedTwiceIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(pollInterval)
		path, same := filepath.Join(dir, "list"), filepath.Join(dir, ".", "x", "..", "list")
		var first, second, third events
		want := func(when, reported string, files int, f *File, entries int) {
			t.Helper()
			synctest.Wait()
			got := first.take() + "," + second.take() + "," + third.take()
			testkit.Equal(t, when+": reported, files and entries", []any{got, len(r.files), f.State().Entries}, []any{reported, files, entries})
		}
		write(t, path, "one.example\n")
		a := openIn(t, r, Config{Path: path}, first.report)
		b := openIn(t, r, Config{Path: same}, second.report)
		c := openIn(t, r, Config{Path: path, Allow: true}, third.report) // the other kind
		want("opened", "loaded,,loaded", 2, b, 1)
		testkit.Equal(t, "contents that are shared", [2]bool{a.content == b.content, a.content == c.content}, [2]bool{true, false})
		m, ok := b.Match(host(t, "one.example"), then)
		testkit.Equal(t, "a match and its file", []any{ok, m.File}, []any{true, same})
		write(t, path, "one.example\ntwo.example\n")
		polled()
		want("changed", "loaded,,loaded", 2, b, 2)
		a.Close()
		a.Close() // counts once
		write(t, path, "one.example\ntwo.example\nthree.example\n")
		polled()
		want("closed by one", ",loaded,loaded", 2, b, 3)
		b.Close()
		c.Close()
		write(t, path, "four.example\n")
		polled() // a goroutine that still runs would fail the bubble too
		want("closed", ",,", 0, b, 3)
		want("opened anew", ",loaded,", 1, openIn(t, r, Config{Path: path}, second.report), 1)
	})
}

func TestAReloadSharesAFileThatHasVanished(t *testing.T) {
	watching(t, func(t *testing.T, w *watched) {
		r := newRegistry(pollInterval)
		old := openIn(t, r, Config{Path: w.path}, nil)
		must(t, os.Remove(w.path))
		next := openIn(t, r, Config{Path: w.path}, nil)
		old.Close()
		w.polled("vanished", "one.example")
		testkit.Equal(t, "entries", next.State().Entries, 1)
	})
}

// Every version of the file lists "always". Its other names hold its version number.
func TestReadersWhileTheFileChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	put := func(version int) {
		text := strings.Repeat(fmt.Sprintf("v%d.example\n", version), 100) + "||always.example^\n"
		must(t, os.WriteFile(path+".new", []byte(text), 0o644))
		must(t, os.Rename(path+".new", path))
	}
	put(0)
	var loads atomic.Int64
	r := newRegistry(time.Millisecond)
	f := openIn(t, r, Config{Path: path}, func(e Event) {
		loads.Add(1)
		testkit.Is(t, "an event", e.Err, nil)
	})
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 8 {
		always, never := host(t, "www.always.example"), host(t, "never.example")
		wg.Go(func() {
			for !done.Load() {
				if _, ok := Best([]*File{f}, always, then); !ok {
					t.Error("a query was lost")
				}
				if _, ok := f.Match(never, then); ok {
					t.Error("a host that is in no version is listed")
				}
				runtime.Gosched()
			}
		})
	}
	wg.Go(func() { // others come and go
		for !done.Load() {
			if g, err := r.open(Config{Path: path}, nil); err == nil {
				g.Close()
			}
		}
	})
	for version := 1; loads.Load() < 20 && version < 5000; version++ {
		put(version)
		time.Sleep(time.Millisecond)
	}
	done.Store(true)
	wg.Wait()
	testkit.Between(t, "loads", loads.Load(), 20, 5000)
}

func TestFindLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	write(t, path, "# a list\n||example.com^\n@@||example.com^\n0.0.0.0 a.example  www.example.com # both\r\n"+
		strings.Repeat("x", 5000)+"\n*.ended.example # until 2000-01-01\nwww.example.com\n192.0.2.1 sunk.example\n192.0.2.9 sunk.example\n")
	for _, tt := range []struct {
		host  string
		allow bool
		line  int
		text  string
	}{
		{"example.com", false, 3, "@@||example.com^"},
		{"mail.example.com", false, 3, "@@||example.com^"},
		{"www.example.com", false, 4, "0.0.0.0 a.example  www.example.com # both"},
		{"x.www.example.com", true, 4, "0.0.0.0 a.example  www.example.com # both"},
		{"x.ended.example", false, 6, "*.ended.example # until 2000-01-01"},
		{"x.ended.example", true, 0, ""},
		{"sunk.example", false, 9, "192.0.2.9 sunk.example"},
		{"sunk.example", true, 8, "192.0.2.1 sunk.example"},
		{"example.net", false, 0, ""},
	} {
		line, text, ok, err := FindLine(Config{Path: path, Allow: tt.allow, IPv4: netip.MustParseAddr("192.0.2.9")}, host(t, tt.host), "")
		must(t, err)
		testkit.Equal(t, tt.host, []any{line, text, ok}, []any{tt.line, tt.text, tt.line > 0})
	}
	_, _, ok, err := FindLine(Config{Path: path + ".none"}, host(t, "a.example"), "")
	testkit.Equal(t, "a file that does not exist has a line, and no error", [2]bool{ok, err == nil}, [2]bool{})
}

// Lines that need not be parsed are counted all the same, in files of many blocks, with the name in the first, the last and other lines.
func TestFindLineByTheNameOfTheEntry(t *testing.T) {
	testkit.Long(t)
	const lines = 20_000
	for _, format := range []string{"%s", "0.0.0.0 %s", "||%s^", "%s CNAME .", "http://%s/", "BÜCHER.%s"} {
		var text strings.Builder
		for i := range lines {
			fmt.Fprintf(&text, format+"\n", fmt.Sprintf("Own%d.host%d.example", i, i))
			if i%5000 == 17 {
				text.WriteString("# " + strings.Repeat("x", 70_000) + "\n")
			}
		}
		path := filepath.Join(t.TempDir(), "list")
		write(t, path, text.String())
		for _, i := range []int{0, 16, 17, 18, 5016, 5018, 12_345, lines - 1} {
			name := fmt.Sprintf("own%d.host%d.example", i, i)
			if strings.HasPrefix(format, "B") {
				name = "xn--bcher-kva." + name
			}
			long := (i + 5000 - 18) / 5000 // lines before it
			line, _, ok, err := FindLine(Config{Path: path}, host(t, name), name)
			testkit.Equal(t, fmt.Sprintf("%s: the line of %s", format, name), []any{line, ok, err}, []any{1 + i + long, true, nil})
		}
	}
}

func TestListsOfDifferentMeaningAreReadApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	write(t, path, "192.0.2.9 one.example\n")
	sinkhole, loopback, unspecified := netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::")
	var blocked []bool
	r := newRegistry(pollInterval)
	for _, c := range []Config{
		{Path: path}, {Path: path, IPv4: loopback, IPv6: unspecified}, // equal: these addresses always block
		{Path: path, IPv4: sinkhole},
		{Path: path, Allow: true}, {Path: path, Allow: true, IPv4: sinkhole}, // equal: an allow list takes all addresses
	} {
		m, ok := openIn(t, r, c, nil).Match(host(t, "one.example"), then)
		blocked = append(blocked, ok && !m.Allow)
	}
	testkit.Equal(t, "blocked", blocked, []bool{false, false, true, false, false})
	testkit.Equal(t, "how often it was read", len(r.files), 3)
}

func TestStatesOfAllOpenFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "a", "one.example\n")
	write(t, "b", "one.example\n")
	for _, c := range []Config{{Path: "b"}, {Path: "a", Allow: true}, {Path: filepath.Join(dir, "b")}, {Path: "a"}} {
		openIn(t, opened, c, nil)
	}
	var got []string
	for _, s := range States() {
		got = append(got, fmt.Sprint(s.Named, " ", filepath.Base(s.Path), " ", s.Allow, " ", s.Entries))
	}
	testkit.Equal(t, "states", strings.Join(got, ", "), "a a false 1, a a true 1, b b false 1")
}

// A fetched list has no file until the first fetch, and an empty one if its fetcher says so; neither is a failure.
func TestAFetchedListMayHaveNoFileYetAndNoEntriesLater(t *testing.T) {
	r, e := newRegistry(time.Hour), new(events)
	path := filepath.Join(t.TempDir(), "list.txt")
	f := openIn(t, r, Config{Path: path, Name: "https://lists.example.org/a", Fetched: true}, e.report)
	for _, step := range []struct {
		text, want string // events
		entries    int
	}{{"", "", 0}, {"a.example\n", "loaded", 1}, {"# none\n", "loaded", 0}} {
		if step.text != "" {
			write(t, path+".tmp", step.text)
			must(t, os.Rename(path+".tmp", path))
		}
		for range 3 { // those that wait are one
			r.pollNow(path)
		}
		got := ""
		testkit.Until(t, "the event", func() bool { got += e.take(); return got == step.want })
		s := f.State()
		testkit.Equal(t, step.text, []any{s.InForce(), s.Path, s.Fetched, s.Err}, []any{step.entries, "https://lists.example.org/a", true, nil})
	}
	broken := openIn(t, r, Config{Path: t.TempDir(), Name: "https://lists.example.org/c", Fetched: true}, e.report)
	s := broken.State()
	testkit.Equal(t, "a file that cannot be read", []any{e.take(), s.Err != nil, s.InForce()}, []any{"irregular", true, 0})
	openIn(t, r, Config{Name: "https://lists.example.org/b", Fetched: true}, e.report)
	testkit.Equal(t, "Without a file", e.take(), "")
}

func TestBigListsTakeTurnsUnlessOneHangs(t *testing.T) {
	now := time.Now()
	var r turn
	got := []bool{r.take(now), r.take(now.Add(longTurn - 1)), r.take(now.Add(longTurn))}
	r.give()
	got = append(got, r.take(now.Add(longTurn)))
	testkit.Equal(t, "turns: the first, beside it, beside one that hangs, and after it was given back", got, []bool{true, false, true, true})
}

func TestAddKeepsEveryOtherLine(t *testing.T) {
	soon := then.Add(30 * time.Minute)
	const stamp = "2026-06-01T12:30:00Z"
	for _, tt := range []struct {
		name        string
		allow       bool
		text, want  string
		until       time.Time
		line, ended int
	}{
		{"an empty file", true, "", "x.example\n", time.Time{}, 1, 0},
		{"with an end", true, "", "x.example # until " + stamp + "\n", soon, 1, 0},
		{"comments and order", true, "# mine\r\n\r\n  b.example  # Bob\r\na.example\r\n", "# mine\r\n\r\n  b.example  # Bob\r\na.example\r\nx.example\r\n", time.Time{}, 5, 0},
		{"no line break at the end", true, "a.example", "a.example\nx.example\n", time.Time{}, 2, 0},
		{"a byte order mark", true, "\uFEFFa.example\n", "\uFEFFa.example\nx.example\n", time.Time{}, 2, 0},
		{"ended entries go", true, "# a\na.example # until 2026-05-31\nb.example # until 2026-06-02\n", "# a\nb.example # until 2026-06-02\nx.example\n", time.Time{}, 3, 1},
		{"the same entry", true, "x.example\na.example\n", "x.example\na.example\n", time.Time{}, 1, 0},
		{"a permanent entry stays", true, "x.example\n", "x.example\n", soon, 1, 0},
		{"a longer end", true, "x.example # until 2026-06-01T12:10:00Z, for Bob\na.example\n", "x.example # until " + stamp + " # for Bob\na.example\n", soon, 1, 0},
		{"its comment stays the same", true, "x.example # until 2026-06-01T12:10:00Z # for Bob\n", "x.example # for Bob\n", time.Time{}, 1, 0},
		{"no end is left", true, "x.example # until 2026-06-02, for Bob; before until 2026-07-01\n", "x.example # for Bob; before\n", time.Time{}, 1, 0},
		{"a host alone becomes a tree", true, "|x.example^\n", "x.example\n", time.Time{}, 1, 0},
		{"a permanent host alone stays when its tree is to end", true, "|x.example^ # Bob\n", "|x.example^ # Bob\nx.example # until " + stamp + "\n", soon, 2, 0},
		{"a permanent entry for the names below stays, too", true, "x.example # until 2026-06-02\n*.x.example\n", "x.example # until " + stamp + "\n*.x.example\n", soon, 1, 0},
		{"a permanent entry after one with an end stays", true, "x.example # until 2026-06-02\nx.example\n", "x.example\n", soon, 1, 0},
		{"twice becomes once", true, "x.example # until 2026-06-02\nx.example # until 2026-06-03\n", "x.example\n", time.Time{}, 1, 0},
		{"a line about others too stays", true, "0.0.0.0 x.example y.example\n", "0.0.0.0 x.example y.example\nx.example\n", time.Time{}, 2, 0},
		{"no longer empty on purpose", true, "# mine\n# empty on purpose\n", "# mine\nx.example\n", time.Time{}, 2, 0},
		{"a block list", false, "a.example\n", "a.example\n.x.example\n", time.Time{}, 2, 0},
		{"a block list with the host alone", false, "x.example\n", ".x.example\n", time.Time{}, 1, 0},
		{"a block list with the tree", false, "||x.example^\n", "||x.example^\n", time.Time{}, 1, 0},
		{"an exception becomes a block", false, "@@||x.example^\n", ".x.example\n", time.Time{}, 1, 0},
		{"in a zone file", false, "$ORIGIN rpz.example.\nbad.example CNAME .\n", "$ORIGIN rpz.example.\nbad.example CNAME .\n.x.example\n", time.Time{}, 3, 0},
	} {
		c := Config{Allow: tt.allow}
		got, err := Add([]byte(tt.text), c, host(t, "x.example"), tt.until, then)
		must(t, err)
		done := []any{string(got.Text), got.Line, len(got.Ended), got.Changed}
		testkit.Equal(t, tt.name+": the text, the line, how many had ended, changed", done, []any{tt.want, tt.line, tt.ended, tt.text != tt.want})
		again, err := Add(got.Text, c, host(t, "x.example"), tt.until, then)
		must(t, err)
		testkit.Equal(t, tt.name+", the second time", []any{string(again.Text), again.Changed}, []any{string(got.Text), false})
	}
}

func TestAddRefusesWhatWouldHaveNoEffect(t *testing.T) {
	for _, tt := range []struct {
		host, text, want string
		until            time.Time
	}{
		{"!x.example", "", "an entry for !x.example would have no effect in this file: edit it by hand", time.Time{}},
		{"x.example", "<!DOCTYPE html>\n<html>", "it looks like an HTML page: download the list again", time.Time{}},
		{"x.example", "", "entries of a block list have no end", then.Add(time.Hour)},
	} {
		_, err := Add([]byte(tt.text), Config{}, host(t, tt.host), tt.until, then)
		testkit.WantError(t, err, tt.want)
	}
}

func TestRemoveTakesOnlyTheLinesOfTheHost(t *testing.T) {
	for _, tt := range []struct{ name, text, want, trouble string }{
		{"one line", "# mine\nx.example # Bob\na.example\n", "# mine\na.example\n", ""},
		{"all forms", "x.example\n*.x.example\n0.0.0.0 x.example\na.example\n", "a.example\n", ""},
		{"and what has ended", "x.example\nb.example # until 2026-05-31\na.example\n", "a.example\n", ""},
		{"the last entry", "# mine\nx.example\n", "# mine\n# empty on purpose\n", ""},
		{"names below it stay", "x.example\na.x.example\n", "a.x.example\n", ""},
		{"not there", "a.example\n", "", "no line is about x.example"},
		{"above it", "# mine\n.example\n", "", `no line is about x.example: line 2, ".example", is about a name above it`},
		{"other hosts too", "a.example\n0.0.0.0 x.example y.example\n", "", "line 2 is about other hosts too: edit it by hand"},
	} {
		got, err := Remove([]byte(tt.text), Config{Allow: true}, host(t, "x.example"), then)
		done := []any{fmt.Sprint(err), string(got.Text), got.Changed, len(got.Removed) > 0}
		testkit.Equal(t, tt.name, done, []any{cmp.Or(tt.trouble, "<nil>"), tt.want, tt.trouble == "", tt.trouble == ""})
	}
}

func TestLinesAreThoseWithEntries(t *testing.T) {
	all, err := Entries([]byte("# mine\na.example\n\n  b.example # until 2026-06-02T10:00:00Z\nnot a line\n"), Config{Allow: true})
	must(t, err)
	want := "[{2 a.example 0001-01-01 00:00:00 +0000 UTC} {4 b.example # until 2026-06-02T10:00:00Z 2026-06-02 10:00:00 +0000 UTC}]"
	testkit.Equal(t, "entries", fmt.Sprint(all), want)
}

func TestABigFileIsPolledEachTenthTime(t *testing.T) {
	watching(t, func(t *testing.T, w *watched) {
		filling := strings.Repeat("# a comment of sixty-four bytes that makes the file a big one..\n", bigFile/64)
		w.written("two.example\n"+filling, "loaded", "two.example")
		w.written("three.example\n"+filling, "", "two.example")
		time.Sleep(9 * pollInterval)
		w.polled("loaded", "three.example")
	})
}

// events collects the reported events.
type events struct {
	mu  sync.Mutex
	all []Event
}

func (e *events) report(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

// take returns the events since the last call, as words.
func (e *events) take() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var words []string
	for _, event := range e.all {
		words = append(words, word(event))
	}
	e.all = nil
	return strings.Join(words, " ")
}

func word(event Event) string {
	switch {
	case event.Again:
		return "loaded again"
	case event.Err == nil:
		return "loaded"
	case errors.Is(event.Err, fs.ErrNotExist):
		return "vanished"
	case errors.Is(event.Err, errEmpty):
		return "empty"
	case errors.Is(event.Err, files.ErrIrregular):
		return "irregular"
	case errors.Is(event.Err, fs.ErrPermission):
		return "forbidden"
	}
	return event.Err.Error()
}

var must = testkit.Must

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

// watched is an open list under a clock that a test moves.
type watched struct {
	*events
	t    *testing.T
	path string
	file *File
}

// watching runs a test on a list that holds one.example.
func watching(t *testing.T, test func(t *testing.T, w *watched)) {
	dir := t.TempDir() // its clean-up must not run in the bubble
	synctest.Test(t, func(t *testing.T) {
		w := &watched{events: new(events), t: t, path: filepath.Join(dir, "list")}
		write(t, w.path, "one.example\n")
		w.file = openIn(t, newRegistry(pollInterval), Config{Path: w.path}, w.report)
		w.want("loaded", "one.example")
		test(t, w)
	})
}

// openIn opens a file until the test ends.
func openIn(t testing.TB, r *registry, c Config, report func(Event)) *File {
	t.Helper()
	f, err := r.open(c, report)
	must(t, err)
	t.Cleanup(f.Close)
	return f
}

// polled waits for one poll.
func polled() {
	time.Sleep(pollInterval)
	synctest.Wait()
}

// written writes the file, and wants what is reported and listed after one poll.
func (w *watched) written(text, reported, hosts string) {
	w.t.Helper()
	write(w.t, w.path, text)
	w.polled(reported, hosts)
}

// polled wants what is reported and listed after one poll.
func (w *watched) polled(reported, hosts string) {
	w.t.Helper()
	polled()
	w.want(reported, hosts)
}

// want checks the reported events, and which of the hosts one to four are listed.
func (w *watched) want(reported, hosts string) {
	w.t.Helper()
	testkit.Equal(w.t, "reported", w.take(), reported)
	var got []string
	for _, h := range []string{"one.example", "two.example", "three.example", "four.example"} {
		if _, ok := w.file.Match(host(w.t, h), time.Now()); ok {
			got = append(got, h)
		}
	}
	testkit.Equal(w.t, "in force", strings.Join(got, " "), hosts)
}

func TestChangesAreSeenAfterHalfASecond(t *testing.T) {
	watching(t, func(t *testing.T, w *watched) {
		w.polled("", "one.example")
		w.written("one.example\nthree.example\n", "loaded", "one.example three.example")
		write(t, w.path+".new", "two.example\n")
		must(t, os.Rename(w.path+".new", w.path))
		w.polled("loaded", "two.example")
		info, err := os.Stat(w.path)
		must(t, err)
		write(t, w.path, "one.example\n") // of the same size
		must(t, os.Chtimes(w.path, time.Time{}, info.ModTime().Add(-time.Hour)))
		w.polled("loaded", "one.example")
		for range 3 {
			w.polled("", "one.example")
		}
		write(t, w.path, "two.example\n\n") // of another size: kernels before 6.13 see no times within some milliseconds
		time.Sleep(500*time.Millisecond - time.Nanosecond)
		synctest.Wait()
		w.want("", "one.example")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		w.want("loaded", "two.example")
	})
}

func TestSwappedSymlinksAreSeen(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		// As Kubernetes mounts a ConfigMap: list -> ..data/list, ..data -> ..1.
		in := func(name ...string) string { return filepath.Join(append([]string{dir}, name...)...) }
		for version, text := range map[string]string{"..1": "one.example\n", "..2": "two.example\n"} {
			must(t, os.Mkdir(in(version), 0o755))
			write(t, in(version, "list"), text)
		}
		must(t, os.Symlink("..1", in("..data")))
		must(t, os.Symlink(filepath.Join("..data", "list"), in("list")))
		w := &watched{events: new(events), t: t}
		w.file = openIn(t, newRegistry(pollInterval), Config{Path: in("list")}, w.report)
		w.want("loaded", "one.example")
		must(t, os.Symlink("..2", in("..data_tmp")))
		must(t, os.Rename(in("..data_tmp"), in("..data")))
		must(t, os.RemoveAll(in("..1")))
		w.polled("loaded", "two.example")
	})
}

func TestAFileThatCannotBeUsedKeepsTheOldUnlessItIsEmptyOnPurpose(t *testing.T) {
	watching(t, func(t *testing.T, w *watched) {
		must(t, os.Rename(w.path, w.path+".away"))
		w.polled("vanished", "one.example")
		w.polled("", "one.example")
		must(t, os.Rename(w.path+".away", w.path)) // unchanged
		w.polled("loaded again", "one.example")
		w.written("", "empty", "one.example")
		for _, empty := range []string{"# nothing\n", "<html>not found</html>\n"} {
			w.written(empty, "", "one.example")
		}
		testkit.WantError(t, w.file.State().Err, errEmpty.Error(), "looks like an HTML page")
		must(t, os.Remove(w.path))
		must(t, os.Mkdir(w.path, 0o755))
		w.polled("irregular", "one.example")
		w.polled("", "one.example")
		must(t, os.Remove(w.path))
		w.polled("vanished", "one.example")
		w.written("four.example", "loaded again", "four.example")
		// The file whose last entry was removed is empty on purpose, and no failed download.
		got, err := Remove([]byte("four.example\n"), Config{}, host(t, "four.example"), then)
		must(t, err)
		w.written(string(got.Text), "loaded", "")
		s := w.file.State()
		testkit.Equal(t, "the error, and what it says of itself", []any{s.Err, s.Nothing()}, []any{nil, ""})
		w.written("two.example\n", "loaded", "two.example")
		w.written("# nothing\n", "empty", "two.example")
	})
}

func TestAFileThatMayNotBeReadKeepsTheOld(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	watching(t, func(t *testing.T, w *watched) {
		write(t, w.path, "two.example\n# more")
		must(t, os.Chmod(w.path, 0))
		w.polled("forbidden", "one.example")
		w.polled("", "one.example")
		must(t, os.Chmod(w.path, 0o644)) // changes neither size nor time
		w.polled("loaded again", "two.example")
	})
}

func TestAFileMayBeginEmpty(t *testing.T) {
	watching(t, func(t *testing.T, w *watched) {
		w.path += ".empty"
		write(t, w.path, "")
		openIn(t, newRegistry(pollInterval), Config{Path: w.path}, w.report)
		w.want("loaded", "one.example")
		w.written("# still\n", "loaded", "one.example")
	})
}

func TestAFileThatIsWrittenToIsReadAgain(t *testing.T) {
	watching(t, func(t *testing.T, w *watched) {
		s := &source{key: Config{Path: w.path}, openers: []*opener{{w.path, w.report}}}
		s.content.Store(newBuilder().build())
		w.file.content = &s.content
		s.version = nil
		s.take(nil, nil, false)
		s.take(nil, nil, false)
		w.want("", "")
		c, version, _, err := load(s.key)
		must(t, err)
		s.take(c, version, false)
		w.want("loaded", "one.example")
		testkit.Equal(t, "it is read again", s.version == nil, true)
		s.poll()
		s.poll()
		w.want("loaded", "one.example")
	})
}

func TestOpenReturnsWhyNot(t *testing.T) {
	dir := t.TempDir()
	var e events
	for path, want := range map[string]error{filepath.Join(dir, "none"): fs.ErrNotExist, dir: files.ErrIrregular} {
		if f, err := Open(Config{Path: path}, e.report); f != nil || !errors.Is(err, want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v: %v", path, err)
		}
	}
	testkit.Equal(t, "events and files", []any{e.take(), len(opened.files)}, []any{"", 0})
}

// A watcher that hangs, as on a network drive, delays no end for long. A report that does not return stands in for the disk.
func TestCloseDoesNotWaitForADiskThatHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.txt")
	write(t, path, "one.example\n")
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		f := openIn(t, newRegistry(pollInterval), Config{Path: path}, func(e Event) {
			if e.Err != nil || e.Again {
				<-hung
			}
		})
		must(t, os.Remove(path))
		time.Sleep(2 * pollInterval)
		begun := time.Now()
		f.Close()
		testkit.Equal(t, "the time that it took", time.Since(begun), files.WaitLimit)
		close(hung)
	})
}

// While a large list is read it takes little more memory than afterwards, also if its beginning is not like the rest.
func TestALargeListIsReadInTheMemoryThatItTakes(t *testing.T) {
	testkit.Long(t)
	const lines = 300_000
	text := generated(lines)
	for name, test := range map[string]struct {
		text    string
		perName float64 // the most bytes that may be allocated in all
	}{
		"as published":        {"# a list\n" + text, 10},
		"half of it comments": {strings.Repeat("# a comment\n", lines) + text, 10},
		"comments after it":   {text + strings.Repeat("# a comment\n", lines), 30},
	} {
		path := filepath.Join(t.TempDir(), "list.txt")
		write(t, path, test.text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, _, _, err := load(Config{Path: path})
		must(t, err)
		runtime.ReadMemStats(&after)
		testkit.Equal(t, name+": names", c.summary.Entries, lines)
		testkit.Between(t, name+": bytes for each name", float64(after.TotalAlloc-before.TotalAlloc)/lines, 0, test.perName)
	}
}

func TestLinesAreCountedOnlyToPredict(t *testing.T) {
	for _, lines := range []int{1, 3*predictAfter/2 + 1} { // much less, and much more, than there are
		b := newBuilder()
		b.lines = lines
		must(t, scan(strings.NewReader(generated(2*predictAfter)), Config{}, &b.content.summary, b.add))
		testkit.Equal(t, "entries", b.build().summary.Entries, 2*predictAfter)
	}
}

func TestMain(m *testing.M) {
	testkit.TwoProcessors()
	testkit.SideBySide(8)
	m.Run()
}
