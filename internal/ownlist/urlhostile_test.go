package ownlist

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// endless sends until the client gives up, a piece each pause.
func endless(piece string, pause time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, piece); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			time.Sleep(pause)
		}
	}
}

// raw answers with bytes that are no answer of net/http.
func raw(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			io.WriteString(conn, text)
			conn.Close()
		}
	}
}

func encoded(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(body)
	}
}

// sentTo redirects.
func sentTo(location string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusFound)
	}
}

var hostile = []struct {
	name   string
	answer http.HandlerFunc
	want   string // in the error
	limits limits // zero: patient
}{
	{"silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "the server stopped sending for 300ms", limits{time.Minute, 300 * time.Millisecond, time.Minute}},
	{"stops in the middle", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, names(50))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}, "the server stopped sending for 300ms", limits{time.Minute, 300 * time.Millisecond, time.Minute}},
	{"slow and endless", endless("a.example\n", 20*time.Millisecond), "the download took too long: more than 500ms", limits{500 * time.Millisecond, time.Minute, time.Minute}},
	{"fast and endless", endless(names(1000), 0), "the list has more than 1048576 bytes, the most that max_bytes allows", limits{}},
	{"a line without an end", endless(strings.Repeat("a", 64<<10), 0), "the most that max_bytes allows", limits{}},
	{"shorter than its length", raw("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + names(90)), "unexpected EOF", limits{}},
	{"too long by its length", raw("HTTP/1.1 200 OK\r\nContent-Length: 5000000000\r\n\r\nx"), "the most that max_bytes allows", limits{}},
	{"cut chunks", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\na.example\n"), "unexpected EOF", limits{}},
	{"gzip bomb", encoded(zipped(strings.Repeat("0", 50<<20))), "the most that max_bytes allows", limits{}},
	{"gzip bomb as a file", send(string(zipped(strings.Repeat("0", 50<<20)))), "the most that max_bytes allows", limits{}},
	{"gzip in gzip", encoded(zipped(string(zipped(string(zipped(names(100))))))), "it is compressed (gzip)", limits{}},
	{"cut gzip", encoded(zipped(names(100))[:100]), "unexpected EOF", limits{}},
	{"not gzip", encoded([]byte(names(100))), "gzip: invalid header", limits{}},
	{"unknown coding", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "w0rds")
		io.WriteString(w, "x")
	}, `compressed by "…"`, limits{}},
	{"redirect loop", sentTo("/list.txt?token=s3cret"), "more than 5 redirects", limits{}},
	{"redirect to a file", sentTo("file:///etc/hosts?s3cret"), "unsupported protocol scheme", limits{}},
	{"redirect to no URL", sentTo(`http://[w0rds "of others`), "failed to parse Location header", limits{}},
	{"redirect to another protocol", sentTo("w0rds://lists.example"), "unsupported protocol scheme", limits{}},
	{"status 304 without a question", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, "status 304", limits{}},
	{"status 500", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "s3cret", 500) }, "status 500", limits{}},
	{"status 206", raw("HTTP/1.1 206 Partial Content\r\n\r\n" + names(100)), "status 206", limits{}},
	{"HTML", send("\n<!DOCTYPE html><html>host1.example\nsingle\nlogin.example\n"), "not believed: it looks like an HTML page", limits{}},
	{"HTML with a byte order mark", send("\ufeff<!DOCTYPE html>\r\n<html>\r\nsingle\r\n"), "not believed: it looks like an HTML page", limits{}},
	{"UTF-16", send("\xff\xfea\x00.\x00"), "it is UTF-16", limits{}},
	{"empty", send(""), "not believed: it is empty", limits{}},
	{"only comments", send("# " + names(1)), "only comments", limits{}},
	{"NULs", send(strings.Repeat("\x00", 100<<10)), "not believed: it has no usable line", limits{}},
	{"prose", send("The quick brown fox jumps over the lazy dog.\nError 17: try again.\n"), "no usable line", limits{}},
	{"JSON", send(`{"error": {"code": 403}}`), "no usable line", limits{}},
	{"not HTTP", raw("SSH-2.0-w0rds\r\n"), "malformed HTTP", limits{}},
	{"no header", raw("HTTP/1.1 200 OK\r\nw0rds\r\n\r\n"), "malformed MIME header", limits{}},
	{"no status", raw("HTTP/1.1 w0rds\r\n\r\n"), "malformed HTTP", limits{}},
	{"no length", raw("HTTP/1.1 200 OK\r\nContent-Length: w0rds\r\n\r\n"), "bad Content-Length", limits{}},
	{"a setting", send("w0rds = yes, it is\n"), "no usable line", limits{}},
	{"closed at once", raw(""), "EOF", limits{}},
	{"header without an end", raw("HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 200)), "header", limits{}},
}

// Whatever a server sends, the file stays as it was, one event says what came, and no text has the URL's secret or words of the server.
func TestAHostileServerChangesNothing(t *testing.T) {
	t.Parallel()
	for _, test := range hostile {
		for _, good := range []int{0, 100} {
			t.Run(fmt.Sprintf("%s, %d names before", test.name, good), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, nil)
				if good > 0 {
					testkit.Equal(t, "entries", f.wants(send(names(good)), good).Entries, good)
				}
				want := test.want
				if test.name == "only comments" && good > 0 {
					want = "it has 0 entries, and the one before had 100"
				}
				if test.limits != (limits{}) {
					f.source.registry.limits = test.limits
				}
				s := f.fetch(test.answer)
				testkit.Equal(t, "names in force, entries and failures", [3]int{f.inForce(), s.Entries, s.Failures}, [3]int{good, good, 1})
				testkit.WantParts(t, s.Error, want)
				testkit.Between(t, "the next attempt is in", time.Until(s.Next), time.Second, 31*time.Minute)
				f.fetch(test.answer)
				testkit.Equal(t, "events of two failures", len(f.events), 1)
				e := f.events[0].(URLFailed)
				testkit.Equal(t, "too long, and a failure of the disk", [2]bool{e.TooLong, e.Disk}, [2]bool{strings.Contains(want, "max_bytes"), false})
				f.clean(good)
				f.source.registry.limits = patient
				f.wants(send(names(good+1)), good+1)
				testkit.Equal(t, "events when it is well again", len(f.events), 2)
			})
		}
	}
}

