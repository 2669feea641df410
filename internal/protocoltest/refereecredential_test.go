package protocoltest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestRefereeReportsImpoliteRequestsOfWebRisk(t *testing.T) {
	const secret = "secret key/1"
	inKey := func(r *http.Request) { r.Header.Set("X-Goog-Api-Key", secret) }
	inToken := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secret) }
	add := func(query string) func(r *http.Request) {
		return func(r *http.Request) { r.URL.RawQuery += "&" + query }
	}
	tests := []struct {
		name   string
		token  bool // else a key is wanted
		sent   func(r *http.Request)
		change func(r *http.Request)
		rule   string // empty: legal
		status int
	}{
		{"key", false, inKey, nil, "", 200},
		{"token", true, inToken, nil, "", 200},
		{"token instead of a key", false, inToken, nil, "without a key", 403},
		{"key instead of a token", true, inKey, nil, "without an access token", 401},
		{"no key", false, nil, nil, "without a key", 403},
		{"no token", true, nil, nil, "without an access token", 401},
		{"another key", false, func(r *http.Request) { r.Header.Set("X-Goog-Api-Key", "x") }, nil, "", 403},
		{"another token", true, func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, nil, "", 401},
		{"token without scheme", true, func(r *http.Request) { r.Header.Set("Authorization", secret) }, nil, "without an access token", 401},
		{"key as parameter", false, inKey, add("key=" + url.QueryEscape(secret)), "parameter key", 200},
		{"token as parameter", true, inToken, add("access_token=" + url.QueryEscape(secret)), "parameter access_token", 200},
		{"key elsewhere in the URL", false, inKey, add("x=" + url.QueryEscape(secret)), "holds the key", 200},
		{"token elsewhere in the URL", true, inToken, add("x=" + url.QueryEscape(secret)), "holds the key", 200},
		{"POST", false, inKey, func(r *http.Request) { r.Method = "POST" }, "want GET", 405},
		{"clear-text search", false, inKey, func(r *http.Request) { r.URL.Path = "/v1/uris:search" }, "Web Risk, methods", 404},
		{"misspelt path", false, inKey, func(r *http.Request) { r.URL.Path = "/v1/threatLists/computeDiff" }, "Web Risk, methods", 404},
		{"cookie", false, inKey, func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "a", Value: "b"}) }, "cookies", 200},
		{"Go's User-Agent", false, inKey, func(r *http.Request) { r.Header.Set("User-Agent", "Go-http-client/2.0") }, "User-Agent", 200},
		{"redirect followed", false, inKey, func(r *http.Request) { r.Header.Set("Referer", "https://sb.test/") }, "redirect", 200},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(b *bench) {
			for _, token := range []bool{!tt.token, tt.token} { // the later one counts
				if token {
					b.SetToken(secret)
				} else {
					b.SetKey(secret)
				}
			}
			r := politeRisk(b.T, diffPath, diffValues("se-4b", nil))
			if tt.sent != nil {
				tt.sent(r)
			}
			if tt.change != nil {
				tt.change(r)
			}
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
			if strings.Contains(strings.Join(got, ""), secret) {
				b.Errorf("the key is in %q", got)
			}
		})
	}
}

func TestViolationsOfWebRiskHideTheSecret(t *testing.T) {
	for name, set := range map[string]func(b *bench){
		"key":   func(b *bench) { b.SetKey("secret") },
		"token": func(b *bench) { b.SetToken("secret") },
	} {
		inBubble(t, name, func(b *bench) {
			set(b)
			b.diffWith("se-4b", nil, func(v url.Values) { v.Add("threatType", "secret") })
			if got := strings.Join(b.violations.take(), ""); !strings.Contains(got, `["[key]"]`) || strings.Contains(got, "secret") {
				b.Errorf("got %q, want [key] instead of the secret", got)
			}
		})
	}
}

// sentWith is a RoundTripper that sends a header with every request.
type sentWith struct {
	*Server
	name, value string
}

func (s sentWith) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set(s.name, s.value)
	return s.Server.RoundTrip(r)
}

func TestRefereeKnowsAClientByItsCredential(t *testing.T) {
	with := func(b *bench, name, value string) {
		_, _ = diffRisk(b.T, sentWith{b.Server, name, value}, map[string]*copyOf{}, "se-4b")
	}
	key := func(b *bench, value string) { with(b, "X-Goog-Api-Key", value) }
	token := func(b *bench, value string) { with(b, "Authorization", "Bearer "+value) }
	tests := []struct {
		name string
		act  func(b *bench)
		rule string // empty: legal
	}{
		{"the same key", func(b *bench) { key(b, "a"); key(b, "a") }, "next diff"},
		{"another key", func(b *bench) { key(b, "a"); key(b, "b") }, ""},
		{"the first key again", func(b *bench) { key(b, "a"); key(b, "b"); key(b, "a") }, "next diff"},
		{"a new token", func(b *bench) { token(b, "a"); token(b, "b") }, "next diff"},
		{"a new token after a failure", func(b *bench) {
			b.Break("", 1, Fault{Status: 500})
			token(b, "a")
			token(b, "b")
		}, "back-off"},
		{"a new token after one that was refused", func(b *bench) {
			b.Break("", 1, Fault{Status: 401})
			token(b, "a")
			token(b, "b")
		}, ""},
		{"the same token after it was refused", func(b *bench) {
			b.Break("", 1, Fault{Status: 401})
			token(b, "a")
			token(b, "a")
		}, "back-off"},
		{"a token instead of a key", func(b *bench) { key(b, "a"); token(b, "a") }, ""},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(b *bench) {
			tt.act(b)
			if got := b.violations.take(); tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
		})
	}
}
