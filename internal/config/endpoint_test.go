package config

import (
	"slices"
	"strings"
	"testing"

	plugintls "github.com/coredns/coredns/plugin/pkg/tls"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// certificate returns a certificate in PEM.
func certificate(t *testing.T) string {
	t.Helper()
	cert, _ := testkit.Certificate(t, t.TempDir())
	return testkit.Read(t, cert)
}

func TestEndpointsAreReadInTheirOrder(t *testing.T) {
	ca := writeFile(t, t.TempDir(), "ca.pem", certificate(t))
	c, err := stanza(t, "safebrowsing {\napi_key K\ndb off\nendpoint https://b.example/ https://a.example:8443/x http://10.0.0.1\ntls "+ca+"\n}")
	if err != nil {
		t.Fatal(err)
	}
	if got := settings(c).Endpoints(); !slices.Equal(got, []string{"https://b.example", "https://a.example:8443/x", "http://10.0.0.1"}) {
		t.Errorf("Got %q", got)
	}
	if !strings.HasPrefix(c.CA, "-----BEGIN CERTIFICATE") || settings(c).Google() {
		t.Errorf("Got %q, google %v", c.CA, settings(c).Google())
	}
	client, err := settings(c).Client("K", new(lookup.Database), nil)
	if _, ok := client.(*protocol.Failover); !ok || err != nil {
		t.Errorf("Expected a client of several endpoints, got %T, %v", client, err)
	}
	one, err := settings(c).At("https://b.example").Client("K", new(lookup.Database), nil)
	if _, ok := one.(*protocol.V5); !ok || err != nil {
		t.Errorf("Expected a client of one endpoint, got %T, %v", one, err)
	}
}

// As the words tls of forward and grpc: plugin/pkg/tls, NewTLSConfigFromArgs.
func TestTLSTakesTheFilesOfForwardInItsOrder(t *testing.T) {
	dir := t.TempDir()
	ca := writeFile(t, dir, "ca.pem", certificate(t))
	cert, key := testkit.Certificate(t, dir)
	for args, want := range map[string]struct{ ours, theirs bool }{
		"": {}, ca: {theirs: true}, cert + " " + key: {ours: true}, cert + " " + key + " " + ca: {true, true},
	} {
		c, err := stanza(t, "safebrowsing {\ndb off\nendpoint https://a.example\ntls "+args+"\n}")
		if err != nil || (c.Cert == cert && c.CertKey == key) != want.ours || (c.Cert == "") == want.ours || (c.CA != "") != want.theirs {
			t.Errorf("tls %s: Expected %+v, got %+v and %d bytes of authorities, %v", args, want, c.Cert, len(c.CA), err)
		}
		theirs, err := plugintls.NewTLSConfigFromArgs(strings.Fields(args)...)
		if err != nil || (len(theirs.Certificates) > 0) != want.ours || (theirs.RootCAs != nil) != want.theirs {
			t.Errorf("tls %s: Expected %+v of CoreDNS, got %d certificates and authorities %v, %v", args, want, len(theirs.Certificates), theirs.RootCAs, err)
		}
	}
}

func TestFlagsBecomeTheLineOfTLS(t *testing.T) {
	for flags, want := range map[[2]string]string{
		{"", ""}: "", {"", "ca"}: "tls ca", {"cert,key", ""}: "tls cert key", {"cert,key", "ca"}: "tls cert key ca",
	} {
		if line, err := TLSLine(flags[0], flags[1]); err != nil || strings.Join(line, " ") != want {
			t.Errorf("%q: Expected %q, got %q, %v", flags, want, line, err)
		}
	}
	for _, flag := range []string{"cert", "cert,key,ca"} {
		if line, err := TLSLine(flag, ""); err == nil || !strings.Contains(err.Error(), "two files with a comma") {
			t.Errorf("-endpoint-cert %s: Expected to be told of two files, got %q, %v", flag, line, err)
		}
	}
}

func TestEndpointsThatAreNotOneServiceOfOnesOwnAreRefused(t *testing.T) {
	t.Setenv(KeyVariable, "")
	dir := t.TempDir()
	ca := writeFile(t, dir, "ca.pem", certificate(t))
	text := writeFile(t, dir, "text", "no certificate\n")
	empty := writeFile(t, dir, "empty", "")
	cert, key := testkit.Certificate(t, dir)
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
		{"api_key K\nendpoint https://10.0.0.1 https://10.0.0.2\nprotocol webrisk\nbudget 5", "protocol webrisk asks one server"},
		{"endpoint https://a.example\ntls /no/such/file", "no such file"},
		{"endpoint https://a.example\ntls " + text, "text: there is no certificate in PEM"},
		{"endpoint https://a.example\ntls " + empty, "empty is empty"},
		{"endpoint https://a.example\ntls " + large, "has more than 1048576 bytes"},
		{"endpoint http://10.0.0.1\ntls " + ca, "tls has no effect: no endpoint begins with https://"},
		{"endpoint https://a.example\ntls " + ca + " " + text, "failed to find any PEM data in key input"},
		{"endpoint https://a.example\ntls " + ca + " /no/such/file", "no such file"},
		{"endpoint http://10.0.0.1\ntls " + cert + " " + key, "tls has no effect: no endpoint begins with https://"},
		{"api_key K\ntls " + cert + " " + key, "tls is for a server of your own"},
		{"api_key K\ntls " + ca, "tls is for a server of your own"},
	} {
		_, err := stanza(t, "safebrowsing {\ndb off\n"+tc.text+"\n}")
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "Testfile:") {
			t.Errorf("%q: Expected an error with place and %q, got %v", tc.text, tc.want, err)
		}
	}
}
