package config

import (
	"encoding/pem"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy"

	"github.com/coredns-safebrowsing/safebrowsing/internal/certtest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// certificate returns a certificate in PEM.
func certificate(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

func TestEndpointsAreReadInTheirOrder(t *testing.T) {
	ca := writeFile(t, t.TempDir(), "ca.pem", certificate(t))
	c, err := stanza(t, "safebrowsing {\napi_key K\ndb off\nendpoint https://b.example/ https://a.example:8443/x http://10.0.0.1\nendpoint_ca "+ca+"\n}")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Endpoints(); !slices.Equal(got, []string{"https://b.example", "https://a.example:8443/x", "http://10.0.0.1"}) {
		t.Errorf("Got %q", got)
	}
	if !strings.HasPrefix(c.CA, "-----BEGIN CERTIFICATE") || c.Google() {
		t.Errorf("Got %q, google %v", c.CA, c.Google())
	}
	client, err := c.Client("K", new(lookup.Database), nil)
	if _, ok := client.(*protocol.Failover); !ok || err != nil {
		t.Errorf("Expected a client of several endpoints, got %T, %v", client, err)
	}
	one, err := c.At("https://b.example").Client("K", new(lookup.Database), nil)
	if _, ok := one.(*protocol.V5); !ok || err != nil {
		t.Errorf("Expected a client of one endpoint, got %T, %v", one, err)
	}
}

func TestEndpointsThatAreNotOneServiceOfOnesOwnAreRefused(t *testing.T) {
	t.Setenv(KeyVariable, "")
	dir := t.TempDir()
	ca := writeFile(t, dir, "ca.pem", certificate(t))
	text := writeFile(t, dir, "text", "no certificate\n")
	empty := writeFile(t, dir, "empty", "")
	cert, key := certtest.Pair(t, dir)
	large := writeFile(t, dir, "large", certificate(t)+strings.Repeat("#", maxCA))
	for _, tc := range []struct{ text, want string }{
		{"endpoint http://10.0.0.1 https://safebrowsing.googleapis.com", "https://safebrowsing.googleapis.com cannot be one of several"},
		{"endpoint https://webrisk.googleapis.com http://10.0.0.1", "cannot be one of several"},
		{"endpoint http://10.0.0.1 http://10.0.0.1/", "http://10.0.0.1 is given more than once"},
		{"endpoint http://10.0.0.1, http://10.0.0.2", "without commas"},
		{"endpoint http://10.0.0.1 ftp://10.0.0.2", `"ftp://10.0.0.2": the endpoint must be a URL such as`},
		{"endpoint http://10.0.0.1 http://10.0.0.2:99999", `"http://10.0.0.2:99999": the port`},
		{"api_key K\nendpoint https://a.example http://b.example", "would send the API key in clear text"},
		{"endpoint https://a.example http://b.example", "http://b.example: http to several servers is for your own network"},
		{"endpoint http://10.0.0.1 http://10.0.0.2\nprotocol v4", "protocol v4 asks one server"},
		{"api_key K\nendpoint https://10.0.0.1 https://10.0.0.2\nprotocol webrisk\nbudget 5", "protocol webrisk asks one server"},
		{"endpoint https://a.example\nendpoint_ca /no/such/file", "no such file"},
		{"endpoint https://a.example\nendpoint_ca " + text, "text: there is no certificate in PEM"},
		{"endpoint https://a.example\nendpoint_ca " + empty, "empty is empty"},
		{"endpoint https://a.example\nendpoint_ca " + large, "has more than 1048576 bytes"},
		{"endpoint http://10.0.0.1\nendpoint_ca " + ca, "endpoint_ca has no effect: no endpoint begins with https://"},
		{"endpoint https://a.example\nendpoint_cert " + ca + " " + text, "failed to find any PEM data in key input"},
		{"endpoint https://a.example\nendpoint_cert " + ca + " /no/such/file", "no such file"},
		{"endpoint http://10.0.0.1\nendpoint_cert " + cert + " " + key, "endpoint_cert has no effect: no endpoint begins with https://"},
		{"api_key K\nendpoint_cert " + cert + " " + key, "endpoint_cert is for a server of your own"},
		{"api_key K\nendpoint_ca " + ca, "endpoint_ca is for a server of your own"},
	} {
		_, err := stanza(t, "safebrowsing {\ndb off\n"+tc.text+"\n}")
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "Testfile:") {
			t.Errorf("%q: Expected an error with place and %q, got %v", tc.text, tc.want, err)
		}
	}
}

func TestServerBlocksWithSomeEndpointsInCommonAreRefused(t *testing.T) {
	with := func(key, endpoints string) Config {
		return Config{Online: true, Secret: key, Settings: Settings{APIKey: key, Protocol: protocol.DialectV5, Endpoint: endpoints}}
	}
	for _, tc := range []struct {
		first, again Config
		want         string
	}{
		{with("", "http://a http://b"), with("", "http://a http://b"), ""},
		{with("", "http://a http://b"), with("", "http://c http://d"), ""},
		{with("K", "http://a http://b"), with("L", "http://b http://a"), ""},
		{with("", "http://a http://b"), with("", "http://b"), "asks http://b with the same key and other endpoints"},
		{with("", "http://b"), with("", "http://a http://b"), "asks http://b with"},
		{with("", "http://a http://b"), with("", "http://b http://a"), "in the same order"},
	} {
		c := caddy.NewTestController("dns", "")
		if err := Claim(c, &tc.first); err != nil {
			t.Fatal(err)
		}
		if err := Claim(c, &tc.again); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q after %q: Expected %q, got %v", tc.again.Endpoint, tc.first.Endpoint, tc.want, err)
		}
	}
}

func TestTheOriginOfSeveralEndpointsIsTheirSet(t *testing.T) {
	of := func(endpoints string) Settings { return Settings{Protocol: protocol.DialectV5, Endpoint: endpoints} }
	ab, ba := of("http://a http://b"), of("http://b http://a")
	if ab.Origin("K").Name != ba.Origin("K").Name || ab.Identity() != ba.Identity() || ab.Origin("K").Asker != ba.Origin("K").Asker {
		t.Error("Expected the order not to matter")
	}
	if ab.Address() != "http://a http://b" || ba.Address() != "http://b http://a" {
		t.Error("Expected the address to keep the order")
	}
	for _, tc := range []struct {
		now, before string
		want        bool
	}{
		{"http://a http://b", "http://a", true},
		{"http://a", "http://a http://b", true},
		{"http://a http://b", "http://b http://c", true},
		{"http://a http://b", "http://c", false},
		{"http://a http://b", "http://a v4", false},
		{"http://a", "http://b", false},
		{"http://a http://b", "http://aa", false},
	} {
		if got := of(tc.now).Origin("").Related(tc.before); got != tc.want {
			t.Errorf("%q after %q: Expected %v, got %v", tc.now, tc.before, tc.want, got)
		}
	}
}
