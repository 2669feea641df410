package updater

import (
	"errors"
	"net/http"
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
		inBubble(t, name, func(t *testing.T) {
			dir := t.TempDir()
			s := askedWith(t, dir, "")
			must(t, begin(t, s, se).failed(time.Now(), 0, nil, nil, tc.err))
			for range searchStrikes {
				must(t, searched(s, time.Now(), tc.err))
				time.Sleep(time.Second)
			}
			if !s.SearchHold().Active(time.Now()) {
				t.Fatal("Expected searches to pause")
			}
			must(t, s.Renew())
			s.Flush()
			for when, s := range map[string]*Schedule{"at once": s, "after a restart": askedWith(t, dir, "")} {
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

func TestANewTokenKeepsMinimumWaits(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		s := askedWith(t, t.TempDir(), "")
		must(t, begin(t, s, se).answered(time.Now(), time.Hour, nil))
		must(t, s.Renew())
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
			s := askedWith(t, dir, "")
			fail := func(s *Schedule) { must(t, begin(t, s, se).failed(time.Now(), 0, nil, nil, errForbidden)) }
			fail(s)
			s.disown()
			time.Sleep(time.Second)
			must(t, s.Renew())
			if tc.later { // another process has the folder for a while
				time.Sleep(time.Hour)
				fail(askedWith(t, dir, ""))
			}
			loadErr, saveErr := s.own()
			must(t, errors.Join(loadErr, saveErr))
			for when, s := range map[string]*Schedule{"at once": s, "after a restart": askedWith(t, dir, "")} {
				if left := max(0, time.Until(s.due([]string{se}))); (left > 0) != (tc.wait > 0) {
					t.Errorf("%s: Expected %s left, got %s", when, tc.wait, left)
				}
			}
		})
	}
}
