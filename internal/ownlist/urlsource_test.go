package ownlist

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestOverTLS(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("A redirect to http is followed") }))
	defer plain.Close()
	paths := http.NewServeMux()
	paths.Handle("/list", send("a.example\n"))
	paths.Handle("/away", sentTo(plain.URL))
	server := httptest.NewTLSServer(paths)
	defer server.Close()
	trusted := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}
	for _, test := range []struct {
		name, path string
		transport  http.RoundTripper
		want       string        // in the error
		soon       time.Duration // until the next attempt, at most; 0: whatever
	}{
		{"trusted", "/list", trusted, "", 0},
		{"a redirect to http", "/away", trusted, "a redirect from https to http", 0},
		{"not trusted, or a wrong clock", "/list", protocol.Transport(nil, new(tls.Config)), "certificate", time.Minute},
	} {
		f := newFixture(t, func(c *URLConfig) { c.URL = server.URL + test.path })
		f.client = newClient(test.transport)
		s := f.fetch(nil)
		if s.Failing() != (test.want != "") || !strings.Contains(s.Error, test.want) || test.soon > 0 && time.Until(s.Next) > test.soon {
			t.Errorf("%s: %+v, want %q", test.name, s, test.want)
		}
	}
}

func TestTheSettingsOfAllOpenersHold(t *testing.T) {
	list := func(refresh time.Duration, maxBytes int64) *URLList {
		return &URLList{cfg: URLConfig{URL: "https://x.example", Refresh: refresh, MaxBytes: maxBytes}}
	}
	for _, all := range [][]*URLList{ // the openers, and at last what holds for them
		{list(0, 0), list(DefaultRefresh, DefaultMaxBytes)},
		{list(time.Hour, 5000), list(time.Hour, 5000)},
		{list(time.Hour, 5000), list(2*time.Hour, 9000), list(time.Hour, 9000)},
		{list(2*time.Hour, 9000), list(time.Hour, 5000), list(time.Hour, 9000)},
		{list(48*time.Hour, 5000), list(0, 0), list(DefaultRefresh, DefaultMaxBytes)},
	} {
		last := len(all) - 1
		got, _ := (&urlSource{openers: all[:last]}).settings()
		testkit.Equal(t, "the settings", []any{got.Refresh, got.MaxBytes}, []any{all[last].cfg.Refresh, all[last].cfg.MaxBytes})
	}
}

func TestWithoutADBTheListIsInATemporaryFileUntilClose(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	server := httptest.NewServer(send("a.example\n"))
	defer server.Close()
	r := newURLRegistry(patient, nil)
	a, b := r.open(URLConfig{URL: server.URL}, Config{}, nil), r.open(URLConfig{URL: server.URL}, Config{}, nil)
	path := a.Path()
	testkit.Equal(t, "the path of the second one", b.Path(), path)
	testkit.Until(t, "the list", func() bool {
		s, err := readURLState("", path)
		return err == nil && !s.Checked.IsZero()
	})
	a.Close()
	testkit.Equal(t, "the list", testkit.Read(t, path), "a.example\n")
	b.Close()
	files, _ := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	testkit.Equal(t, "files that are left behind", files, nil)
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	f := newFixture(t, func(c *URLConfig) { c.DB = "" })
	testkit.WantParts(t, f.fetch(send("a.example\n")).Error, "no such file")
	again := newSource(f.source.registry, f.source.openers[0].cfg)
	testkit.Equal(t, "another user of this machine knows where a list would be read from", again.path == f.source.path, false)
}

// A reload may name another db, and the server of the list may be away.
func TestAListStaysInForceInAnotherDB(t *testing.T) {
	a, b := t.TempDir(), filepath.Join(t.TempDir(), "new")
	server := httptest.NewServer(send("a.example\n"))
	defer server.Close()
	r := newURLRegistry(patient, nil)
	first := r.open(URLConfig{URL: server.URL, DB: a}, Config{}, nil)
	testkit.Until(t, "the list", func() bool { return first.State().Entries == 1 })
	for _, db := range []string{b, ""} {
		second := r.open(URLConfig{URL: server.URL, DB: db}, Config{}, nil)
		testkit.Equal(t, "the list in db "+db, testkit.Read(t, second.Path()), "a.example\n")
		got, want := second.State(), first.State()
		same := []any{got.Entries, got.Checked.Equal(want.Checked), got.Next.Equal(want.Next)}
		testkit.Equal(t, fmt.Sprintf("db %q: %+v is %+v", db, got, want), same, []any{1, true, true})
		second.Close()
	}
	first.source.publish(first.State().after(fetchOutcome{err: errors.New("no space")}, first.cfg, wall(), 1))
	third := r.open(URLConfig{URL: server.URL, DB: t.TempDir()}, Config{}, nil)
	if s := third.State(); s.Next.Sub(s.Tried) > minPause || s.Entries != 1 || !s.Next.Before(first.State().Next) {
		t.Errorf("%+v after a failure of the other folder, which waits until %s", s, first.State().Next)
	}
	third.Close()
	write(t, filepath.Join(b, URLFolder, filepath.Base(first.Path())), "b.example\n")
	fourth := r.open(URLConfig{URL: server.URL, DB: b}, Config{}, nil)
	testkit.Equal(t, "a list that is there", testkit.Read(t, fourth.Path()), "b.example\n")
	fourth.Close()
	first.Close()
}

