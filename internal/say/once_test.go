package say

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

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
