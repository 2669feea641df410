package config

import "testing"

// Which service confirms threats follows from the protocol. Google's words, which name
// Google, are for Google's servers only.
func TestServiceAndGooglesWordsFollowFromProtocolAndServer(t *testing.T) {
	const (
		onSafeBrowsing = "https://developers.google.com/safe-browsing/v4/advisory"
		onWebRisk      = "https://cloud.google.com/web-risk/docs/advisory"
		webRisk        = "protocol webrisk\nbudget unlimited\n"
	)
	for _, tc := range []struct{ text, address, service, advisory string }{
		{"", "https://safebrowsing.googleapis.com", "Safe Browsing", onSafeBrowsing},
		{"endpoint http://127.0.0.1:1", "http://127.0.0.1:1", "Safe Browsing", ""},
		{webRisk, "https://webrisk.googleapis.com", "Web Risk", onWebRisk},
		{webRisk + "endpoint https://webrisk.googleapis.com/", "https://webrisk.googleapis.com", "Web Risk", onWebRisk},
		{"endpoint https://safebrowsing.mtls.googleapis.com", "https://safebrowsing.mtls.googleapis.com", "Safe Browsing", onSafeBrowsing},
		{webRisk + "endpoint https://webrisk.mtls.googleapis.com", "https://webrisk.mtls.googleapis.com", "Web Risk", onWebRisk},
		{webRisk + "endpoint http://127.0.0.1:1", "http://127.0.0.1:1", "Web Risk", ""},
	} {
		c, err := stanza(t, "safebrowsing {\napi_key K\ndb off\n"+tc.text+"\n}")
		if err != nil || settings(c).Address() != tc.address || c.Reply.Service != tc.service || settings(c).Dialect().ProviderAt(c.Endpoint).Advisory != tc.advisory {
			t.Errorf("%q: Expected %q of %s with %q, got %q of %s with %q, %v", tc.text, tc.service, tc.address, tc.advisory, c.Reply.Service, settings(c).Address(), settings(c).Dialect().ProviderAt(c.Endpoint).Advisory, err)
		}
	}
}
