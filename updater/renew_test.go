package updater

import (
	"errors"
	"net/http"
	"reflect"
	"testing"
	"time"
)

func TestANewTokenEndsTheBackoffOfTheExpiredOne(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		wait  time.Duration // left after the renewal
		pause bool          // of searches, after the renewal
	}{
		"status 401":           {&StatusError{Code: http.StatusUnauthorized}, 0, false},
		"status 403":           {errForbidden, 0, false},
		"status 503":           {&StatusError{Code: http.StatusServiceUnavailable}, 15 * time.Minute, true},
		"status 429":           {&StatusError{Code: http.StatusTooManyRequests}, 15 * time.Minute, true},
		"the server is silent": {errors.New("timeout"), 15 * time.Minute, true},
	} {
		for way, renew := range renewals {
			inBubble(t, name+", "+way, func(t *testing.T) {
				dir := t.TempDir()
				s := askedWithToken(t, dir, "old")
				must(t, begin(t, s, se).failed(time.Now(), 0, nil, nil, tc.err))
				for range searchStrikes {
					must(t, searched(s, time.Now(), tc.err))
					time.Sleep(time.Second)
				}
				s.Flush()
				s = askedWithToken(t, dir, "old")
				if !s.SearchHold().Active(time.Now()) || time.Until(s.due([]string{se})) < 14*time.Minute {
					t.Fatal("Expected the back-offs to last over a restart with the same token")
				}
				s = renew(t, s, dir)
				s.Flush()
				for when, s := range map[string]*Schedule{"at once": s, "after a restart": askedWithToken(t, dir, "new")} {
					left := max(0, time.Until(s.due([]string{se}))+searchStrikes*time.Second)
					if (left > 0) != (tc.wait > 0) || left > tc.wait {
						t.Errorf("%s: Expected %s left for lists, got %s", when, tc.wait, left)
					}
					if s.SearchHold().Active(time.Now()) != tc.pause {
						t.Errorf("%s: Expected searches to pause: %t, got %+v", when, tc.pause, s.SearchHold())
					}
					s.Flush()
				}
			})
		}
	}
}

// renewals are the ways in which an asker gets the token "new" after "old".
var renewals = map[string]func(t *testing.T, s *Schedule, dir string) *Schedule{
	"while it runs": func(t *testing.T, s *Schedule, _ string) *Schedule {
		must(t, s.Renew("new", func() {}))
		return s
	},
	"between two runs": func(t *testing.T, s *Schedule, _ string) *Schedule {
		s.disown()
		must(t, s.Renew("new", func() {}))
		loadErr, saveErr := s.own()
		must(t, errors.Join(loadErr, saveErr))
		return s
	},
	"over a restart": func(t *testing.T, _ *Schedule, dir string) *Schedule { return askedWithToken(t, dir, "new") },
	"over a reload": func(t *testing.T, s *Schedule, dir string) *Schedule {
		next := askedWithToken(t, dir, "new")
		next.Follow(s)
		next.resume()
		next.hand.unfollow()
		return next
	},
	"over a reload without a store": func(t *testing.T, s *Schedule, _ string) *Schedule {
		first, second := newSchedule(nil), newSchedule(nil)
		for _, next := range []*Schedule{first, second} {
			next.state.Lists = map[string]ListClock{}
			next.Follow(s)
			must(t, next.Renew(map[*Schedule]string{first: "old", second: "new"}[next], func() {}))
			next.resume()
			next.hand.unfollow()
			if next == first && !next.SearchHold().Active(time.Now()) {
				t.Error("Expected the back-off to last over a reload with the same token")
			}
			s = next
		}
		return second
	},
}

// askedWithToken is askedWith for a token.
func askedWithToken(t *testing.T, dir, token string) *Schedule {
	t.Helper()
	store, err := OpenStore(dir, Origin{Name: testOrigin, Asker: Asker(testOrigin, ""), Token: token})
	must(t, err)
	s, err := NewSchedule(store)
	must(t, err)
	t.Cleanup(s.Flush)
	s.random = func() float64 { return 0 }
	loadErr, saveErr := s.own()
	must(t, errors.Join(loadErr, saveErr))
	return s
}

func TestANewTokenKeepsMinimumWaits(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		s := askedWith(t, t.TempDir(), "")
		must(t, begin(t, s, se).answered(time.Now(), time.Hour, nil))
		must(t, s.Renew("new", func() {}))
		wantDueIn(t, s, time.Hour)
	})
}

// The updater that ends with the old token and the one that begins with the new one are two
// owners of the file: between them it must not be written.
func TestARenewalBetweenTwoOwnersOfTheFileHolds(t *testing.T) {
	for name, tc := range map[string]struct {
		later bool // the new token is denied, too
		wait  time.Duration
	}{"of an expired token": {false, 0}, "not of a failure after it": {true, 15 * time.Minute}} {
		inBubble(t, name, func(t *testing.T) {
			dir := t.TempDir()
			s := askedWithToken(t, dir, "old")
			fail := func(s *Schedule) { must(t, begin(t, s, se).failed(time.Now(), 0, nil, nil, errForbidden)) }
			fail(s)
			s.disown()
			time.Sleep(time.Second)
			must(t, s.Renew("new", func() {}))
			if tc.later { // another process has the folder for a while
				time.Sleep(time.Hour)
				fail(askedWithToken(t, dir, "new"))
			}
			loadErr, saveErr := s.own()
			must(t, errors.Join(loadErr, saveErr))
			for when, s := range map[string]*Schedule{"at once": s, "after a restart": askedWithToken(t, dir, "new")} {
				if left := max(0, time.Until(s.due([]string{se}))); (left > 0) != (tc.wait > 0) {
					t.Errorf("%s: Expected %s left, got %s", when, tc.wait, left)
				}
			}
		})
	}
}

