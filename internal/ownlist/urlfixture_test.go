package ownlist

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

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
	f.source = newSource(newURLRegistry(patient, nil), c, Config{})
	f.source.openers = []*URLList{{cfg: c, report: func(e URLEvent) { f.events = append(f.events, e) }}}
	f.client = newClient("", nil)
	t.Cleanup(f.client.CloseIdleConnections)
	return f
}

// fetch makes one attempt, with the answer of the server.
func (f *fixture) fetch(answer http.HandlerFunc) URLState {
	f.t.Helper()
	f.answer.Store(&answer)
	f.source.attempt(f.t.Context(), f.client, func() {})
	return f.source.current()
}

// inForce returns how many names the file has.
func (f *fixture) inForce() int {
	f.t.Helper()
	raw, err := os.ReadFile(f.source.path)
	if err != nil {
		return 0
	}
	return strings.Count(string(raw), "\n")
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
