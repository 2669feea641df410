package protocoltest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
)

func TestRefereeReportsImpoliteRequestsOfV4(t *testing.T) {
	const key = "secret key/1"
	m := &sbv4.FetchThreatListUpdatesRequest{Client: clientInfo(), ListUpdateRequests: []*listRequest{request("se-4b", nil)}}
	spy := proto.CloneOf(m)
	spy.Client.ClientVersion = key
	tests := []struct {
		name    string
		message *sbv4.FetchThreatListUpdatesRequest
		change  func(r *http.Request)
		rule    string // empty: legal
		status  int
	}{
		{"legal", m, func(*http.Request) {}, "", 200},
		{"key as parameter", m, func(r *http.Request) { r.URL.RawQuery += "&key=" + url.QueryEscape(key) }, "parameter key", 200},
		{"key elsewhere in the URL", m, func(r *http.Request) { r.URL.RawQuery += "&x=" + url.QueryEscape(key) }, "URL of the request fetch holds the key", 200},
		{"key in the body", spy, func(*http.Request) {}, "body of the request fetch holds the key", 200},
		{"GET", m, func(r *http.Request) { r.Method = "GET" }, "want POST", 405},
		{"cookie", m, func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "a", Value: "b"}) }, "cookies", 200},
		{"Go's User-Agent", m, func(r *http.Request) { r.Header.Set("User-Agent", "Go-http-client/2.0") }, "User-Agent", 200},
		{"no alt", m, func(r *http.Request) { r.URL.RawQuery = "" }, "alt=proto", 200},
		{"no content type", m, func(r *http.Request) { r.Header.Del("Content-Type") }, "content type", 200},
		{"JSON as content type", m, func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }, "content type", 200},
		{"redirect followed", m, func(r *http.Request) { r.Header.Set("Referer", "https://sb.test/") }, "redirect", 200},
		{"another key", m, func(r *http.Request) { r.Header.Set("X-Goog-Api-Key", "x") }, "", 403},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(b *bench) {
			b.SetKey(key)
			r := politeV4(b.T, fetchPath, tt.message)
			r.Header.Set("X-Goog-Api-Key", key)
			tt.change(r)
			resp, err := b.RoundTrip(r)
			if err != nil || resp.StatusCode != tt.status {
				b.Fatalf("got %v, %v, want status %d", resp, err, tt.status)
			}
			resp.Body.Close()
			got := b.violations.take()
			if tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
			if strings.Contains(strings.Join(got, ""), key) {
				b.Errorf("the key is in %q", got)
			}
		})
	}
}
