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
func watching(t *testing.T, test func(w *watched)) {
	dir := t.TempDir() // its clean-up must not run in the bubble
	synctest.Test(t, func(t *testing.T) {
		w := &watched{events: new(events), t: t, path: filepath.Join(dir, "list")}
		write(t, w.path, "one.example\n")
		var err error
		w.file, err = newRegistry(pollInterval).open(Config{Path: w.path}, w.report)
		must(t, err)
		defer w.file.Close()
		w.want("loaded", "one.example")
		test(w)
	})
}

// polled waits for one poll.
func polled() {
	time.Sleep(pollInterval)
	synctest.Wait()
}

// want checks the reported events, and which of the hosts one to four are listed.
func (w *watched) want(reported string, hosts string) {
	w.t.Helper()
	if got := w.take(); got != reported {
		w.t.Errorf("reported %q, want %q", got, reported)
	}
	var got []string
	for _, h := range []string{"one.example", "two.example", "three.example", "four.example"} {
		if _, ok := w.file.Match(host(w.t, h), time.Now()); ok {
			got = append(got, h)
		}
	}
	if got := strings.Join(got, " "); got != hosts {
		w.t.Errorf("in force: %q, want %q", got, hosts)
	}
}

func TestChangesAreSeen(t *testing.T) {
	watching(t, func(w *watched) {
		polled()
		w.want("", "one.example")
		write(w.t, w.path, "one.example\nthree.example\n")
		w.want("", "one.example")
		polled()
		w.want("loaded", "one.example three.example")
		write(w.t, w.path+".new", "two.example\n")
		must(w.t, os.Rename(w.path+".new", w.path))
		polled()
		w.want("loaded", "two.example")
		info, err := os.Stat(w.path)
		must(w.t, err)
		write(w.t, w.path, "one.example\n") // of the same size
		must(w.t, os.Chtimes(w.path, time.Time{}, info.ModTime().Add(-time.Hour)))
		polled()
		w.want("loaded", "one.example")
		for range 3 {
			polled()
		}
		w.want("", "one.example")
	})
}

func TestAChangeIsInForceAfterHalfASecond(t *testing.T) {
	watching(t, func(w *watched) {
		write(w.t, w.path, "two.example\n\n") // of another size: kernels before 6.13 see no times within some milliseconds
		time.Sleep(500*time.Millisecond - time.Nanosecond)
		synctest.Wait()
		w.want("", "one.example")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		w.want("loaded", "two.example")
	})
}

func TestTheStateOfAnOpenFile(t *testing.T) {
	watching(t, func(w *watched) {
		read, err := os.Stat(w.path)
		must(w.t, err)
		write(w.t, w.path, "<!DOCTYPE html>\n<p>\nForbidden\n")
		polled()
		w.want("empty", "one.example")
		st := w.file.State()
		if !errors.Is(st.Err, ErrEmpty) || !strings.Contains(st.Err.Error(), "looks like an HTML page") {
			w.t.Errorf("it fails with %v", st.Err)
		}
		if st.Path != w.path || st.Named != w.path || st.Entries != 1 || !st.Modified.Equal(read.ModTime()) {
			w.t.Errorf("%+v, want what was read before", st)
		}
		write(w.t, w.path, "one.example\ntwo.example\n||com^\nno entry\n")
		must(w.t, os.Chtimes(w.path, time.Time{}, time.Unix(1800000000, 0)))
		polled()
		w.want("loaded again", "one.example two.example")
		if st = w.file.State(); st.Err != nil || st.Entries != 3 || st.Bad.Count != 1 || st.Modified.Unix() != 1800000000 {
			w.t.Errorf("%+v", st)
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
		var err error
		w.file, err = newRegistry(pollInterval).open(Config{Path: in("list")}, w.report)
		must(t, err)
		defer w.file.Close()
		w.want("loaded", "one.example")
		must(t, os.Symlink("..2", in("..data_tmp")))
		must(t, os.Rename(in("..data_tmp"), in("..data")))
		must(t, os.RemoveAll(in("..1")))
		polled()
		w.want("loaded", "two.example")
	})
}

func TestAFileThatCannotBeUsedKeepsTheOld(t *testing.T) {
	watching(t, func(w *watched) {
		must(w.t, os.Rename(w.path, w.path+".away"))
		polled()
		w.want("vanished", "one.example")
		polled()
		w.want("", "one.example")
		must(w.t, os.Rename(w.path+".away", w.path)) // unchanged
		polled()
		w.want("loaded again", "one.example")
		for _, empty := range []string{"", "# nothing\n", "<html>not found</html>\n"} {
			write(w.t, w.path, empty)
			polled()
		}
		w.want("empty", "one.example")
		must(w.t, os.Remove(w.path))
		must(w.t, os.Mkdir(w.path, 0o755))
		polled()
		polled()
		w.want("irregular", "one.example")
		must(w.t, os.Remove(w.path))
		polled()
		w.want("vanished", "one.example")
		write(w.t, w.path, "four.example")
		polled()
		w.want("loaded again", "four.example")
	})
}

func TestAFileThatMayNotBeReadKeepsTheOld(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	watching(t, func(w *watched) {
		write(w.t, w.path, "two.example\n# more")
		must(w.t, os.Chmod(w.path, 0))
		polled()
		polled()
		w.want("forbidden", "one.example")
		must(w.t, os.Chmod(w.path, 0o644)) // changes neither size nor time
		polled()
		w.want("loaded again", "two.example")
	})
}

func TestAFileMayBeginEmpty(t *testing.T) {
	watching(t, func(w *watched) {
		other := w.path + ".empty"
		write(w.t, other, "")
		f, err := newRegistry(pollInterval).open(Config{Path: other}, w.report)
		must(w.t, err)
		defer f.Close()
		w.want("loaded", "one.example")
		write(w.t, other, "# still\n")
		polled()
		w.want("loaded", "one.example")
	})
}

func TestAFileThatIsWrittenToIsReadAgain(t *testing.T) {
	watching(t, func(w *watched) {
		s := &source{key: Config{Path: w.path}, openers: []*opener{{w.path, w.report}}}
		s.content.Store(newBuilder().build())
		w.file.content = &s.content
		s.version = nil
		s.take(nil, nil, false)
		s.take(nil, nil, false)
		w.want("", "")
		c, version, _, err := load(s.key)
		must(w.t, err)
		s.take(c, version, false)
		w.want("loaded", "one.example")
		if s.version != nil {
			w.t.Error("it is not read again")
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
	must(t, os.WriteFile(path, []byte("one.example\n"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		f, err := newRegistry(pollInterval).open(Config{Path: path}, func(e Event) {
			if e.Err != nil || e.Again {
				<-hung
			}
		})
		must(t, err)
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
		if c := b.build(); c.summary.Entries != 2*predictAfter {
			t.Errorf("%d entries", c.summary.Entries)
		}
	}
}

func TestMain(m *testing.M) {
	testkit.TwoProcessors()
	testkit.SideBySide(8)
	m.Run()
}
