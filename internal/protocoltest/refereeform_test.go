package protocoltest

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// secret is the key, or the token, of the tests in this file.
const secret = "secret key/1"

// wantAnswer sends a request, and checks the status of the answer, 0 for any, and that one violation
// was reported that names a rule, "" for none, and does not tell the secret.
func (b *bench) wantAnswer(r *http.Request, status int, rule string) {
	b.Helper()
	resp, err := b.RoundTrip(r)
	if err != nil || status != 0 && resp.StatusCode != status {
		b.Fatalf("got %v, %v, want status %d", resp, err, status)
	}
	resp.Body.Close()
	got := strings.Join(b.violations.take(), "\n")
	if (got == "") != (rule == "") || !strings.Contains(got, rule) || strings.Contains(got, "\n") {
		b.Errorf("violations %q, want one that names %q, or none", got, rule)
	}
	if strings.Contains(got, secret) {
		b.Errorf("the key is in %q", got)
	}
}

func unchanged(*http.Request) {}

// adding adds parameters to a request.
func adding(query string) func(r *http.Request) {
	return func(r *http.Request) { r.URL.RawQuery += "&" + query }
}

// with sets a header of a request.
func with(name, value string) func(r *http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func TestRefereeReportsImpoliteRequests(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(r *http.Request)
		rule   string
	}{
		{"key as parameter", adding("key=" + url.QueryEscape(secret)), "parameter key"},
		{"key elsewhere in the URL", adding("x=" + url.QueryEscape(secret)), "holds the key"},
		{"POST", func(r *http.Request) { r.Method = "POST" }, "want GET"},
		{"body", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("x")) }, "body"},
		{"cookie", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "a", Value: "b"}) }, "cookies"},
		{"no User-Agent", func(r *http.Request) { r.Header.Del("User-Agent") }, "User-Agent"},
		{"Go's User-Agent", with("User-Agent", "Go-http-client/2.0"), "User-Agent"},
		{"no alt", func(r *http.Request) { r.URL.RawQuery = "hashPrefixes=YWFhYQ" }, "alt=proto"},
		{"redirect followed", with("Referer", "https://sb.test/"), "redirect"},
		{"clear-text search", func(r *http.Request) { r.URL.Path = "/v5/urls:search" }, "clear text"},
		{"not base64", func(r *http.Request) { r.URL.RawQuery = "alt=proto&hashPrefixes=++/%2BAA==" }, "not base64"},
	} {
		inBubble(t, tt.name, func(b *bench) {
			b.SetKey(secret)
			r := polite(b.T, "/v5/hashes:search", url.Values{"hashPrefixes": {"YWFhYQ=="}})
			r.Header.Set("X-Goog-Api-Key", secret)
			tt.change(r)
			b.wantAnswer(r, 0, tt.rule)
		})
	}
	inBubble(t, "wrong key", func(b *bench) {
		b.SetKey(secret)
		if err := b.search("aaaa"); err == nil || err.Error() != "status 403" {
			b.Errorf("got %v, want status 403", err)
		}
		b.want("")
	})
	inBubble(t, "key as list name", func(b *bench) {
		b.SetKey("secretkey")
		b.lists([][]byte{{1}}, "secretkey")
		if got := strings.Join(b.violations.take(), ""); got == "" || strings.Contains(got, "secretkey") {
			b.Errorf("got %q, want violations without the key", got)
		}
	})
}

func TestRefereeReportsImpoliteRequestsOfWebRisk(t *testing.T) {
	inKey, inToken := with("X-Goog-Api-Key", secret), with("Authorization", "Bearer "+secret)
	for _, tt := range []struct {
		name         string
		token        bool // else a key is wanted
		sent, change func(r *http.Request)
		rule         string // empty: legal
		status       int
	}{
		{"key", false, inKey, unchanged, "", 200},
		{"token", true, inToken, unchanged, "", 200},
		{"token instead of a key", false, inToken, unchanged, "without a key", 403},
		{"key instead of a token", true, inKey, unchanged, "without an access token", 401},
		{"no key", false, unchanged, unchanged, "without a key", 403},
		{"another key", false, with("X-Goog-Api-Key", "x"), unchanged, "", 403},
		{"key as parameter", false, inKey, adding("key=" + url.QueryEscape(secret)), "parameter key", 200},
		{"token as parameter", true, inToken, adding("access_token=" + url.QueryEscape(secret)), "parameter access_token", 200},
		{"key elsewhere in the URL", false, inKey, adding("x=" + url.QueryEscape(secret)), "holds the key", 200},
		{"POST", false, inKey, func(r *http.Request) { r.Method = "POST" }, "want GET", 405},
		{"clear-text search", false, inKey, func(r *http.Request) { r.URL.Path = "/v1/uris:search" }, "Web Risk, methods", 404},
	} {
		inBubble(t, tt.name, func(b *bench) {
			for _, token := range []bool{!tt.token, tt.token} { // the later one counts
				if token {
					b.SetToken(secret)
				} else {
					b.SetKey(secret)
				}
			}
			r := politeRisk(b.T, diffPath, diffValues("se-4b", nil))
			tt.sent(r)
			tt.change(r)
			b.wantAnswer(r, tt.status, tt.rule)
		})
	}
	inBubble(t, "violations hide the token", func(b *bench) {
		b.SetToken("secret")
		b.diffWith("se-4b", nil, func(v url.Values) { v.Add("threatType", "secret") })
		if got := strings.Join(b.violations.take(), ""); !strings.Contains(got, `["[key]"]`) || strings.Contains(got, "secret") {
			b.Errorf("got %q, want [key] instead of the secret", got)
		}
	})
}

func TestRefereeKnowsAClientByItsCredential(t *testing.T) {
	sent := func(b *bench, name, value string) {
		r := politeRisk(b.T, diffPath, diffValues("se-4b", nil))
		r.Header.Set(name, value)
		if resp, err := b.RoundTrip(r); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	key := func(b *bench, value string) { sent(b, "X-Goog-Api-Key", value) }
	token := func(b *bench, value string) { sent(b, "Authorization", "Bearer "+value) }
	tokens := func(status int, second string) func(b *bench) {
		return func(b *bench) { b.Break("", 1, Fault{Status: status}); token(b, "a"); token(b, second) }
	}
	judged(t, inBubble,
		act{"the same key", func(b *bench) { key(b, "a"); key(b, "a") }, "next diff"},
		act{"another key", func(b *bench) { key(b, "a"); key(b, "b") }, ""},
		act{"the first key again", func(b *bench) { key(b, "a"); key(b, "b"); key(b, "a") }, "next diff"},
		act{"a new token", func(b *bench) { token(b, "a"); token(b, "b") }, "next diff"},
		act{"a new token after a failure", tokens(500, "b"), "back-off"},
		act{"a new token after one that was refused", tokens(401, "b"), ""},
		act{"the same token after it was refused", tokens(401, "a"), "back-off"},
		act{"a token instead of a key", func(b *bench) { key(b, "a"); token(b, "a") }, ""})
}