// Names of folders may have any characters.
func TestAStartRemovesOnlyItsOwnUnfinishedFiles(t *testing.T) {
	db := filepath.Join(t.TempDir(), "a[b*c")
	f := newFixture(t, func(c *URLConfig) { c.DB = db })
	f.fetch(send("a.example\n"))
	dir, base := filepath.Dir(f.source.path), filepath.Base(f.source.path)
	for name, stays := range map[string]bool{
		base + ".123.tmp": false, strings.TrimSuffix(base, listSuffix) + ".json.123.tmp": false,
		"0123.list.123.tmp": true, base: true, "notes.tmp": true, base + ".456.tmp": true, // that another process downloads now
	} {
		path, old := testkit.Write(t, dir, name, ""), time.Now().Add(-6*time.Minute)
		if name != base+".456.tmp" {
			must(t, os.Chtimes(path, old, old))
		}
		f.source.clean()
		_, err := os.Stat(path)
		testkit.Equal(t, name+" stays", err == nil, stays)
	}
}

// Close waits for a download, which it gives up, and that is no failure.
func TestCloseGivesADownloadUp(t *testing.T) {
	begun := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	}))
	defer server.Close()
	r := newURLRegistry(patient, nil)
	c := URLConfig{URL: server.URL, DB: t.TempDir()}
	l := r.open(c, Config{}, func(e URLEvent) { t.Errorf("%+v", e) })
	<-begun
	l.Close()
	l.Close()
	_, err := ReadURLState(c)
	testkit.Is(t, "a state", err, fs.ErrNotExist)
	testkit.Equal(t, "who keeps the next download waiting", r.downloads.taken(), nil)
}

// atEnd is a body that ends with something else.
type atEnd struct {
	io.Reader
	end func()
}

func (b atEnd) Close() error {
	b.end()
	return nil
}

// A list that has come when the process ends is not asked for again at the next start.
func TestAListThatHasComeAtTheEndIsSaved(t *testing.T) {
	f := newFixture(t, nil)
	ctx, end := context.WithCancel(t.Context())
	f.client.Transport = transport(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), ContentLength: -1, Body: atEnd{strings.NewReader("a.example\n"), end}}, nil
	})
	f.source.attempt(ctx, func() {})
	s, err := readURLState("", f.source.path)
	testkit.Equal(t, fmt.Sprintf("%+v", s), []any{err, s.Changed.IsZero(), f.inForce(), ctx.Err()}, []any{nil, false, 1, context.Canceled})
}

// dripping is a body that brings some bytes a second until ctx ends.
type dripping struct {
	ctx   context.Context
	bytes int
}

func (d dripping) Read(p []byte) (int, error) {
	select {
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	case <-time.After(time.Second):
	}
	return copy(p, strings.Repeat("#", min(d.bytes, len(p)-1))+"\n"), nil
}

// busy counts what is under way.
type busy struct {
	mu          sync.Mutex
	under, most int
}

func (b *busy) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.under += n
	b.most = max(b.most, b.under)
}

// mixed is a server of slow and of quick lists. The path is how many bytes a second come; 0: all.
func (b *busy) mixed(r *http.Request) (*http.Response, error) {
	var bytes int
	fmt.Sscanf(r.URL.Path, "/%d", &bytes)
	var body io.Reader = strings.NewReader("bad.example\n")
	if bytes > 0 {
		b.add(1)
		context.AfterFunc(r.Context(), func() { b.add(-1) })
		body = dripping{r.Context(), bytes}
	}
	return &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), ContentLength: -1, Body: io.NopCloser(body)}, nil
}

