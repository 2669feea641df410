package test

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// newRelays returns a world with two relays that have the same lists: google is the first
// one. The lists have the expressions, and each relay confirms them.
func newRelays(t *testing.T, expressions ...string) (w *world, second *protocoltest.Server, sockets []*httptest.Server) {
	w = newWorld(t)
	w.google = protocoltest.New(t)
	second = protocoltest.New(t)
	var urls []string
	for _, s := range []*protocoltest.Server{w.google, second} {
		s.OneOfMany()
		s.SetMinimumWait("", time.Hour)
		s.Publish("mw-4b", nil)
		s.Publish("uws-4b", nil)
		(&world{google: s}).threaten(expressions...)
		socket := testkit.MortalServer(t, s)
		socket.Start()
		sockets, urls = append(sockets, socket), append(urls, socket.URL)
	}
	w.endpoint = strings.Join(urls, " ")
	return w, second, sockets
}

func TestARelayThatDiesIsReplacedAndTheLogSaysSoOnce(t *testing.T) {
	lines := testkit.Capture(t)
	w, second, sockets := newRelays(t, "evil.example.com/", "evil.example.net/", "evil.example.org/")
	w.run()
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	testkit.Equal(t, "no request to the second relay while the first one answers", len(second.Requests("")), 0)
	sockets[0].CloseClientConnections()
	sockets[0].Close()
	w.wantBlocked("evil.example.net.", dns.TypeA, phishing)
	w.wantBlocked("evil.example.org.", dns.TypeA, phishing)
	testkit.WantParts(t, lines.Only(t, " fails: "), "[WARNING]", sockets[0].URL+" fails: ", sockets[1].URL+" is asked in its place", "is tried again, not before 20")
	testkit.WantParts(t, lines.Only(t, "Safe Browsing v5 is on"), sockets[0].URL+", then "+sockets[1].URL)
	testkit.Equal(t, "entries of all lists, with both URLs as the label", testkit.Metric(t, "list_entries", "endpoint", w.endpoint), 3)
}

// A relay with -tls-client-ca sees the certificate of tls, and a renewed one without a reload.
func TestTheCertificateOfTLSIsShownAndRenewed(t *testing.T) {
	w := threatened(t, "evil.example.com/", "evil.example.net/")
	var mu sync.Mutex
	var shown string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		shown = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.TLS.PeerCertificates[0].Raw}))
		mu.Unlock()
		rw.Header().Set("Connection", "close") // each request needs a handshake
		w.google.ServeHTTP(rw, r)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	w.endpoint, w.certificate = server.URL, server.Certificate()
	dir := t.TempDir()
	ca := w.authority(t, dir)
	last := func(want string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		testkit.Equal(t, "the certificate of the last request", shown, testkit.Read(t, want))
	}
	cert, key := testkit.Certificate(t, dir)
	w.run("tls " + cert + " " + key + " " + ca)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	last(cert)
	testkit.Certificate(t, dir)
	w.wantBlocked("evil.example.net.", dns.TypeA, phishing)
	last(cert)
}

const (
	onSafeBrowsing = "https://developers.google.com/safe-browsing/v4/advisory"
	onWebRisk      = "https://cloud.google.com/web-risk/docs/advisory"
)

// atOnce is a first contact without a delay.
func atOnce() time.Duration { return 0 }

// behindRelays makes the world's CoreDNS ask the last of n relays. The first one asks, by a protocol,
// the server at an endpoint, which is the world's whatever its name. last is the socket of the last relay.
func (w *world) behindRelays(n int, d *protocol.Dialect, endpoint string) (last *httptest.Server) {
	w.t.Helper()
	var transport http.RoundTripper = w.google
	for range n {
		settings := relaySettings(endpoint, "")
		settings.Protocol = d.Name
		r, err := relay.New(relay.Config{Settings: settings, Listen: "127.0.0.1:0", Edge: engine.Edge{FirstContact: atOnce, Transport: transport}})
		testkit.Must(w.t, err)
		last = httptest.NewServer(r)
		w.t.Cleanup(func() { last.Close(); r.Close() })
		testkit.Until(w.t, "the lists of a relay", r.Ready)
		w.endpoint, endpoint, d, transport = last.URL, last.URL, protocol.DialectV5, nil
	}
	return last
}

// advised is what clients are told behind a chain of relays.
type advised struct {
	name     string
	relays   int
	dialect  *protocol.Dialect
	endpoint string // of the first relay
	service  string
	advisory string
}

// ofLaterProtocols belong to protocols in files of their own.
var ofLaterProtocols []advised

