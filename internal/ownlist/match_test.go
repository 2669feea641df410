package ownlist

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestTheMostSpecificEntryDecidesAndAllowWinsTies(t *testing.T) {
	tests := []struct {
		name         string
		block, allow string
		host         string
		want         string // of both files: "", or action and matched name
	}{
		{"neither", "a.example", "b.example", "c.example", ""},
		{"block alone", "a.example", "b.example", "a.example", "block a.example"},
		{"allow alone", "a.example", "b.example", "x.b.example", "allow b.example"},
		{"tie of the same name", "a.example", "a.example", "a.example", "allow a.example"},
		{"tie of a parent", ".example.com", "example.com", "www.example.com", "allow example.com"},
		{"tie of different kinds", "||example.com^", "*.example.com", "www.example.com", "allow example.com"},
		{"no tie: below is not the name", "||example.com^", "*.example.com", "example.com", "block example.com"},
		{"block more specific", "ads.example.com", "example.com", "ads.example.com", "block ads.example.com"},
		{"block more specific, below", "||ads.example.com^", "example.com", "x.ads.example.com", "block ads.example.com"},
		{"allow more specific", "||example.com^", "www.example.com", "a.www.example.com", "allow www.example.com"},
		{"exact block of a child", "ads.example.com", "example.com", "x.ads.example.com", "allow example.com"},
		{"exception in the block file", "||example.com^\n@@||www.example.com^", "", "a.www.example.com", "allow www.example.com"},
		{"exception is less specific", "||ads.example.com^\n@@||example.com^", "", "ads.example.com", "block ads.example.com"},
		{"exception is as specific", "@@||example.com^\n||example.com^\nexample.com", "", "example.com", "allow example.com"},
		{"exception against $important", "||example.com^$important\n@@||example.com^", "", "example.com", "allow example.com"},
		{"exception, then the exact name blocked", "@@||example.com^\nwww.example.com", "", "www.example.com", "block www.example.com"},
		{"passthru below", "* CNAME .\n*.example.com CNAME rpz-passthru.", "", "www.example.com", "allow example.com"},
		{"everything", "* CNAME .\nexample.com CNAME rpz-passthru.", "", "www.example.com", "block "},
		{"everything on a tie", "* CNAME .", "* CNAME .", "www.example.com", "allow "},
		{"top-level name", ".example", "a.example", "x.b.example", "block example"},
		{"name of very many labels", "*." + strings.Repeat("a.", 80) + "example", "", strings.Repeat("a.", 90) + "example", "block " + strings.Repeat("a.", 80) + "example"},
		{"address", "192.0.2.1", "192.0.2.1", "192.0.2.1", "allow 192.0.2.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			block, _ := listOf(t, tt.block, false)
			allow, _ := listOf(t, tt.allow, true)
			h := host(t, tt.host)
			for _, files := range [][]*File{{block, allow}, {allow, block}, {block, block, allow, allow}} {
				got := ""
				if m, ok := Best(files, h, then); ok {
					got = map[bool]string{false: "block ", true: "allow "}[m.Allow] + m.Name(h)
				}
				if got != tt.want {
					t.Errorf("%q, want %q", got, tt.want)
				}
			}
		})
	}
}

func TestBestOfNothing(t *testing.T) {
	if m, ok := Best(nil, host(t, "a.example"), then); ok || m != (Match{}) {
		t.Error(m)
	}
	f, _ := listOf(t, "* CNAME .", false)
	if m, ok := f.Match(lookup.Host{}, then); ok {
		t.Error(m)
	}
}

func TestEntriesEnd(t *testing.T) {
	end := time.Date(2027, 2, 1, 0, 0, 0, 0, time.Local)
	list := "a.example # until 2027-01-31\n" +
		"*.b.example # until 2027-01-31\nb.example # until 2027-03-31\n" +
		"c.example # until 2027-01-31\nc.example\n" +
		"d.example # until 2027-01-31\nd.example # until 2026-01-31\n" +
		"0.0.0.0 e.example f.example # ask Ann, until 2027-01-31, at least\n" +
		"||g.example^ ; until 2027-01-31\n" +
		"* CNAME rpz-passthru. ; not until somebody says so\n"
	f, sum := listOf(t, list, true)
	if sum.Bad.Count != 0 || sum.Entries != 8 {
		t.Errorf("%d entries, %v", sum.Entries, sum.Remarks())
	}
	for _, tt := range []struct {
		host          string
		before, after int // labels of the match
	}{
		{"a.example", 2, 0}, {"x.a.example", 2, 0},
		{"b.example", 2, 2}, {"x.b.example", 2, 2},
		{"c.example", 2, 2}, {"x.c.example", 2, 2},
		{"d.example", 2, 0}, {"e.example", 2, 0}, {"x.f.example", 2, 0}, {"g.example", 2, 0},
	} {
		for now, want := range map[time.Time]int{end.Add(-1): tt.before, end: tt.after, end.In(time.FixedZone("", 3600)): tt.after} {
			if m, ok := f.Match(host(t, tt.host), now); !ok || m.Labels != want {
				t.Errorf("%s at %v: %d labels, want %d", tt.host, now, m.Labels, want)
			}
		}
	}
}

