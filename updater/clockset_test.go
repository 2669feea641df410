package updater

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// askedWith returns the schedule of a folder for somebody who asks with a key.
func askedWith(t *testing.T, dir, key string) *Schedule {
	t.Helper()
	return ownedBy(t, dir, Origin{Name: testOrigin, Asker: Asker(testOrigin, key)})
}

func notHeld(t *testing.T, s *Schedule) {
	t.Helper()
	testkit.Equal(t, "it is held back", s.due([]string{se}).After(time.Now()), false)
}

var errForbidden = &StatusError{Code: http.StatusForbidden, Message: "API key not valid"}

func TestWhatAnotherKeyChanges(t *testing.T) {
	inBubble(t, "another key after a restart", func(t *testing.T) {
		dir := t.TempDir()
		wrong := askedWith(t, dir, "wrong")
		failedWith(t, wrong, errForbidden)
		wantDueIn(t, askedWith(t, dir, "wrong"), 15*time.Minute)
		notHeld(t, askedWith(t, dir, "right"))
		time.Sleep(time.Minute)
		wantDueIn(t, askedWith(t, dir, "wrong"), 14*time.Minute) // it comes back, and is no better than before
	})
	inBubble(t, "another key while it runs", func(t *testing.T) {
		dir := t.TempDir()
		s := askedWith(t, dir, "wrong")
		failedWith(t, s, errForbidden)
		must(t, s.Rekey(Asker(testOrigin, "right"), func() {}))
		notHeld(t, s)
		must(t, s.Rekey(Asker(testOrigin, "wrong"), func() {}))
		wantDueIn(t, s, 15*time.Minute)
	})
	inBubble(t, "a pause of searches", func(t *testing.T) {
		dir := t.TempDir()
		s := askedWith(t, dir, "wrong")
		must(t, searched(s, time.Now(), errForbidden))
		testkit.Equal(t, "a refusal pauses searches", s.SearchHold().Active(time.Now()), true)
		testkit.Equal(t, "searches of the right key pause", askedWith(t, dir, "right").SearchHold().Active(time.Now()), false)
	})
	inBubble(t, "the answer to a search with the old key", func(t *testing.T) {
		s := askedWith(t, t.TempDir(), "wrong")
		p := newProcessOf(t, s, v5Rules, nil)
		p.during(errForbidden, func() { must(t, s.Rekey(Asker(testOrigin, "right"), func() {})) })
		testkit.Is(t, "the refusal", p.search(t), errForbidden)
		testkit.Equal(t, "a refusal of the old key pauses searches with the new one", s.SearchHold().Active(time.Now()), false)
	})
	inBubble(t, "lists keep their age", func(t *testing.T) {
		dir := t.TempDir()
		s := askedWith(t, dir, "old")
		fetched := time.Now()
		success(t, s, begin(t, s, se), time.Hour)
		must(t, s.change(func(state *scheduleState) {
			state.change([]string{se}, func(list *ListClock) { list.Rejected = true })
		}))
		time.Sleep(time.Minute)
		s = askedWith(t, dir, "new")
		got := s.list(se)
		testkit.Equal(t, "updated late by", got.Updated.Sub(fetched), 0)
		testkit.Equal(t, "to be fetched in full", got.Rejected, true)
		notHeld(t, s) // the wait was given to the old key
	})
	inBubble(t, "a schedule without asker is taken over", func(t *testing.T) {
		dir := t.TempDir()
		s := ownedSchedule(t, dir) // as written before keys were told apart
		failedWith(t, s, errTest)
		wantDueIn(t, askedWith(t, dir, "key"), 15*time.Minute)
	})
	inBubble(t, "other askers are bounded", func(t *testing.T) {
		dir := t.TempDir()
		for i := range 3 * maxOthers {
			s := askedWith(t, dir, fmt.Sprint("key", i))
			failedWith(t, s, errForbidden)
			testkit.Between(t, "other askers that are kept", len(s.state.Others), 0, maxOthers)
		}
		time.Sleep(time.Hour)
		s := askedWith(t, dir, "last")
		testkit.Equal(t, "askers whose clocks have ended", len(s.state.Others), 0)
	})
}

