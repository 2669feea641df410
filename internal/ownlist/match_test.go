package ownlist

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // zones with daylight saving time, wherever the test runs

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestTheMostSpecificEntryDecidesAndAllowWinsTies(t *testing.T) {
	for _, tt := range []struct {
		name, block, allow, host string
		want                     string // of both files: "", or action and matched name
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
	} {
		block, _ := listOf(t, tt.block, false)
		allow, _ := listOf(t, tt.allow, true)
		h := host(t, tt.host)
		for _, files := range [][]*File{{block, allow}, {allow, block}, {block, block, allow, allow}} {
			got := ""
			if m, ok := Best(files, h, then); ok {
				got = map[bool]string{false: "block ", true: "allow "}[m.Allow] + m.Name(h)
			}
			testkit.Equal(t, tt.name, got, tt.want)
		}
	}
	m, found := Best(nil, host(t, "a.example"), then)
	f, _ := listOf(t, "* CNAME .", false)
	_, ok := f.Match(lookup.Host{}, then)
	testkit.Equal(t, "the best of no list, and whether what is no host matches", []any{m, found, ok}, []any{Match{}, false, false})
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
	testkit.Equal(t, "entries and bad lines", [2]int{sum.Entries, sum.Bad.Count}, [2]int{10, 0})
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
			m, ok := f.Match(host(t, tt.host), now)
			testkit.Equal(t, fmt.Sprintf("%s at %v: matched, by labels", tt.host, now), []any{ok, m.Labels}, []any{true, want})
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
			alone, _ := listOf(t, line, allow)
			if again, _ := alone.Match(h, then); err != nil || ok != found || again != m {
				t.Fatalf("%s: %+v %v, by the lines %v %q\n%s", name, m, ok, found, line, text)
			}
		}
	}
}

func TestUntilEndsInTheZoneItIsMeantIn(t *testing.T) {
	for _, tc := range []struct {
		name, text, zone, want string // want is in UTC
	}{
		{"a day, UTC", "2027-01-31", "UTC", "2027-02-01T00:00:00Z"},
		{"a day, east of UTC", "2027-01-31", "Europe/Berlin", "2027-01-31T23:00:00Z"},
		{"a day, far east of UTC", "2027-01-31", "Pacific/Auckland", "2027-01-31T11:00:00Z"},
		{"the last day of a year", "2027-12-31", "UTC", "2028-01-01T00:00:00Z"},
		{"a leap day", "2028-02-29", "UTC", "2028-03-01T00:00:00Z"},
		{"the day of 23 hours", "2027-03-28", "Europe/Berlin", "2027-03-28T22:00:00Z"},
		{"the day of 25 hours", "2027-10-31", "Europe/Berlin", "2027-10-31T23:00:00Z"},
		{"the day before one that has no midnight", "2027-09-04", "America/Santiago", "2027-09-05T04:00:00Z"},
		{"a day that has no midnight", "2027-09-05", "America/Santiago", "2027-09-06T03:00:00Z"},
		{"a time of day", "2027-01-31T18:00", "Europe/Berlin", "2027-01-31T17:00:00Z"},
		{"a time of day with seconds", "2027-07-31T18:00:30", "Europe/Berlin", "2027-07-31T16:00:30Z"},
		{"a time in UTC, whatever the zone", "2027-01-31T18:00:00Z", "Europe/Berlin", "2027-01-31T18:00:00Z"},
		{"a time with an offset", "2027-01-31T18:00:00-05:00", "Europe/Berlin", "2027-01-31T23:00:00Z"},
		{"an offset without seconds", "2027-01-31T18:00+02:00", "Europe/Berlin", "2027-01-31T16:00:00Z"},
		{"a day long gone", "2020-01-01", "UTC", "2020-01-02T00:00:00Z"},
	} {
		zone, err := time.LoadLocation(tc.zone)
		must(t, err)
		got, err := ParseUntil(tc.text, zone)
		must(t, err)
		testkit.Equal(t, tc.name, got.UTC().Format(time.RFC3339), tc.want)
	}
}

