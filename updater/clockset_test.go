package updater

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// askedWith returns the schedule of a folder for somebody who asks with a key.
func askedWith(t *testing.T, dir, key string) *Schedule {
	t.Helper()
	return ownedBy(t, dir, Origin{Name: testOrigin, Asker: Asker(testOrigin, key)})
}

var errForbidden = &StatusError{Code: http.StatusForbidden, Message: "API key not valid"}

func TestABackoffIsOfTheKeyThatFailed(t *testing.T) {
	inBubble(t, "another key after a restart", func(t *testing.T) {
		dir := t.TempDir()
		wrong := askedWith(t, dir, "wrong")
		failedWith(t, wrong, errForbidden)
		wantDueIn(t, askedWith(t, dir, "wrong"), 15*time.Minute)
		right := askedWith(t, dir, "right")
		if due := right.due([]string{se}); due.After(time.Now()) {
			t.Errorf("the right key is held back until %s", due)
		}
		time.Sleep(time.Minute)
		wantDueIn(t, askedWith(t, dir, "wrong"), 14*time.Minute) // it comes back, and is no better than before
	})
	inBubble(t, "another key while it runs", func(t *testing.T) {
		dir := t.TempDir()
		s := askedWith(t, dir, "wrong")
		failedWith(t, s, errForbidden)
		must(t, s.Rekey(Asker(testOrigin, "right"), func() {}))
		if due := s.due([]string{se}); due.After(time.Now()) {
			t.Errorf("the right key is held back until %s", due)
		}
		must(t, s.Rekey(Asker(testOrigin, "wrong"), func() {}))
		wantDueIn(t, s, 15*time.Minute)
	})
	inBubble(t, "a pause of searches", func(t *testing.T) {
		dir := t.TempDir()
		s := askedWith(t, dir, "wrong")
		must(t, searched(s, time.Now(), errForbidden))
		if !s.SearchHold().Active(time.Now()) {
			t.Fatal("a refusal does not pause searches")
		}
		if s = askedWith(t, dir, "right"); s.SearchHold().Active(time.Now()) {
			t.Error("the right key does not search")
		}
	})
	inBubble(t, "the answer to a search with the old key", func(t *testing.T) {
		s := askedWith(t, t.TempDir(), "wrong")
		p := &pacedSearcher{schedule: s, rules: SearchRules{Backoff: Strikes}, searcher: failing(func() error {
			must(t, s.Rekey(Asker(testOrigin, "right"), func() {}))
			return errForbidden
		}), report: func(Event) {}}
		if _, err := p.Search(t.Context(), nil); err == nil {
			t.Fatal("want the refusal")
		}
		if s.SearchHold().Active(time.Now()) {
			t.Error("a refusal of the old key pauses searches with the new one")
		}
	})
}

func TestListsKeepTheirAgeWhenTheKeyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := askedWith(t, dir, "old")
		fetched := time.Now()
		success(t, s, begin(t, s, se), time.Hour)
		must(t, s.change(func(state *scheduleState) {
			state.change([]string{se}, func(list *ListClock) { list.Rejected = true })
		}))
		time.Sleep(time.Minute)
		s = askedWith(t, dir, "new")
		if got := s.list(se); !got.Updated.Equal(fetched) || !got.Rejected {
			t.Errorf("updated %s, want %s; to be fetched in full: %t", got.Updated, fetched, got.Rejected)
		}
		if due := s.due([]string{se}); due.After(time.Now()) {
			t.Errorf("due %s: the wait was given to the old key", due)
		}
	})
}

func TestAScheduleWithoutAskerIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := ownedSchedule(t, dir) // as written before keys were told apart
		failedWith(t, s, errTest)
		wantDueIn(t, askedWith(t, dir, "key"), 15*time.Minute)
	})
}

func TestOtherAskersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for i := range 3 * maxOthers {
			s := askedWith(t, dir, fmt.Sprint("key", i))
			failedWith(t, s, errForbidden)
			if n := len(s.state.Others); n > maxOthers {
				t.Fatalf("%d other askers are kept", n)
			}
		}
		time.Sleep(time.Hour)
		s := askedWith(t, dir, "last")
		if n := len(s.state.Others); n != 0 {
			t.Errorf("%d askers whose clocks have ended are kept", n)
		}
	})
}

