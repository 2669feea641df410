package protocoltest

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestRefereeReportsImpoliteRequests(t *testing.T) {
	const key = "secret key/1"
	tests := []struct {
		name   string
		change func(r *http.Request)
		rule   string
	}{
		{"key as parameter", func(r *http.Request) { r.URL.RawQuery += "&key=" + url.QueryEscape(key) }, "parameter key"},
		{"key elsewhere in the URL", func(r *http.Request) { r.URL.RawQuery += "&x=" + url.QueryEscape(key) }, "holds the key"},
		{"POST", func(r *http.Request) { r.Method = "POST" }, "want GET"},
		{"body", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("x")) }, "body"},
		{"cookie", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "a", Value: "b"}) }, "cookies"},
		{"no User-Agent", func(r *http.Request) { r.Header.Del("User-Agent") }, "User-Agent"},
		{"Go's User-Agent", func(r *http.Request) { r.Header.Set("User-Agent", "Go-http-client/2.0") }, "User-Agent"},
		{"no alt", func(r *http.Request) { r.URL.RawQuery = "hashPrefixes=YWFhYQ" }, "alt=proto"},
		{"redirect followed", func(r *http.Request) { r.Header.Set("Referer", "https://sb.test/") }, "redirect"},
		{"not base64", func(r *http.Request) { r.URL.RawQuery = "alt=proto&hashPrefixes=++/%2BAA==" }, "not base64"},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(b *bench) {
			b.SetKey(key)
			r := polite(b.T, "/v5/hashes:search", url.Values{"hashPrefixes": {"YWFhYQ=="}})
			r.Header.Set("X-Goog-Api-Key", key)
			tt.change(r)
			if resp, err := b.RoundTrip(r); err == nil {
				resp.Body.Close()
			}
			got := b.violations.take()
			wantOne(b.T, got, tt.rule)
			if strings.Contains(strings.Join(got, ""), key) {
				b.Errorf("the key is in %q", got)
			}
		})
	}
	inBubble(t, "wrong key", func(b *bench) {
		b.SetKey(key)
		if err := b.search("aaaa"); err == nil || err.Error() != "status 403" {
			b.Errorf("got %v, want status 403", err)
		}
		wantNone(b.T, b.violations.take())
	})
	inBubble(t, "key as list name", func(b *bench) {
		b.SetKey("secretkey")
		b.lists([][]byte{{1}}, "secretkey")
		if got := strings.Join(b.violations.take(), ""); got == "" || strings.Contains(got, "secretkey") {
			b.Errorf("got %q, want violations without the key", got)
		}
	})
}

func TestRefereeReportsAFollowedRedirect(t *testing.T) {
	inBubble(t, "http.Client", func(b *bench) {
		b.Break("search", 1, SearchFaults()["redirect"])
		client := http.Client{Transport: b.Server}
		resp, err := client.Do(polite(b.T, "/v5/hashes:search", url.Values{"hashPrefixes": {"YWFhYQ=="}}))
		if err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
		wantOne(b.T, b.violations.take(), "follows a redirect")
	})
}
