package engine

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestAKeyThatCannotBeReadIsOneLineAndTheOldKeyStays(t *testing.T) {
	dir := t.TempDir()
	testkit.Write(t, dir, "long", strings.Repeat("k", 1<<20))
	for _, tc := range []struct {
		token      bool
		word, file string
	}{
		{false, "API key", "none"},
		{true, "token", "none"},
		{false, "API key", "long"},
	} {
		logged(t, func(t *testing.T, lines *testkit.Lines) {
			file := filepath.Join(dir, tc.file)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			e := &Engine{Service: Service{settings: Settings{KeyFile: file, Token: tc.token}}}
			testkit.Equal(t, "key", e.awaitKey(ctx, "OLD"), "OLD")
			testkit.WantParts(t, lines.Only(t, "Cannot replace the "+tc.word), "[WARNING]", file, "The old one stays in use", "every 5 seconds")
		})
	}
}

// The back-off after an expired token ends with the next one, also in the file of the
// schedule, which the updater reads when it starts with the new token.
func TestANewTokenIsTriedAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		status int // of the failure; 0: the token is refused
		want   bool
	}{"the token has expired": {0, true}, "the server has a fault": {http.StatusServiceUnavailable, false}} {
		named(t, name, func(t *testing.T, lines *testkit.Lines) {
			dir := t.TempDir()
			file := testkit.Write(t, dir, "token", "OLD")
			google := listing(t, time.Hour)
			google.SetToken("NEW")
			if test.status != 0 {
				google.SetToken("OLD")
				google.Break("computeDiff", 1, protocoltest.Fault{Status: test.status})
			}
			s := Settings{Endpoint: "http://token.example", Protocol: protocol.DialectWebRisk.Name, Lists: "se-4b", DB: dir, Budget: 5, Share: 100, KeyFile: file, Token: true}
			e := started(t, s, "OLD", Edge{Transport: google, FirstContact: atOnce})
			time.Sleep(time.Minute)
			cure := ". Put a new token into " + file + "; it is tried within a minute"
			testkit.Equal(t, "advice about the token", strings.Contains(lines.Only(t, "Cannot update lists se-4b"), cure), test.want)
			google.SetToken("NEW")
			testkit.Write(t, dir, "token", "NEW")
			time.Sleep(2 * keyInterval)
			testkit.Equal(t, "updated with the new token at once", len(lines.About("List se-4b now has 1 entry")) == 1, test.want)
			e.stop()
			lines.Only(t, "Web Risk is on")
		})
	}
}

// Whether another key works is told, also if it does not. The back-off of the key before ends, with db off, too.
func TestANewKeyIsTriedAtOnceAndAnotherWrongOneIsTold(t *testing.T) {
	for name, db := range map[string]string{"a directory": t.TempDir(), "db off": ""} {
		named(t, name, func(t *testing.T, lines *testkit.Lines) {
			file := testkit.Write(t, t.TempDir(), "key", "WRONG")
			google := listing(t, time.Hour)
			google.SetKey("RIGHT")
			s := Settings{Endpoint: "http://key.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b", DB: db, KeyFile: file}
			edge, searcher := searching(google)
			defer started(t, s, "WRONG", edge).stop()
			for _, key := range []string{"WRONG", "OTHER"} {
				testkit.Must(t, os.WriteFile(file, []byte(key), 0o600))
				time.Sleep(2 * keyInterval)
				_, _ = (*searcher).Search(t.Context(), []lookup.Prefix{"pre1"})
				testkit.WantParts(t, lines.Only(t, "Cannot update lists se-4b"), "403", "a new one is tried within a minute")
				testkit.WantParts(t, lines.Only(t, "Confirmations are paused"), "403")
				lines.Forget()
			}
			testkit.Must(t, os.WriteFile(file, []byte("RIGHT"), 0o600))
			time.Sleep(2 * keyInterval)
			_, _ = (*searcher).Search(t.Context(), []lookup.Prefix{"pre1"})
			lines.Only(t, "List se-4b now has 1 entry")
			lines.Only(t, "Lists are updated again, after trouble since")
			lines.Only(t, "Confirmations work again")
		})
	}
}

// searching returns an edge whose first contact is at once, and where the searcher of the engine will be.
func searching(to http.RoundTripper) (Edge, *lookup.Searcher) {
	searcher := new(lookup.Searcher)
	return Edge{Transport: to, FirstContact: atOnce, Searcher: func(s lookup.Searcher) lookup.Searcher {
		*searcher = s
		return s
	}}, searcher
}