// A search that is noted as failed and under way has no answer that counts any more.
func TestANewTokenTakesTheNoteOfASearchBack(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		s := askedWithToken(t, t.TempDir(), "old")
		s.changeSearch(func(a *asked) {
			*a = a.noting(s.writer, 1, time.Now(), func(int) time.Duration { return 15 * time.Minute })
		}, func(error) {})
		asker := s.askerNow()
		must(t, s.Renew("new", func() {}))
		if hold := s.SearchHold(); hold.Active(time.Now()) || hold.Failures != 0 {
			t.Errorf("Expected searches to be allowed, got %+v", hold)
		}
		if s.askerNow() == asker {
			t.Error("Expected an answer about the old token not to count")
		}
		s.Flush()
	})
}

// A new token ends a back-off that the server caused by denying the last one, and nothing else.
func TestWhatANewTokenEnds(t *testing.T) {
	now := time.Now()
	denied := Clock{NotBefore: now, Failures: 3, Wait: time.Hour, Cause: "status 401", Failed: now, Denied: true}
	failed := Clock{NotBefore: now, Failures: 3, Wait: time.Hour, Cause: "status 500", Failed: now}
	ended := Clock{Wait: time.Hour}
	state := func(token string) *scheduleState {
		return &scheduleState{Token: token, clockSet: clockSet{Fetch: asked{Clock: denied}, Search: asked{Clock: denied}, Lists: map[string]ListClock{
			se: {Clock: denied, AtOnce: 2, Rejected: true, Updated: now, Alone: true}, "mw-4b": {Clock: failed},
		}}, Others: map[string]clockSet{"other": {Fetch: asked{Clock: denied}}}}
	}
	for _, test := range []struct {
		name, from, to string
		ends           bool
	}{{"another token", "old", "new", true}, {"the first token", "", "new", true}, {"the same token", "new", "new", false}, {"no token", "old", "", false}} {
		s, want := state(test.from), state(test.from)
		if test.ends {
			want = state(test.to)
			want.Fetch.Clock, want.Search.Clock = ended, ended
			want.Lists[se] = ListClock{Clock: ended, AtOnce: 2, Rejected: true, Updated: now, Alone: true}
		}
		if s.renewedBy(test.to); !reflect.DeepEqual(s, want) {
			t.Errorf("%s: %+v, want %+v", test.name, s, want)
		}
	}
}

// Until a schedule is known to be that of the token, answers that are under way do not count.
func TestATokenThatIsInForceAlreadyChangesNothing(t *testing.T) {
	for _, test := range []struct {
		token, saved string
		renews       bool
	}{{"new", "new", false}, {"new", "old", true}, {"old", "new", true}, {"old", "old", true}} {
		s, err := NewSchedule(nil)
		must(t, err)
		s.token, s.state.Token = test.token, test.saved
		s.state.Fetch.Clock = Clock{Failures: 1, Denied: true}
		asker := s.askerNow()
		must(t, s.Renew("new", func() {}))
		if renews := s.askerNow() != asker; renews != test.renews || s.token != "new" || s.state.Token != "new" {
			t.Errorf("from %q, saved %q: renews = %t, want %t; then %q, saved %q", test.token, test.saved, renews, test.renews, s.token, s.state.Token)
		}
		if over := s.state.Fetch.Failures == 0; over != (test.saved == "old") {
			t.Errorf("from %q, saved %q: the back-off is over: %t", test.token, test.saved, over)
		}
	}
}

// Only a clock of searches that the token may change is written.
func TestARenewalWritesTheClockOfSearchesThatItEnds(t *testing.T) {
	for _, test := range []struct {
		name  string
		clock Clock
		note  bool
		want  bool
	}{
		{"nothing to end", Clock{NotBefore: time.Now().Add(time.Hour), Failures: 1}, false, false},
		{"denied", Clock{NotBefore: time.Now().Add(time.Hour), Failures: 1, Denied: true}, false, true},
		{"under way", Clock{}, true, true},
	} {
		s := askedWithToken(t, t.TempDir(), "old")
		s.state.Search.Clock = test.clock
		if test.note {
			s.state.Search = s.state.Search.noting(s.writer, 1, time.Now(), func(int) time.Duration { return time.Hour })
		}
		must(t, s.Renew("new", func() {}))
		s.Flush()
		saved, wrote := savedClocks(t, s.store, "searches.json")
		if wrote != test.want || wrote && saved.Search.held().Failures != 0 {
			t.Errorf("%s: %+v, want it written: %t", test.name, saved, test.want)
		}
	}
}