func TestAnAskerTellsKeysApartAndTellsNone(t *testing.T) {
	const key = "AIzaSyExampleExampleExampleExampleExampl"
	a := Asker(testOrigin, key)
	for i, other := range []string{Asker(testOrigin, key), Asker(testOrigin, key+"e"), Asker("https://other.example", key)} {
		testkit.Equal(t, fmt.Sprint("the same, of asker ", i), a == other, i == 0)
	}
	testkit.Equal(t, "its length", len(a), 8)
	testkit.WantNone(t, key, a)
}

func TestAHoldSaysWhy(t *testing.T) {
	inBubble(t, "back-off, over a restart", func(t *testing.T) {
		dir, failed := t.TempDir(), time.Now()
		s := ownedSchedule(t, dir)
		must(t, begin(t, s, se).failed(failed, 0, nil, nil, errForbidden))
		for _, s := range []*Schedule{s, ownedSchedule(t, dir)} {
			h := s.FetchHold([]string{se})
			checkHold(t, h, 1, "status 403 Forbidden: API key not valid")
			testkit.Equal(t, "failed late by", h.Failed.Sub(failed), 0)
			testkit.Equal(t, "held for", h.Until.Sub(failed), 15*time.Minute)
		}
	})
	inBubble(t, "a list that failed its checks", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir())
		now := time.Now()
		rejected := []result{{list: List{Name: se}, kind: ListRejected, err: ErrChecksum}}
		must(t, begin(t, s, se).answered(now, 0, clocks(rejected, now, s)))
		checkHold(t, s.FetchHold([]string{se}), 1, ErrChecksum.Error())
	})
	inBubble(t, "a crash", func(t *testing.T) {
		dir := t.TempDir()
		begin(t, ownedSchedule(t, dir), se)
		checkHold(t, newScheduleOf(t, openStore(t, dir)).FetchHold([]string{se}), 1, "not answered yet") // for an onlooker
		checkHold(t, ownedSchedule(t, dir).FetchHold([]string{se}), 1, "the process ended")
	})
	inBubble(t, "searches", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir())
		for range 3 {
			must(t, searched(s, time.Now(), errTest))
			time.Sleep(time.Second)
		}
		checkHold(t, s.SearchHold(), 3, errTest.Error())
		testkit.Equal(t, "it lasts", s.SearchHold().Active(time.Now()), true)
		time.Sleep(time.Hour)
		must(t, searched(s, time.Now(), nil))
		h := s.SearchHold()
		testkit.Equal(t, "after a success", []any{h.Active(time.Now()), h.Failures, h.Cause}, []any{false, 0, ""})
	})
}

// checkHold fails unless a hold is by that number of failures, and its cause says why.
func checkHold(t *testing.T, h Hold, failures int, why string) {
	t.Helper()
	testkit.Equal(t, "failures", h.Failures, failures)
	testkit.WantParts(t, h.Cause, why)
}

