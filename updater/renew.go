package updater

import (
	"errors"
	"net/http"
	"time"
)

// Renew ends the back-offs that the server caused by denying the credentials (status
// 401 or 403). Call it when the asker has new ones, but is the same for the server, as
// with a token that expires every hour. Minimum waits and other back-offs stay. The
// error is that of saving. It is safe for concurrent use.
func (s *Schedule) Renew() error {
	now := time.Now()
	s.mu.Lock()
	s.askers++      // an answer that is still under way is about the old credentials
	s.renewed = now // own reads the file again, which may not be written now
	denied := s.state.Search.Denied
	s.mu.Unlock()
	if denied {
		s.changeSearch(func(c *Clock) { *c = c.renewed(now) }, func(error) {}) // the change below reports any error
	}
	return s.change(func(state *scheduleState) { state.renew(now) })
}

// renew continues with credentials that are new since a time.
func (s *scheduleState) renew(since time.Time) {
	s.Fetch = s.Fetch.renewed(since)
	for name, list := range s.Lists {
		list.Clock = list.renewed(since)
		s.Lists[name] = list
	}
}

// renewed is the clock with credentials that are new since a time.
func (c Clock) renewed(since time.Time) Clock {
	if !c.Denied || c.Failed.After(since) {
		return c
	}
	return Clock{Wait: c.Wait}
}

// denied reports whether the server denied the credentials.
func denied(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && (status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden)
}