// clean looks at what failures leave behind.
func (f *fixture) clean(good int) {
	f.t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(f.source.path), "*"))
	must(f.t, err)
	testkit.Equal(f.t, "files", len(files), 1+min(good, 1))
	texts := []string{fmt.Sprintf("%+v", f.events)}
	for _, file := range files {
		texts = append(texts, file, testkit.Read(f.t, file))
	}
	testkit.WantNone(f.t, strings.Join(texts, "\n"), "s3cret", "w0rds") // the secret of the URL, and words of the server
}

func TestAServerThatIsNotThereIsAskedAgainSoonUntilAListIsInForce(t *testing.T) {
	f := newFixture(t, nil)
	good := f.source.openers[0].cfg
	away := good
	away.URL = "http://" + testkit.FreeAddr(t) + "/?token=s3cret"
	f.source.openers[0].cfg = away
	s := f.fetch(send(""))
	testkit.Between(t, "the next attempt is in", time.Until(s.Next), 0, time.Minute)
	testkit.WantParts(t, s.Error, "refused")
	f.source.openers[0].cfg = good
	f.fetch(send(names(3)))
	f.source.openers[0].cfg = away
	testkit.Between(t, "with a list in force the next attempt is in", time.Until(f.fetch(nil).Next), 14*time.Minute, 31*time.Minute)
}