func TestANewTokenEndsTheBackoffOfTheExpiredOne(t *testing.T) {
	for err, lasts := range map[error]bool{errStatus[401]: false, errForbidden: false, errServer: true, errLimited: true, errDown: true} {
		for way, renew := range renewals {
			inBubble(t, err.Error()+", "+way, func(t *testing.T) {
				dir := t.TempDir()
				s := askedWithToken(t, dir, "old")
				failedWith(t, s, err)
				for range searchStrikes {
					must(t, searched(s, time.Now(), err))
					time.Sleep(time.Second)
				}
				s.Flush()
				s = askedWithToken(t, dir, "old")
				testkit.Equal(t, "searches pause after a restart with the same token", s.SearchHold().Active(time.Now()), true)
				testkit.Between(t, "fetches wait then for", time.Until(s.due([]string{se})), 14*time.Minute, 15*time.Minute)
				s = renew(t, s, dir)
				s.Flush()
				for when, s := range map[string]*Schedule{"at once": s, "after a restart": askedWithToken(t, dir, "new")} {
					testkit.Equal(t, when+": fetches wait", s.FetchHold([]string{se}).Active(time.Now()), lasts)
					testkit.Between(t, when+": fetches wait for", time.Until(s.due([]string{se})), math.MinInt64, 15*time.Minute-searchStrikes*time.Second)
					testkit.Equal(t, when+": searches pause", s.SearchHold().Active(time.Now()), lasts)
					s.Flush()
				}
			})
		}
	}
	// Between the owners with the old token and the new one another process may have the folder, and be denied, too.
	inBubble(t, "between two owners it ends no later failure", func(t *testing.T) {
		dir := t.TempDir()
		s := askedWithToken(t, dir, "old")
		failedWith(t, s, errForbidden)
		s.disown()
		must(t, s.Renew("new", func() {}))
		time.Sleep(time.Hour)
		failedWith(t, askedWithToken(t, dir, "new"), errForbidden)
		must(t, errors.Join(s.own()))
		for _, s := range []*Schedule{s, askedWithToken(t, dir, "new")} {
			wantDueIn(t, s, 15*time.Minute)
		}
	})
	// A search that is noted as failed and under way has no answer that counts any more.
	inBubble(t, "the note of a search is taken back", func(t *testing.T) {
		s := askedWithToken(t, t.TempDir(), "old")
		s.changeSearch(func(a *asked) {
			*a = a.noting(s.writer, 1, time.Now(), func(int) time.Duration { return 15 * time.Minute })
		}, func(error) {})
		asker := s.askerNow()
		must(t, s.Renew("new", func() {}))
		hold := s.SearchHold()
		testkit.Equal(t, "held, and failures", []any{hold.Active(time.Now()), hold.Failures}, []any{false, 0})
		testkit.Equal(t, "an answer about the old token counts", s.askerNow() == asker, false)
	})
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

func failedWith(t *testing.T, s *Schedule, err error) {
	t.Helper()
	must(t, begin(t, s, se).failed(time.Now(), 0, nil, nil, err))
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
		testkit.Between(t, "bytes", len(got), maxCause-2, maxCause)
		testkit.Equal(t, "runes are whole", utf8.ValidString(got), true)
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
		testkit.Equal(t, "it lasts, and ends", []bool{test.hold.Active(until.Add(-1)), test.hold.Active(until)}, []bool{true, false})
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
			wall, monotonic := tc.got.Round(0).Sub(now.Round(0)).Round(time.Minute), tc.got.Sub(now).Round(time.Minute)
			testkit.Equal(t, what+": the "+of, []time.Duration{wall, monotonic}, []time.Duration{tc.want, tc.want})
		}
	}
	s.state.Search.Clock.NotBefore = testkit.ClockSet(now.Add(time.Hour), 10*time.Nanosecond) // as two clocks of a machine drift
	testkit.Equal(t, "the end in another report", s.SearchHold().Until, s.state.Search.Clock.NotBefore)
	set := behind(time.Hour + time.Second/3)
	testkit.Equal(t, "the ends in two reports", say.ByClock(set, now), say.ByClock(set, testkit.ClockSet(now, 10*time.Nanosecond)))
	testkit.Equal(t, "without a hold", newScheduleOf(t, nil).SearchHold(), Hold{})
}

