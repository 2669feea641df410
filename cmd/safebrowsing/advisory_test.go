package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Commands name the service and its advisory as CoreDNS does, from what a relay said when it sent
// the lists.
func TestCommandsNameGooglesAdvisoryForWhatARelayOfGooglesSays(t *testing.T) {
	const onWebRisk = "https://cloud.google.com/web-risk/docs/advisory"
	for _, tc := range []struct{ name, header, words, advisory string }{
		{"no relay", "", " (Safe Browsing)", ""},
		{"a relay of Web Risk", onWebRisk, " (Web Risk); advisory provided by Google, " + onWebRisk, onWebRisk},
		{"words that are not in the table", "Advisory provided by Google, https://evil.example/", " (Safe Browsing)", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			relay := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if tc.header != "" {
					rw.Header().Set("Safebrowsing-Advisory", tc.header)
				}
				w.ServeHTTP(rw, r)
			}))
			defer relay.Close()
			w.endpoint = relay.URL
			if status, out, errOut := w.update(t); status != 0 {
				t.Fatalf("update: %d, %s%s", status, out, errOut)
			}
			w.ClientStarted()
			corefile := w.corefile(t, ".:1053 {\nsafebrowsing {\nendpoint ENDPOINT\ndb DB\nblock OWN(tested.example)\n}\n}\n")
			for _, args := range [][]string{{"check", "-db", w.dir, "www.evil.example"}, {"check", "-corefile", corefile, "www.evil.example"}} {
				if _, out, _ := invoke(t, args...); !strings.Contains(out, "    warning     suspected, not confirmed"+tc.words+"\n") {
					t.Errorf("%q: expected %q, got\n%s", args, tc.words, out)
				}
			}
			_, out, _ := invoke(t, "check", "-json", "-confirm", "-corefile", corefile, "www.evil.example", "tested.example")
			got := decode[checked](t, out)
			if len(got) != 2 || got[0].Warning != "suspected social engineering"+tc.words || got[1].Warning != "" {
				t.Errorf("Expected %q for the first name only, got\n%s", tc.words, out)
			}
			_, out, _ = invoke(t, "status", "-corefile", corefile)
			if named := strings.Contains(out, "Google cannot guarantee"); named != (tc.advisory != "") || !strings.Contains(out, tc.advisory) {
				t.Errorf("status: expected %q, got\n%s", tc.advisory, out)
			}
			_, out, _ = invoke(t, "status", "-json", "-corefile", corefile)
			if s := decode[standing](t, out); len(s) != 1 || len(s[0].Services) != 1 || s[0].Services[0].Advisory != tc.advisory {
				t.Errorf("status: expected %q, got\n%s", tc.advisory, out)
			}
		})
	}
}
