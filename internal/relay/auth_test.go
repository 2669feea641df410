package relay

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestClientKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := testkit.Capture(t)
		file := testkit.Write(t, t.TempDir(), "keys", "# old and new\nOLD\n\n  NEW  \r\n")
		w := newWorld(t)
		w.cfg.ClientKeyFile = file
		w.start()
		try := func(target string, header ...string) int { return ask(t, w.relay, "GET", target, header...).Code }
		for _, tc := range []struct {
			name, target, header, value string
			want                        int
		}{
			{"old", "/v5/hashLists", "X-Goog-Api-Key", "OLD", 200},
			{"new", "/v5/hashLists", "X-Goog-Api-Key", "NEW", 200},
			{"wrong", "/v5/hashLists", "X-Goog-Api-Key", "OLDER", 403},
			{"a part", "/v5/hashLists", "X-Goog-Api-Key", "OL", 403},
			{"a comment", "/v5/hashLists", "X-Goog-Api-Key", "# old and new", 403},
			{"none", "/v5/hashLists", "X-Goog-Api-Key", "", 403},
			{"nothing there", "/nothing", "X-Goog-Api-Key", "", 403},
			{"a browser, and a parameter", "/v5/hashLists?key=NEW", "Sec-Fetch-Site", "none", 200},
			{"a page", "/v5/hashLists?key=NEW", "Sec-Fetch-Site", "cross-site", 403},
			{"a page by a name of its own", "/v5/hashLists?key=NEW", "Sec-Fetch-Site", "same-origin", 403},
		} {
			testkit.Equal(t, tc.name, try(tc.target, tc.header, tc.value), tc.want)
		}
		// An alert says of these that a client has no valid key.
		testkit.Equal(t, "requests counted as denied", valueOf(t, w.relay.handler.metrics.requests.WithLabelValues("list", outcomeDenied)), 4)
		testkit.WantParts(t, lines.Only(t, "no valid key"), "192.0.2.1:4000")
		put(t, file, "two words\n")
		time.Sleep(21 * time.Second) // no file is read while the next one is written
		testkit.Equal(t, "with a broken file", try("/v5/hashLists?key=OLD"), 200)
		testkit.WantParts(t, lines.Only(t, "Cannot read the keys of clients"), file+":1: a key holds a space", "Those before stay in use")
		put(t, file, "NEW\nNEXT\n")
		time.Sleep(10 * time.Second)
		testkit.Equal(t, "the old key and the next one after the rotation", [2]int{try("/v5/hashLists?key=OLD"), try("/v5/hashLists?key=NEXT")}, [2]int{403, 200})
		lines.Only(t, "The keys of clients in "+file+" are in use as they are now")
		testkit.WantNone(t, lines.String(), "OLD", "NEXT")
	})
}

func put(t testing.TB, file, text string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(file, []byte(text), 0o600))
}

// One client must not use up what others need; a key that many share does not make them one.
func TestSearchesAreLimitedForEachClient(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		all := hosts(40)
		w.suspect(all...)
		w.cfg.Rate, w.cfg.Burst = 0.5, 3
		w.cfg.ClientKeyFile = testkit.Write(t, t.TempDir(), "keys", "KEY\nOTHER\n")
		w.start()
		next := 0
		search := func(remote, key string, served bool) {
			t.Helper()
			got := recorded(w.relay, requestOf(t, searchRequest(all[next]), remote, key))
			if !served {
				mustComeBack(t, got, "2")
			} else if next++; got.Code != 200 {
				t.Errorf("search %d, of %s by %s: %d", next, remote, key, got.Code)
			}
		}
		for _, c := range []struct{ remote, key string }{
			{"192.0.2.1:1", "KEY"}, {"192.0.2.2:1", "KEY"}, {"192.0.2.1:1", "OTHER"}, {"[2001:db8::1]:1", "KEY"}, {"[2001:db8:0:100::1]:1", "KEY"}, {"[2001:db8::2]:1", "OTHER"},
		} {
			for i := range 4 {
				search(c.remote, c.key, i < 3)
			}
		}
		search("[2001:db8::ffff]:9", "KEY", false) // another address of the same network
		next--
		search("192.0.2.1:1", "KEY", true) // a cached answer is not limited
		time.Sleep(2 * time.Second)
		search("192.0.2.1:1", "KEY", true)
	})
}