// Whatever became of the wall clock, a restart makes no wait shorter than what was left of it, and none longer than it was.
func TestAWaitOutlivesAWallClockThatWasSet(t *testing.T) {
	const day = 24 * time.Hour
	saved := moment{Saved: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), Boot: "a", SinceBoot: 5 * day}
	for name, test := range map[string]struct {
		from   moment
		set    time.Duration // the wall clock, while nothing ran
		passed time.Duration
		boot   string        // at the restart
		offset time.Duration // of the clock since boot
		rest   time.Duration // of a wait of 3 hours
	}{
		"nothing was set":                  {saved, 0, time.Hour, "a", 0, 2 * time.Hour},
		"the wait is over":                 {saved, 0, 4 * time.Hour, "a", 0, -time.Hour},
		"forward by 10 minutes":            {saved, 10 * time.Minute, time.Hour, "a", 0, 2 * time.Hour},
		"forward by a day":                 {saved, day, time.Hour, "a", 0, 2 * time.Hour},
		"forward by 56 years":              {saved, 56 * 365 * day, time.Minute, "a", 0, 3*time.Hour - time.Minute},
		"forward, and at once":             {saved, day, 0, "a", 0, 3 * time.Hour},
		"back by 10 minutes":               {saved, -10 * time.Minute, time.Hour, "a", 0, 2*time.Hour + 10*time.Minute},
		"back by a day":                    {saved, -day, time.Hour, "a", 0, 3 * time.Hour},
		"back by a day, long ago":          {saved, -day, 2 * day, "a", 0, 3*time.Hour - day},
		"another boot":                     {saved, 0, time.Hour, "b", -5 * day, 2 * time.Hour},
		"another boot, forward":            {saved, 2 * time.Hour, time.Hour, "b", -5 * day, 0},
		"another boot, back":               {saved, -day, time.Hour, "b", -5 * day, 3 * time.Hour},
		"no boot is known any more":        {saved, 0, time.Hour, "", 0, 2 * time.Hour},
		"no boot was known":                {moment{Saved: saved.Saved}, 0, time.Hour, "a", 0, 2 * time.Hour},
		"never was a boot known":           {moment{Saved: saved.Saved}, 2 * time.Hour, time.Hour, "", 0, 0},
		"a container with a later offset":  {saved, 0, time.Hour, "a", 1000 * day, 2 * time.Hour},
		"a container, slightly earlier":    {saved, 0, time.Hour, "a", -30 * time.Minute, 2*time.Hour + 30*time.Minute},
		"a container, much earlier":        {saved, 0, time.Hour, "a", -4 * day, 2 * time.Hour},
		"a snapshot of the machine":        {saved, 0, time.Hour, "a", -time.Hour, 3 * time.Hour},
		"a snapshot, and the clock behind": {saved, -day, time.Hour, "a", -2 * time.Hour, 3 * time.Hour},
		"a time since boot that is absurd": {moment{saved.Saved, "a", -1 << 63}, 0, time.Hour, "a", 0, 2 * time.Hour},
	} {
		written := saved.Saved
		clock := Clock{NotBefore: written.Add(3 * time.Hour)}
		set := clockSet{Fetch: asked{Clock: clock}, Search: asked{Clock: clock}, Lists: map[string]ListClock{se: {Clock: clock}}}
		raw, err := encodeSchedule(scheduleState{clockSet: set, Others: map[string]clockSet{"other": set}}, written, test.from)
		must(t, err)
		now := time.Now()
		at := moment{Saved: written.Add(test.passed + test.set), Boot: test.boot, SinceBoot: saved.SinceBoot + test.passed + test.offset}
		state, err := parseSchedule(raw, now, at)
		must(t, err)
		for _, set := range []clockSet{state.clockSet, state.Others["other"]} {
			for _, c := range []Clock{set.Fetch.Clock, set.Search.Clock, set.Lists[se].Clock} {
				testkit.Equal(t, name+": the rest", c.NotBefore.Sub(now), test.rest)
				testkit.WantParts(t, c.NotBefore.String(), "m=") // on the monotonic clock: setting the other one cuts no wait short
			}
		}
	}
}

