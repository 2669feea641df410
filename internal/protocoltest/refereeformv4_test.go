package protocoltest

import (
	"net/http"
	"net/url"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
)

// The form that version 4 shares with version 5 is in TestRefereeReportsImpoliteRequests.
func TestRefereeReportsImpoliteRequestsOfV4(t *testing.T) {
	m := &sbv4.FetchThreatListUpdatesRequest{Client: clientInfo(), ListUpdateRequests: []*listRequest{request("se-4b", nil)}}
	spy := proto.CloneOf(m)
	spy.Client.ClientVersion = secret
	for _, tt := range []struct {
		name    string
		message *sbv4.FetchThreatListUpdatesRequest
		change  func(r *http.Request)
		rule    string // empty: legal
		status  int
	}{
		{"legal", m, unchanged, "", 200},
		{"key elsewhere in the URL", m, adding("x=" + url.QueryEscape(secret)), "URL of the request fetch holds the key", 200},
		{"key in the body", spy, unchanged, "body of the request fetch holds the key", 200},
		{"GET", m, func(r *http.Request) { r.Method = "GET" }, "want POST", 405},
		{"no alt", m, func(r *http.Request) { r.URL.RawQuery = "" }, "alt=proto", 200},
		{"no content type", m, func(r *http.Request) { r.Header.Del("Content-Type") }, "content type", 200},
		{"JSON as content type", m, with("Content-Type", "application/json"), "content type", 200},
		{"another key", m, with("X-Goog-Api-Key", "x"), "", 403},
	} {
		inBubble(t, tt.name, func(b *bench) {
			b.SetKey(secret)
			r := politeV4(b.T, fetchPath, tt.message)
			r.Header.Set("X-Goog-Api-Key", secret)
			tt.change(r)
			b.wantAnswer(r, tt.status, tt.rule)
		})
	}
}