func TestAnAskerTellsKeysApartAndTellsNone(t *testing.T) {
	const key = "AIzaSyExampleExampleExampleExampleExampl"
	a := Asker(testOrigin, key)
	if a == Asker(testOrigin, key+"e") || a == Asker("https://other.example", key) || a != Asker(testOrigin, key) {
		t.Errorf("%q does not tell keys and endpoints apart", a)
	}
	if len(a) != 8 || strings.Contains(key, a) {
		t.Errorf("%q says too much", a)
	}
}

func TestAHoldSaysWhy(t *testing.T) {
	inBubble(t, "back-off, over a restart", func(t *testing.T) {
		dir, failed := t.TempDir(), time.Now()
		s := ownedSchedule(t, dir)
		must(t, begin(t, s, se).failed(failed, 0, nil, nil, errForbidden))
		for _, s := range []*Schedule{s, ownedSchedule(t, dir)} {
			h := s.FetchHold([]string{se})
			if h.Failures != 1 || h.Cause != "status 403 Forbidden: API key not valid" || !h.Failed.Equal(failed) || !h.Until.Equal(failed.Add(15*time.Minute)) {
				t.Errorf("got %+v", h)
			}
		}
	})
	inBubble(t, "a list that failed its checks", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir())
		now := time.Now()
		rejected := []result{{list: List{Name: se}, kind: ListRejected, err: ErrChecksum}}
		must(t, begin(t, s, se).answered(now, 0, clocks(rejected, now, s)))
		if h := s.FetchHold([]string{se}); h.Failures != 1 || h.Cause != ErrChecksum.Error() {
			t.Errorf("got %+v", h)
		}
	})
	inBubble(t, "a crash", func(t *testing.T) {
		dir := t.TempDir()
		begin(t, ownedSchedule(t, dir), se)
		if h := newScheduleOf(t, openStore(t, dir)).FetchHold([]string{se}); h.Failures != 1 || !strings.Contains(h.Cause, "not answered yet") {
			t.Errorf("for an onlooker %+v", h)
		}
		if h := ownedSchedule(t, dir).FetchHold([]string{se}); h.Failures != 1 || !strings.Contains(h.Cause, "the process ended") {
			t.Errorf("for the next process %+v", h)
		}
	})
	inBubble(t, "searches", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir())
		for range 3 {
			must(t, searched(s, time.Now(), errTest))
			time.Sleep(time.Second)
		}
		if h := s.SearchHold(); h.Failures != 3 || h.Cause != errTest.Error() || !h.Active(time.Now()) {
			t.Errorf("got %+v", h)
		}
		time.Sleep(time.Hour)
		must(t, searched(s, time.Now(), nil))
		if h := s.SearchHold(); h.Active(time.Now()) || h.Failures != 0 || h.Cause != "" {
			t.Errorf("after a success %+v", h)
		}
	})
}

// failing is a searcher whose searches end with an error.
type failing func() error

func (f failing) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	return lookup.Answer{}, f()
}

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
				failedWith(t, s, tc.err)
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
		must(t, errors.Join(s.own()))
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
	return ownedBy(t, dir, Origin{Name: testOrigin, Asker: Asker(testOrigin, ""), Token: token})
}