func TestHostsOfTheCorefileAllowTheirTreeOrWhatIsBelowUntilTheyEnd(t *testing.T) {
	entries := []HostEntry{{Host: host(t, "below.example"), Below: true}, {Host: host(t, "ended.example"), Until: then}, {}} // the last is no host
	for _, text := range []string{"example.org", "www.example.com", "bücher.example", "192.0.2.1", "[2001:db8::1]", "lan"} {
		entries = append(entries, HostEntry{Host: host(t, text)})
	}
	f := Hosts("test", entries)
	_, ok := f.Match(host(t, "a.ended.example"), then.Add(-1))
	testkit.Equal(t, "allowed before its end, and entries", []any{ok, f.State().Entries}, []any{true, 8})
	for want, qnames := range map[bool][]string{
		true:  {"example.org.", "EXAMPLE.org.", "www.example.org.", "xn--bcher-kva.example.", "lan.", "192.0.2.1.", "0xc0000201.", "b.a.below.example."},
		false: {"notexample.org.", "mail.example.com.", "192.0.2.2.", ".", "below.example.", "a.ended.example."},
	} {
		for _, qname := range qnames {
			m, ok := f.Match(lookup.FromQname(qname), then)
			testkit.Equal(t, qname+": matched, allowed", [2]bool{ok, m.Allow}, [2]bool{want, want})
		}
	}
	testkit.Equal(t, "addresses", verdict(t, f, "[2001:DB8:0::1]", "[::ffff:192.0.2.1]"), "AA")
}

// generated returns a list of distinct names as in common lists.
func generated(lines int) string {
	r := rand.New(rand.NewPCG(20, 26))
	var text strings.Builder
	for i := range lines {
		fmt.Fprintf(&text, "%x.host-%d.example.com\n", r.Uint32(), i)
	}
	return text.String()
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
	at := time.Date(2026, 6, 1, 11, 0, 0, 0, time.Local) // an hour before the end of those with a time
	for comment, before := range map[string]bool{
		"Until 2026-01-31": false, "UNTIL 2026-01-31": false, "until: 2026-01-31": false, "Ann (until 2026-01-31)": false,
		"Ann; Until 2026-01-31, at most": false, "until 2026-06-01 12:00": true, // as -until takes it
		"until: 2026-06-01 12:00:00, for Ann": true, "(until 2026-06-01 12:00)": true,
	} {
		text := "a.example # " + comment + "\n"
		f, sum := listOf(t, text, true)
		_, allowed := f.Match(host(t, "a.example"), at)
		_, after := f.Match(host(t, "a.example"), at.Add(time.Hour))
		testkit.Equal(t, comment+": allowed before its end, after it, and entries", []any{allowed, after, sum.Entries}, []any{before, false, 1})
		edited, err := Add([]byte(text), Config{Allow: true}, host(t, "a.example"), time.Time{}, at)
		must(t, err)
		testkit.WantNone(t, string(edited.Text), "2026", "12:00") // it is permanent then
	}
	_, sum := listOf(t, "a.example # Until it is mended", true)
	testkit.Equal(t, "a sentence: entries and bad lines", [2]int{sum.Entries, sum.Bad.Count}, [2]int{1, 0})
}

