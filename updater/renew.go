package updater

import (
	"errors"
	"net/http"
	"time"
)

// One access token follows another while the asker stays the same. Another API key is
// another asker, with clocks of its own: Rekey is for that.

// Renew continues with another access token, see Origin.Token. It ends the back-offs
// that the server caused by denying the last one (status 401 or 403). For the server the
// asker is the same, so minimum waits and other back-offs stay. The error is that of
// saving. It is safe for concurrent use.
func (s *Schedule) Renew(token string) error {
	s.mu.Lock()
	if s.token == token && s.state.Token == token {
		s.mu.Unlock()
		return nil
	}
	s.token = token
	s.askers++ // an answer that is still under way is about the last token
	search := s.state.Search
	s.mu.Unlock()
	if search.Denied || search.Asking {
		s.changeSearch(func(c *Clock) { *c = c.withdrawn().renewed() }, func(error) {}) // the change below reports any error
	}
	return s.change(func(state *scheduleState) { state.renewedBy(token) })
}

// renewedBy switches the state to another token, unless it is that one's already.
func (s *scheduleState) renewedBy(token string) {
	if token == "" || s.Token == token {
		return
	}
	// Clocks of other askers stay: the token says nothing about their keys.
	s.Token = token
	s.Fetch, s.Search = s.Fetch.renewed(), s.Search.renewed()
	for name, list := range s.Lists {
		list.Clock = list.renewed()
		s.Lists[name] = list
	}
}

// withdrawn is the clock without the search that was noted as failed before it was sent.
func (c Clock) withdrawn() Clock {
	if c.Asking {
		c.Asking, c.NotBefore, c.Failures = false, time.Time{}, max(0, c.Failures-1)
	}
	return c
}

// renewed is the clock with a new token.
func (c Clock) renewed() Clock {
	if !c.Denied {
		return c
	}
	return Clock{Wait: c.Wait}
}

// denied reports whether the server denied the credentials.
func denied(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && (status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden)
}
