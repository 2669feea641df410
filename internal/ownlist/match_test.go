package ownlist

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // zones with daylight saving time, wherever the test runs

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
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

// The time zone of the machine decides when a day ends.
func TestEntriesEnd(t *testing.T) {
	defer func(l *time.Location) { time.Local = l }(time.Local)
	time.Local = time.FixedZone("UTC-5", -5*3600)
	end := time.Date(2027, 2, 1, 0, 0, 0, 0, time.Local)
	list := "a.example # until 2027-01-31\n" +
		"*.b.example # until 2027-01-31\nb.example # until 2027-03-31\n" +
		"c.example # until 2027-01-31\nc.example\n" +
		"d.example # until 2027-01-31\nd.example # until 2026-01-31\n" +
		"0.0.0.0 e.example f.example # ask Ann, until 2027-01-31, at least\n" +
		"||g.example^ ; until 2027-01-31\n" +
		"h.example # until 2027-02-01T00:00\ni.example # until 2027-02-01T05:00:00Z, or so\n" +
		"* CNAME rpz-passthru. ; not until somebody says so\n"
	f, sum := listOf(t, list, true)
	if sum.Bad.Count != 0 || sum.Entries != 10 {
		t.Errorf("%d entries, %v", sum.Entries, sum.Remarks())
	}
	for _, tt := range []struct {
		host          string
		before, after int // labels of the match
	}{
		{"a.example", 2, 0}, {"x.a.example", 2, 0},
		{"b.example", 2, 2}, {"x.b.example", 2, 2},
		{"c.example", 2, 2}, {"x.c.example", 2, 2},
		{"d.example", 2, 0}, {"e.example", 2, 0}, {"x.f.example", 2, 0}, {"g.example", 2, 0}, {"h.example", 2, 0}, {"i.example", 2, 0},
	} {
		for now, want := range map[time.Time]int{end.Add(-1): tt.before, end: tt.after, end.In(time.FixedZone("", 3600)): tt.after} {
			if m, ok := f.Match(host(t, tt.host), now); !ok || m.Labels != want {
				t.Errorf("%s at %v: %d labels, want %d", tt.host, now, m.Labels, want)
			}
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

func TestUntilEndsInTheZoneItIsMeantIn(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	auckland, err := time.LoadLocation("Pacific/Auckland")
	must(t, err)
	santiago, err := time.LoadLocation("America/Santiago")
	must(t, err)
	for _, tc := range []struct {
		name, text string
		loc        *time.Location
		want       string // UTC
	}{
		{"a day, UTC", "2027-01-31", time.UTC, "2027-02-01T00:00:00Z"},
		{"a day, east of UTC", "2027-01-31", berlin, "2027-01-31T23:00:00Z"},
		{"a day, far east of UTC", "2027-01-31", auckland, "2027-01-31T11:00:00Z"},
		{"the last day of a year", "2027-12-31", time.UTC, "2028-01-01T00:00:00Z"},
		{"a leap day", "2028-02-29", time.UTC, "2028-03-01T00:00:00Z"},
		{"the day of 23 hours", "2027-03-28", berlin, "2027-03-28T22:00:00Z"},
		{"the day of 25 hours", "2027-10-31", berlin, "2027-10-31T23:00:00Z"},
		{"the day before one that has no midnight", "2027-09-04", santiago, "2027-09-05T04:00:00Z"},
		{"a day that has no midnight", "2027-09-05", santiago, "2027-09-06T03:00:00Z"},
		{"a time of day", "2027-01-31T18:00", berlin, "2027-01-31T17:00:00Z"},
		{"a time of day with seconds", "2027-07-31T18:00:30", berlin, "2027-07-31T16:00:30Z"},
		{"a time in UTC, whatever the zone", "2027-01-31T18:00:00Z", berlin, "2027-01-31T18:00:00Z"},
		{"a time with an offset", "2027-01-31T18:00:00-05:00", berlin, "2027-01-31T23:00:00Z"},
		{"an offset without seconds", "2027-01-31T18:00+02:00", berlin, "2027-01-31T16:00:00Z"},
		{"a day long gone", "2020-01-01", time.UTC, "2020-01-02T00:00:00Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseUntil(tc.text, tc.loc)
			must(t, err)
			if utc := got.UTC().Format(time.RFC3339); utc != tc.want {
				t.Errorf("Expected %s, got %s", tc.want, utc)
			}
		})
	}
}

func TestHostsOfTheCorefileAllowTheirTreeOrWhatIsBelowUntilTheyEnd(t *testing.T) {
	entries := []HostEntry{{Host: host(t, "below.example"), Below: true}, {Host: host(t, "ended.example"), Until: then}, {}} // the last is no host
	for _, text := range []string{"example.org", "www.example.com", "bücher.example", "192.0.2.1", "[2001:db8::1]", "lan"} {
		entries = append(entries, HostEntry{Host: host(t, text)})
	}
	f := Hosts("test", entries)
	if _, ok := f.Match(host(t, "a.ended.example"), then.Add(-1)); !ok || f.State().Entries != 8 {
		t.Errorf("before its end it is not allowed, or there are %d entries", f.State().Entries)
	}
	for want, qnames := range map[bool][]string{
		true:  {"example.org.", "EXAMPLE.org.", "www.example.org.", "xn--bcher-kva.example.", "lan.", "192.0.2.1.", "0xc0000201.", "b.a.below.example."},
		false: {"notexample.org.", "mail.example.com.", "192.0.2.2.", ".", "below.example.", "a.ended.example."},
	} {
		for _, qname := range qnames {
			if m, ok := f.Match(lookup.FromQname(qname), then); ok != want || ok && !m.Allow {
				t.Errorf("%s: matched: %v, want %v", qname, ok, want)
			}
		}
	}
	for _, text := range []string{"[2001:DB8:0::1]", "[::ffff:192.0.2.1]"} {
		if _, ok := f.Match(host(t, text), then); !ok {
			t.Errorf("%s does not match", text)
		}
	}
}

// generated returns a list of distinct names as in common lists.
func generated(lines int, format string) []byte {
	r := rand.New(rand.NewPCG(20, 26))
	var text bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&text, format, fmt.Sprintf("%x.host-%d.example.com", r.Uint32(), i))
		text.WriteByte('\n')
	}
	return text.Bytes()
}