func TestAListComesCompressedConditionallyAndByRedirects(t *testing.T) {
	f := newFixture(t, nil)
	list := names(100)
	for name, body := range map[string]http.HandlerFunc{
		"gzip": encoded(zipped(list)), "a gzip file": send(string(zipped(list))), "a gzip file by gzip": encoded(zipped(string(zipped(list)))),
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			if n := len(r.URL.Path); n < 12 {
				testkit.Equal(t, "the referer of a redirect", r.Referer(), "")
				http.Redirect(w, r, r.URL.Path+"x", http.StatusMovedPermanently)
				return
			}
			io.WriteString(w, list)
		},
	} {
		os.Remove(f.source.path)
		t.Log(name)
		f.wants(body, 100)
	}
	before, after := f.source.current(), f.wants(send("# the same\n"+list), 100)
	as := []bool{after.Changed.Equal(before.Changed), after.Checked.After(before.Checked)}
	testkit.Equal(t, fmt.Sprintf("the same names are not written again: %+v, then %+v", before, after), as, []bool{true, true})
	f.wants(send(list+"||com^\n"), 101) // a line that is left out has come, and may count after a reload
	f.fetch(send(list))
	conditional := func(w http.ResponseWriter, r *http.Request) {
		testkit.WantStart(t, r.UserAgent(), "coredns-safebrowsing/")
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Last-Modified", "Sun, 22 Nov 2026 04:14:37 GMT")
		if r.Header.Get("If-None-Match") == `"1"` && r.Header.Get("If-Modified-Since") == "Sun, 22 Nov 2026 04:14:37 GMT" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		io.WriteString(w, list)
	}
	first, again := f.fetch(conditional), f.fetch(conditional)
	as = []bool{again.Checked.After(first.Checked), again.Changed.Equal(first.Changed), !again.Failing(), first.ETag == `"1"`}
	testkit.Equal(t, fmt.Sprintf("%+v, then %+v", first, again), as, []bool{true, true, true, true})
	os.WriteFile(f.source.path, []byte("broken"), 0o600) // a list that someone changed is fetched whole
	f.wants(conditional, 100)
}

func TestAListIsInForceWhenItHasCome(t *testing.T) {
	defer func(r *registry) { opened = r }(opened)
	opened = newRegistry(time.Hour)
	f := newFixture(t, nil)
	file, err := Open(Config{Path: f.source.path, Name: f.source.name, Fetched: true}, nil)
	must(t, err)
	defer file.Close()
	f.fetch(send("bad.example\n"))
	testkit.Until(t, "the list in force", func() bool {
		m, ok := file.Match(lookup.FromQname("bad.example."), time.Now())
		return ok && m.File == f.source.name
	})
}

func TestADirectoryThatCannotBeWrittenIsAFailure(t *testing.T) {
	f := newFixture(t, nil)
	must(t, os.WriteFile(filepath.Dir(f.source.path), nil, 0o600)) // a file is where the directory should be
	if s := f.fetch(send(names(3))); !s.Failing() || !strings.Contains(s.Error, "not a directory") || len(f.events) != 1 || !f.events[0].(URLFailed).Disk {
		t.Errorf("%+v, %+v", s, f.events)
	}
}

// names returns a list of n names.
func names(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "host%d.example\n", i)
	}
	return text.String()
}

// patient is for tests of other things than time.
var patient = limits{whole: time.Minute, stall: time.Minute, pace: time.Minute}

// fixture is a list at a server, on a real socket. Its attempts are made by the test.
type fixture struct {
	t      *testing.T
	server *httptest.Server
	answer atomic.Pointer[http.HandlerFunc]
	source *urlSource
	client *http.Client
	events []URLEvent
}

func newFixture(t *testing.T, change func(*URLConfig)) *fixture {
	f := &fixture{t: t}
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*f.answer.Load())(w, r) }))
	t.Cleanup(f.server.Close)
	c := URLConfig{URL: f.server.URL + "/list.txt?token=s3cret", DB: t.TempDir(), Refresh: DefaultRefresh, MaxBytes: 1 << 20}
	if change != nil {
		change(&c)
	}
	f.source = newSource(newURLRegistry(patient, nil), c)
	f.source.openers = []*URLList{{cfg: c, report: func(e URLEvent) { f.events = append(f.events, e) }}}
	f.client = newClient(protocol.Transport(nil, new(tls.Config)))
	f.source.registry.client = func(string) *http.Client { return f.client }
	return f
}