func TestWhereTheRelayListens(t *testing.T) {
	dir := t.TempDir()
	keys := testkit.Write(t, dir, "keys", "KEY\n")
	cert, key := testkit.Certificate(t, dir)
	redisAt := func(url string) *sharing.Config {
		target, err := sharing.Parse(url)
		testkit.Must(t, err)
		return &sharing.Config{Target: target}
	}
	for _, tc := range []struct {
		name, want string // part of the error; "": none
		cfg        Config
		warnings   int
	}{
		{"loopback", "", Config{Listen: "127.0.0.1:0"}, 0},
		{"loopback, IPv6", "", Config{Listen: "[::1]:0"}, 0},
		{"localhost", "", Config{Listen: "localhost:0"}, 0},
		{"everywhere", "can be reached by other machines", Config{Listen: ":0"}, 0},
		{"everywhere, IPv4", "give -tls-cert and -tls-key, or -client-key-file", Config{Listen: "0.0.0.0:0"}, 0},
		{"a network", "192.0.2.1:99 can be reached", Config{Listen: "192.0.2.1:99"}, 0},
		{"a name", "can be reached", Config{Listen: "relay.internal:99"}, 0},
		{"no port", "missing port", Config{Listen: "127.0.0.1"}, 0},
		{"insecure", "", Config{Listen: ":0", Insecure: true}, 1},
		{"keys", "", Config{Listen: ":0", ClientKeyFile: keys}, 1},
		{"TLS", "", Config{Listen: ":0", CertFile: cert, CertKeyFile: key}, 1},
		{"TLS and keys", "", Config{Listen: ":0", CertFile: cert, CertKeyFile: key, ClientKeyFile: keys}, 0},
		{"certificates", "", Config{Listen: ":0", CertFile: cert, CertKeyFile: key, ClientCAFile: cert}, 0},
		{"admin everywhere", "", Config{Listen: "127.0.0.1:0", Admin: ":0"}, 1},
		{"Redis on this machine", "", Config{Listen: "127.0.0.1:0", Redis: redisAt("redis://127.0.0.1")}, 0},
		{"Redis with TLS", "", Config{Listen: "127.0.0.1:0", Redis: redisAt("rediss://cache.example")}, 0},
		{"one of several in clear text", "", Config{Listen: "127.0.0.1:0", Redis: redisAt("redis+cluster://127.0.0.1,192.0.2.1"), InsecureRedis: true}, 1},
		{"a password of Redis", "", Config{Listen: "127.0.0.1:0", Redis: redisAt("rediss://:s3cret@cache.example")}, 1},
		{"half of TLS", "give both", Config{Listen: "127.0.0.1:0", CertFile: cert}, 0},
		{"a CA without TLS", "certificates of clients need TLS", Config{Listen: "127.0.0.1:0", ClientCAFile: cert}, 0},
		{"a negative rate", "rate of searches", Config{Listen: "127.0.0.1:0", Rate: -1}, 0},
		{"a negative threshold", "threshold of -ema", Config{Listen: "127.0.0.1:0", EMA: -1}, 0},
		{"a small burst", "burst at least 1", Config{Listen: "127.0.0.1:0", Rate: 1, Burst: 0.5}, 0},
	} {
		err := tc.cfg.check()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		if got := tc.cfg.warnings(); err == nil && len(got) != tc.warnings || strings.Contains(fmt.Sprint(got), "s3cret") {
			t.Errorf("%s: warnings %q, want %d", tc.name, got, tc.warnings)
		}
	}
	for name, text := range map[string]string{"an empty file": "\n# none\n", "two words": "a b\n", "too many": strings.Repeat("k\n", maxClientKeys+1)} {
		w := newWorld(t)
		w.cfg.ClientKeyFile = testkit.Write(t, dir, name, text)
		_, err := New(w.cfg)
		testkit.WantError(t, err, w.cfg.ClientKeyFile)
	}
}

