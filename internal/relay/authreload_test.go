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
func serveTLS(t *testing.T, cert, key, clientCA string) *reloaded {
	t.Helper()
	r := &reloaded{t: t, certs: &certificates{cert: cert, key: key, clientCA: clientCA}}
	r.files = &watched{what: "certificates", paths: []string{cert, key, clientCA}, load: r.certs.load}
	if err := r.files.open(); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	relay := &Relay{handler: &handler{metrics: newMetrics()}}
	server := relay.server(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLSConfig = r.certs.config()
	go server.ServeTLS(listener, "", "") // ends with Close
	t.Cleanup(func() { server.Close() })
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
		if err := os.Chtimes(pairs[i], at, at); err != nil {
			r.t.Fatal(err)
		}
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

func textOf(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A CA that is taken out of the file vouches for no new connection, even if the client resumes
// a TLS session that the CA vouched for.
func TestAChangedClientCAIsInForce(t *testing.T) {
	lines := testkit.Capture(t)
	ca, old, next := newAuthority(t, t.TempDir()), newAuthority(t, t.TempDir()), newAuthority(t, t.TempDir())
	cert, key := ca.issue("server")
	file := filepath.Join(t.TempDir(), "clients.pem")
	put(t, file, textOf(t, old.file))
	r := serveTLS(t, cert, key, file)
	clients := map[string]*http.Client{"old": ca.client(old), "old, resuming": ca.client(old), "next": ca.client(next)}
	resuming := clients["old, resuming"].Transport.(*http.Transport).TLSClientConfig
	resuming.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	onlyOld := map[string]int{"old": 200, "old, resuming": 200}

	r.want("at first", clients, onlyOld)
	r.look(file, textOf(t, old.file)+textOf(t, next.file))
	r.want("with both", clients, map[string]int{"old": 200, "old, resuming": 200, "next": 200})
	if answer, err := clients["old, resuming"].Get(r.url); err != nil || !answer.TLS.DidResume {
		t.Fatalf("the client that should resume does not: %v", err)
	}
	r.look(file, textOf(t, next.file))
	r.want("with the next only", clients, map[string]int{"next": 200})
	r.look(file, "not a certificate")
	r.want("with a broken file", clients, map[string]int{"next": 200})
	testkit.WantParts(t, lines.Only(t, "Cannot read the certificates"), file+" holds no certificate", "Those before stay in use")
	r.look(file, textOf(t, old.file))
	r.want("with the old one again", clients, onlyOld)
}

// A certificate and the key of another one are no pair: the pair before stays in use, also for
// the CA of clients, until all files fit.
func TestAPairThatDoesNotMatchKeepsTheOneBefore(t *testing.T) {
	lines := testkit.Capture(t)
	ca, clients := newAuthority(t, t.TempDir()), newAuthority(t, t.TempDir())
	cert, key := ca.issue("server")
	otherCert, otherKey := ca.issue("other")
	r := serveTLS(t, cert, key, ca.file)
	before := serial(t, ca, r.url)
	r.look(key, textOf(t, otherKey))
	r.look()
	if got := serial(t, ca, r.url); got != before {
		t.Errorf("with the key of another certificate: serial number %s, want %s", got, before)
	}
	testkit.WantParts(t, lines.Only(t, "Cannot read the certificates"), cert+" and "+key, "private key does not match", "Those before stay in use")
	server := ca.client(clients)
	r.look(ca.file, textOf(t, clients.file))
	if got, _ := codeOf(t, server, r.url); got != 0 {
		t.Errorf("a new CA of clients is in use with a pair that does not match: status %d", got)
	}
	r.look(cert, textOf(t, otherCert))
	if got, body := codeOf(t, server, r.url); got != 200 {
		t.Errorf("after the pair matches: status %d: %s", got, body)
	}
	if lines := lines.About("are in use as they are now"); len(lines) != 1 || !strings.Contains(lines[0], cert) {
		t.Errorf("lines %q, want one", lines)
	}
}