// failedWith is a fetch that fails.
func failedWith(t *testing.T, s *Schedule, err error) {
	t.Helper()
	must(t, begin(t, s, se).failed(time.Now(), 0, nil, nil, err))
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
			fail := func(s *Schedule) { failedWith(t, s, errForbidden) }
			fail(s)
			s.disown()
			time.Sleep(time.Second)
			must(t, s.Renew("new", func() {}))
			if tc.later { // another process has the folder for a while
				time.Sleep(time.Hour)
				fail(askedWithToken(t, dir, "new"))
			}
			must(t, errors.Join(s.own()))
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
	synctest.Test(t, func(t *testing.T) {
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
		s.renewedBy(test.to)
		testkit.Equal(t, test.name, s, want)
	}
}

func TestALongCauseIsCutAtAWholeRune(t *testing.T) {
	for _, before := range []string{"", "a", "ab"} { // the cut is at each byte of a rune
		got := causeOf(errors.New(before + strings.Repeat("界", maxCause)))
		if len(got) > maxCause || len(got) < maxCause-2 || !utf8.ValidString(got) {
			t.Errorf("%q...: got %d bytes, valid: %v, want %d at most of whole runes", before, len(got), utf8.ValidString(got), maxCause)
		}
	}
}

func TestAHoldIsOneSentence(t *testing.T) {
	until := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	failed := time.Date(2026, 5, 1, 13, 30, 0, 0, time.FixedZone("", 2*3600))
	for _, test := range []struct {
		hold Hold
		want string
	}{
		{Hold{Until: until}, "minimum wait of the server"},
		{Hold{Until: until, Cause: errUnreadable.Error(), Failed: failed}, "the saved schedule was unreadable"},
		{Clock{NotBefore: until, Wait: time.Minute}.hold(), "minimum wait of the server"},
		{ListClock{}.next(until.Add(-unchangedFloor), 0, false).hold(), "wait of the client: the server gave none"},
		{Hold{Until: until, Failures: 1}, "back-off after a failure"},
		{Hold{Until: until, Failures: 1, Cause: "status 500"}, "back-off after a failure: status 500"},
		{Hold{Until: until, Failures: 1, Failed: failed}, "back-off after a failure at 2026-05-01T11:30:00Z"},
		{Hold{Until: until, Failures: 2, Failed: failed, Cause: "x"}, "back-off after 2 failures in a row, the last at 2026-05-01T11:30:00Z: x"},
		{Hold{Until: until, Budget: 1, Failures: 3}, "the day's budget of 1 search is spent"},
		{Hold{Until: until, Budget: 2}, "the day's budget of 2 searches is spent"},
		{Hold{Until: until, Budget: 100, Portion: AnHour}, "the 25 searches that one hour may take of the day's 100 are spent"},
	} {
		testkit.Equal(t, "the hold", test.hold.String(), testkit.LocalTimes(test.want))
		if !test.hold.Active(until.Add(-1)) || test.hold.Active(until) {
			t.Errorf("%+v does not end at %s", test.hold, until)
		}
	}
}

// A router starts with a clock that is behind; see testkit.ClockSet, which needs a monotonic clock.
func TestAHoldIsToldByTheClockThatWasSetSince(t *testing.T) {
	s, now := newScheduleOf(t, nil), time.Now()
	behind := func(in time.Duration) time.Time { return testkit.ClockSet(now.Add(in), -40*365*24*time.Hour) }
	failed := Clock{NotBefore: behind(time.Hour), Failures: 2, Failed: behind(-time.Minute)}
	s.state.Fetch.Clock, s.state.Search.Clock = failed, failed
	for what, hold := range map[string]Hold{"fetches": s.FetchHold([]string{se}), "searches": s.SearchHold()} {
		for of, tc := range map[string]struct {
			got  time.Time
			want time.Duration
		}{"end": {hold.Until, time.Hour}, "failure": {hold.Failed, -time.Minute}} {
			// By the wall clock, which people and other programs have, and by the monotonic one, which decides.
			if wall := tc.got.Round(0).Sub(now.Round(0)).Round(time.Minute); wall != tc.want || tc.got.Sub(now).Round(time.Minute) != tc.want {
				t.Errorf("%s: the %s is told as %s, want %s from now", what, of, tc.got, tc.want)
			}
		}
	}
	s.state.Search.Clock.NotBefore = testkit.ClockSet(now.Add(time.Hour), 10*time.Nanosecond) // as two clocks of a machine drift
	testkit.Equal(t, "the end in another report", s.SearchHold().Until, s.state.Search.Clock.NotBefore)
	set := behind(time.Hour + time.Second/3)
	testkit.Equal(t, "the ends in two reports", say.ByClock(set, now), say.ByClock(set, testkit.ClockSet(now, 10*time.Nanosecond)))
	testkit.Equal(t, "without a hold", newScheduleOf(t, nil).SearchHold(), Hold{})
}
