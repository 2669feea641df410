package protocoltest

import (
	"net/http"
	"strings"
)

// clocks are what the rules of request frequency demand of those who ask with one
// key. Another key is another client: it starts with a first contact of its own.
type clocks struct {
	backoffs  backoffs
	lists     map[string]listClock // of v5
	riskLists map[string]listClock
}

// as has the referee judge those who ask with a key or an access token from now on. A
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