// A pipe would hold the watcher of the files for ever.
func TestFilesOfKeysAreRegular(t *testing.T) {
	cert, key := testkit.Certificate(t, t.TempDir())
	none := os.DevNull
	for i, err := range []error{
		new(auth).load(none), (&certificates{cert: none, key: key}).load(), (&certificates{cert: cert, key: none}).load(),
		(&certificates{cert: cert, key: key, clientCA: none}).load(),
	} {
		testkit.Is(t, i, err, files.ErrIrregular)
	}
}

func TestTheRelaySpeaksTLSAndWantsCertificates(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	dir := t.TempDir()
	ours, other := newParty(t), newParty(t)
	w := newWorld(t)
	w.cfg.CertFile, w.cfg.CertKeyFile = testkit.Certificate(t, dir)
	w.cfg.ClientCAFile = ours.cert
	server := party{w.cfg.CertFile, w.cfg.CertKeyFile}
	r := run(t, w.cfg)
	ask := func(by *party, url string) int {
		got, _ := codeOf(t, clientOf(t, by, server), url+"/v5/hashLists")
		return got
	}
	testkit.Until(t, "the first lists", func() bool { return ask(&ours, r.url) == 200 })
	testkit.Equal(t, "without a certificate, with one of another CA", [2]int{ask(nil, r.url), ask(&other, r.url)}, [2]int{0, 0})
	testkit.Equal(t, "in clear text", ask(nil, strings.Replace(r.url, "https", "http", 1)), 400)
	before := shown(t, ours, r.url)
	testkit.Certificate(t, dir)
	testkit.Until(t, "the new certificate", func() bool { return shown(t, ours, r.url) != before })
}

// party is a server or a client with a certificate, which is its own CA.
type party struct{ cert, key string }

func newParty(t *testing.T) (p party) {
	t.Helper()
	p.cert, p.key = testkit.Certificate(t, t.TempDir())
	return p
}

// clientOf returns a client that trusts servers and shows the certificate of a party, or none.
func clientOf(t *testing.T, by *party, servers ...party) *http.Client {
	t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	for _, s := range servers {
		c.RootCAs.AppendCertsFromPEM([]byte(testkit.Read(t, s.cert)))
	}
	if by != nil {
		pair, err := tls.LoadX509KeyPair(by.cert, by.key)
		testkit.Must(t, err)
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
}

// shown returns the certificate of a server.
func shown(t *testing.T, by party, url string) string {
	t.Helper()
	c := clientOf(t, &by).Transport.(*http.Transport).TLSClientConfig
	c.InsecureSkipVerify = true
	conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), c)
	testkit.Must(t, err)
	defer conn.Close()
	return string(conn.ConnectionState().PeerCertificates[0].Raw)
}

// reloaded is a server with certificates that are read again when a test says so.
type reloaded struct {
	t       *testing.T
	url     string
	server  *http.Server
	metrics *metrics
	files   *watched
}