// Lists of servers that drip, or that are slow without malice, are fetched beside the others.
func TestASlowServerKeepsNoOtherListWaiting(t *testing.T) {
	testkit.Long(t)
	for _, tc := range []struct {
		bytes, most int           // a second, of each of six slow lists, and how many of these are under way together
		from, to    time.Duration // when the seventh, quick list is fetched
		waited      bool          // which was reported
	}{
		{100, 6, 0, 31 * time.Second, false},                             // drips: gives its place away
		{31 << 10, sideBySide, 14 * time.Minute, 16 * time.Minute, true}, // is fast enough, and continues for 15 minutes
	} {
		db := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			server := new(busy)
			r := newURLRegistry(limits{15 * time.Minute, time.Minute, 30 * time.Second}, transport(server.mixed))
			var mu sync.Mutex
			var waiting []URLWaiting
			open := func(path string) *URLList {
				return r.open(URLConfig{URL: "https://lists.example.org/" + path, DB: db, MaxBytes: 1 << 30}, Config{}, func(e URLEvent) {
					mu.Lock()
					defer mu.Unlock()
					if e, ok := e.(URLWaiting); ok {
						waiting = append(waiting, e)
					}
				})
			}
			for i := range 6 {
				defer open(fmt.Sprintf("%d?%d", tc.bytes, i)).Close()
			}
			synctest.Wait()
			begun := time.Now()
			quick := open("0")
			defer quick.Close()
			for quick.source.current().Changed.IsZero() && time.Since(begun) < time.Hour {
				time.Sleep(100 * time.Millisecond)
			}
			synctest.Wait() // the slow ones begin at the same moment
			testkit.Between(t, fmt.Sprintf("%d bytes a second: the quick list came after", tc.bytes), time.Since(begun), tc.from, tc.to)
			server.mu.Lock()
			defer server.mu.Unlock()
			testkit.Equal(t, fmt.Sprintf("%d bytes a second, side by side", tc.bytes), server.most, tc.most)
			mu.Lock()
			defer mu.Unlock()
			testkit.Equal(t, fmt.Sprintf("%d bytes a second, reported", tc.bytes), len(waiting) > 0, tc.waited)
			for _, w := range waiting {
				testkit.Equal(t, w.Name+" waits for", len(w.Others), sideBySide)
			}
		})
	}
}

// A list that is closed and opened again has one run at a time. One that is being closed tries with no settings but its own.
func TestAListThatIsOpenedAgainHasOneRunAtATime(t *testing.T) {
	db := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var runs busy
		var urls sync.Map
		r := newURLRegistry(patient, transport(func(r *http.Request) (*http.Response, error) {
			runs.add(1)
			urls.Store(r.URL.String(), nil)
			time.Sleep(5 * time.Minute) // a disk or a server that does not see the end of the context
			runs.add(-1)
			return nil, errors.New("it was given up")
		}))
		c := URLConfig{URL: "https://lists.example.org/a.txt", DB: db}
		for range 3 {
			l := r.open(c, Config{}, func(e URLEvent) {})
			time.Sleep(2 * time.Minute)
			l.Close() // waits for some seconds only
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		asked := 0
		for range urls.Range {
			asked++
		}
		testkit.Equal(t, "runs at a time, URLs, and ends that are kept", []int{runs.most, asked, len(r.ending)}, []int{1, 1, 0})
		s, err := ReadURLState(c)
		testkit.Equal(t, fmt.Sprintf("a failure was saved: %+v", s), err == nil && s.Failing(), false)
	})
}

func someState() URLState {
	at := time.Date(2026, 11, 22, 4, 14, 37, 5, time.UTC)
	return URLState{
		Name: "https://lists.example.org/a.txt", ETag: `W/"ü"`, LastModified: "Sun, 22 Nov 2026 04:14:37 GMT", Changed: at, Checked: at, Tried: at, Next: at,
		Bytes: 3, Entries: 1, Names: 1<<64 - 1, Failures: 2, Since: at, Error: "the server answered status 503", Doubt: &Doubt{7, at},
	}
}

func TestAStateIsReadAsItWasSaved(t *testing.T) {
	c := URLConfig{URL: "https://lists.example.org/a.txt", DB: t.TempDir()}
	read := func(want error) URLState {
		t.Helper()
		s, err := ReadURLState(c)
		testkit.Is(t, "what ReadURLState says", err, want)
		return s
	}
	read(fs.ErrNotExist)
	must(t, os.MkdirAll(filepath.Dir(c.Path()), 0o700))
	write(t, c.Path(), "a.b")
	want := someState()
	must(t, want.save(c.Path()))
	testkit.Equal(t, "the state", read(nil), want)
	write(t, c.Path(), "a.bc")                             // not the list that was saved
	came := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) // it is in force
	must(t, os.Chtimes(c.Path(), came, came))
	got := read(nil)
	testkit.Equal(t, "ETag, changed when it came, failures", []any{got.ETag, got.Changed.Equal(came), got.Failures}, []any{"", true, 2})
	write(t, stateOf(c.Path()), "{")
	testkit.Equal(t, "changed when it came", read(errState).Changed.Equal(came), true)
	must(t, os.Remove(c.Path()))
	testkit.Equal(t, "the state without a list", read(errState), URLState{Name: c.Name()})
}

