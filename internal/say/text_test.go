package say

import (
	"errors"
	"fmt"
	"runtime/debug"
	"testing"
	"time"
)

func TestSizesHaveAUnitThatAPersonReads(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 bytes", 999: "999 bytes", 1_000: "1.0 kB", 60_120: "60.1 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 104_857_600: "104.9 MB",
		81_496_600_000: "81.5 GB", 12_345_600_000_000: "12345.6 GB",
	} {
		if got := Size(n); got != want {
			t.Errorf("%d: Expected %q, got %q", n, want, got)
		}
	}
}

func TestWordCountsEdits(t *testing.T) {
	known := []string{"allow", "block", "protocol", "respond", "resolver", "ttl"}
	for _, tc := range []struct {
		word, want string
		edits      int
	}{
		{"block", "block", 0},
		{"BLOCK", "block", 0},
		{"blok", "block", 1},
		{"blockk", "block", 1},
		{"blick", "block", 1},
		{"blcok", "block", 1},
		{"resovlers", "resolver", 2},
		{"protcoll", "protocol", 2},
		{"ttl", "ttl", 0},
		{"", "ttl", 3},
		{"xyz", "ttl", 3},
	} {
		if got, edits := Nearest(tc.word, known); got != tc.want || edits != tc.edits {
			t.Errorf("%q: Expected %q by %d edits, got %q by %d", tc.word, tc.want, tc.edits, got, edits)
		}
	}
}

func TestOfEquallyNearWordsTheSameBeginningWins(t *testing.T) {
	if got, _ := Nearest("uw-4b", []string{"mw-4b", "se-4b", "uws-4b"}); got != "uws-4b" {
		t.Errorf("Expected uws-4b, got %q", got)
	}
	if got, _ := Nearest("aa", []string{"ab", "ac"}); got != "ab" {
		t.Errorf("Expected the first of two, got %q", got)
	}
	if got, _ := Nearest("x", nil); got != "" {
		t.Errorf("Expected no word without known ones, got %q", got)
	}
}

func TestATroubleIsSaidOnceAndItsEndOnce(t *testing.T) {
	var trouble Trouble
	for i, step := range []struct {
		err          string
		began, ended bool
	}{
		{"", false, false}, {"full", true, false}, {"full", false, false}, {"broken", true, false}, {"full", true, false},
		{"", false, true}, {"", false, false}, {"full", true, false},
	} {
		var err error
		if step.err != "" {
			err = errors.New(step.err)
		}
		if began, ended := trouble.Note(err); began != step.began || ended != step.ended || trouble.Lasts() != (err != nil) {
			t.Errorf("step %d, %q: began %t, ended %t, lasts %t", i, step.err, began, ended, trouble.Lasts())
		}
	}
}

func TestAThingIsSaidOnceADay(t *testing.T) {
	var d Daily
	now := time.Date(2026, 11, 24, 23, 59, 0, 0, time.Local)
	for i, step := range []struct {
		what string
		at   time.Time
		want bool
	}{
		{"a.example", now, true}, {"A.Example", now, false}, {"b.example", now, true},
		{"a.example", now.Add(time.Minute), true}, {"a.example", now.Add(2 * time.Minute), false},
		{"b.example", now.Add(-24 * time.Hour), true}, // the clock was set back
	} {
		if got := d.First(step.what, step.at); got != step.want {
			t.Errorf("step %d, %s: %t, want %t", i, step.what, got, step.want)
		}
	}
	said := 0
	for i := range 3 * maxDaily {
		if d.First(fmt.Sprint(i), now) {
			said++
		}
	}
	if said != maxDaily {
		t.Errorf("%d things said in a day, want %d", said, maxDaily)
	}
}

func TestTheVersionIsThatOfTheTag(t *testing.T) {
	other := &debug.Module{Path: "github.com/coredns/coredns", Version: "v1.15.0"}
	for _, tc := range []struct {
		name, stamped string
		info          *debug.BuildInfo // nil: the program has none
		want          string
	}{
		{"a release", "v1.2.3", &debug.BuildInfo{Main: debug.Module{Path: module, Version: "(devel)"}}, "1.2.3"},
		{"go install of a tag", "", &debug.BuildInfo{Main: debug.Module{Path: module, Version: "v1.2.3"}}, "1.2.3"},
		{"a CoreDNS built by plugin.cfg", "", &debug.BuildInfo{Main: *other, Deps: []*debug.Module{other, {Path: module, Version: "v1.2.3"}}}, "1.2.3"},
		{"a replaced module has the tag of none", "", &debug.BuildInfo{Main: *other, Deps: []*debug.Module{{Path: module, Version: "v1.2.3", Replace: &debug.Module{Path: "../x"}}}}, development},
		{"a checkout without a tag", "", &debug.BuildInfo{Main: debug.Module{Path: module, Version: "v0.0.0-20260101000000-0123456789ab+dirty"}}, development},
		{"a checkout without git", "", &debug.BuildInfo{Main: debug.Module{Path: module, Version: "(devel)"}}, development},
		{"no build info", "", nil, development},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := number(tc.stamped, func() (*debug.BuildInfo, bool) { return tc.info, tc.info != nil })
			if got != tc.want {
				t.Errorf("Expected %s, got %s", tc.want, got)
			}
		})
	}
}