// serveTLS serves with certificates from files. clientCA "": clients need none.
func serveTLS(t *testing.T, server party, clientCA string) *reloaded {
	t.Helper()
	certs, relay := &certificates{cert: server.cert, key: server.key, clientCA: clientCA}, &Relay{handler: &handler{metrics: newMetrics()}}
	r := &reloaded{t: t, server: relay.server(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), metrics: relay.handler.metrics}
	r.files = &watched{what: "certificates", paths: []string{server.cert, server.key, clientCA}, load: certs.load}
	testkit.Must(t, openAll([]*watched{r.files}))
	s := httptest.NewUnstartedServer(nil)
	s.Config, s.TLS = r.server, certs.config()
	s.StartTLS()
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

// look replaces a file and makes the server look at all of them.
func (r *reloaded) look(file, text string) {
	r.t.Helper()
	put(r.t, file, text)
	r.files.look()
}

// want wants a status for each client; 0: no connection.
func (r *reloaded) want(when string, clients map[string]*http.Client, statuses map[string]int) {
	r.t.Helper()
	for name, c := range clients {
		got, body := codeOf(r.t, c, r.url)
		testkit.Equal(r.t, fmt.Sprint(when, ": client ", name, ": ", body), got, statuses[name])
	}
}

// A client chooses words of the error that ends its handshake.
func TestAHandshakeThatFailsMakesNoLineInTheLog(t *testing.T) {
	lines := testkit.Capture(t)
	r := serveTLS(t, newParty(t), "")
	c := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http: panic serving"}}
	if conn, err := tls.Dial("tcp", strings.TrimPrefix(r.url, "https://"), c); err == nil {
		conn.Close()
		t.Fatal("a protocol that the relay does not speak is served")
	}
	testkit.Until(t, "the end of the handshake", func() bool { return valueOf(t, r.metrics.broken) > 0 || len(lines.About("panic")) > 0 })
	testkit.Equal(t, "lines about panics", lines.About("panic"), nil)
	for _, line := range []string{"http: panic serving 192.0.2.1:1: a mistake\n", "http2: panic serving 192.0.2.1:1: a mistake\n"} {
		r.server.ErrorLog.Print(line)
	}
	testkit.Equal(t, "lines about the two real panics", len(lines.About("a mistake")), 2)
}

// A CA that is taken out of the file vouches for no new connection, even if the client resumes a TLS session that the CA vouched for.
func TestAChangedClientCAIsInForce(t *testing.T) {
	lines := testkit.Capture(t)
	server, old, next := newParty(t), newParty(t), newParty(t)
	file := testkit.Write(t, t.TempDir(), "clients.pem", testkit.Read(t, old.cert))
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

// A certificate and the key of another one are no pair: the pair before stays in use, also for the CA of clients, until all files fit.
func TestAPairThatDoesNotMatchKeepsTheOneBefore(t *testing.T) {
	lines := testkit.Capture(t)
	server, other, ours, clients := newParty(t), newParty(t), newParty(t), newParty(t)
	file := testkit.Write(t, t.TempDir(), "clients.pem", testkit.Read(t, ours.cert))
	r := serveTLS(t, server, file)
	before := shown(t, ours, r.url)
	r.look(server.key, testkit.Read(t, other.key))
	r.files.look()
	testkit.Equal(t, "with the key of another certificate the same one is shown", shown(t, ours, r.url) == before, true)
	testkit.WantParts(t, lines.Only(t, "Cannot read the certificates"), server.cert+" and "+server.key, "private key does not match", "Those before stay in use")
	c := clientOf(t, &clients, server, other)
	r.look(file, testkit.Read(t, clients.cert))
	r.want("with a pair that does not match", map[string]*http.Client{"new": c}, map[string]int{"new": 0})
	r.look(server.cert, testkit.Read(t, other.cert))
	r.want("after the pair matches", map[string]*http.Client{"new": c}, map[string]int{"new": 200})
	testkit.WantParts(t, lines.Only(t, "are in use as they are now"), server.cert)
}

// A key may be replaced by another of its size, at its time: cp -p, rsync and archives keep times.
func TestAFileOfTheSameSizeAndTimeIsReadAgain(t *testing.T) {
	path, at := filepath.Join(t.TempDir(), "keys"), time.Now().Add(-time.Hour)
	reads := 0
	w := &watched{what: "keys", paths: []string{path}, load: func() error { reads++; return nil }}
	for n, key := range []string{"first", "first", "other"} {
		put(t, path, key)
		testkit.Must(t, os.Chtimes(path, at, at))
		if n == 0 {
			testkit.Must(t, openAll([]*watched{w}))
		}
		w.look()
		testkit.Equal(t, fmt.Sprint("reads after ", n, ": ", key), reads, 1+n/2)
	}
}
