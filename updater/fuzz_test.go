package updater

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// Targets for what the updater reads: updates, and the files of its folder.

// FuzzApply compares Apply with a model, for removals and additions of any kind.
func FuzzApply(f *testing.F) {
	f.Add([]byte("aaaabbbbcccc"), []byte{1}, []byte("abbbdddd"), byte(0), true)
	f.Add([]byte("aaaabbbbcccc"), []byte{0, 1, 2}, []byte("aaaa"), byte(4), true)
	f.Add([]byte("aaaabbbb"), []byte(nil), []byte("aaaabbbbbccccc"), byte(1), false)
	f.Fuzz(func(t *testing.T, old, removed, added []byte, cut byte, partial bool) {
		held := newModel(pieces(old, 4))
		var kept model
		var indexes []uint32
		if partial {
			for _, i := range removed {
				indexes = append(indexes, uint32(i))
			}
			for i, e := range held {
				if !bytes.Contains(removed, []byte{byte(i)}) || i > 255 {
					kept = append(kept, e)
				}
			}
		}
		split := min(int(cut), len(added))
		var all []string
		var streams []Entries
		for i, part := range [][]byte{added[:split], added[split:]} {
			if entries := pieces(part, 4+i); len(entries) > 0 {
				streams = append(streams, streamOf(entries...))
				all = append(all, entries...)
			}
		}
		want := newModel(append(slices.Clone(kept), all...))
		u := updateTo(want, partial, indices(indexes...), streams...)
		l, changed, err := Apply(held.list(t), u, 1000)
		switch {
		case err == nil:
			checkModel(t, l, want)
			if changed != !slices.Equal(want, held) || string(l.Version) != "new" {
				t.Errorf("changed %v, version %q", changed, l.Version)
			}
		case !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrChecksum) || l.Set != nil || changed:
			t.Errorf("list %v, changed %v, error %v", l, changed, err)
		case isClean(held, u, removed, kept, all):
			t.Errorf("a sound update is refused: %v", err)
		}
	})
}

// isClean reports whether an update is one that Apply must accept.
func isClean(held model, u *Update, removed []byte, kept model, added []string) bool {
	ascending := func(all []string) bool { return slices.Equal(all, newModel(slices.Clone(all))) }
	distinct := len(newModel(append(slices.Clone(kept), added...))) == len(kept)+len(added)
	if u.Partial {
		ordered := slices.IsSorted(removed) && len(slices.Compact(slices.Clone(removed))) == len(removed)
		if !ordered || len(removed) > 0 && int(slices.Max(removed)) >= len(held) {
			return false
		}
	}
	first := slices.IndexFunc(added, func(e string) bool { return len(e) == 5 })
	if first < 0 {
		first = len(added)
	}
	return distinct && ascending(added[:first]) && ascending(added[first:]) && len(kept)+len(added) <= 1000
}

func pieces(raw []byte, width int) (all []string) {
	for piece := range slices.Chunk(raw, width) {
		if len(piece) == width {
			all = append(all, string(piece))
		}
	}
	return all
}

// FuzzListFile: no file behind a right checksum makes the reader panic, and what it reads is the same after it is saved again.
func FuzzListFile(f *testing.F) {
	s := openStore(f, f.TempDir())
	path := filepath.Join(s.dir, "se-4b"+listSuffix)
	for _, l := range []List{heldList(f, "se-4b"), heldList(f, "se-4b", 1, 2, 255), newModel([]string{"aaaa", "aaaab", "bbbbb", strings.Repeat("c", 32)}).list(f)} {
		must(f, s.SaveList(l))
		raw, err := os.ReadFile(path)
		must(f, err)
		f.Add(raw[:len(raw)-sha256.Size])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		sum := sha256.Sum256(raw)
		must(t, os.WriteFile(path, append(slices.Clone(raw), sum[:]...), 0o600))
		l, origin, err := readFile(s.dir, "se-4b")
		if err != nil {
			testkit.Is(t, "a file that is not read", err, ErrDamaged)
			return
		}
		if origin != testOrigin {
			testkit.WantError(t, errOf(s.ReadList("se-4b")))
		}
		must(t, s.SaveList(l))
		again, err := s.ReadList("se-4b")
		if err != nil || !equal(t, again, l) {
			t.Errorf("got %+v, %v, want %+v", again, err, l)
		}
	})
}

