package updater

import (
	"maps"
	"slices"
)

// One access token follows another while the asker stays the same. Another API key is
// another asker, with clocks of its own: Rekey is for that.

// Renew continues with another access token, see Origin.Token. It ends the back-offs
// that the server caused by denying the last one (status 401 or 403). For the server the
// asker is the same, so minimum waits and other back-offs stay. use and the error are as in
// Rekey. It is safe for concurrent use.
func (s *Schedule) Renew(token string, use func()) error {
	s.mu.Lock()
	use()
	if s.token == token && s.state.Token == token {
		s.mu.Unlock()
		return nil
	}
	s.token = token
	s.askers++ // an answer that is still under way is about the last token
	search := s.state.Search.held()
	other := s.state.Token != token
	s.mu.Unlock()
	if other && (search.Denied || search.Asking) {
		s.changeSearch(func(a *asked) { // the change below reports any error
			*a, _ = a.answered(s.writer, a.Notes[s.writer].Number)
			a.Clock = a.renewed()
		}, func(error) {})
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
	s.Fetch.Clock, s.Search.Clock = s.Fetch.renewed(), s.Search.renewed()
	s.change(slices.Collect(maps.Keys(s.Lists)), func(list *ListClock) { list.Clock = list.renewed() })
}

// renewed is the clock with a new token.
func (c Clock) renewed() Clock {
	if !c.Denied {
		return c
	}
	return Clock{NotBefore: c.Besides, Wait: c.Wait, Attempt: c.Attempt}
}
