package protocoltest

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// secret is the key, or the token, of the tests in this file.
const secret = "secret key/1"

// sent is a request as it was sent, with an answer.
func (b *bench) sent(r *http.Request) {
	b.Helper()
	resp, err := b.RoundTrip(r)
	testkit.Must(b, err)
	resp.Body.Close()
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
	send := func(b *bench, change func(*http.Request)) {
		b.SetKey(secret)
		r := polite(b.T, "/v5/hashes:search", url.Values{"hashPrefixes": {"YWFhYQ=="}})
		r.Header.Set("X-Goog-Api-Key", secret)
		change(r)
		b.sent(r)
	}
	judgedChanged(t, inBubble, send, []changed[*http.Request]{
		{"key as parameter", adding("key=" + url.QueryEscape(secret)), "parameter key", 0},
		{"key elsewhere in the URL", adding("x=" + url.QueryEscape(secret)), "holds the key", 0},
		{"POST", func(r *http.Request) { r.Method = "POST" }, "want GET", 0},
		{"body", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("x")) }, "body", 0},
		{"cookie", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "a", Value: "b"}) }, "cookies", 0},
		{"no User-Agent", func(r *http.Request) { r.Header.Del("User-Agent") }, "User-Agent", 0},
		{"Go's User-Agent", with("User-Agent", "Go-http-client/2.0"), "User-Agent", 0},
		{"no alt", func(r *http.Request) { r.URL.RawQuery = "hashPrefixes=YWFhYQ" }, "alt=proto", 0},
		{"redirect followed", with("Referer", "https://sb.test/"), "redirect", 0},
		{"clear-text search", func(r *http.Request) { r.URL.Path = "/v5/urls:search" }, "clear text", 0},
		{"not base64", func(r *http.Request) { r.URL.RawQuery = "alt=proto&hashPrefixes=++/%2BAA==" }, "not base64", 0},
	}...)
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
	send := func(set ...func(b *bench, secret string)) func(*bench, func(*http.Request)) {
		return func(b *bench, change func(*http.Request)) {
			for _, set := range set { // the later one counts
				set(b, secret)
			}
			r := politeRisk(b.T, diffPath, diffValues("se-4b", nil))
			change(r)
			b.sent(r)
		}
	}
	setKey, setToken := func(b *bench, secret string) { b.SetKey(secret) }, func(b *bench, secret string) { b.SetToken(secret) }
	both := func(one, two func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) { one(r); two(r) }
	}
	judgedChanged(t, inBubble, send(setToken, setKey), []changed[*http.Request]{
		{"key", inKey, "", 200},
		{"token instead of a key", inToken, "without a key", 403},
		{"no key", unchanged, "without a key", 403},
		{"another key", with("X-Goog-Api-Key", "x"), "", 403},
		{"key as parameter", both(inKey, adding("key="+url.QueryEscape(secret))), "parameter key", 200},
		{"key elsewhere in the URL", both(inKey, adding("x="+url.QueryEscape(secret))), "holds the key", 200},
		{"POST", both(inKey, func(r *http.Request) { r.Method = "POST" }), "want GET", 405},
		{"clear-text search", both(inKey, func(r *http.Request) { r.URL.Path = "/v1/uris:search" }), "Web Risk, methods", 404},
	}...)
	judgedChanged(t, inBubble, send(setKey, setToken), []changed[*http.Request]{
		{"token", inToken, "", 200},
		{"key instead of a token", inKey, "without an access token", 401},
		{"token as parameter", both(inToken, adding("access_token="+url.QueryEscape(secret))), "parameter access_token", 200},
	}...)
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