// FuzzSchedule: no state panics, no wait is shorter after a restart, and a clock that was set back costs no more than the wait.
func FuzzSchedule(f *testing.F) {
	now := time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC)
	clock := Clock{NotBefore: now.Add(time.Hour), Failures: 2, Wait: time.Minute, Cause: "status 503", Failed: now}
	set := clockSet{Fetch: asked{Clock: clock}, Search: asked{Clock: clock}, Lists: map[string]ListClock{"se-4b": {Clock: clock, AtOnce: 3, Rejected: true, Updated: now, Alone: true}}}
	for _, state := range []scheduleState{{}, {moment: moment{Saved: now}, clockSet: set}, {moment: moment{now.Add(time.Hour), "boot", time.Hour}, Asker: "a", Token: "b", clockSet: set, Others: map[string]clockSet{"c": set, "d": {}}}} {
		raw, err := json.Marshal(state)
		must(f, err)
		f.Add(raw, "a", "b")
	}
	f.Add([]byte(`{"saved":"2027-01-31T12:00:00Z","fetch":{"failures":1}}`), "", "")
	f.Fuzz(func(t *testing.T, raw []byte, asker, token string) {
		state, err := parseSchedule(withSum(t, raw), now, moment{Saved: now})
		if err != nil {
			testkit.Is(t, "a file that is not read", err, ErrDamaged)
			return
		}
		if encoded, err := encodeSchedule(state, now, moment{Saved: now}); err == nil { // JSON has no years after 9999
			again, err := parseSchedule(encoded, now, moment{Saved: now})
			must(t, err)
			again.moment = state.moment
			one, _ := json.Marshal(again) // without monotonic readings
			other, _ := json.Marshal(state)
			testkit.Equal(t, "after it is saved again", string(one), string(other))
		}
		if state.Lists == nil {
			state.Lists = make(map[string]ListClock)
		}
		before := state.Fetch.NotBefore
		state.renewedBy(token)
		state.askedBy(asker, now)
		state = state.join(state.clone())
		hold := state.fetchHold([]string{"se-4b"})
		if due := state.listDue("se-4b"); due.Before(state.Fetch.NotBefore) || !hold.Until.IsZero() && hold.Until.Before(state.Fetch.NotBefore) {
			t.Errorf("due at %v, held until %v, all wait until %v, before %v", due, hold.Until, state.Fetch.NotBefore, before)
		}
		testkit.Between(t, "other askers", len(state.Others), 0, maxOthers+1)
	})
}

func withSum(t testing.TB, raw []byte) []byte {
	raw = bytes.TrimSpace(raw) // the sum is over the bytes without white space around them
	if !json.Valid(raw) {
		t.SkipNow()
	}
	return fmt.Appendf(nil, `{"sha256":"%x","schedule":%s}`, sha256.Sum256(raw), raw)
}

// FuzzBudget: no file makes the count negative, and days that pass do not lose it.
func FuzzBudget(f *testing.F) {
	f.Add([]byte(`{"day":"2027-01-31","spent":{"2027-01-31":5,"2027-01-30":7}}`), "2027-02-01")
	f.Add([]byte(`{"day":"2027-01-31","spent":{"2027-01-31":5}}`), "1970-01-01")
	f.Fuzz(func(t *testing.T, raw []byte, today string) {
		d, err := parseBudget(raw)
		if err != nil {
			testkit.Is(t, "a file that is not read", err, ErrDamaged)
			return
		}
		if _, err := time.Parse(time.DateOnly, today); err != nil {
			return
		}
		next, fresh := d.on(today, "w")
		if next.spent() < 0 || len(next.Spent) > max(maxDates, len(d.Spent)) || fresh && next.spent() != max(0, d.Spent[today]) {
			t.Errorf("%s on %s: got %+v, fresh %v", raw, today, next, fresh)
		}
		if today < d.Day && next.spent() < d.spent() {
			t.Errorf("%s: the clock was set back to %s, and %d searches are forgotten", raw, today, d.spent()-next.spent())
		}
		if both := d.join(next); both.spent() < next.spent() && both.Day == next.Day {
			t.Errorf("%+v and %+v: got %+v", d, next, both)
		}
		text, err := json.Marshal(next)
		must(t, err)
		if again, err := parseBudget(text); err != nil || again.spent() != next.spent() || again.Day != next.Day {
			t.Errorf("got %+v, %v, want %+v", again, err, next)
		}
	})
}