func TestWhatIsNoTimeIsABadLineOfAnAllowList(t *testing.T) {
	for text, word := range map[string]bool{ // word: alone, and not what follows a date
		"": true, "tomorrow": true, "2027-02-30": true, "2027-13-01": true, "2027-1-31": true, "31.01.2027": true, "2027-01-31T25:00": true,
		"18:00": true, "2027": true, "2027-01-31T": true, "2027-01-31 18:00": false, "2027-01-31,": false,
	} {
		_, err := ParseUntil(text, time.UTC)
		testkit.WantError(t, err, "2027-01-31T18:00") // it shows the right form
		_, sum := listOf(t, "a.example # until "+text, true)
		testkit.Equal(t, text+": a bad line and no entry", sum.Bad.Count == 1 && sum.Entries == 0, word)
		number := word && text != "" && text[0] <= '9' // else "until" is a word of a sentence
		_, sum = listOf(t, "a.example # see Ann, until "+text, true)
		testkit.Equal(t, text+" in a sentence: a bad line", sum.Bad.Count == 1, number)
		f, sum := listOf(t, "a.example # until "+text, false)
		_, ok := f.Match(host(t, "a.example"), then.AddDate(100, 0, 0))
		testkit.Equal(t, text+" in a block list: bad lines, matched", []any{sum.Bad.Count, ok}, []any{0, true})
	}
}

func TestRemarksSayWhatIsNotUsed(t *testing.T) {
	ended := time.Now().AddDate(-1, 0, 0).Format(time.DateOnly)
	for _, tt := range []struct {
		name, text string
		allow      bool
		want       []string
	}{
		{"nothing to say", "a.example\n# x\n0.0.0.0 b.example\nc.example CNAME .\n", false, nil},
		{"one line", "a.example\n\n/ads?/\n", false, []string{"1 line is not supported (1 regular expression, first at line 3)"}},
		{"several kinds", strings.Join([]string{
			"/ads?/", "/x/$client=a", "||a.example^$client=b", "||b.example^$important,~client=b,x", "||c.example^$badfilter", "||d*.example^",
			"http://a.example/x", "a.example##.x", "server=/a.example/#", "local-data: \"x\"", "a.example TXT x", "b.example txt x", "1.rpz-ip CNAME .", "$INCLUDE x",
		}, "\n"), false, []string{"14 lines are not supported (2 regular expressions, first at line 1; 2 with $client, first at line 3; 1 with $badfilter, first at line 5; " +
			"1 pattern for a part of a name, first at line 6; 1 URL with a path or a port, first at line 7; 1 rule for parts of a page, first at line 8; " +
			"1 dnsmasq setting, first at line 9; 1 unbound setting, first at line 10; 2 TXT records, first at line 11; 1 with rpz-ip, first at line 13; 1 with $INCLUDE, first at line 14)"}},
		{"an option that is none", "||a.example^$" + strings.Repeat("x", 50) + "\n||a.example^$\x07", false, []string{"2 lines are not supported (2 lines of other kinds, first at line 1)"}},
		{"another address", "192.168.1.10 nas.home.arpa nas\n10.0.0.1 router", false, []string{
			`2 lines have an address other than 0.0.0.0, 127.0.0.1 or the sinkhole and block nothing (first at line 1: "192.168.1.10 nas.home.arpa nas")`}},
		{"records of RPZ", "a.example A 192.0.2.1\nb.example CNAME garden.example.", false, []string{
			"2 records with local data are not sent, but their names are blocked (first at line 1)"}},
		{"no entries", "a.example\na b c\n<p>\n", false, []string{`2 lines are not list entries (first at line 2: "a b c")`}},
		{"ended in part", "||a.example^ # until " + ended + "\n*.a.example # until 2099-01-31\n" +
			"||b.example^ # until " + ended + "\nhttp://b.example/ # until 2099-01-31\n", true, nil},
		{"ended", "a.example # until " + ended + "\nb.example # until " + ended + "\nb.example\n", true, []string{"1 entry has ended"}},
	} {
		f, _ := listOf(t, tt.text, tt.allow)
		testkit.Equal(t, tt.name+": remarks", f.State().Remarks(), tt.want)
	}
}

