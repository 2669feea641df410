package updater

import (
	"errors"
	"net/http"
)

// Renew ends the back-offs that the server caused by denying the credentials (status
// 401 or 403). Call it when the asker has new ones, but is the same for the server, as
// with a token that expires every hour. Minimum waits and other back-offs stay. The
// error is that of saving. It is safe for concurrent use.
func (s *Schedule) Renew() error {
	s.mu.Lock()
	s.askers++ // an answer that is still under way is about the old credentials
	denied := s.state.Search.Denied
	s.mu.Unlock()
	if denied {
		s.changeSearch(func(c *Clock) { *c = c.renewed() }, func(error) {}) // the change below reports any error
	}
	return s.change(func(state *scheduleState) {
		state.Fetch = state.Fetch.renewed()
		for name, list := range state.Lists {
			list.Clock = list.renewed()
			state.Lists[name] = list
		}
	})
}

// renewed is the clock with new credentials.
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