// fetch makes one attempt, with the answer of the server.
func (f *fixture) fetch(answer http.HandlerFunc) URLState {
	f.t.Helper()
	f.answer.Store(&answer)
	f.source.attempt(f.t.Context(), func() {})
	return f.source.current()
}

// wants makes one attempt, and wants a number of names in force after it.
func (f *fixture) wants(answer http.HandlerFunc, names int) URLState {
	f.t.Helper()
	s := f.fetch(answer)
	testkit.Equal(f.t, fmt.Sprintf("failing, and names in force: %+v", s), []any{s.Failing(), f.inForce()}, []any{false, names})
	return s
}

// inForce returns how many names the file has.
func (f *fixture) inForce() int {
	raw, _ := os.ReadFile(f.source.path) // or there is none
	return bytes.Count(raw, []byte("\n"))
}

func send(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
}

func zipped(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.Bytes()
}

// A list must not make this machine ask what only machines inside may, and quote the answer.
func TestARedirectLeadsNoPublicAddressInwards(t *testing.T) {
	var asked atomic.Int32
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skip(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		io.WriteString(w, "inside.example\n")
	})}}
	server.Start()
	t.Cleanup(server.Close)
	inside := server.URL
	from := func(inward func(netip.Addr) bool) *fixture {
		f := newFixture(t, nil)
		f.client.Transport = &inwards{RoundTripper: http.DefaultTransport.(*http.Transport).Clone(), inward: inward}
		return f
	}
	f := from(func(a netip.Addr) bool { return a != netip.MustParseAddr("127.0.0.1") }) // that stands in for somebody outside
	s := f.fetch(sentTo(inside + "/latest/meta-data"))
	testkit.WantStart(t, s.Error, errInward.Error()+", 127.0.0.2")
	testkit.Equal(t, "requests to it, and names in force", [2]int{int(asked.Load()), f.inForce()}, [2]int{})
	testkit.Between(t, "a server has answered, and the next attempt is in", time.Until(s.Next), 10*time.Minute, 31*time.Minute)
	// Within a network, and at one address, redirects are followed.
	for name, inward := range map[string]func(netip.Addr) bool{
		"from inside": isInward, "outside": func(netip.Addr) bool { return false },
	} {
		f := from(inward)
		t.Log(name)
		f.wants(sentTo(inside), 1)
	}
}

func TestAddressesThatAreNotPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "10.1.2.3": true, "192.168.0.1": true, "172.16.0.1": true, "169.254.169.254": true,
		"fe80::1": true, "fd00::1": true, "::ffff:127.0.0.1": true, "0.0.0.0": true, "::": true, "100.64.0.1": true,
		"64:ff9b::169.254.169.254": true, "64:ff9b:1::a00:1": false,
		"192.0.2.1": false, "2001:db8::1": false, "64:ff9b::192.0.2.1": false, "172.32.0.1": false, "100.128.0.1": false,
	} {
		testkit.Equal(t, text, isInward(netip.MustParseAddr(text)), want)
	}
}

// Downloads are hours apart: each has a connection of its own, so that it fails for no old one and is one request.
func TestADownloadHasAConnectionOfItsOwn(t *testing.T) {
	f := newFixture(t, nil)
	requests := 0
	connections := make(map[string]bool)
	answer := func(w http.ResponseWriter, r *http.Request) {
		requests++
		if connections[r.RemoteAddr] {
			conn, _, err := http.NewResponseController(w).Hijack()
			must(t, err)
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
			return
		}
		connections[r.RemoteAddr] = true
		send(names(requests))(w, r)
	}
	for want := range 3 {
		f.fetch(answer)
		testkit.Equal(t, fmt.Sprintf("requests and names after download %d", want+1), [2]int{requests, f.inForce()}, [2]int{want + 1, want + 1})
	}
}