func TestMatchDoesNotAllocate(t *testing.T) {
	f, _ := listOf(t, "||example.com^\nwww.example.net\n192.0.2.1\nx.example # until 2030-01-01", true)
	g, _ := listOf(t, "||example.com^\n*.example.org", false)
	files := []*File{f, g, Hosts("Corefile", []HostEntry{{Host: host(t, "example.org")}})}
	for _, qname := range []string{"www.example.com.", "a.b.c.d.e.f.example.org.", "www.example.net.", "clean.example.", "x.example.", "single."} {
		h := lookup.FromQname(qname)
		testkit.Equal(t, "allocations for "+qname, testing.AllocsPerRun(100, func() { Best(files, h, then) }), 0)
	}
}

func TestUntilEndsAnEntryHoweverPeopleWriteTheWord(t *testing.T) {
	for _, comment := range []string{"Until 2026-01-31", "UNTIL 2026-01-31", "until: 2026-01-31", "Ann (until 2026-01-31)", "Ann; Until 2026-01-31, at most"} {
		f, sum := listOf(t, "a.example # "+comment, true)
		if _, ok := f.Match(host(t, "a.example"), then); ok || sum.Entries != 1 {
			t.Errorf("%q: expected an entry that has ended, got %d entries, allowed: %v", comment, sum.Entries, ok)
		}
		edited, err := Add([]byte("a.example # "+comment+"\n"), Config{Allow: true}, host(t, "a.example"), time.Time{}, then)
		if err != nil || strings.Contains(string(edited.Text), "2026") {
			t.Errorf("%q: made permanent it is %q, %v", comment, edited.Text, err)
		}
	}
	at := time.Date(2026, 6, 1, 11, 0, 0, 0, time.Local)
	for _, comment := range []string{"until 2026-06-01 12:00", "until: 2026-06-01 12:00:00, for Ann", "(until 2026-06-01 12:00)"} { // as -until takes it
		text := "a.example # " + comment + "\n"
		f, _ := listOf(t, text, true)
		_, before := f.Match(host(t, "a.example"), at)
		if _, after := f.Match(host(t, "a.example"), at.Add(time.Hour)); !before || after {
			t.Errorf("%q: allowed before its end: %v, after it: %v", comment, before, after)
		}
		edited, err := Add([]byte(text), Config{Allow: true}, host(t, "a.example"), time.Time{}, at)
		if err != nil || strings.Contains(string(edited.Text), "12:00") {
			t.Errorf("%q: made permanent it is %q, %v", comment, edited.Text, err)
		}
	}
	if _, sum := listOf(t, "a.example # Until it is mended", true); sum.Entries != 1 || sum.Bad.Count != 0 {
		t.Errorf("a sentence makes a bad line: %+v", sum)
	}
}

func TestWhatIsNoTimeIsABadLineOfAnAllowList(t *testing.T) {
	for text, word := range map[string]bool{ // word: alone, and not what follows a date
		"": true, "tomorrow": true, "2027-02-30": true, "2027-13-01": true, "2027-1-31": true, "31.01.2027": true, "2027-01-31T25:00": true,
		"18:00": true, "2027": true, "2027-01-31T": true, "2027-01-31 18:00": false, "2027-01-31,": false,
	} {
		if got, err := ParseUntil(text, time.UTC); err == nil || !strings.Contains(err.Error(), "2027-01-31T18:00") {
			t.Errorf("%q: Expected an error that shows the right form, got %v %v", text, got, err)
		}
		if _, sum := listOf(t, "a.example # until "+text, true); word != (sum.Bad.Count == 1 && sum.Entries == 0) {
			t.Errorf("%q: %d bad, %d entries", text, sum.Bad.Count, sum.Entries)
		}
		number := word && text != "" && text[0] <= '9' // else "until" is a word of a sentence
		if _, sum := listOf(t, "a.example # see Ann, until "+text, true); number != (sum.Bad.Count == 1) {
			t.Errorf("%q in a sentence: %d bad, %d entries", text, sum.Bad.Count, sum.Entries)
		}
		f, sum := listOf(t, "a.example # until "+text, false)
		if _, ok := f.Match(host(t, "a.example"), then.AddDate(100, 0, 0)); sum.Bad.Count != 0 || !ok {
			t.Errorf("%q in a block list: %d bad, matched %v", text, sum.Bad.Count, ok)
		}
	}
}