// Google's terms hold for every warning: who provides it, with a link, and that it is a suspicion. A relay stands for
// its server; a server of somebody else's, and the operator's own lists, never name Google.
func TestGooglesAdvisoryReachesClientsThroughAnyNumberOfRelays(t *testing.T) {
	for _, tc := range append(ofLaterProtocols, []advised{
		{"one relay", 1, protocol.DialectV5, "", "Safe Browsing", onSafeBrowsing},
		{"three relays", 3, protocol.DialectV5, "", "Safe Browsing", onSafeBrowsing},
		{"the host name for clients with certificates", 1, protocol.DialectV5, "https://safebrowsing.mtls.googleapis.com", "Safe Browsing", onSafeBrowsing},
		{"Web Risk, two relays", 2, protocol.DialectWebRisk, "", "Web Risk", onWebRisk},
		{"a server of somebody else's", 2, protocol.DialectV5, "http://server.example", "Safe Browsing", ""},
	}...) {
		t.Run(tc.name, func(t *testing.T) {
			lines := testkit.Capture(t)
			w := threatened(t, "evil.example.com/", "doubted.example.com/")
			w.google.RemoveThreat("doubted.example.com/")
			w.behindRelays(tc.relays, tc.dialect, tc.endpoint)
			own := writeFile(t, t.TempDir(), "own.txt", "blocked.example.org\n")
			w.start(w.corefile("explain", "structured 65010", "status 127.0.0.1:0 names", blockList(t, "tested.example"), "block "+own))
			testkit.Until(w.t, "the lists", func() bool { return strings.Contains(w.why("evil.example.com"), "suspected") })
			checkWarnings(t, w, w.pageURL(lines), tc.service, tc.advisory)
		})
	}
}

// checkWarnings looks for the service and its advisory, which may be "", wherever a verdict is told.
func checkWarnings(t *testing.T, w *world, page, service, advisory string) {
	t.Helper()
	named := " (" + service + ")"
	if advisory != "" {
		named += "; advisory provided by Google, " + advisory
	}
	testkit.WantParts(t, w.why("doubted.example.com"), "warning=suspected, not confirmed"+named)
	w.wantBlocked("evil.example.com.", dns.TypeA, "suspected social engineering"+named)
	testkit.WantParts(t, w.why("evil.example.com"), "warning=suspected social engineering"+named)
	m := query("evil.example.com.", dns.TypeA)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65010}}
	text, _ := ede(w.exchange("udp", m))
	type form struct {
		J string
		S int
	}
	var structured form
	testkit.Must(t, json.Unmarshal([]byte(text), &structured))
	testkit.Equal(t, "structured error", structured, form{"suspected social engineering" + named, 2})
	linked := "suspected social engineering (" + service + ")"
	if advisory != "" {
		link := `; advisory provided by Google, <a href="` + advisory
		linked += link + `">` + advisory + "</a>"
		testkit.WantParts(t, get(t, page), "Google cannot guarantee", "Hosts in the lists of "+service+" are suspected"+link)
	} else {
		testkit.WantNone(t, get(t, page), "by Google", "Google cannot")
	}
	testkit.WantParts(t, get(t, page+"?host=www.evil.example.com"), linked)
	for name, want := range map[string]string{"blocked.example.org": "blocklist own.txt", "tested.example": byOwn} {
		w.wantBlocked(name+".", dns.TypeA, want)
		testkit.WantNone(t, w.why(name), "Google", "suspected")
	}
}

// Lists on disk are in force before the first contact, of CoreDNS and of a relay behind a relay.
// Whose words they are is known then, too.
func TestGooglesAdvisorySurvivesARestartWithoutAServer(t *testing.T) {
	w := threatened(t, "evil.example.com/")
	up := w.behindRelays(1, protocol.DialectWebRisk, "")
	settings := relaySettings(up.URL, t.TempDir())
	second := func() *relay.Relay {
		r, err := newRelay(settings, "127.0.0.1:0")
		testkit.Must(t, err)
		testkit.Until(w.t, "the lists of the second relay", r.Ready)
		return r
	}
	second().Close()
	w.start(w.corefile("explain"))
	const warning = "warning=suspected, not confirmed (Web Risk); advisory provided by Google, " + onWebRisk
	testkit.Until(w.t, "the lists", func() bool { return strings.Contains(w.why("evil.example.com"), warning) })
	w.stop()
	up.Close()
	w.start(w.corefile("explain"))
	testkit.WantParts(t, w.why("evil.example.com"), warning)
	r := second()
	defer r.Close()
	for _, path := range []string{"/v5/hashLists", "/v5/hashList/se-4b", "/v5/hashLists:batchGet?names=se-4b", "/v5/hashes:search?hashPrefixes=AAAAAA=="} {
		answer := httptest.NewRecorder()
		r.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		testkit.Equal(t, path+": expected the header of Web Risk", answer.Header().Get("Safebrowsing-Advisory"), onWebRisk)
	}
}
