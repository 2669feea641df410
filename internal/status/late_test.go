package status

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestALateNameInASentence(t *testing.T) {
	asked := time.Date(2026, 11, 25, 10, 4, 0, 0, time.Local)
	l := Late{Name: "evil.example", Client: "192.168.1.20", Devices: 1, Asked: asked, Listed: asked.Add(10 * time.Minute), Threat: ListedAs(lookup.SocialEngineering)}
	for name, tc := range map[string]struct {
		alter func(*Late)
		want  string
	}{
		"with its name":  {func(*Late) {}, "192.168.1.20 asked for evil.example at 10:04, listed as phishing at 10:14"},
		"the day before": {func(l *Late) { l.Listed = l.Listed.Add(20 * time.Hour) }, "192.168.1.20 asked for evil.example at 2026-11-25 10:04, listed as phishing at 2026-11-26 06:14"},
		"without":        {func(l *Late) { *l = l.withoutName() }, "1 device asked at 10:04 for a name that is listed as phishing since 10:14"},
		"of several":     {func(l *Late) { *l = l.withoutName(); l.Devices, l.Threat = 3, ListedAs(lookup.Malware) }, "3 devices asked at 10:04 for a name that is listed as malware since 10:14"},
	} {
		altered := l
		if tc.alter(&altered); altered.String() != tc.want {
			t.Errorf("%s: %q, want %q", name, altered, tc.want)
		}
	}
}

func TestLateNamesAreKeptForADay(t *testing.T) {
	var r Recent
	now := time.Now()
	for i := range 2 * maxLate {
		r.Late([]Late{{Name: fmt.Sprint(i), Listed: now}})
	}
	if got := r.LastLate(now); len(got) != maxLate || got[0].Name != fmt.Sprint(2*maxLate-1) {
		t.Errorf("%d, the first %v", len(got), got[0])
	}
	if got := r.LastLate(now.Add(lateFor)); got == nil || len(got) != 0 {
		t.Errorf("after a day %v", got)
	}
}

func TestPagesShowLateNamesOnlyWhereNamesAreShown(t *testing.T) {
	all := []Late{{Name: "a", Client: "c", Devices: 1}, {Name: "b", Client: "d", Devices: 1, Named: true}}
	got := ForPages(all)
	if got[0].Name+got[0].Client != "" || got[1].Name != "b" || all[0].Name != "a" {
		t.Errorf("%+v of %+v", got, all)
	}
}

func TestTheDayCountsHowThreatsWereStopped(t *testing.T) {
	var r Recent
	now := time.Date(2026, 3, 5, 12, 0, 0, 0, time.Local)
	for _, b := range []Blocked{{Name: "a", By: "server"}, {Name: "b", By: "cache", Second: true}, {Name: "c", By: "block"}, {Name: "d", By: "server", Second: true}} {
		r.Blocked(b, now)
	}
	r.Unconfirmed(now)
	r.Unconfirmed(now.Add(-2 * time.Hour))
	r.Unconfirmed(now.Add(-13 * time.Hour)) // yesterday
	d := r.Day(20, now)
	if d.Threats != (Threats{InTime: 2, Unconfirmed: 2, Second: 2}) || d.Blocked != 4 {
		t.Errorf("%+v", d)
	}
	if got, want := d.InWords(), "2 confirmed in time; 2 passed because they could not be confirmed; 2 blocked on the second query"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestStatusSaysWhatWasListedTooLate(t *testing.T) {
	now := time.Date(2026, 11, 25, 10, 14, 0, 0, time.Local)
	r := Report{At: now, Services: []Service{{Title: "Safe Browsing v5"}}, Today: Day{Threats: Threats{Unconfirmed: 1}}}
	for i := range 5 {
		r.Late = append(r.Late, Late{Name: fmt.Sprintf("n%d.example", i), Client: "192.168.1.20", Devices: 1, Asked: now.Add(-10 * time.Minute), Listed: now, Threat: "phishing"})
	}
	var text bytes.Buffer
	(&Printer{W: &text}).Short(&r)
	for _, want := range []string{"Threats  0 confirmed in time; 1 passed because it could not be confirmed; 0 blocked on the second query\n",
		"Late     192.168.1.20 asked for n0.example at 10:04, listed as phishing at 10:14\n", "n2.example"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "n3.example") {
		t.Errorf("more than three in\n%s", text.String())
	}
}