func TestAdviceNamesTheServiceAndTheCredential(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "/run/credentials/it.service/")
	v5 := Settings{Protocol: protocol.DialectV5.Name, KeyFile: "/etc/coredns/key"}
	own := Settings{Protocol: protocol.DialectV5.Name, Endpoint: "http://relay.example", KeyFile: "/run/credentials/it.service/safebrowsing.key"}
	risk := Settings{Protocol: protocol.DialectWebRisk.Name}
	token := Settings{Protocol: protocol.DialectWebRisk.Name, Token: true, KeyFile: "/etc/coredns/token"}
	copied := token
	copied.KeyFile = "/run/credentials/it.service/token"
	for _, test := range []struct {
		settings Settings
		code     int
		want     string
	}{
		{v5, 403, ". Check the API key, and that the Safe Browsing API is enabled for it; a new one is tried within a minute"},
		{own, 403, ". Check the API key: a relay knows those in the file of its -client-key-file; a new one is tried within a minute after a restart: the service has a copy of the original"},
		{own, 404, ". Check the API key, the endpoint and the names in lists"},
		{risk, 401, ". Check the API key, and that the Web Risk API is enabled for it in a project with a billing account; a new one is tried within a minute after a reload or restart"},
		{risk, 429, ". The quota of the API key is used up"},
		{token, 400, ". Check the token and the names in lists"},
		{token, 401, ". Put a new token into /etc/coredns/token; it is tried within a minute"},
		{token, 403, ". Check the token, and that the Web Risk API is enabled for it in a project with a billing account; a new one is tried within a minute"},
		{token, 503, ""},
		{copied, 401, ". Put a new token into /run/credentials/it.service/token; it is tried within a minute after a restart: the service has a copy of the original"},
	} {
		testkit.Equal(t, test.code, newReporter(test.settings, func() {}).hint(&updater.StatusError{Code: test.code}, time.Time{}), test.want)
	}
}

// slowEnd is a transport whose fetches end a while after they were cancelled. It counts searches by key.
type slowEnd struct {
	http.RoundTripper
	searches map[string]int
}

func (s *slowEnd) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "search") {
		s.searches[r.Header.Get("X-Goog-Api-Key")+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]++
		return s.RoundTripper.RoundTrip(r)
	}
	<-r.Context().Done()
	time.Sleep(20 * time.Second)
	return nil, r.Context().Err()
}

// While a fetch with the old key ends, searches carry the old key: the clock is that key's.
func TestANewKeyIsInUseWithItsClockOnly(t *testing.T) {
	for name, token := range map[string]bool{"key": false, "token": true} {
		named(t, name, func(t *testing.T, lines *testkit.Lines) {
			dir := t.TempDir()
			file := testkit.Write(t, dir, "key", "OLD")
			to := &slowEnd{protocoltest.New(t), make(map[string]int)}
			edge, searcher := searching(to)
			s := Settings{Endpoint: "http://key.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b", KeyFile: file, Token: token}
			defer started(t, s, "OLD", edge).stop()
			search := func(prefix lookup.Prefix) {
				_, err := (*searcher).Search(t.Context(), []lookup.Prefix{prefix})
				testkit.Is(t, prefix, err, nil)
			}
			time.Sleep(time.Second)
			search("pre1")
			testkit.Write(t, dir, "key", "NEW")
			time.Sleep(2 * keyInterval) // it has been read, and the fetch has not ended
			search("pre2")
			testkit.Equal(t, "while the fetch ends", []any{to.searches["OLD"], len(lines.About("is in use"))}, []any{2, 0})
			time.Sleep(20 * time.Second)
			search("pre3")
			testkit.Equal(t, "afterwards", to.searches["NEW"], 1)
		})
	}
}

// hanging hangs, whatever the context of a request says, as a disk does.
type hanging struct {
	*protocoltest.Server
	hangs bool
	until chan struct{}
}

func (h *hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	if h.hangs {
		<-h.until
	}
	return h.Server.RoundTrip(r)
}

// The end of an engine does not wait for what hangs, nor does the next engine. The one that was
// given up says so once and reports nothing after that: its metrics are the next one's.
func TestTheEndOfAnEngineDoesNotWaitForWhatHangs(t *testing.T) {
	s := Settings{Endpoint: "http://hangs.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b"}
	next := s
	next.Cache = 7
	logged(t, func(t *testing.T, lines *testkit.Lines) {
		google := &hanging{Server: listing(t, time.Hour), hangs: true, until: make(chan struct{})}
		r := NewRegistry(Edge{Transport: google, FirstContact: atOnce})
		first, end, err := r.Acquire(s, "key")
		testkit.Must(t, err)
		synctest.Wait()
		begun := time.Now()
		_, endNext, err := r.Acquire(next, "key") // as a reload does
		testkit.Must(t, err)
		end()
		testkit.Equal(t, "a reload", time.Since(begun), files.WaitLimit)
		begun = time.Now()
		endNext()
		testkit.Between(t, "the end of the next engine, which waits for the first", time.Since(begun), 0, files.WaitLimit/2)
		testkit.Equal(t, "lines", len(lines.About("has not ended within")), 1)
		close(google.until)
		synctest.Wait()
		first.reporter.report(updater.Event{Kind: updater.ListUpdated, List: "se-4b", Entries: 77}) // as at the end of the write
		testkit.WantNone(t, lines.String(), "77 entries")
		testkit.Equal(t, "entries of the engine that runs", testkit.Metric(t, "list_entries", "list", "se-4b"), 0)
		google.hangs = false
		e, endLast, err := r.Acquire(s, "key")
		testkit.Must(t, err)
		time.Sleep(2 * time.Hour)
		testkit.Equal(t, "lists that the next engine fetches", len(e.Lists()), 1)
		endLast()
	})
}
