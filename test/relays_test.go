package test

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
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
		s.Publish("se-4b", prefixesOf(expressions...))
		s.Publish("mw-4b", nil)
		s.Publish("uws-4b", nil)
		for _, e := range expressions {
			s.AddThreat(e, sbv5.ThreatType_SOCIAL_ENGINEERING)
		}
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
	testkit.Equal(t, "entries of all lists, with both URLs in the label endpoint", testkit.Metric(t, "list_entries", "endpoint", w.endpoint), 3)
}

// A relay with -tls-client-ca sees the certificate of tls, and a renewed one
// without a reload.
func TestTheCertificateOfTLSIsShownAndRenewed(t *testing.T) {
	w := newWorld(t)
	w.threaten("evil.example.com/", "evil.example.net/")
	var mu sync.Mutex
	var shown [][]byte
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		shown = append(shown, r.TLS.PeerCertificates[0].Raw)
		mu.Unlock()
		rw.Header().Set("Connection", "close") // each request needs a handshake
		w.google.ServeHTTP(rw, r)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	w.endpoint = server.URL
	dir := t.TempDir()
	ca := writeFile(t, dir, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	last := func(want string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		text, err := os.ReadFile(want)
		testkit.Must(t, err)
		block, _ := pem.Decode(text)
		if len(shown) == 0 || !bytes.Equal(shown[len(shown)-1], block.Bytes) {
			t.Errorf("Expected the last of %d requests to come with the certificate of the file", len(shown))
		}
	}
	cert, key := testkit.Certificate(t, dir)
	w.run("tls " + cert + " " + key + " " + ca)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	last(cert)
	testkit.Certificate(t, dir)
	w.wantBlocked("evil.example.net.", dns.TypeA, phishing)
	last(cert)
}
