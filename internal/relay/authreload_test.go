package relay

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// reloaded is a server with certificates that are read again when a test says so.
type reloaded struct {
	t     *testing.T
	url   string
	certs *certificates
	files *watched
	looks int
}

// serveTLS serves with certificates from files.
func serveTLS(t *testing.T, server party, clientCA string) *reloaded {
	t.Helper()
	r := &reloaded{t: t, certs: &certificates{cert: server.cert, key: server.key, clientCA: clientCA}}
	r.files = &watched{what: "certificates", paths: []string{server.cert, server.key, clientCA}, load: r.certs.load}
	testkit.Must(t, r.files.open())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	relay := &Relay{handler: &handler{metrics: newMetrics()}}
	listening := relay.server(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	listening.TLSConfig = r.certs.config()
	go listening.ServeTLS(listener, "", "") // ends with Close
	t.Cleanup(func() { listening.Close() })
	r.url = "https://" + listener.Addr().String()
	return r
}

// look replaces files, by pairs of name and content, and makes the server look at all of them.
func (r *reloaded) look(pairs ...string) {
	r.t.Helper()
	r.looks++
	for i := 0; i < len(pairs); i += 2 {
		put(r.t, pairs[i], pairs[i+1])
		at := time.Now().Add(time.Duration(r.looks) * time.Minute) // another time than before, whatever the disk's clock
		testkit.Must(r.t, os.Chtimes(pairs[i], at, at))
	}
	r.files.look()
}

// want wants a status for each client; 0: no connection.
func (r *reloaded) want(when string, clients map[string]*http.Client, statuses map[string]int) {
	r.t.Helper()
	for name, c := range clients {
		if got, body := codeOf(r.t, c, r.url); got != statuses[name] {
			r.t.Errorf("%s: client %s: status %d, want %d: %s", when, name, got, statuses[name], body)
		}
	}
}

// A CA that is taken out of the file vouches for no new connection, even if the client resumes
// a TLS session that the CA vouched for.
func TestAChangedClientCAIsInForce(t *testing.T) {
	lines := testkit.Capture(t)
	server, old, next := newParty(t), newParty(t), newParty(t)
	file := filepath.Join(t.TempDir(), "clients.pem")
	put(t, file, testkit.Read(t, old.cert))
	r := serveTLS(t, server, file)
	clients := map[string]*http.Client{"old": clientOf(t, &old, server), "old, resuming": clientOf(t, &old, server), "next": clientOf(t, &next, server)}
	resuming := clients["old, resuming"].Transport.(*http.Transport).TLSClientConfig
	resuming.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	onlyOld := map[string]int{"old": 200, "old, resuming": 200}

	r.want("at first", clients, onlyOld)
	r.look(file, testkit.Read(t, old.cert)+testkit.Read(t, next.cert))
	r.want("with both", clients, map[string]int{"old": 200, "old, resuming": 200, "next": 200})
	if answer, err := clients["old, resuming"].Get(r.url); err != nil || !answer.TLS.DidResume {
		t.Fatalf("the client that should resume does not: %v", err)
	}
	r.look(file, testkit.Read(t, next.cert))
	r.want("with the next only", clients, map[string]int{"next": 200})
	r.look(file, "not a certificate")
	r.want("with a broken file", clients, map[string]int{"next": 200})
	testkit.WantParts(t, lines.Only(t, "Cannot read the certificates"), file+" holds no certificate", "Those before stay in use")
	r.look(file, testkit.Read(t, old.cert))
	r.want("with the old one again", clients, onlyOld)
}

// A certificate and the key of another one are no pair: the pair before stays in use, also for
// the CA of clients, until all files fit.
func TestAPairThatDoesNotMatchKeepsTheOneBefore(t *testing.T) {
	lines := testkit.Capture(t)
	server, other, ours, clients := newParty(t), newParty(t), newParty(t), newParty(t)
	file := testkit.Write(t, t.TempDir(), "clients.pem", testkit.Read(t, ours.cert))
	r := serveTLS(t, server, file)
	before := shown(t, ours, r.url)
	r.look(server.key, testkit.Read(t, other.key))
	r.look()
	if shown(t, ours, r.url) != before {
		t.Error("with the key of another certificate another one is shown")
	}
	testkit.WantParts(t, lines.Only(t, "Cannot read the certificates"), server.cert+" and "+server.key, "private key does not match", "Those before stay in use")
	c := clientOf(t, &clients, server, other)
	r.look(file, testkit.Read(t, clients.cert))
	if got, _ := codeOf(t, c, r.url); got != 0 {
		t.Errorf("a new CA of clients is in use with a pair that does not match: status %d", got)
	}
	r.look(server.cert, testkit.Read(t, other.cert))
	if got, body := codeOf(t, c, r.url); got != 200 {
		t.Errorf("after the pair matches: status %d: %s", got, body)
	}
	if lines := lines.About("are in use as they are now"); len(lines) != 1 || !strings.Contains(lines[0], server.cert) {
		t.Errorf("lines %q, want one", lines)
	}
}

// A key may be replaced by another of its size, at its time: cp -p, rsync and archives keep times.
func TestAFileOfTheSameSizeAndTimeIsReadAgain(t *testing.T) {
	path, at := filepath.Join(t.TempDir(), "keys"), time.Now().Add(-time.Hour)
	reads := 0
	w := &watched{what: "keys", paths: []string{path}, load: func() error { reads++; return nil }}
	for n, key := range []string{"first", "first", "other"} {
		testkit.Must(t, os.WriteFile(path, []byte(key), 0o600))
		testkit.Must(t, os.Chtimes(path, at, at))
		if n == 0 {
			testkit.Must(t, w.open())
		}
		w.look()
		if want := 1 + n/2; reads != want {
			t.Errorf("after %q: read %d times, want %d", key, reads, want)
		}
	}
}