func TestKindsOfLinesAreBounded(t *testing.T) {
	var text strings.Builder
	for c := 'a'; c <= 'z'; c++ {
		text.WriteString("||x.example^$" + string(c) + "\n")
	}
	_, sum := listOf(t, text.String(), false)
	last := sum.Unsupported[len(sum.Unsupported)-1]
	got := []any{len(sum.Unsupported), sum.NotSupported(), last.kind, last.Count}
	testkit.Equal(t, "kinds, lines, and the last kind and its lines", got, []any{maxKinds + 1, 26, kindOther, 14})
}

func TestAListWithNothingInItSaysWhatItIs(t *testing.T) {
	for want, texts := range map[string][]string{
		"":                  {"a.example", "BZh9.example\n", "\ufeffa.example\n", "# <html>\na.example\n"},
		"is empty":          {""},
		"has only comments": {"# a.example\n\n! x\n; y\n", "\n\n"},
		"looks like an HTML page": {
			"\n<!DOCTYPE html>\n<html><body>\nForbidden\n</body></html>", "\ufeff<!DOCTYPE html>\n<html>\nForbidden\n</html>",
			"<html>\n404\nerror.example\n", "<?xml version=\"1.0\"?>\n<Error>\nAccessDenied\n",
		},
		"is compressed (gzip)":  {"\x1f\x8b\x08\x00\x00\x00\x00\x00\na.example\n"},
		"is compressed (zip)":   {"PK\x03\x04\x0a\x00\na.example\n"},
		"is compressed (bzip2)": {"BZh91AY&SY\x00\n"},
		"is compressed (xz)":    {"\xfd7zXZ\x00\x00\na.example\n"},
		"is UTF-16":             {"\xff\xfea\x00.\x00b\x00\n\x00", "\xfe\xff\x00a\x00.\x00b\x00\n"},
		"has no usable line":    {"a b c\n", "/x/\n192.168.1.1 nas\n"},
	} {
		for _, text := range texts {
			f, sum := listOf(t, text, false)
			testkit.Equal(t, fmt.Sprintf("%q", text), sum.Nothing(), want)
			testkit.Equal(t, fmt.Sprintf("%q: a word of a page", text), verdict(t, f, "forbidden"), "-")
		}
	}
	f, _ := listOf(t, "a.example # until 2020-01-01", true)
	testkit.Equal(t, "ended", f.State().Nothing(), "has only entries that have ended")
	never := State{Fetched: true} // the log says why
	testkit.Equal(t, "never fetched", never.Complaint(), "has not been fetched yet")
}

func TestEntriesAboutVeryManyNamesAreNamed(t *testing.T) {
	for _, tt := range []struct {
		line, block string
		allow       string // "": as block, but allowed
	}{
		{"example.com\n||example.com^\n||example.co.uk^\nnas\n.local\n||city.kawasaki.jp^\n||x.com.np^", "", ""},
		{"||blogspot.com^", "", ""}, // a public suffix, but of somebody who sells none
		{"||de^", "line 1 blocks the whole top-level domain de", ""},
		{"||np^", "line 1 blocks the whole top-level domain np", ""}, // names are sold below com.np and others
		{"||kawasaki.jp^", "line 1 blocks the whole public suffix kawasaki.jp", ""},
		{"*.net", "line 1 blocks the whole top-level domain net", ""},
		{"@@||com^", "line 1 allows the whole top-level domain com", ""},
		{"*.co.uk CNAME .", "line 1 blocks the whole public suffix co.uk", ""},
		{"address=/aisai.aichi.jp/", "line 1 blocks the whole public suffix aisai.aichi.jp", ""},
		{"||xn--p1ai^", "line 1 blocks the whole top-level domain xn--p1ai", ""},
		{"com", "line 1 blocks the name com itself, but no name below it: to block these too, write .com", "line 1 allows the whole top-level domain com"},
		{"co.uk", "", "line 1 allows the whole public suffix co.uk"},
		{"* CNAME .", "line 1 blocks every name", ""},
		{"||a^\n||de^\n||net^\n||com^\n||org^\n||fr^\n||it^\n||es^", "line 2 blocks the whole top-level domain de; line 3 blocks the whole top-level domain net; " +
			"line 4 blocks the whole top-level domain com; line 5 blocks the whole top-level domain org; line 6 blocks the whole top-level domain fr; and 2 more lines", ""},
	} {
		_, block := listOf(t, tt.line, false)
		_, allow := listOf(t, tt.line, true)
		testkit.Equal(t, tt.line+" in a block list", block.Wide.String(), tt.block)
		testkit.Equal(t, tt.line+" in an allow list", allow.Wide.String(), cmp.Or(tt.allow, strings.ReplaceAll(tt.block, "blocks", "allows")))
	}
}