// The time zone of the machine decides when a day ends.
func TestEntriesEndAtATimeOfDay(t *testing.T) {
	defer func(l *time.Location) { time.Local = l }(time.Local)
	time.Local = time.FixedZone("UTC-5", -5*3600)
	f, sum := listOf(t, "day.example # until 2027-01-31\nhour.example # until 2027-01-31T18:00\nzone.example # until 2027-01-31T18:00:00Z, or so\n", true)
	if sum.Bad.Count != 0 {
		t.Fatal(sum.Remarks())
	}
	for name, end := range map[string]time.Time{
		"day.example":  time.Date(2027, 2, 1, 5, 0, 0, 0, time.UTC),
		"hour.example": time.Date(2027, 1, 31, 23, 0, 0, 0, time.UTC),
		"zone.example": time.Date(2027, 1, 31, 18, 0, 0, 0, time.UTC),
	} {
		_, before := f.Match(host(t, name), end.Add(-1))
		_, after := f.Match(host(t, name), end)
		if !before || after {
			t.Errorf("%s: allowed before %v: %v, at it: %v", name, end, before, after)
		}
	}
}

func TestBadDatesAreBadLines(t *testing.T) {
	for _, comment := range []string{"until", "until 2027-02-30", "until tomorrow", "until 31.1.2027", "until 2027-1-31", "see Ann, until 2027", "until 2027-01-31T25:00"} {
		_, sum := listOf(t, "a.example # "+comment, true)
		if sum.Bad.Count != 1 || sum.Entries != 0 {
			t.Errorf("%s: %d bad, %d entries", comment, sum.Bad.Count, sum.Entries)
		}
		f, sum := listOf(t, "a.example # "+comment, false)
		if _, ok := f.Match(host(t, "a.example"), then.AddDate(100, 0, 0)); sum.Bad.Count != 0 || !ok {
			t.Errorf("%s in a block list: %d bad, matched %v", comment, sum.Bad.Count, ok)
		}
	}
}

// randomList returns lines of names from few labels, and many match each other.
func randomList(r *rand.Rand, lines int) string {
	name := func() string {
		labels := make([]string, 1+r.IntN(4))
		for i := range labels {
			labels[i] = string('a' + rune(r.IntN(3)))
		}
		return strings.Join(labels, ".")
	}
	forms := []string{"%s", "*.%s", ".%s", "||%s^", "@@||%s^", "0.0.0.0 %s", "%s CNAME rpz-passthru.", "*.%s CNAME .", "%s # until 2026-01-01", ".%s # until 2030-01-01", "http://%s/"}
	var text strings.Builder
	for range lines {
		fmt.Fprintf(&text, forms[r.IntN(len(forms))]+"\n", name())
	}
	return text.String()
}

func TestTheSetAgreesWithTheLines(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		text, allow := randomList(r, r.IntN(30)), round%2 == 0
		f, _ := listOf(t, text, allow)
		for name := range strings.FieldsSeq(strings.NewReplacer("|", " ", "^", " ", "*.", " ", "@", " ", "/", " ").Replace(text)) {
			h, ok := lookup.ParseHost(name)
			if !ok {
				continue
			}
			m, ok := f.Match(h, then)
			_, line, found, err := find(strings.NewReader(text), Config{Allow: allow}, h, m.Name(h), then)
			if err != nil || ok != found || ok && !agrees(line, allow, m, h) {
				t.Fatalf("%s: %+v %v, by the lines %v %q\n%s", name, m, ok, found, line, text)
			}
		}
	}
}

// agrees reports whether a line alone gives the match.
func agrees(line string, allowList bool, m Match, h lookup.Host) bool {
	c, err := read(strings.NewReader(line), Config{Allow: allowList}, 0)
	if err != nil {
		return false
	}
	act, labels := c.match(h, then)
	return act != none && (act == allow) == m.Allow && labels == m.Labels
}