func TestTheLaterOfTwoMoments(t *testing.T) {
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct{ earlier, later moment }{
		"of one boot":                  {moment{noon, "a", time.Hour}, moment{noon.Add(time.Hour), "a", 2 * time.Hour}},
		"of one boot, the clock back":  {moment{noon, "a", time.Hour}, moment{noon.Add(-time.Hour), "a", 2 * time.Hour}},
		"of two boots":                 {moment{noon, "a", 2 * time.Hour}, moment{noon.Add(time.Hour), "b", time.Hour}},
		"of a boot that is not known":  {moment{noon, "a", time.Hour}, moment{Saved: noon.Add(time.Hour)}},
		"of boots that are not known":  {moment{Saved: noon}, moment{Saved: noon.Add(time.Hour)}},
		"the first one has no file":    {moment{}, moment{noon, "a", time.Hour}},
		"the clock of one boot stands": {moment{noon, "a", time.Hour}, moment{noon, "a", time.Hour + 1}},
	} {
		got := []bool{test.later.after(test.earlier), test.earlier.after(test.later), test.later.after(test.later)}
		testkit.Equal(t, name+": later", got, []bool{true, false, false})
	}
}

func TestVersionsThatKnowNoBootReadTheFileAndWriteIt(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := moment{Saved: now, Boot: "a", SinceBoot: time.Hour}
	state := scheduleState{Asker: "x", clockSet: clockSet{Fetch: asked{Clock: Clock{NotBefore: now.Add(time.Hour)}}, Lists: map[string]ListClock{}}}
	raw, err := encodeSchedule(state, now, at)
	must(t, err)
	var saved savedSchedule
	must(t, json.Unmarshal(raw, &saved))
	var old struct { // what such a version has
		Saved time.Time `json:"saved"`
		Asker string    `json:"asker,omitempty"`
		clockSet
	}
	must(t, json.Unmarshal(saved.Schedule, &old))
	testkit.Equal(t, "it reads", []any{old.Saved, old.Asker, old.Fetch.NotBefore}, []any{now, "x", now.Add(time.Hour)})
	written, err := json.Marshal(old)
	must(t, err)
	back, err := parseSchedule(withSum(t, written), now, at)
	must(t, err)
	testkit.Equal(t, "it wrote", []any{back.Boot, back.SinceBoot, back.Fetch.NotBefore}, []any{"", time.Duration(0), now.Add(time.Hour)})
	testkit.WantNone(t, string(written), "boot")
}

func TestTheIdentityOfTheBoot(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no identity of a boot is known for this system")
	}
	const variable = "SAFEBROWSING_BOOT_ID"
	t.Setenv(variable, "0123ab")
	id, since := thisBoot()
	_, later := thisBoot()
	testkit.Equal(t, "the boot", id, "0123ab")
	testkit.Between(t, "the time since", since, 1, later)
	t.Setenv(variable, "")
	id, since = thisBoot()
	testkit.Equal(t, "without an identity", []any{id, since}, []any{"", time.Duration(0)})
	os.Unsetenv(variable) // Setenv restores it
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip("the identity of the boot cannot be read here")
	}
	id, _ = thisBoot()
	t.Setenv(variable, strings.TrimSpace(string(raw)))
	again, _ := thisBoot()
	testkit.Equal(t, "the boot by the variable", again, id)
	testkit.Equal(t, "its length", len(id), 32)
	testkit.WantNone(t, id, "-")
}

// Our units hide the identity of the boot, and so must hand it over.
func TestUnitsThatHideTheIdentityOfTheBootHandItOver(t *testing.T) {
	units, err := filepath.Glob("../deploy/systemd/*.service")
	if err != nil || len(units) < 2 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		if text := testkit.Read(t, unit); strings.Contains(text, "ProcSubset=pid") {
			testkit.WantParts(t, text, "\nEnvironment=SAFEBROWSING_BOOT_ID=%b\n")
		}
	}
}