func TestAnswersOfListsAreKept(t *testing.T) {
	const list = `@ SOA a. b. 1 2 3 4 5
nx.example CNAME .
nodata.example CNAME *.
*.nodata.example CNAME rpz-drop.
drop.example CNAME rpz-drop.
local.example A 192.0.2.1
garden.example CNAME walled.example.
pass.example CNAME rpz-passthru.
*.rest.example CNAME *.
plain.example
twice.example CNAME *.
twice.example CNAME rpz-drop.
local-zone: "refused.example." always_refuse
local-zone: "denied.example." deny
local-zone: "null.example." always_null
local-zone: "empty.example." always_nodata
`
	f, _ := listOf(t, list, false)
	matched := func(f *File, h lookup.Host) []any {
		m, ok := f.Match(h, then)
		return []any{ok, m.Allow, m.Response}
	}
	for name, want := range map[string]lookup.Response{
		"nx.example": lookup.NXDOMAIN, "nodata.example": lookup.NODATA, "x.nodata.example": lookup.NoAnswer, "drop.example": lookup.NoAnswer,
		"local.example": lookup.NXDOMAIN, "garden.example": lookup.NXDOMAIN, "a.b.rest.example": lookup.NODATA, "plain.example": lookup.NXDOMAIN,
		"twice.example": lookup.NoAnswer, "refused.example": lookup.Refused, "x.denied.example": lookup.NoAnswer, "null.example": lookup.NXDOMAIN, "x.empty.example": lookup.NODATA,
	} {
		testkit.Equal(t, name, matched(f, host(t, name)), []any{true, false, want})
	}
	testkit.Equal(t, "passthru", matched(f, host(t, "pass.example")), []any{true, true, lookup.NXDOMAIN})
	testkit.Equal(t, "names that are answered in a way of their own", len(f.content.Load().responses), 7)
	// A name with a label that no URL can hold is below the others.
	testkit.Equal(t, "a hidden label", matched(f, lookup.FromQname(`x\.y.nodata.example.`)), []any{true, false, lookup.NoAnswer})
	every, _ := listOf(t, "* CNAME *.", false)
	testkit.Equal(t, "every name", matched(every, host(t, "x.example")), []any{true, false, lookup.NODATA})
	allowed, _ := listOf(t, list, true)
	testkit.Equal(t, "in an allow list", matched(allowed, host(t, "drop.example")), []any{true, true, lookup.NXDOMAIN})
}

