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

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// askedWith returns the schedule of a folder for somebody who asks with a key.
func askedWith(t *testing.T, dir, key string) *Schedule {
	t.Helper()
	store, err := OpenStore(dir, Origin{Name: testOrigin, Asker: Asker(testOrigin, key)})
	must(t, err)
	s, err := NewSchedule(store)
	must(t, err)
	t.Cleanup(s.Flush)
	s.random = func() float64 { return 0 }
	loadErr, saveErr := s.own()
	must(t, errors.Join(loadErr, saveErr))
	return s
}

var errForbidden = &StatusError{Code: http.StatusForbidden, Message: "API key not valid"}

func TestABackoffIsOfTheKeyThatFailed(t *testing.T) {
	inBubble(t, "another key after a restart", func(t *testing.T) {
		dir := t.TempDir()
		wrong := askedWith(t, dir, "wrong")
		must(t, begin(t, wrong, se).failed(time.Now(), 0, nil, nil, errForbidden))
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
		must(t, begin(t, s, se).failed(time.Now(), 0, nil, nil, errForbidden))
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
		time.Sleep(time.Minute)
		s = askedWith(t, dir, "new")
		if got := s.list(se).Updated; !got.Equal(fetched) {
			t.Errorf("updated %s, want %s", got, fetched)
		}
		if due := s.due([]string{se}); due.After(time.Now()) {
			t.Errorf("due %s: the wait was given to the old key", due)
		}
	})
}

func TestAScheduleWithoutAskerIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := ownedSchedule(t, dir, 0) // as written before keys were told apart
		must(t, begin(t, s, se).failed(time.Now(), 0, nil, nil, errTest))
		wantDueIn(t, askedWith(t, dir, "key"), 15*time.Minute)
	})
}

func TestOtherAskersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for i := range 3 * maxOthers {
			s := askedWith(t, dir, fmt.Sprint("key", i))
			must(t, begin(t, s, se).failed(time.Now(), 0, nil, nil, errForbidden))
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
	inBubble(t, "nothing asked yet", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir(), 0)
		if h := s.FetchHold([]string{se}); h != (Hold{}) {
			t.Errorf("got %+v", h)
		}
	})
	inBubble(t, "back-off, over a restart", func(t *testing.T) {
		dir, failed := t.TempDir(), time.Now()
		s := ownedSchedule(t, dir, 0)
		must(t, begin(t, s, se).failed(failed, 0, nil, nil, errForbidden))
		for _, s := range []*Schedule{s, ownedSchedule(t, dir, 0)} {
			h := s.FetchHold([]string{se})
			if h.Failures != 1 || h.Cause != "status 403 Forbidden: API key not valid" || !h.Failed.Equal(failed) || !h.Until.Equal(failed.Add(15*time.Minute)) {
				t.Errorf("got %+v", h)
			}
		}
	})
	inBubble(t, "minimum wait", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir(), 0)
		success(t, s, begin(t, s, se), time.Hour)
		if h := s.FetchHold([]string{se}); h.Failures != 0 || h.Cause != "" || time.Until(h.Until) != time.Hour {
			t.Errorf("got %+v", h)
		}
	})
	inBubble(t, "a list that failed its checks", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir(), 0)
		now := time.Now()
		rejected := []result{{list: List{Name: se}, kind: ListRejected, err: ErrChecksum}}
		must(t, begin(t, s, se).answered(now, 0, clocks(rejected, now, s)))
		if h := s.FetchHold([]string{se}); h.Failures != 1 || h.Cause != ErrChecksum.Error() {
			t.Errorf("got %+v", h)
		}
	})
	inBubble(t, "a crash", func(t *testing.T) {
		dir := t.TempDir()
		begin(t, ownedSchedule(t, dir, 0), se)
		again, err := NewSchedule(openStore(t, dir))
		must(t, err)
		if h := again.FetchHold([]string{se}); h.Failures != 1 || !strings.Contains(h.Cause, "not answered yet") {
			t.Errorf("for an onlooker %+v", h)
		}
		if h := ownedSchedule(t, dir, 0).FetchHold([]string{se}); h.Failures != 1 || !strings.Contains(h.Cause, "the process ended") {
			t.Errorf("for the next process %+v", h)
		}
	})
	inBubble(t, "searches", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir(), 0)
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

func TestACauseIsShort(t *testing.T) {
	got := causeOf(errors.New(strings.Repeat("ä", 500)))
	if len(got) > maxCause || strings.Trim(got, "ä") != "" {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

// failing is a searcher whose searches end with an error.
type failing func() error

func (f failing) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	return lookup.Answer{}, f()
}