func FuzzURLState(f *testing.F) {
	raw, err := json.Marshal(someState())
	must(f, err)
	f.Add(raw)
	f.Add([]byte(`{"etag":"a\r\nX-Evil: 1","bytes":-1,"failures":99999999999999999999}`))
	f.Add([]byte(`{"failures":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := parseURLState(raw)
		if err != nil {
			testkit.Is(t, "what parseURLState says", err, errState)
			return
		}
		if s.Bytes < 0 || s.Entries < 0 || s.Failures < 0 || strings.ContainsAny(s.ETag+s.LastModified+s.Error, "\r\n\x00") {
			t.Errorf("%+v", s)
		}
		now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		testkit.Between(t, "due in", firstDue(s, time.Hour, now, 0.5).Sub(now), math.MinInt64, 25*time.Hour)
		next := s.after(fetchOutcome{err: errStalled}, URLConfig{}, now, 0.5).Next
		testkit.Between(t, "after a failure due in", next.Sub(now), 1, 25*time.Hour)
		again, err := json.Marshal(s)
		if err != nil {
			return // a time zone that JSON cannot have
		}
		if got, err := parseURLState(again); err != nil || !got.Next.Equal(s.Next) || got.Names != s.Names {
			t.Errorf("%+v, %v, want %+v", got, err, s)
		}
	})
}

func TestNamesHaveNoSecrets(t *testing.T) {
	for url, want := range map[string]string{
		"https://lists.example.org/a/b.txt":          "https://lists.example.org/a/b.txt",
		"https://lists.example.org:8443":             "https://lists.example.org:8443",
		"https://lists.example.org/a%2Fb.txt":        "https://lists.example.org/a%2Fb.txt",
		"https://me:s3cret@lists.example.org/b.txt":  "https://lists.example.org/b.txt#",
		"https://s3cret@lists.example.org/b.txt":     "https://lists.example.org/b.txt#",
		"https://lists.example.org/b.txt?key=s3cret": "https://lists.example.org/b.txt#",
	} {
		got := URLConfig{URL: url, DB: "db"}.Name()
		if strings.HasSuffix(want, "#") && len(got) == len(want)+4 {
			got = got[:len(want)]
		}
		testkit.Equal(t, url, got, want)
	}
	a, b := URLConfig{URL: "https://lists.example.org/?a", DB: "db"}, URLConfig{URL: "https://lists.example.org/?b", DB: "db"}
	testkit.Equal(t, "the same name, and the same path", [2]bool{a.Name() == b.Name(), a.Path() == b.Path()}, [2]bool{})
}

func TestErrorsHaveNoSecrets(t *testing.T) {
	c := URLConfig{URL: "https://user:pass%2Fword@lists.example.org/?key=s3cret%20value"}
	for _, text := range []string{"user:pass%2Fword", "pass/word", "key=s3cret%20value", "s3cret value"} {
		testkit.WantNone(t, wordsOf(errors.New("redirected to https://x.example/"+text+"\r\nand\x1b[2J"), c), text, "\r", "\n", "\x1b")
	}
}

// Which resolver is asked next is known from the downloads before: those that are tried in one may be away, all of them.
func TestADownloadAsksTheResolverAfterThoseThatFailed(t *testing.T) {
	live, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer live.Close()
	var servers []string
	for range 20 { // more than are tried in one download
		servers = append(servers, testkit.FreeAddr(t))
	}
	r := newURLRegistry(patient, nil)
	ctx, asked := context.WithCancel(t.Context())
	defer asked()
	go func() {
		if _, _, err := live.ReadFrom(make([]byte, 512)); err == nil {
			asked()
		}
	}()
	for range 2 * len(servers) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://lists.example./", nil)
		must(t, err)
		_, _ = r.client(strings.Join(append(servers, live.LocalAddr().String()), " ")).Do(request)
		if ctx.Err() != nil {
			return
		}
	}
	t.Error("The resolver that works was never asked")
}