// The heads come from lists that are in use.
func TestTheHeadOfAListSaysWhereMistakesAreReported(t *testing.T) {
	for name, tc := range map[string]struct{ head, want string }{
		"HaGeZi":           {"# Title: T\n# Homepage: https://github.com/hagezi/dns-blocklists\n# License: https://example.com/LICENSE\n# Issues: https://github.com/hagezi/dns-blocklists/issues\n# Expires: 1 day\n", "https://github.com/hagezi/dns-blocklists/issues"},
		"AdGuard":          {"! Title: AdGuard DNS filter\n! Description: x\n! Homepage: https://github.com/AdguardTeam/AdGuardSDNSFilter\n", "https://github.com/AdguardTeam/AdGuardSDNSFilter"},
		"EasyList":         {"[Adblock Plus 2.0]\n! Homepage: https://easylist.to/\n! GitHub issues: https://github.com/easylist/easylist/issues\n", "https://github.com/easylist/easylist/issues"},
		"StevenBlack":      {"# Title: StevenBlack/hosts\n#\n# Project home page: https://github.com/StevenBlack/hosts\n", "https://github.com/StevenBlack/hosts"},
		"RPZ":              {"; Issues: http://lists.example/bugs\n", "http://lists.example/bugs"},
		"none":             {"# a list of mine\n", ""},
		"a sentence":       {"# Issues are reported by mail: bugs@example.com\n", ""},
		"no URL":           {"# Issues: see below\n", ""},
		"script":           {"# Issues: javascript:alert(1)\n", ""},
		"file":             {"# Issues: file:///etc/shadow\n", ""},
		"without a host":   {"# Issues: https:///x\n", ""},
		"with a password":  {"# Issues: https://me:secret@example.com/\n", ""},
		"with a query":     {"# Issues: https://example.com/?token=secret\n", ""},
		"markup":           {"# Issues: https://example.com/\"><script>\n", ""},
		"control":          {"# Issues: https://example.com/\x1b[31m\n", ""},
		"another script":   {"# Issues: https://exämple.com/\n", ""},
		"long":             {"# Issues: https://example.com/" + strings.Repeat("x", 200) + "\n", ""},
		"after the head":   {strings.Repeat("#\n", headLines) + "# Issues: https://example.com/\n", ""},
		"in a long line":   {"# Issues: https://example.com/ " + strings.Repeat("x", maxLine) + "\n", ""},
		"not in a comment": {"Issues: https://example.com/\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := testkit.Write(t, t.TempDir(), "list.txt", tc.head+"blocked.example\n")
			f, err := Open(Config{Path: path, Name: "the list"}, func(Event) {})
			must(t, err)
			defer f.Close()
			other := Hosts("Corefile", nil)
			testkit.Equal(t, "the tracker", Tracker([]*File{other, f}, f.State().Named), tc.want)
			testkit.Equal(t, "another list", Tracker([]*File{other, f}, filepath.Base(path)), "")
		})
	}
}

// A list by URL that is something else, by a redirect or a mistake, is not quoted.
func TestNoLineOfAFetchedListIsQuoted(t *testing.T) {
	const list = "a.example\nS3CRET = yes, it is\n10.0.0.1 S3CRET-host\n"
	for _, fetched := range []bool{false, true} {
		c, err := read(strings.NewReader(list), Config{Fetched: fetched}, 0)
		must(t, err)
		remarks := strings.Join(c.summary.Remarks(), "; ")
		testkit.WantParts(t, remarks, "first at line 2", "first at line 3")
		testkit.Equal(t, remarks, strings.Contains(remarks, "S3CRET"), !fetched)
	}
}

// To allow by URL what is a whole suffix would end protection.
func TestAFetchedListHasNoWholeSuffixes(t *testing.T) {
	const list = "a.example.org\n.com\n||co.uk^\n@@||de^\n0.0.0.0 net\n"
	for _, tc := range []struct {
		c             Config
		entries, left int
	}{
		{Config{}, 5, 0}, {Config{Fetched: true, Wide: true}, 5, 0}, {Config{Fetched: true}, 2, 3},
		{Config{Allow: true}, 5, 0}, {Config{Fetched: true, Allow: true}, 1, 4},
	} {
		c, err := read(strings.NewReader(list), tc.c, 0)
		must(t, err)
		what := fmt.Sprintf("%+v: entries, and left out: %s", tc.c, c.summary.LeftOutRemark())
		testkit.Equal(t, what, [2]int{c.summary.Entries, c.summary.LeftOut.Count()}, [2]int{tc.entries, tc.left})
	}
}
