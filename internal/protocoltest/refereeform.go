package protocoltest

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
)

// judgeForm judges what a request looks like, whatever it asks for. Its texts never
// quote the URL or the body, since those may hold the key.
func (r *referee) judgeForm(q *query, req *http.Request, key, token string) {
	if req.Response != nil || req.Referer() != "" {
		r.violation("API key", "%s follows a redirect, which could take the key elsewhere", q)
		return // its form is not the client's choice
	}
	r.judgeKey(q, req, key+token) // one of them is empty
	if q.webRisk() {
		r.judgeCredential(q, req, key, token)
	}
	r.judgePath(q, req)
	r.judgeBody(q, req)
	if len(req.Header["Cookie"]) > 0 {
		r.violation("Privacy", "%s came with cookies", q)
	}
	if agent := req.UserAgent(); agent == "" || strings.HasPrefix(agent, "Go-http-client/") {
		r.violation("Client identity", "%s does not name its software in User-Agent, which is %q", q, agent)
	}
	if values := req.URL.Query(); !strings.HasPrefix(req.URL.Path, webRiskPath) && values.Get("alt") != "proto" && values.Get("$alt") != "proto" {
		r.violation("Answer format", "%s does not ask for alt=proto", q)
	}
}

// judgeKey judges where the key or the access token stands: in its header and nowhere
// else.
func (r *referee) judgeKey(q *query, req *http.Request, key string) {
	values := req.URL.Query()
	switch {
	case values.Has("key") || values.Has("$key"):
		r.violation("API key", "the URL of %s has a parameter key; the key belongs in X-Goog-Api-Key", q)
	case values.Has("access_token") || values.Has("$access_token"):
		r.violation("API key", "the URL of %s has a parameter access_token; the token belongs in Authorization", q)
	case key != "" && urlHolds(req.URL, key):
		r.violation("API key", "the URL of %s holds the key", q)
	case key != "" && bytes.Contains(q.body, []byte(key)):
		r.violation("API key", "the body of %s holds the key", q)
	}
}

// judgeCredential judges whether a request of Web Risk, which is billed to somebody,
// comes with what identifies its account.
func (r *referee) judgeCredential(q *query, req *http.Request, key, token string) {
	if key != "" && req.Header.Get("X-Goog-Api-Key") == "" {
		r.violation("API key", "%s comes without a key in X-Goog-Api-Key", q)
	}
	if token != "" && !strings.HasPrefix(req.Header.Get("Authorization"), bearer) {
		r.violation("API key", "%s comes without an access token in Authorization", q)
	}
}

// urlHolds reports whether a secret stands in a URL, escaped or not.
func urlHolds(u *url.URL, secret string) bool {
	query, _ := url.QueryUnescape(u.RawQuery)
	return strings.Contains(u.String(), secret) || strings.Contains(u.Path, secret) ||
		strings.Contains(query, secret)
}

// judgeBody judges the HTTP method and the body that belongs to it.
func (r *referee) judgeBody(q *query, req *http.Request) {
	if req.Method != q.verb() {
		r.violation("REST reference", "%s came with method %s, want %s", q, req.Method, q.verb())
	}
	if judge := q.to().service.judgeBody; judge != nil && q.verb() == http.MethodPost {
		judge(r, q, req)
		return
	}
	if len(q.body) > 0 {
		r.violation("REST reference", "%s came with a body", q)
	}
	if q.undecoded != "" {
		r.violation("REST reference", "parameter %s of %s is not base64", q.undecoded, q)
	}
}

// clocks are what the rules of request frequency demand of those who ask with one
// key. Another key is another client: it starts with a first contact of its own.
type clocks struct {
	backoffs  backoffs
	lists     map[string]listClock // of v5
	riskLists map[string]listClock
}

// as makes the referee judge those who ask with a key or an access token from now on. A
// new token is no new client, since tokens are short-lived; it is one after a token
// that was refused, as with keys.
func (r *referee) as(key string) {
	if key == r.key {
		return
	}
	if strings.HasPrefix(key, bearer) && strings.HasPrefix(r.key, bearer) && !r.denied {
		r.key = key
		return
	}
	r.denied = false
	kept := clocks{backoffs: r.backoffs, lists: map[string]listClock{}, riskLists: map[string]listClock{}}
	for name, l := range r.lists {
		kept.lists[name] = l.v5
	}
	for name, l := range r.riskLists {
		kept.riskLists[name] = l.risk
	}
	if r.others == nil {
		r.others = map[string]clocks{}
	}
	r.others[r.key] = kept
	own := r.others[key]
	r.v4.as(r.key, key)
	r.key, r.backoffs = key, own.backoffs
	for name, l := range r.lists {
		l.v5 = own.lists[name]
	}
	for name, l := range r.riskLists {
		l.risk = own.riskLists[name]
	}
}

// deniesKey reports whether a status may mean that the key or the token is wrong.
func deniesKey(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusUnauthorized || status == http.StatusForbidden
}
