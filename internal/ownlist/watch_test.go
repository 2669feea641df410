package ownlist

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

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
	case errors.Is(event.Err, ErrEmpty):
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

func TestChangesAreSeen(t *testing.T) {
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
	})
}

func TestAChangeIsInForceAfterHalfASecond(t *testing.T) {
	watching(t, func(t *testing.T, w *watched) {
		write(t, w.path, "two.example\n\n") // of another size: kernels before 6.13 see no times within some milliseconds
		time.Sleep(500*time.Millisecond - time.Nanosecond)
		synctest.Wait()
		w.want("", "one.example")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		w.want("loaded", "two.example")
	})
}

func TestTheStateOfAnOpenFile(t *testing.T) {
	watching(t, func(t *testing.T, w *watched) {
		read, err := os.Stat(w.path)
		must(t, err)
		w.written("<!DOCTYPE html>\n<p>\nForbidden\n", "empty", "one.example")
		st := w.file.State()
		if !errors.Is(st.Err, ErrEmpty) || !strings.Contains(st.Err.Error(), "looks like an HTML page") {
			t.Errorf("it fails with %v", st.Err)
		}
		if st.Path != w.path || st.Named != w.path || st.Entries != 1 || !st.Modified.Equal(read.ModTime()) {
			t.Errorf("%+v, want what was read before", st)
		}
		write(t, w.path, "one.example\ntwo.example\n||com^\nno entry\n")
		must(t, os.Chtimes(w.path, time.Time{}, time.Unix(1800000000, 0)))
		w.polled("loaded again", "one.example two.example")
		if st = w.file.State(); st.Err != nil || st.Entries != 3 || st.Bad.Count != 1 || st.Modified.Unix() != 1800000000 {
			t.Errorf("%+v", st)
		}
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

func TestAFileThatCannotBeUsedKeepsTheOld(t *testing.T) {
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
		must(t, os.Remove(w.path))
		must(t, os.Mkdir(w.path, 0o755))
		w.polled("irregular", "one.example")
		w.polled("", "one.example")
		must(t, os.Remove(w.path))
		w.polled("vanished", "one.example")
		w.written("four.example", "loaded again", "four.example")
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
		if s.version != nil {
			t.Error("it is not read again")
		}
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
	if got := e.take(); got != "" || len(opened.files) != 0 {
		t.Errorf("reported %q, %d files", got, len(opened.files))
	}
}

// A watcher that hangs, as on a network drive that does not answer, delays no end for long. A
// report that does not return stands in for the disk.
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
		if took := time.Since(begun); took != files.WaitLimit {
			t.Errorf("got %s, want %s", took, files.WaitLimit)
		}
		close(hung)
	})
}

// While a large list is read it takes little more memory than afterwards, also if its
// beginning is not like the rest.
func TestALargeListIsReadInTheMemoryThatItTakes(t *testing.T) {
	testkit.Long(t)
	const lines = 300_000
	text := string(generated(lines, "%s"))
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
		if perName := float64(after.TotalAlloc-before.TotalAlloc) / float64(c.summary.Entries); perName > test.perName || c.summary.Entries != lines {
			t.Errorf("%s: %.1f bytes for each of %d names, want at most %.0f", name, perName, c.summary.Entries, test.perName)
		}
	}
}

func TestLinesAreCountedOnlyToPredict(t *testing.T) {
	for _, lines := range []int{1, 3*predictAfter/2 + 1} { // much less, and much more, than there are
		b := newBuilder()
		b.lines = lines
		must(t, scan(strings.NewReader(string(generated(2*predictAfter, "%s"))), Config{}, &b.content.summary, b.add))
		testkit.Equal(t, "entries", b.build().summary.Entries, 2*predictAfter)
	}
}

func TestMain(m *testing.M) {
	testkit.TwoProcessors()
	testkit.SideBySide(8)
	m.Run()
}
